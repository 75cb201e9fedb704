// Package demo shows what braid is for: it runs the scenario "demo", which downloads the same data
// over one path and then over all paths, and tells the steps as they happen.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"braid/node/event"
	"braid/pathsel"
	"braid/testbed"
	"braid/testbed/scenario"
	"braid/testbed/scenarios"
)

// Options say what the demonstration runs with.
type Options struct {
	// Topology is the network. The seeder is in its first AS, the leecher in its second.
	Topology testbed.Topology
	// Data is the directory to transfer; Size cuts it after that many bytes (0: all of it).
	Data string
	Size int64
	// Run says how the scenario is run. Its Dir holds everything that the demonstration writes, its
	// Say is called with each step.
	Run scenario.Options
	// Show is called with the progress of the current step.
	Show func(string)
}

// Result is what the demonstration measured; its JSON form is the command's output.
type Result struct {
	Bytes      int64       `json:"bytes"`
	Files      int         `json:"files"`
	Candidates []Candidate `json:"candidates"`
	// Gain is how many times faster all paths are than one.
	Gain float64 `json:"gain"`
	// LimitMbitS is the payload that all links together can carry, LimitFraction the part of it
	// that the download over all paths reached.
	LimitMbitS    float64 `json:"limit_mbit_s"`
	LimitFraction float64 `json:"limit_fraction"`
}

// Candidate is one way of downloading the same data.
type Candidate struct {
	Name         string      `json:"name"` // "single" or "multi"
	Seconds      float64     `json:"seconds"`
	PayloadMbitS float64     `json:"payload_mbit_s"`
	Verified     bool        `json:"verified"` // every file compared with its original
	Paths        []PathShare `json:"paths"`
}

// PathShare is the part of a download's bytes that came over one path.
type PathShare struct {
	Fingerprint pathsel.Fingerprint `json:"fingerprint"`
	Share       float64             `json:"share"` // 0 to 1
}

// load reads the scenario, with its two peers in the first two ASes of the topology.
func load(t testbed.Topology) (scenario.Scenario, error) {
	if len(t.ASes) < 2 {
		return scenario.Scenario{}, fmt.Errorf("topology %s: want at least two ASes, one for each peer", t.Name)
	}
	text, err := scenarios.Files.ReadFile("demo.yaml")
	if err != nil {
		return scenario.Scenario{}, err
	}
	places := strings.NewReplacer("1-ff00:0:110", t.ASes[0].IA.String(), "1-ff00:0:111", t.ASes[1].IA.String())
	onTopology := func(string) (testbed.Topology, error) { return t, nil }
	return scenario.Parse("demo.yaml", strings.NewReader(places.Replace(string(text))), onTopology)
}

// Run downloads the data over one path and then over all of them, through real border routers.
// Whatever it starts has ended when it returns.
func Run(ctx context.Context, o Options) (Result, error) {
	s, err := load(o.Topology)
	if err != nil {
		return Result{}, err
	}
	o.say("copying the data set from %s", o.Data)
	data := filepath.Join(o.Run.Dir, "dataset")
	var res Result
	if res.Files, res.Bytes, err = testbed.CopyTree(o.Data, data, o.Size); err != nil {
		return res, err
	}
	o.say("%d files, %.1f MB", res.Files, float64(res.Bytes)/1e6)
	o.say("bringing up the SCION network %s (%d ASes, %d links)",
		o.Topology.Name, len(o.Topology.ASes), len(o.Topology.Links))
	var last event.Done
	run := o.Run
	run.Dir = filepath.Join(o.Run.Dir, "runs")
	run.Say = func(line string) {
		if rest, ok := strings.CutPrefix(line, "demo: "); ok { // all but the figures of a run
			o.Run.Say(rest)
		}
	}
	run.Hooks = scenario.Hooks{
		Network: func(p testbed.Progress) {
			o.Show(fmt.Sprintf("%d processes, links up %d/%d, paths %d/%d",
				p.Processes, p.Links, p.ImpliedLinks, p.Paths, p.ImpliedPaths))
		},
		Heard: func(v scenario.Variant, peer string, message any) {
			if e, ok := message.(*event.Done); ok {
				last = *e
			}
			o.heard(v, peer, message)
		},
		Finished: func(r scenario.Result) {
			if r.Failed != "" || r.Verified != 1 {
				return
			}
			o.say("%s: %d files compared with their originals, every byte is right", r.Variant, res.Files)
			res.Candidates = append(res.Candidates, Candidate{
				Name: r.Variant, Seconds: last.Seconds, PayloadMbitS: last.PayloadMbitS,
				Verified: true, Paths: shares(last.Paths),
			})
		},
	}
	results, err := scenario.Run(ctx, []scenario.Scenario{s.Transferring(data, res.Bytes)}, run)
	if err != nil {
		return res, err
	}
	for _, r := range results {
		if r.Failed != "" {
			return res, fmt.Errorf("download %s: %s", r.Variant, r.Failed)
		}
	}
	if len(res.Candidates) != 2 {
		return res, errors.New("a download has no result")
	}
	if len(results[1].Limit) == 0 {
		return res, fmt.Errorf("topology %s has paths whose links have no rate", o.Topology.Name)
	}
	res.LimitMbitS = results[1].Limit[0].MbitS
	res.Gain = res.Candidates[1].PayloadMbitS / res.Candidates[0].PayloadMbitS
	res.LimitFraction = res.Candidates[1].PayloadMbitS / res.LimitMbitS
	return res, nil
}

