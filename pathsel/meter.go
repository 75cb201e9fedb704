package pathsel

import (
	"slices"
	"time"
)

// Sample is one reading of a connection's counters. Readings come in order of time, one every 100
// ms to 250 ms, and at every change of State or Choked.
type Sample struct {
	At          time.Time
	State       State // of the path-level peer; only Active and Probing carry pieces
	Choked      bool  // the remote refuses to serve us now
	Outstanding int   // requests that were sent and not yet answered
	// BytesRead and Wasted are totals of payload bytes: all bytes read, and the unneeded bytes
	// among them (duplicates, and blocks of a piece that failed its hash).
	BytesRead, Wasted uint64
	// PacketsSent and PacketsLost are the transport's totals. A receiver sends few packets, so they
	// only show loss in the direction to the peer.
	PacketsSent, PacketsLost uint64
	// PacketsReceived is the transport's total; 0 if the transport does not count them.
	PacketsReceived uint64
	// RTT is the smoothed round-trip time, RTTVar its mean deviation; 0 when unknown.
	RTT, RTTVar time.Duration
}

// Slot is the measurement of a connection in one slot of time.
type Slot struct {
	// Start is a whole second. So the slots of different connections begin at the same times, and can
	// be added up. It has a monotonic clock reading: slots stay in order if the clock is set back.
	Start time.Time `json:"start"`
	// Flow is the part of the slot in which data could flow: unchoked by the remote, with
	// outstanding requests, and after slow start.
	Flow time.Duration `json:"flow_ns"`
	// Bytes is the number of bytes read during Flow. Wasted is the number of unneeded bytes among
	// them.
	Bytes  uint64 `json:"bytes"`
	Wasted uint64 `json:"wasted,omitempty"`
	// Sent and Lost are packets in the whole slot.
	Sent uint64 `json:"sent,omitempty"`
	Lost uint64 `json:"lost,omitempty"`
	// MinRTT is the shortest round trip ever seen on this path.
	MinRTT time.Duration `json:"min_rtt_ns,omitempty"`
}

// Rate returns the useful payload in bytes per second of Flow.
func (s Slot) Rate() float64 {
	if s.Flow <= 0 {
		return 0
	}
	return float64(s.Bytes-min(s.Wasted, s.Bytes)) / s.Flow.Seconds()
}

const (
	// SlotLength is the length of a Meter's slots. Much shorter, and a slot holds only a few bursts
	// of a slow path; much longer, and a decision takes too long.
	SlotLength = time.Second
	// maxSlots limits a Meter's memory. It spans several cuts of a congestion window.
	maxSlots = 24
	// minFlow is the least Flow of a slot that is kept. Less is mostly noise.
	minFlow = SlotLength / 2
)

// Grace returns how long a connection with this round-trip time is not judged after data begins to
// flow. A path in slow start looks weak: it reached its full rate after 0.5 s at 10 ms, and after
// 1.6 s at 80 ms.
func Grace(rtt time.Duration) time.Duration { return max(1500*time.Millisecond, 20*rtt) }

// Meter turns the samples of one path-level peer into slots. It is a value: Add returns a new Meter
// and leaves the old one unchanged. The zero value is ready to use. Keep it when the connection is
// replaced, since the totals in the samples continue.
type Meter struct {
	Slots []Slot // the oldest first

	last    Sample
	current Slot
	// Data has been able to flow since began; zero if it cannot. stopped is when that ended.
	began, stopped time.Time
	minRTT         time.Duration
}

// Add returns the Meter after one more sample.
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
		// If the request queue was empty only for a moment, that time is not judged. But the
		// connection keeps its congestion window, so the grace period does not start again.
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
	start := prev.At.Add(-time.Duration(prev.At.Nanosecond())) // Truncate drops the monotonic reading
	if start.Sub(m.current.Start).Abs() >= SlotLength/2 {      // the two readings differ by some ns
		m = m.endSlot(start)
	}
	m.current.MinRTT = m.minRTT
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

// endSlot stores the current slot and begins the next.
func (m Meter) endSlot(start time.Time) Meter {
	if m.current.Flow >= minFlow {
		keep := m.Slots[max(0, len(m.Slots)-maxSlots+1):]
		m.Slots = append(slices.Clone(keep), m.current)
	}
	m.current = Slot{Start: start}
	return m
}

// sub returns the growth of a total. A smaller total was reset, and counts from zero.
func sub(now, before uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}
