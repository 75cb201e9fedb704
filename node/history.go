package node

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"braid/client"
	"braid/pathsel"
)

// A torrent remembers the rate of each of its paths in each second, and the selector's decisions
// about the path. Seconds without data take no memory.

const (
	maxSamples = 600 // for each path: ten minutes
	maxMarks   = 100 // for each path
	maxHistory = 64  // paths of a torrent

	// forgetAfter is the time without a change after which an ended path is forgotten. Without it,
	// thousands of seeds that run for months would remember hundreds of megabytes.
	forgetAfter = 24 * time.Hour
	sweepEvery  = time.Hour
)

// Sample is the rate of a path in one second. There is no sample for seconds without data.
type Sample struct {
	Time time.Time `json:"time"`
	In   float64   `json:"in_bit_s"`
	Out  float64   `json:"out_bit_s"`
}

// Mark is a step in the life of a path-level peer.
type Mark struct {
	Time   time.Time `json:"time"`
	Event  string    `json:"event"` // as in event.PathStep
	Reason string    `json:"reason"`
}

// PathHistory is the history of one path-level peer. The newest entries come last.
type PathHistory struct {
	Key     pathsel.Key
	Samples []Sample
	Marks   []Mark
}

// history is the history of all paths of a torrent.
type history struct {
	mu    sync.Mutex
	paths map[pathsel.Key]*pathHistory
	swept time.Time // when old paths were last forgotten
}

// pathHistory keeps samples in 12 bytes each.
type pathHistory struct {
	samples []sample
	marks   []Mark
	changed time.Time
}

type sample struct {
	second  uint32 // Unix time
	in, out float32
}

// of returns the history of a path. If there are too many, it forgets the one that has not changed
// for the longest time.
func (h *history) of(k pathsel.Key, now time.Time) *pathHistory {
	if p := h.paths[k]; p != nil {
		p.changed = now
		return p
	}
	if h.paths == nil {
		h.paths = map[pathsel.Key]*pathHistory{}
	}
	if len(h.paths) >= maxHistory {
		var oldest pathsel.Key
		first := now
		for k, p := range h.paths {
			if !p.changed.After(first) {
				oldest, first = k, p.changed
			}
		}
		delete(h.paths, oldest)
	}
	p := &pathHistory{changed: now}
	h.paths[k] = p
	return p
}

// note records a decision.
func (h *history) note(e client.PathEvent, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.of(e.Key, now)
	p.marks = appendNewest(p.marks, Mark{now, e.Name, e.Reason}, maxMarks)
}

// record records the rates of this second. paths are all present ones.
func (h *history) record(paths []client.PathProgress, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Sub(h.swept) >= sweepEvery {
		h.swept = now
		maps.DeleteFunc(h.paths, func(k pathsel.Key, p *pathHistory) bool {
			isK := func(x client.PathProgress) bool { return keyOf(x) == k }
			return now.Sub(p.changed) >= forgetAfter && !slices.ContainsFunc(paths, isK)
		})
	}
	for _, x := range paths {
		if x.ReadRate == 0 && x.WriteRate == 0 {
			continue
		}
		p := h.of(keyOf(x), now)
		rates := sample{uint32(now.Unix()), float32(x.ReadRate), float32(x.WriteRate)}
		p.samples = appendNewest(p.samples, rates, maxSamples)
	}
}

// last returns the newest decision about a path.
func (h *history) last(k pathsel.Key) (Mark, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.paths[k]
	if p == nil || len(p.marks) == 0 {
		return Mark{}, false
	}
	return p.marks[len(p.marks)-1], true
}

func keyOf(x client.PathProgress) pathsel.Key {
	return pathsel.Key{Peer: pathsel.PeerID(x.Peer), Path: x.Path.Fingerprint}
}

// History returns the rates of each path over the last ten minutes, and the selector's decisions
// about it with their reasons, in the order of peers and paths.
func (t *Torrent) History() (out []PathHistory) {
	t.history.mu.Lock()
	defer t.history.mu.Unlock()
	for k, p := range t.history.paths {
		x := PathHistory{Key: k, Marks: slices.Clone(p.marks)}
		for _, s := range p.samples {
			x.Samples = append(x.Samples, Sample{
				Time: time.Unix(int64(s.second), 0),
				In:   float64(s.in),
				Out:  float64(s.out),
			})
		}
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b PathHistory) int {
		return cmp.Or(cmp.Compare(a.Key.Peer, b.Key.Peer), cmp.Compare(a.Key.Path, b.Key.Path))
	})
	return out
}
