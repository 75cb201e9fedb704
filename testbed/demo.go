package testbed

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"braid/pathsel"
	"braid/scionnet"
)

// DemoOptions says what the demonstration runs with.
type DemoOptions struct {
	Topology Topology
	// Data is the directory that is transferred; Size cuts it after that many bytes (0: all of it).
	Data string
	Size int64
	// Seeder and Leecher are the ASes of the two peers.
	Seeder, Leecher pathsel.IA
	// WorkDir holds everything the demonstration writes.
	WorkDir string
	// Braid is the program that the peers run; SCIONBin the directory of the SCION programs.
	Braid, SCIONBin string
	// RouterCommand is as in Options.
	RouterCommand []string
	// Say is told each step, Show how far the present one is, about once a second.
	Say, Show func(string)
	Log       *slog.Logger
}

// DemoResult is what the demonstration found out; its JSON form is the command's output.
type DemoResult struct {
	Bytes      int64       `json:"bytes"`
	Files      int         `json:"files"`
	Candidates []Candidate `json:"candidates"`
	// Gain is how many times faster all paths are than one.
	Gain float64 `json:"gain"`
	// LimitMbitS is the payload that all links together can carry, LimitFraction what part of it the
	// download over all paths got.
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

// Demo downloads a data set over one path and then over all of them, through real border routers, from a
// peer in another AS that a tracker on SCION introduces: one process each for tracker, seeder and leecher. Everything it starts has ended when it
// returns.
func Demo(ctx context.Context, o DemoOptions) (DemoResult, error) {
	d := demo{
		DemoOptions: o, launcher: NewLauncher(false),
		data: filepath.Join(o.WorkDir, "seed"), torrent: filepath.Join(o.WorkDir, "dataset.torrent"),
	}
	defer d.launcher.Close()
	return d.run(ctx)
}

// demo is a demonstration under way.
type demo struct {
	DemoOptions
	launcher *Launcher
	network  *Network
	data     string // what the seeder has
	torrent  string
}

func (d *demo) run(ctx context.Context) (DemoResult, error) {
	say := func(format string, args ...any) { d.Say(fmt.Sprintf(format, args...)) }

	say("copying the data set from %s", d.Data)
	files, size, err := stage(d.Data, filepath.Join(d.data, "dataset"), d.Size)
	if err != nil {
		return DemoResult{}, err
	}
	res := DemoResult{Bytes: size, Files: files}

	say("bringing up the SCION network %s (%d ASes, %d links)", d.Topology.Name, len(d.Topology.ASes), len(d.Topology.Links))
	began := time.Now()
	d.network, err = Start(ctx, Options{
		Topology: d.Topology, Dir: filepath.Join(d.WorkDir, "network"), SCIONBin: d.SCIONBin, RouterCommand: d.RouterCommand, Log: d.Log,
		Progress: func(p Progress) {
			d.Show(fmt.Sprintf("%d processes, links up %d/%d, paths %d/%d", p.Processes, p.Links, p.ImpliedLinks, p.Paths, p.ImpliedPaths))
		},
	})
	if err != nil {
		return res, err
	}
	defer d.network.Close()
	say("network is up after %.1f s", time.Since(began).Seconds())

	if res.LimitMbitS, err = d.limit(ctx); err != nil {
		return res, err
	}

	tracker, url, err := d.track(ctx)
	if err != nil {
		return res, err
	}
	defer tracker.stop()
	say("tracking in %s at %s", d.Seeder, url)

	say("making a torrent of %d files, %.1f MB", files, float64(size)/1e6)
	if err := d.create(ctx, url); err != nil {
		return res, err
	}

	seeder, addr, err := d.seed(ctx)
	if err != nil {
		return res, err
	}
	defer seeder.stop()
	say("seeding in %s as %s", d.Seeder, addr)

	for _, c := range []struct{ name, selection string }{{"single", "first"}, {"multi", "all"}} {
		say("downloading in %s with --path-selection %s", d.Leecher, c.selection)
		out := filepath.Join(d.WorkDir, c.name)
		got, err := d.download(ctx, c.selection, out)
		if err != nil {
			return res, fmt.Errorf("download with %s: %w", c.selection, err)
		}
		got.Name = c.name
		n, err := sameTree(filepath.Join(d.data, "dataset"), filepath.Join(out, "dataset"))
		if err != nil {
			return res, fmt.Errorf("download with %s: %w", c.selection, err)
		}
		got.Verified = n == files
		say("%s: %d files compared with their originals, every byte is right", c.name, n)
		res.Candidates = append(res.Candidates, got)
		if err := os.RemoveAll(out); err != nil {
			return res, err
		}
	}
	single, multi := res.Candidates[0], res.Candidates[1]
	res.Gain = multi.PayloadMbitS / single.PayloadMbitS
	res.LimitFraction = multi.PayloadMbitS / res.LimitMbitS
	return res, nil
}

// limit is the payload in Mbit/s that the paths between the two peers carry together. It holds for paths
// that share no link, which is checked.
func (d *demo) limit(ctx context.Context) (float64, error) {
	host, err := scionnet.Open(ctx, scionnet.Config{ConfigDir: d.network.ConfigDir(d.Leecher), Logger: d.Log})
	if err != nil {
		return 0, err
	}
	defer host.Close()
	paths, err := host.Paths(ctx, d.Seeder)
	if err != nil {
		return 0, err
	}
	return payloadLimit(d.Topology, paths)
}

// payloadLimit is the sum of what disjoint paths can carry, in Mbit/s of payload.
func payloadLimit(t Topology, paths []pathsel.Path) (float64, error) {
	rates := map[pathsel.Interface]int64{}
	for _, l := range t.Links {
		rates[l.A.Interface], rates[l.B.Interface] = l.Config.Rate, l.Config.Rate
	}
	var sum float64
	for i, p := range paths {
		for _, q := range paths[:i] {
			if s := p.Shared(q); len(s) > 0 {
				return 0, fmt.Errorf("paths %s and %s share the link at %s: the demonstration wants disjoint paths",
					p.Fingerprint.Short(), q.Fingerprint.Short(), s[0])
			}
		}
		var slowest int64
		for _, i := range p.Interfaces {
			if r := rates[i]; r > 0 && (slowest == 0 || r < slowest) {
				slowest = r
			}
		}
		if slowest == 0 {
			return 0, fmt.Errorf("path %s has no link with a rate: the demonstration wants a limit to compare with", p.Fingerprint.Short())
		}
		header, err := PathHeader(t, p.Interfaces)
		if err != nil {
			return 0, err
		}
		sum += float64(slowest) / 1e6 * PayloadShare(p.MTU, header)
	}
	return sum, nil
}

func (d *demo) braid(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, d.Braid, args...)
	// A peer saves its state on SIGINT, like one that a user stops.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

func (d *demo) create(ctx context.Context, tracker string) error {
	p, err := d.start(ctx, "create", filepath.Join(d.data, "dataset"), "-o", d.torrent, "--tracker", tracker)
	if err != nil {
		return err
	}
	if err := p.wait(); err != nil {
		return fmt.Errorf("make the torrent: %w: %s", err, p.errors)
	}
	return nil
}

// peerProcess is a running braid process whose standard output is a stream of events.
type peerProcess struct {
	cmd    *exec.Cmd
	wait   func() error // until it ends by itself
	stop   func()       // and wait
	out    io.Reader
	events *bufio.Scanner // over out
	errors *tail
}

func (d *demo) start(ctx context.Context, args ...string) (*peerProcess, error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := d.braid(ctx, args...)
	p := &peerProcess{cmd: cmd, errors: &tail{}}
	cmd.Stderr = p.errors
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = d.launcher.Start(cmd)
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("start braid %s: %w", args[0], err)
	}
	p.out, p.events = out, bufio.NewScanner(out)
	p.events.Buffer(nil, 1<<20)
	p.wait = sync.OnceValue(func() error {
		defer cancel()
		_, _ = io.Copy(io.Discard, out) // Wait would close the pipe under the writer
		return cmd.Wait()
	})
	p.stop = func() {
		cancel()
		_ = p.wait() // it was told to stop: its exit code says nothing
	}
	return p, nil
}

