package pathsel

import (
	"fmt"
	"slices"
	"time"
)

// slots is the published algorithm, kept for comparison. It opens all mapped paths. Once every
// handshake is done or the deadline has passed, it closes paths with a slow handshake. At the end
// of every slot it closes paths that read too little in it. Closed paths stay closed. All
// path-level peers of the view are compared with each other, and a choked path counts as slow.
type slots struct {
	deadline, slot time.Duration
	minWeight      int // percent of the best
}

// slotsMemory is what slots remembers from one view to the next.
type slotsMemory struct {
	// Initial is when the wait for handshakes began. SlotEnd is when the current slot ends; zero
	// before the initial selection.
	Initial time.Time `json:"initial,omitzero"`
	SlotEnd time.Time `json:"slot_end,omitzero"`
	// Paths are in the order of the view's candidates. Then come closed ones that are not in the
	// view: a path that is down vanishes from it, and stays closed when it is back.
	Paths []slotsPath `json:"paths,omitempty"`
}

// mostGone limits the closed paths that are remembered while they are not in the view, because
// peers come and go for as long as a download lasts. Those that are away for longest are forgotten
// first.
const mostGone = 1000

// slotsPath is what slots remembers of one path-level peer.
type slotsPath struct {
	Key       Key    `json:"key"`
	SlotBytes uint64 `json:"slot_bytes,omitempty"` // BytesRead when the slot began
	Closed    bool   `json:"closed,omitempty"`     // for good
}

// next returns a memory for the candidates of the view, which shares nothing with the old one.
func (m slotsMemory) next(v View) slotsMemory {
	before := make(map[Key]slotsPath, len(m.Paths))
	for _, p := range m.Paths {
		before[p.Key] = p
	}
	paths := make([]slotsPath, len(v.Candidates))
	for i, c := range v.Candidates {
		p, known := before[c.Key]
		if !known {
			// A path that was away has its former bytes. They are not those of this slot.
			p = slotsPath{Key: c.Key, SlotBytes: c.BytesRead}
		}
		paths[i] = p
		delete(before, c.Key)
	}
	gone := slices.DeleteFunc(slices.Clone(m.Paths), func(p slotsPath) bool {
		_, absent := before[p.Key]
		return !absent || !p.Closed
	})
	m.Paths = slices.Concat(paths, gone[:min(len(gone), mostGone)])
	return m
}

func (slots) Name() string { return "slots" }

func (slots) Paths(budget int) int { return budget }

func (s slots) Decide(v View) Plan {
	m := recall[slotsMemory](v.Memory).next(v)
	if m.Initial.IsZero() && len(v.Candidates) > 0 {
		m.Initial = v.Now
	}

	plan := Plan{}
	drop := func(i int, reason string) {
		m.Paths[i].Closed = true
		if c := v.Candidates[i]; c.State.Open() {
			plan.Decisions = append(plan.Decisions, Decision{c.Key, Close, reason})
		}
	}
	switch {
	case m.Initial.IsZero():
	case m.SlotEnd.IsZero():
		pending := slices.ContainsFunc(v.Candidates, func(c Candidate) bool {
			return c.State == Opening || c.State == Idle
		})
		if !pending || v.Now.Sub(m.Initial) >= s.deadline {
			s.initial(v, drop)
			m.startSlot(v, v.Now.Add(s.slot))
		}
	case !v.Now.Before(m.SlotEnd):
		s.periodic(v, m, drop)
		m.startSlot(v, v.Now.Add(s.slot))
	}

	used, open := map[PeerID]int{}, map[PeerID]int{}
	for _, c := range v.Candidates {
		if c.State.Open() {
			open[c.Key.Peer]++
		}
	}
	for i, c := range v.Candidates {
		peer := c.Key.Peer
		if used[peer]++; used[peer] > v.MaxPaths || m.Paths[i].Closed {
			continue
		}
		wanted := !c.State.Open() && (c.State == Idle || m.SlotEnd.IsZero())
		if wanted && open[peer] < v.MaxPaths && !v.Now.Before(c.RetryAt) {
			open[peer]++
			why := fmt.Sprintf("path %d of at most %d for this peer", used[peer], v.MaxPaths)
			plan.Decisions = append(plan.Decisions, Decision{c.Key, Open, why})
		}
	}
	plan.Memory, plan.Waiting = Memory{value: m}, waiting(v)
	if plan.Waiting != "" && !m.SlotEnd.IsZero() {
		plan.Waiting = "all paths are closed, and this selector does not retry them"
	}
	return plan
}

// initial closes slow paths by their handshakes: twice the time is half the weight.
func (s slots) initial(v View, drop func(i int, reason string)) {
	var best time.Duration
	for _, c := range v.Candidates {
		if c.State == Active && c.Handshake > 0 && (best == 0 || c.Handshake < best) {
			best = c.Handshake
		}
	}
	if best == 0 {
		return // nothing to compare with yet
	}
	for i, c := range v.Candidates {
		switch {
		case c.State != Active || c.Handshake == 0:
			drop(i, "no handshake before the deadline")
		case int64(best)*100 < int64(c.Handshake)*int64(s.minWeight):
			drop(i, fmt.Sprintf("handshake of %v weighs less than %d%% of the best, %v",
				c.Handshake, s.minWeight, best))
		}
	}
}

// periodic closes slow paths by the bytes read since the slot began.
func (s slots) periodic(v View, m slotsMemory, drop func(i int, reason string)) {
	read := make([]uint64, len(v.Candidates))
	var best uint64
	for i, c := range v.Candidates {
		read[i] = sub(c.BytesRead, m.Paths[i].SlotBytes)
		best = max(best, read[i])
	}
	for i, c := range v.Candidates {
		if c.State == Active && read[i]*100 < best*uint64(s.minWeight) {
			drop(i, fmt.Sprintf("read %d bytes in the slot, less than %d%% of the best, %d",
				read[i], s.minWeight, best))
		}
	}
}

func (m *slotsMemory) startSlot(v View, end time.Time) {
	m.SlotEnd = end
	for i, c := range v.Candidates {
		m.Paths[i].SlotBytes = c.BytesRead
	}
}
