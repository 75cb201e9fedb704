package congestion

import (
	"testing"
	"time"
)

// joined makes flows of one group that cross the links.
func joined(s *sim, g *Group, i int, links []Link, path ...*wire) *sender {
	f := New(Config{Seed: s.random.Uint64()})
	g.Join(f, links)
	return s.flow(f, time.Duration(i)*100*ms, 20*ms, path...)
}

// behind makes a flow of a group that crosses a common link, and then one of the same rate and queue
// that is so far.
func behind(s *sim, g *Group, start, far time.Duration, common *wire) *sender {
	f := New(Config{Seed: s.random.Uint64()})
	g.Join(f, []Link{"common"})
	own := &wire{rate: common.rate, delay: far, queue: common.queue}
	return s.flow(f, start, common.delay+far, common, own)
}

// A common link that has room for all costs nothing, whatever the members do on their own links.
func TestDisjoint(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		s, g := newSim(seed), NewGroup()
		common := &wire{rate: 100 * mbit, delay: 5 * ms, queue: 50 * ms}
		var flows []*sender
		var own []*wire
		for i, w := range []wire{
			{rate: 10 * mbit, delay: 15 * ms, queue: 50 * ms},
			{rate: 20 * mbit, delay: 15 * ms, queue: 10 * ms},
			{rate: 20 * mbit, delay: 55 * ms, queue: 80 * ms, loss: 0.01},
		} {
			own = append(own, &w)
			flows = append(flows, joined(s, g, i, []Link{"common", Link(rune('a' + i))}, common, &w))
		}
		s.run(3 * time.Second)
		for _, x := range flows {
			x.begin()
		}
		const d = 30 * time.Second
		s.run(3*time.Second + d)
		for i, least := range []float64{0.95, 0.93, 0.90} {
			if got := flows[i].rate(d) / own[i].rate; got < least {
				t.Errorf("seed %d, flow %d: %.3f of its own link, want %.2f", seed, i, got, least)
			} else {
				t.Logf("seed %d, flow %d: %.3f of its own link", seed, i, got)
			}
		}
	}
}

// Members that have a link to themselves use it fully, keep its queue short and share it.
func TestSiblings(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		s, g := newSim(seed), NewGroup()
		w := &wire{rate: 40 * mbit, delay: 20 * ms, queue: 160 * ms}
		var flows []*sender
		for i := range 4 {
			flows = append(flows, joined(s, g, i, []Link{"common"}, w))
		}
		s.run(5 * time.Second)
		for _, x := range flows {
			x.begin()
		}
		const d = 30 * time.Second
		s.run(5*time.Second + d)
		sum, least := 0.0, 1.0
		for _, x := range flows {
			share := x.rate(d) / w.rate
			sum, least = sum+share, min(least, share)
		}
		median, most := flows[0].percentile(0.5), flows[0].percentile(0.95)
		t.Logf("seed %d: %.3f of the link, least %.3f, round trip %v, 95 %% up to %v", seed, sum, least, median, most)
		if sum < 0.95 || median > 60*ms || most > 80*ms || least < 0.07 {
			t.Error("too little, too unequal, or too long a queue")
		}
	}
}

// Members that start one after the other see each other's queues. They still find the round trip
// without a queue, and keep only a short queue.
func TestSiblingsStartInQueue(t *testing.T) {
	t.Parallel()
	for _, n := range []int{4, 10} {
		for seed := range uint64(5) {
			s, g := newSim(seed), NewGroup()
			w := &wire{rate: 40 * mbit, delay: 5 * ms, queue: 200 * ms}
			for i := range n {
				joined(s, g, i, []Link{"common"}, w).back = w.delay
			}
			s.run(10 * time.Second)
			before := w.carried
			s.flows[0].begin()
			s.run(20 * time.Second)
			used := (w.carried - before) * 8 / w.rate / 10
			base, trip := s.flows[0].algorithm.(*bbr).minRTT.rtt, s.flows[0].percentile(0.5)
			t.Logf("%d flows, seed %d: %.3f of the link, round trip %v, without a queue %v", n, seed, used, trip, base)
			if used < 0.95 || base > 15*ms || trip > 40*ms {
				t.Error("too little, or too long a queue")
			}
		}
	}
}

// Members with different round trips fill a short queue with their probes, and give way to each
// other. They use all of the link, as one flow does.
func TestSiblingsShortQueue(t *testing.T) { siblingsShortQueue(t, 5) }