// track starts a tracker in the seeder's AS, and waits until it answers.
func (d *demo) track(ctx context.Context) (*peerProcess, string, error) {
	return d.serve(ctx, "tracker", "--json", "--min-interval", "5s", "--config-dir", d.network.ConfigDir(d.Seeder),
		"--listen", fmt.Sprintf("scion://%s,[%s]:0", d.Seeder, d.network.HostIP(d.Seeder)))
}

// seed starts the seeder and waits until it serves. It has told the tracker of itself, or is about to.
func (d *demo) seed(ctx context.Context) (*peerProcess, string, error) {
	return d.serve(ctx, "seed", d.torrent, "--data", d.data, "--json",
		"--config-dir", d.network.ConfigDir(d.Seeder),
		"--listen", fmt.Sprintf("%s,[%s]:0", d.Seeder, d.network.HostIP(d.Seeder)))
}

// serve starts a process that serves until it is stopped, and returns where when it is ready.
func (d *demo) serve(ctx context.Context, args ...string) (*peerProcess, string, error) {
	p, err := d.start(ctx, args...)
	if err != nil {
		return nil, "", err
	}
	for p.events.Scan() {
		var e struct {
			Event  string
			Listen []string
		}
		if json.Unmarshal(p.events.Bytes(), &e) == nil && e.Event == "ready" && len(e.Listen) > 0 {
			// Its further events are of no interest, but must not fill the pipe. Ends with the process.
			go func() { _, _ = io.Copy(io.Discard, p.out) }()
			return p, e.Listen[0], nil
		}
	}
	p.stop()
	return nil, "", fmt.Errorf("braid %s ended before it was ready: %s", args[0], p.errors)
}

