package scionnet

import (
	"math"
	"time"

	"braid/pathsel"
)

// A tracker tells downloaders what others have received over a path. The sender needs to know it,
// and usually it has accepted the connection, and does not even know the path yet. So the dialler
// passes the rate on: in the upper six bits of its feature byte, which arrives before it asks for
// data. A sender that has filled the path itself lately, or has another connection along it,
// ignores them. A lie costs the packets of two round trips, at most 256 in each.

const (
	// The six bits are a number n: 0 for no hint, else the rate is rateUnit * 2^(n/4). So the least
	// is 78 kB/s, the largest 3.6 GB/s, and others are at most 9 % wrong.
	rateShift = 2
	mostRate  = 1<<(8-rateShift) - 1
	rateUnit  = 64 << 10 // bytes per second

	// hintHolds is how long a host passes a rate on: about the time between announces.
	hintHolds = 30 * time.Minute
	// maxHints bounds the table.
	maxHints = 4096
)

// hint is what others have received over a path.
type hint struct {
	rate float64 // bytes a second
	at   time.Time
}

// Hint tells the host at what rates others have received data over paths. When the host dials a
// peer over such a path, it tells the peer the rate.
func (h *Host) Hint(hints pathsel.Hints) { h.memory.hint(hints, time.Now()) }

func (m *memory) hint(hints pathsel.Hints, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hints == nil {
		m.hints = map[pathsel.Fingerprint]hint{}
	}
	for _, paths := range hints {
		for _, x := range paths {
			if x.Rate <= 0 {
				continue
			}
			if _, known := m.hints[x.Path]; !known && len(m.hints) >= maxHints {
				for old := range m.hints { // any: the next announce brings those that matter again
					delete(m.hints, old)
					break
				}
			}
			m.hints[x.Path] = hint{x.Rate, now}
		}
	}
}

// hinted is the rate that others have received over a path; 0: not known.
func (m *memory) hinted(path pathsel.Fingerprint, now time.Time) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h, ok := m.hints[path]; ok && now.Sub(h.at) < hintHolds {
		return h.rate
	}
	return 0
}

// expected is the rate that one more connection along the path will probably get, in bytes per
// second: the rate that others have received, divided by the number of our connections along the
// path, the further one included. It is 0 if no rate is known.
func (e *Endpoint) expected(path pathsel.Path) float64 {
	rate := e.host.memory.hinted(path.Fingerprint, time.Now())
	if rate == 0 {
		return 0
	}
	n := 1
	for _, c := range e.list() {
		if p := c.path.Load(); c.place == nil && p.Fingerprint == path.Fingerprint {
			n++
		}
	}
	return rate / float64(n)
}

// hintIn is the rate in the peer's feature byte that the start follows; 0: none.
func (c *Conn) hintIn(features byte) float64 {
	if c.place == nil || !c.endpoint.host.memory.heeds(c.route.hostPath(), time.Now()) {
		return 0
	}
	return rateOf(features)
}

// rateBits are the bits of a feature byte for a rate in bytes per second.
func rateBits(rate float64) byte {
	if rate < rateUnit {
		return 0
	}
	return byte(min(math.Round(4*math.Log2(rate/rateUnit)), mostRate)) << rateShift
}

// rateOf is the rate in a feature byte; 0: none.
func rateOf(features byte) float64 {
	n := features >> rateShift
	if n == 0 {
		return 0
	}
	return rateUnit * math.Exp2(float64(n)/4)
}
