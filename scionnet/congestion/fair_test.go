package congestion

import (
	"fmt"
	"testing"
	"time"
)

func fair(seed uint64, w wire, ours, theirs int, kind string, d time.Duration) (float64, float64, string) {
	s := newSim(seed)
	var mine, other []*sender
	for i := range ours {
		mine = append(mine, s.flow(New(Config{Seed: seed*100 + uint64(i)}), time.Duration(i)*100*ms, w.delay, &w))
	}
	for i := range theirs {
		other = append(other, s.flow(rival(kind), time.Duration(i*130+50)*ms, w.delay, &w))
	}
	s.run(5 * time.Second)
	for _, x := range s.flows {
		x.begin()
	}
	s.run(5*time.Second + d)
	a, b := 0.0, 0.0
	for _, x := range mine {
		a += x.rate(d) / w.rate
	}
	for _, x := range other {
		b += x.rate(d) / w.rate
	}
	return a, b, fmt.Sprintf("rtt %v", mine[0].percentile(.5).Round(ms))
}

// One of our flows against one of the kernel's, on queues of common lengths: neither is pushed aside.
func TestRivals(t *testing.T) {
	for _, c := range []struct {
		kind        string
		queue       time.Duration
		least, most float64
	}{
		{"cubic", 50 * ms, 0.4, 0.75}, {"cubic", 160 * ms, 0.4, 0.6},
		{"bbr1", 50 * ms, 0.4, 0.6}, {"bbr1", 160 * ms, 0.4, 0.65}, {"bbr1", 15 * ms, 0.4, 0.6},
		{"reno", 50 * ms, 0.4, 0.75},
	} {
		sum, line := 0.0, ""
		n := seeds(4)
		for seed := range uint64(n) {
			a, b, note := fair(seed, wire{rate: 20 * mbit, delay: 20 * ms, queue: c.queue}, 1, 1, c.kind, 40*time.Second)
			sum += a
			line += fmt.Sprintf("  %.2f:%.2f, %s", a, b, note)
		}
		if sum /= float64(n); sum < c.least || sum > c.most {
			t.Errorf("%s, queue %v: %.2f of the link; %s", c.kind, c.queue, sum, line)
		} else {
			t.Logf("%s, queue %v: %.2f of the link; %s", c.kind, c.queue, sum, line)
		}
	}
}