func (o Options) say(format string, args ...any) { o.Run.Say(fmt.Sprintf(format, args...)) }

// heard tells of a peer's message.
func (o Options) heard(v scenario.Variant, peer string, message any) {
	switch e := message.(type) {
	case *event.Ready:
		if len(e.Listen) > 0 && peer != "leecher" {
			o.say("%s: %s at %s", v.Name, peer, e.Listen[0])
		}
		if peer == "seeder" {
			o.say("%s: downloading in %s with --path-selection %s",
				v.Name, o.Topology.ASes[1].IA, v.Selector)
		}
	case *event.Progress:
		if peer == "leecher" {
			o.Show(progressLine(*e))
		}
	}
}

// shares returns the part of the bytes that came over each path, without paths that carried
// nothing. Two connections over one path, of which each side has opened one, count as one.
func shares(paths []event.Path) (out []PathShare) {
	var sum float64
	read := map[pathsel.Fingerprint]float64{}
	for _, x := range paths {
		if x.BytesRead > 0 && read[x.Fingerprint] == 0 {
			out = append(out, PathShare{Fingerprint: x.Fingerprint})
		}
		read[x.Fingerprint] += float64(x.BytesRead)
		sum += float64(x.BytesRead)
	}
	for i := range out {
		out[i].Share = read[out[i].Fingerprint] / sum
	}
	return out
}

// progressLine shows a bar and, for each path that carries data, its rate and round-trip time.
func progressLine(e event.Progress) string {
	const width = 10
	done := int(width * float64(e.Bytes) / float64(max(1, e.Total)))
	bar := strings.Repeat("#", done) + strings.Repeat("-", width-done)
	line := fmt.Sprintf("[%s] %3d%% %5.1f Mbit/s", bar, 100*e.Bytes/max(1, e.Total), e.MbitS)
	for _, p := range e.Paths {
		if p.BytesRead > 0 {
			line += fmt.Sprintf("  %s %4.1f %2.0f ms", p.Fingerprint.Short(), p.MbitS, p.RTT)
		}
	}
	return line
}

// Table writes the result for people.
func (r Result) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "candidate\tseconds\tMbit/s\tgain\tof the limit\tverified\tshare of each path\t\n")
	for _, c := range r.Candidates {
		var shares []string
		for _, p := range c.Paths {
			shares = append(shares, fmt.Sprintf("%s %.0f%%", p.Fingerprint.Short(), 100*p.Share))
		}
		speedup, ofLimit := c.PayloadMbitS/r.Candidates[0].PayloadMbitS, 100*c.PayloadMbitS/r.LimitMbitS
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%.2f\t%.1f%%\t%v\t%s\t\n",
			c.Name, c.Seconds, c.PayloadMbitS, speedup, ofLimit, c.Verified, strings.Join(shares, ", "))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%.1f MB in %d files; all paths together carry %.1f Mbit/s of payload\n",
		float64(r.Bytes)/1e6, r.Files, r.LimitMbitS)
	return err
}
