package scenario

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"braid/testbed"
)

// Result is what one run gave.
type Result struct {
	Scenario string `json:"scenario"`
	Variant  string `json:"variant"`
	Run      int    `json:"run"` // from 1
	// Began is the start of the run, ZeroS how many seconds later a leecher got the first payload byte, from which
	// the scenario's times count.
	Began time.Time `json:"began"`
	ZeroS float64   `json:"zero_s"`
	// Figures by name; one that could not be taken, because the path did not come back for instance, is missing.
	Figures map[string]float64 `json:"figures"`
	// Leechers that took part, by name.
	Peers []PeerResult `json:"peers,omitempty"`
	// Limit is what the links could carry, over the time of the run.
	Limit []LimitStep `json:"limit,omitempty"`
	// Verified leechers, of those that were not stopped before the end, have every byte right.
	Verified int `json:"verified"`
	Leechers int `json:"leechers"`
	// Failed says why the download did not succeed; empty if it did.
	Failed string `json:"failed,omitempty"`
	// CPUBound says why the machine and not a link was the limit; empty if it was not.
	CPUBound []string `json:"cpu_bound,omitempty"`
	// CPU and OwnCPU are the parts of all processors in use by everybody, and by this run's processes.
	CPU    float64 `json:"cpu"`
	OwnCPU float64 `json:"own_cpu"`
}

// PeerResult is what became of one leecher; times are in seconds after the first payload byte that any leecher got.
type PeerResult struct {
	Name     string  `json:"name"`
	Start    float64 `json:"start_s"`
	End      float64 `json:"end_s"`
	Bytes    int64   `json:"bytes"` // of useful payload
	Complete bool    `json:"complete"`
}

// record puts together what was seen, in the scenario's time.
func (a *attempt) record() record {
	r := record{feed: a.feed(), degree: a.degree()}
	t := func(at time.Time) float64 { return seconds(at.Sub(a.zero)) }
	for i, s := range a.states {
		x := linkState{t(s.at), s.capacity}
		if i == 0 {
			x.t = t(a.begun)
		}
		r.states = append(r.states, x)
	}
	for _, p := range a.peers {
		c := a.recorders[p]
		if c == nil || c.base.IsZero() {
			continue // not a leecher, or killed before it said a word
		}
		l := leecherRecord{name: p.peer.Name, start: t(c.base), end: t(p.endedAt), complete: c.complete, wasted: c.wasted, routes: a.routes[p.peer.Name]}
		for _, s := range c.samples {
			s.t += l.start
			l.samples = append(l.samples, s)
		}
		for _, x := range c.choices {
			x.t += l.start
			l.choices = append(l.choices, x)
		}
		for _, x := range c.pieces {
			x.t += l.start
			l.pieces = append(l.pieces, x)
		}
		l.delay = a.seedDelay(p.peer)
		l.handshakes = c.handshakes
		if c.complete {
			l.end = l.samples[len(l.samples)-1].t
		}
		r.end = max(r.end, l.end)
		r.leechers = append(r.leechers, l)
	}
	if len(a.Peers) == 0 {
		r.end = seconds(a.Lasts.D())
	}
	for _, f := range a.flows {
		s := a.spans[f]
		if s == nil {
			continue // its time never came
		}
		x := flowRecord{Traffic: f.Traffic, route: f.route, start: t(s.from), end: t(s.to)}
		for _, m := range f.received {
			x.received = append(x.received, amount{t(m.at), m.bytes})
		}
		r.flows = append(r.flows, x)
	}
	return r
}

func (a *attempt) result(failed failure) (Result, error) {
	res := Result{
		Scenario: a.Name, Variant: a.variant.Name, Began: a.begun, ZeroS: seconds(a.zero.Sub(a.begun)),
		CPUBound: a.watch.bound(a.Scenario), CPU: a.watch.share, OwnCPU: a.watch.own,
	}
	if failed.error != nil {
		res.Failed = failed.Error()
	}
	for _, p := range a.peers {
		c := a.recorders[p]
		if c == nil || p.leaves && !c.complete {
			continue
		}
		res.Leechers++
		if !c.complete {
			continue
		}
		torrents, files := a.data.wanted(p.peer)
		if _, err := os.Stat(filepath.Join(p.out, files[0])); errors.Is(err, fs.ErrNotExist) { // in a database: --storage bolt
			for _, t := range torrents {
				if out, err := exec.Command(a.braid, "export", "--data", p.out, "--output", p.out, t).CombinedOutput(); err != nil {
					return res, fmt.Errorf("peer %s: write the files of its database: %w: %s", p.peer.Name, err, out)
				}
			}
		}
		for _, f := range files {
			if err := testbed.SameFile(filepath.Join(a.data.dir, f), filepath.Join(p.out, f)); err != nil {
				return res, fmt.Errorf("peer %s: %w", p.peer.Name, err)
			}
		}
		res.Verified++
	}
	r := a.record()
	for _, l := range r.leechers {
		res.Peers = append(res.Peers, PeerResult{l.name, l.start, l.end, l.bytesAt(r.end), l.complete})
	}
	var err error
	if res.Limit, err = r.limit(); err != nil {
		return res, err
	}
	res.Figures, err = measure(r, a.Measure)
	if err == nil {
		r.addPropagation(res.Figures)
		err = a.addSpread(r, res.Figures)
	}
	if res.Figures != nil {
		res.Figures["cpu"], res.Figures["late"] = res.CPU, a.watch.lateness
		a.watch.parts.figures(res.Figures["mbit"]*res.Figures["seconds"]/8e3, res.Figures)
	}
	return res, err
}

// removeData frees the disk of what the leechers have downloaded.
func (a *attempt) removeData() error {
	for _, p := range a.peers {
		if p.out != "" {
			a.temporary = append(a.temporary, p.out)
		}
	}
	for _, d := range a.temporary {
		if err := os.RemoveAll(d); err != nil {
			return err
		}
	}
	return nil
}
