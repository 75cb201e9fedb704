package pathsel

import (
	"fmt"
	"time"
)

// slots is the published algorithm to the letter, for comparison: all mapped paths are opened; once, when
// every handshake is done or the deadline has passed, those whose handshake is too slow are closed; then,
// at the end of every slot, those that read too little in it. What is closed stays closed. It
// compares all path-level peers of the view with each other, and a path that was choked counts as slow.
type slots struct {
	deadline, slot time.Duration
	minWeight      int // percent of the best
}

func (slots) Name() string { return "slots" }

func (s slots) Decide(v View) Plan {
	m := v.Memory.clone()
	m.forget(v)
	if m.Initial.IsZero() && len(v.Candidates) > 0 {
		m.Initial = v.Now
	}

	plan := Plan{}
	drop := func(c Candidate, reason string) {
		m.path(c.Key).Closed = true
		if c.State.Open() {
			plan.Decisions = append(plan.Decisions, Decision{c.Key, Close, reason})
		}
	}
	switch {
	case m.Initial.IsZero():
	case m.SlotEnd.IsZero():
		if s.handshakesDone(v) || v.Now.Sub(m.Initial) >= s.deadline {
			s.initial(v, drop)
			m.startSlot(v, v.Now.Add(s.slot))
		}
	case !v.Now.Before(m.SlotEnd):
		s.periodic(v, &m, drop)
		m.startSlot(v, v.Now.Add(s.slot))
	}

	used, open := map[PeerID]int{}, map[PeerID]int{}
	for _, c := range v.Candidates {
		if c.State.Open() {
			open[c.Key.Peer]++
		}
	}
	for _, c := range v.Candidates {
		if used[c.Key.Peer]++; used[c.Key.Peer] > v.MaxPaths || m.path(c.Key).Closed {
			continue
		}
		if !c.State.Open() && open[c.Key.Peer] < v.MaxPaths && (c.State == Idle || m.SlotEnd.IsZero()) && !v.Now.Before(c.RetryAt) {
			open[c.Key.Peer]++
			plan.Decisions = append(plan.Decisions, Decision{c.Key, Open, fmt.Sprintf("path %d of at most %d for this peer", used[c.Key.Peer], v.MaxPaths)})
		}
	}
	plan.Memory, plan.Waiting = m, waiting(v)
	if plan.Waiting != "" && !m.SlotEnd.IsZero() {
		plan.Waiting = "no path is left, and this selector tries none again"
	}
	return plan
}

// handshakesDone: no handshake is still to come.
func (s slots) handshakesDone(v View) bool {
	for _, c := range v.Candidates {
		if c.State == Opening || c.State == Idle {
			return false
		}
	}
	return true
}

// initial weighs by handshake: twice as long weighs half.
func (s slots) initial(v View, drop func(Candidate, string)) {
	var best time.Duration
	for _, c := range v.Candidates {
		if c.State == Active && c.Handshake > 0 && (best == 0 || c.Handshake < best) {
			best = c.Handshake
		}
	}
	if best == 0 {
		return // nothing to compare with yet
	}
	for _, c := range v.Candidates {
		switch {
		case c.State != Active || c.Handshake == 0:
			drop(c, "no handshake before the deadline")
		case int64(best)*100 < int64(c.Handshake)*int64(s.minWeight):
			drop(c, fmt.Sprintf("handshake of %v weighs less than %d%% of the best, %v", c.Handshake, s.minWeight, best))
		}
	}
}

// periodic weighs by the bytes read since the slot began.
func (s slots) periodic(v View, m *Memory, drop func(Candidate, string)) {
	read := make([]uint64, len(v.Candidates))
	var best uint64
	for i, c := range v.Candidates {
		read[i] = sub(c.BytesRead, m.path(c.Key).SlotBytes)
		best = max(best, read[i])
	}
	for i, c := range v.Candidates {
		if c.State == Active && read[i]*100 < best*uint64(s.minWeight) {
			drop(c, fmt.Sprintf("read %d bytes in the slot, less than %d%% of the best, %d", read[i], s.minWeight, best))
		}
	}
}

func (m *Memory) startSlot(v View, end time.Time) {
	m.SlotEnd = end
	for _, c := range v.Candidates {
		m.path(c.Key).SlotBytes = c.BytesRead
	}
}
