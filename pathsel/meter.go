package pathsel

import (
	"slices"
	"time"
)

// Sample is one reading of a connection's counters. Readings come in the order of time, a few in each
// slot (every 100 ms to 250 ms), and at every change of State or Choked.
type Sample struct {
	At time.Time `json:"at"`
	// State of the path-level peer; only Active and Probing carry pieces.
	State State `json:"state"`
	// Choked: the remote does not serve us now, so that nothing could flow.
	Choked bool `json:"choked,omitempty"`
	// Outstanding is the number of requests that were sent and not yet answered.
	Outstanding int `json:"outstanding"`
	// BytesRead and Wasted are totals of payload bytes: all that were read, and those of them that were
	// not needed (duplicates, blocks of a piece that failed its hash).
	BytesRead uint64 `json:"bytes_read"`
	Wasted    uint64 `json:"wasted,omitempty"`
	// PacketsSent and PacketsLost are totals as the transport counts them. A receiver sends few packets;
	// they tell about loss on the way back only.
	PacketsSent uint64 `json:"packets_sent,omitempty"`
	PacketsLost uint64 `json:"packets_lost,omitempty"`
	// PacketsReceived is the total of the transport's packets that arrived; 0 where it does not tell.
	PacketsReceived uint64 `json:"packets_received,omitempty"`
	// RTT is the smoothed round-trip time, RTTVar its mean deviation; 0 when unknown.
	RTT    time.Duration `json:"rtt_ns,omitempty"`
	RTTVar time.Duration `json:"rtt_var_ns,omitempty"`
	// Congestion is the state of this side's congestion controller, Window how many bytes it lets be on their way;
	// DeliveryRate is what the path has delivered lately, PacingRate how fast packets leave, both in bytes a second.
	// For people: no selector looks at them.
	Congestion   string  `json:"congestion,omitempty"`
	Window       int     `json:"window,omitempty"`
	DeliveryRate float64 `json:"delivery_rate,omitempty"`
	PacingRate   float64 `json:"pacing_rate,omitempty"`
}

// Slot is what a connection did in one slot of time in which data could flow.
type Slot struct {
	// Start is a multiple of the slot's length since the zero time, so that the slots of different
	// connections can be added up.
	Start time.Time `json:"start"`
	// Flow is the part of the slot in which data could flow: unchoked by the remote, requests
	// outstanding, out of slow start.
	Flow time.Duration `json:"flow_ns"`
	// Bytes were read in that part; Wasted of them were not needed.
	Bytes  uint64 `json:"bytes"`
	Wasted uint64 `json:"wasted,omitempty"`
	// Sent and Lost are packets in the whole slot.
	Sent uint64 `json:"sent,omitempty"`
	Lost uint64 `json:"lost,omitempty"`
	// RTT is the last one read in the slot, MinRTT the smallest ever read on this path.
	RTT    time.Duration `json:"rtt_ns,omitempty"`
	MinRTT time.Duration `json:"min_rtt_ns,omitempty"`
}

// Rate is the useful payload in bytes per second of flow.
func (s Slot) Rate() float64 {
	if s.Flow <= 0 {
		return 0
	}
	return float64(s.Bytes-min(s.Wasted, s.Bytes)) / s.Flow.Seconds()
}

const (
	// SlotLength is the length of a Meter's slots. Much shorter, and a slot holds a handful of bursts of
	// a slow path; much longer, and a decision takes too long.
	SlotLength = time.Second
	// maxSlots bounds a Meter's memory: enough for the longest comparison that a trial makes, before
	// and after.
	maxSlots = 24
	// minFlow is the part of a slot that must have been flow; less is mostly noise.
	minFlow = SlotLength / 2
)

// Grace is how long a connection with that round-trip time is not judged after it begins to flow:
// a path in slow start looks weak, and newcomers were thrown out for it (measured: full rate after 0.5 s
// at 10 ms, after 1.6 s at 80 ms).
func Grace(rtt time.Duration) time.Duration { return max(1500*time.Millisecond, 20*rtt) }

// Meter turns the samples of one path-level peer into slots. It is a value: Add returns the next one and
// leaves the old one as it was. The zero value is ready. It is kept when the connection is replaced; the
// totals in the samples go on counting.
type Meter struct {
	Slots []Slot `json:"slots,omitempty"`

	last    Sample
	current Slot
	// flowing since then; zero when data cannot flow. stopped is when that ended.
	began, stopped time.Time
	minRTT         time.Duration
}

// Add takes one more sample.
func (m Meter) Add(s Sample) Meter {
	prev := m.last
	m.last = s
	if s.RTT > 0 && (m.minRTT == 0 || s.RTT < m.minRTT) {
		m.minRTT = s.RTT
	}
	wasFlowing := !m.began.IsZero()
	flows := s.State.Carries() && !s.Choked && s.Outstanding > 0
	switch {
	case !flows && wasFlowing:
		m.stopped = s.At
		if !s.State.Carries() || s.Choked {
			m.began = time.Time{}
		}
		// A queue of requests that ran dry for a moment is refilled at the next look: the time is not
		// judged, but the connection keeps its window, so the grace does not begin anew.
	case flows && !wasFlowing:
		m.began = s.At
	case flows && !m.stopped.IsZero() && s.At.Sub(m.stopped) > max(SlotLength, 4*s.RTT):
		m.began = s.At
	}
	if flows {
		m.stopped = time.Time{}
	}
	if prev.At.IsZero() || !s.At.After(prev.At) {
		return m
	}

	// The time between two samples belongs to the slot in which it began.
	start := prev.At.Truncate(SlotLength)
	if !start.Equal(m.current.Start) {
		m = m.finish(start)
	}
	m.current.RTT, m.current.MinRTT = s.RTT, m.minRTT
	m.current.Sent += sub(s.PacketsSent, prev.PacketsSent)
	m.current.Lost += sub(s.PacketsLost, prev.PacketsLost)
	could := prev.State.Carries() && !prev.Choked && prev.Outstanding > 0
	if flows && could && prev.At.Sub(m.began) >= Grace(s.RTT) {
		m.current.Flow += s.At.Sub(prev.At)
		m.current.Bytes += sub(s.BytesRead, prev.BytesRead)
		m.current.Wasted += sub(s.Wasted, prev.Wasted)
	}
	return m
}

// finish puts the current slot away and begins the next.
func (m Meter) finish(start time.Time) Meter {
	if m.current.Flow >= minFlow {
		keep := m.Slots[max(0, len(m.Slots)-maxSlots+1):]
		m.Slots = append(slices.Clone(keep), m.current)
	}
	m.current = Slot{Start: start}
	return m
}

// sub is a difference of totals; a total that went back (a counter that was reset) counts from zero.
func sub(now, before uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}
