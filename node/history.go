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

// Sample is the rate of a path in one second, in bits per second. There is no sample for seconds
// without data. It is small, since there may be many.
type Sample struct {
	Second  uint32 // Unix time
	In, Out float32
}

// Mark is a step in the life of a path-level peer.
type Mark struct {
	Time   time.Time
	Event  string // as in event.PathStep
	Reason string
}

// PathHistory is the history of one path-level peer. The newest entries come last.
type PathHistory struct {
	Key     pathsel.Key
	Samples []Sample
	Marks   []Mark

	changed time.Time
}

// history is the history of all paths of a torrent.
type history struct {
	mu    sync.Mutex
	paths map[pathsel.Key]*PathHistory
	swept time.Time // when old paths were last forgotten
}

// of returns the history of a path. If there are too many, it forgets the one that has not changed
// for the longest time.
func (h *history) of(k pathsel.Key, now time.Time) *PathHistory {
	if p := h.paths[k]; p != nil {
		p.changed = now
		return p
	}
	if h.paths == nil {
		h.paths = map[pathsel.Key]*PathHistory{}
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
	p := &PathHistory{Key: k, changed: now}
	h.paths[k] = p
	return p
}

// note records a decision.
func (h *history) note(e client.PathEvent, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.of(e.Key, now)
	p.Marks = appendNewest(p.Marks, Mark{now, e.Name, e.Reason}, maxMarks)
}

// record records the rates of this second. paths are all present ones.
func (h *history) record(paths []client.PathProgress, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Sub(h.swept) >= sweepEvery {
		h.swept = now
		maps.DeleteFunc(h.paths, func(k pathsel.Key, p *PathHistory) bool {
			isK := func(x client.PathProgress) bool { return keyOf(x) == k }
			return now.Sub(p.changed) >= forgetAfter && !slices.ContainsFunc(paths, isK)
		})
	}
	for _, x := range paths {
		if x.ReadRate == 0 && x.WriteRate == 0 {
			continue
		}
		p := h.of(keyOf(x), now)
		rates := Sample{uint32(now.Unix()), float32(x.ReadRate), float32(x.WriteRate)}
		p.Samples = appendNewest(p.Samples, rates, maxSamples)
	}
}

// last returns the newest decision about a path.
func (h *history) last(k pathsel.Key) (Mark, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.paths[k]
	if p == nil || len(p.Marks) == 0 {
		return Mark{}, false
	}
	return p.Marks[len(p.Marks)-1], true
}

func keyOf(x client.PathProgress) pathsel.Key {
	return pathsel.Key{Peer: pathsel.PeerID(x.Peer), Path: x.Path.Fingerprint}
}

// History returns the rates of each path over the last ten minutes, and the selector's decisions
// about it with their reasons, in the order of peers and paths.
func (t *Torrent) History() (out []PathHistory) {
	t.history.mu.Lock()
	defer t.history.mu.Unlock()
	for _, p := range t.history.paths {
		x := *p
		x.Samples, x.Marks = slices.Clone(p.Samples), slices.Clone(p.Marks)
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b PathHistory) int {
		return cmp.Or(cmp.Compare(a.Key.Peer, b.Key.Peer), cmp.Compare(a.Key.Path, b.Key.Path))
	})
	return out
}
