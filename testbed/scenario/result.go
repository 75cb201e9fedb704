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

// Result is the outcome of one run.
type Result struct {
	Scenario string `json:"scenario"`
	Variant  string `json:"variant"`
	Run      int    `json:"run"` // from 1
	// Began is the start of the run. ZeroS seconds later came the first payload byte, from which
	// times count.
	Began time.Time `json:"began"`
	ZeroS float64   `json:"zero_s"`
	// Figures by name. Those that could not be measured are missing.
	Figures map[string]float64 `json:"figures"`
	// Peers are the leechers that took part.
	Peers []PeerResult `json:"peers,omitempty"`
	// Limit is what the links could carry over time.
	Limit []LimitStep `json:"limit,omitempty"`
	// Verified of Leechers have the right data. Those that were stopped before the end do not
	// count.
	Verified int `json:"verified"`
	Leechers int `json:"leechers"`
	// Failed says why the download did not succeed, or how a competing flow broke; else it is empty.
	Failed string `json:"failed,omitempty"`
	// CPUBound says why the machine and not a link was the limit; empty if it was not.
	CPUBound []string `json:"cpu_bound,omitempty"`
	// CPU and OwnCPU are the parts of all processors in use, by all programs and by this run's
	// processes.
	CPU    float64 `json:"cpu"`
	OwnCPU float64 `json:"own_cpu"`
}

// PeerResult is the result of one leecher. Times are in seconds after the first payload byte of any
// leecher.
type PeerResult struct {
	Name     string  `json:"name"`
	Start    float64 `json:"start_s"`
	End      float64 `json:"end_s"`
	Bytes    int64   `json:"bytes"` // of useful payload
	Complete bool    `json:"complete"`
}

// result verifies what the leechers have, and makes the figures.
func (a *attempt) result(r *Record, failed failure) (res Result, err error) {
	res = Result{
		Scenario: a.Name, Variant: a.variant.Name, Began: a.writer.begun, ZeroS: r.Zero,
		CPUBound: r.cpuBound(), CPU: r.CPU, OwnCPU: r.OwnCPU,
	}
	if failed.error != nil {
		res.Failed = failed.Error()
	}
	for _, p := range a.peers {
		leaves := p.peer.Stop != nil || p.peer.Crash != nil
		if p.peer.Role != Leech || p.peer.Client == Iperf3 || leaves && !p.done {
			continue
		}
		res.Leechers++
		if !p.done {
			continue
		}
		torrents, files := a.data.wanted(p.peer)
		_, err := os.Stat(filepath.Join(p.out, files[0]))
		if errors.Is(err, fs.ErrNotExist) { // in a database: --storage bolt
			for _, t := range torrents {
				export := exec.Command(a.braid, "export", "--data", p.out, "--output", p.out, t)
				if out, err := export.CombinedOutput(); err != nil {
					return res, fmt.Errorf("peer %s: write the files of its database: %w: %s",
						p.peer.Name, err, out)
				}
			}
		}
		for _, f := range files {
			if err := testbed.SameTree(filepath.Join(a.data.dir, f), filepath.Join(p.out, f)); err != nil {
				return res, fmt.Errorf("peer %s: %w", p.peer.Name, err)
			}
		}
		res.Verified++
	}
	for _, l := range r.Leechers {
		res.Peers = append(res.Peers, PeerResult{l.Name, l.Start, l.End, int64(l.Payload.before(r.End)), l.Complete})
	}
	res.Limit, res.Figures = r.limit(), r.Measures()
	return res, nil
}
