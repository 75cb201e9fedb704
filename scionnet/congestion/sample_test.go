package congestion

import (
	"testing"
	"time"
)

const ms = time.Millisecond

// A packet every millisecond, acknowledged 50 ms later: the rate is a packet a millisecond. Batches
// of acknowledgements do not change it.
func TestDeliveryRate(t *testing.T) {
	for _, batch := range []int64{1, 7} {
		var s sampler
		var acks []Packet
		var last event
		inflight := 0
		for i := range int64(500) {
			now := time.Duration(i) * ms
			inflight += 1000
			s.sent(now, i, 1000, inflight)
			if i >= 50 {
				acks = append(acks, Packet{i - 50, 1000})
			}
			if len(acks) >= int(batch) {
				last = s.acked(now, acks, nil, inflight)
				inflight -= 1000 * len(acks)
				acks = nil
			}
		}
		if last.rate < 0.97e6 || last.rate > 1.03e6 {
			t.Errorf("batches of %d: %.0f bytes/s, want 1e6", batch, last.rate)
		}
		if last.rtt != 50*ms || last.appLimited {
			t.Errorf("batches of %d: %+v", batch, last)
		}
	}
}

// Samples of packets that left while the application was the limit say so, until all of them are
// acknowledged.
func TestApplicationLimited(t *testing.T) {
	var s sampler
	s.sent(0, 0, 1000, 1000)
	s.limit(1000)
	s.sent(1*ms, 1, 1000, 2000)
	for _, c := range []struct {
		number int64
		want   bool
	}{{0, false}, {1, true}} {
		if e := s.acked(50*ms, []Packet{{c.number, 1000}}, nil, 2000); e.appLimited != c.want {
			t.Errorf("packet %d: application-limited %v", c.number, e.appLimited)
		}
	}
	s.sent(60*ms, 2, 1000, 1000)
	if e := s.acked(110*ms, []Packet{{2, 1000}}, nil, 1000); e.appLimited {
		t.Error("still limited")
	}
}

// Numbers that start again, jump, come twice or were never sent do no harm.
func TestStrangeNumbers(t *testing.T) {
	var s sampler
	for _, n := range []int64{0, 1, 2, 0, 1, 5, 5, 1 << 40, 3} {
		s.sent(0, n, 1000, 1000)
	}
	s.acked(ms, []Packet{{3, 1000}, {3, 1000}, {77, 1000}, {-1, 1000}}, []Packet{{1 << 60, 5}}, 0)
	for n := range int64(3 * maxTracked) {
		s.sent(ms, n, 1000, 1000)
	}
	if len(s.packets) > maxTracked {
		t.Errorf("%d places", len(s.packets))
	}
}