// downloadEvent is what matters here of the events of braid download.
type downloadEvent struct {
	Event        string  `json:"event"`
	Bytes        int64   `json:"bytes"`
	Total        int64   `json:"total"`
	MbitS        float64 `json:"mbit_s"`
	Seconds      float64 `json:"seconds"`
	PayloadMbitS float64 `json:"payload_mbit_s"`
	Paths        []struct {
		Fingerprint pathsel.Fingerprint `json:"fingerprint"`
		BytesRead   int64               `json:"bytes_read"`
		MbitS       float64             `json:"mbit_s"`
		RTT         float64             `json:"rtt_ms"`
	} `json:"paths"`
}

// shares are the parts of the bytes that came over each path, without those that carried nothing.
func (e downloadEvent) shares() []PathShare {
	var sum int64
	for _, x := range e.Paths {
		sum += x.BytesRead
	}
	var out []PathShare
	for _, x := range e.Paths {
		if x.BytesRead > 0 {
			out = append(out, PathShare{x.Fingerprint, float64(x.BytesRead) / float64(sum)})
		}
	}
	return out
}

// String is the progress in one line: a bar, and each path's rate and round-trip time.
func (e downloadEvent) String() string {
	const width = 24
	done := int(width * float64(e.Bytes) / float64(max(1, e.Total)))
	line := fmt.Sprintf("[%s%s] %3d%%  %4.1f Mbit/s", strings.Repeat("#", done), strings.Repeat("-", width-done),
		100*e.Bytes/max(1, e.Total), e.MbitS)
	for _, p := range e.Paths {
		line += fmt.Sprintf("   %s %4.1f Mbit/s %3.0f ms", p.Fingerprint.Short(), p.MbitS, p.RTT)
	}
	return line
}

func (d *demo) download(ctx context.Context, selection, out string) (Candidate, error) {
	p, err := d.start(ctx, "download", d.torrent, "-o", out, "--json",
		"--config-dir", d.network.ConfigDir(d.Leecher), "--local", d.network.HostIP(d.Leecher).String(),
		"--path-selection", selection)
	if err != nil {
		return Candidate{}, err
	}
	defer p.stop()
	for p.events.Scan() {
		var e downloadEvent
		if err := json.Unmarshal(p.events.Bytes(), &e); err != nil {
			continue
		}
		switch e.Event {
		case "progress":
			d.Show(e.String())
		case "done":
			return Candidate{Seconds: e.Seconds, PayloadMbitS: e.PayloadMbitS, Paths: e.shares()}, nil
		}
	}
	p.stop() // its last words are complete only then
	if ctx.Err() != nil {
		return Candidate{}, context.Cause(ctx)
	}
	return Candidate{}, errors.New(p.errors.String())
}

// Table writes the result for people.
func (r DemoResult) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "candidate\tseconds\tMbit/s\tgain\tof the limit\tverified\tshare of each path\t\n")
	for _, c := range r.Candidates {
		var shares []string
		for _, p := range c.Paths {
			shares = append(shares, fmt.Sprintf("%s %.0f%%", p.Fingerprint.Short(), 100*p.Share))
		}
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%.2f\t%.1f%%\t%v\t%s\t\n", c.Name, c.Seconds, c.PayloadMbitS,
			c.PayloadMbitS/r.Candidates[0].PayloadMbitS, 100*c.PayloadMbitS/r.LimitMbitS, c.Verified, strings.Join(shares, ", "))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%.1f MB in %d files; both links together carry %.1f Mbit/s of payload\n",
		float64(r.Bytes)/1e6, r.Files, r.LimitMbitS)
	return err
}