func siblingsShortQueue(t *testing.T, seeds int) {
	t.Parallel()
	const d = 17 * time.Second
	for _, n := range []int{1, 2, 3} {
		used := 0.0
		for seed := range uint64(seeds) {
			s, g := newSim(seed), NewGroup()
			w := &wire{rate: 10 * mbit, delay: 5 * ms, queue: 50 * ms, jitter: 300 * time.Microsecond}
			for i := range n {
				behind(s, g, 0, time.Duration(i+1)*5*ms, w)
			}
			s.run(time.Second)
			before := w.carried
			s.run(time.Second + d)
			used += (w.carried - before) * 8 / w.rate / d.Seconds() / float64(seeds)
		}
		t.Logf("%d flows: %.3f of the link", n, used)
		if used < 0.99 {
			t.Error("too little")
		}
	}
}

// What joins and leaves is forgotten.
func TestMembers(t *testing.T) {
	g := NewGroup()
	a, b := New(Config{}), New(Config{})
	g.Join(a, []Link{"x", "y", "x"})
	g.Join(b, []Link{"y", "z"})
	g.Join(New(Config{Algorithm: NewReno}), []Link{"y"})
	count := func(f *Flow) (n int) {
		for range f.algorithm.(*bbr).member.siblings {
			n++
		}
		return n
	}
	if count(a) != 2 || count(b) != 2 {
		t.Errorf("%d and %d siblings", count(a), count(b))
	}
	g.Join(b, []Link{"z"})
	if count(a) != 1 || len(g.links) != 3 {
		t.Errorf("%d siblings, %d links", count(a), len(g.links))
	}
	g.Leave(a)
	g.Leave(b)
	g.Leave(b)
	if len(g.links) != 0 {
		t.Errorf("%d links remain", len(g.links))
	}
}

// What a member leaves when it falls silent, or leaves the group, the others have at once.
func TestVacated(t *testing.T) { vacated(t, 10) }

func vacated(t *testing.T, seeds int) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		delay time.Duration
		least float64 // of the link in the second after
	}{{"10 ms", 10 * ms, 0.85}, {"50 ms", 50 * ms, 0.70}} {
		for seed := range uint64(seeds) {
			s, g := newSim(seed), NewGroup()
			w := &wire{rate: 10 * mbit, delay: c.delay, queue: 100 * ms}
			flow := func() *sender {
				f := New(Config{Seed: s.random.Uint64()})
				g.Join(f, []Link{"common"})
				return s.flow(f, 0, c.delay, w)
			}
			stays, goes := flow(), flow()
			s.run(10*time.Second + time.Duration(seed)*300*ms)
			goes.left = 0
			if seed%2 == 0 {
				g.Leave(goes.Flow)
			}
			s.run(s.now + 2*c.delay)
			stays.begin()
			s.run(s.now + time.Second)
			if got := stays.rate(time.Second) / w.rate; got < c.least || stays.lost > 0 {
				t.Errorf("%s, seed %d: %.2f of the link, %d lost", c.name, seed, got, stays.lost)
			} else {
				t.Logf("%s, seed %d: %.2f of the link", c.name, seed, got)
			}
		}
	}
}

// Two small members that fall silent one after the other leave as much as one of twice the rate.
func TestVacatedByTwo(t *testing.T) { vacatedByTwo(t, 10) }

func vacatedByTwo(t *testing.T, seeds int) {
	t.Parallel()
	least, mean := 1.0, 0.0
	for seed := range uint64(seeds) {
		s, g := newSim(seed), NewGroup()
		w := &wire{rate: 10 * mbit, delay: 5 * ms, queue: 50 * ms, jitter: ms}
		stays := behind(s, g, 0, 20*ms, w)
		one, two := behind(s, g, 5500*ms, 15*ms, w), behind(s, g, 5500*ms, 10*ms, w)
		s.run(10*time.Second + time.Duration(seed)*70*ms)
		one.left = 0
		s.run(s.now + 40*ms)
		two.left = 0
		s.run(s.now + 100*ms)
		stays.begin()
		s.run(s.now + time.Second)
		got := stays.rate(time.Second) / w.rate
		least, mean = min(least, got), mean+got/float64(seeds)
	}
	t.Logf("in the next second: %.3f of the link, at least %.3f", mean, least)
	if least < 0.88 {
		t.Error("too little")
	}
}

// BenchmarkManySiblings is what acknowledgements of a thousand flows cost that leave the AS by two
// links.
func BenchmarkManySiblings(b *testing.B) {
	const count = 1000
	g := NewGroup()
	var flows []*Flow
	for i := range count {
		f := New(Config{Seed: uint64(i)})
		g.Join(f, []Link{Link(rune('a' + i%2)), Link(rune('A' + i%8)), Link(rune('0' + i%10))})
		flows = append(flows, f)
	}
	now, n := time.Second, int64(0)
	for b.Loop() {
		for _, f := range flows {
			f.OnSent(now, n, packetBytes, packetBytes)
		}
		now += 50 * ms
		for _, f := range flows {
			f.OnAck(now, []Packet{{n, packetBytes}}, nil, packetBytes)
		}
		n++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/count, "ns/ack")
}
