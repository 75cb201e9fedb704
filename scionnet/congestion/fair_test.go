package congestion

import (
	"fmt"
	"testing"
	"time"
)

func fair(seed uint64, w wire, ours, theirs int, kind string, d time.Duration) (float64, float64, string) {
	s := newSim(seed)
	var mine, other []*sender
	group := NewGroup()
	for i := range ours {
		f := New(Config{Seed: seed*100 + uint64(i)})
		group.Join(f, []Link{"shared"})
		mine = append(mine, s.flow(f, time.Duration(i)*100*ms, w.delay, &w))
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

// Our flows on one link against one of the kernel's, on queues of common lengths: one or many, they
// take about what one flow takes. The bounds are wide where a model of a rival is not the rival;
// what counts is measured on real links.
func TestRivals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind        string
		queue       time.Duration
		ours        int
		least, most float64
	}{
		{"cubic", 50 * ms, 1, 0.4, 0.6}, {"cubic", 50 * ms, 2, 0.4, 0.65}, {"cubic", 50 * ms, 4, 0.4, 0.75},
		{"cubic", 160 * ms, 1, 0.25, 0.6},
		{"bbr1", 50 * ms, 1, 0.4, 0.6}, {"bbr1", 50 * ms, 2, 0.4, 0.6}, {"bbr1", 50 * ms, 4, 0.4, 0.65},
		{"bbr1", 160 * ms, 1, 0.4, 0.6}, {"bbr1", 15 * ms, 1, 0.33, 0.6},
		{"reno", 50 * ms, 1, 0.4, 0.7},
	} {
		sum, rest, note := 0.0, 0.0, ""
		const n = 16
		for seed := range uint64(n) {
			a, b, last := fair(seed, wire{rate: 20 * mbit, delay: 20 * ms, queue: c.queue}, c.ours, 1, c.kind, 40*time.Second)
			sum, rest, note = sum+a/n, rest+b/n, last
		}
		line := fmt.Sprintf("%d against %s, queue %v: %.2f and %.2f of the link, %s", c.ours, c.kind, c.queue, sum, rest, note)
		if sum < c.least || sum > c.most || sum+rest < 0.95 {
			t.Error(line)
		} else {
			t.Log(line)
		}
	}
}

// A flow that starts after another, which has filled the link by then, comes close to its half
// within seconds, whatever the queue.
func TestNewcomer(t *testing.T) {
	t.Parallel()
	const runs = 16
	for _, c := range []struct {
		delay, queue, late time.Duration
	}{
		{22 * ms, 30 * ms, 300 * ms}, {22 * ms, 50 * ms, 300 * ms}, {22 * ms, 100 * ms, 300 * ms},
		{22 * ms, 50 * ms, 3 * time.Second}, {10 * ms, 50 * ms, 3 * time.Second},
	} {
		share := 0.0
		for seed := range uint64(runs) {
			s, w := newSim(seed), wire{rate: 10 * mbit, delay: c.delay, queue: c.queue}
			first := s.flow(New(Config{Seed: 2 * seed}), 0, w.delay, &w)
			s.flow(New(Config{Seed: 2*seed + 1}), c.late, w.delay, &w)
			s.run(c.late + 10*time.Second)
			first.begin()
			s.run(c.late + 20*time.Second)
			share += first.rate(10*time.Second) / w.rate / runs
		}
		if share > 0.68 {
			t.Errorf("%v each way, queue %v, %v later: the first has %.2f of the link after 10 s", c.delay, c.queue, c.late, share)
		} else {
			t.Logf("%v each way, queue %v, %v later: the first has %.2f of the link after 10 s", c.delay, c.queue, c.late, share)
		}
	}
}

// Flows of many hosts start in each other's queues. They still find out how short the path is, keep
// only a short queue, and share the link.
func TestManyHosts(t *testing.T) { manyHosts(t, 3) }

func manyHosts(t *testing.T, seeds int) {
	t.Parallel()
	const d = 30 * time.Second
	for _, hosts := range []int{2, 10} {
		least := 0.0
		for seed := range uint64(seeds) {
			s, w := newSim(seed), wire{rate: 40 * mbit, delay: 5 * ms, queue: 200 * ms, jitter: 300 * time.Microsecond}
			for i := range hosts {
				s.flow(New(Config{Seed: seed*100 + uint64(i)}), time.Duration(i)*300*ms, w.delay, &w)
			}
			s.run(30 * time.Second)
			for _, x := range s.flows {
				x.begin()
			}
			s.run(30*time.Second + d)
			smallest, trip := 1.0, time.Duration(0)
			for _, x := range s.flows {
				smallest = min(smallest, x.rate(d)/w.rate*float64(hosts))
				trip = max(trip, x.percentile(0.5))
			}
			least += smallest / float64(seeds)
			if trip > 50*ms {
				t.Errorf("%d hosts, seed %d: median round trip of %v on a path of 10 ms", hosts, seed, trip)
			}
		}
		t.Logf("%d hosts: the least has %.2f of its share", hosts, least)
		if least < 0.7 {
			t.Error("too little")
		}
	}
}

// A flow that starts after one of the kernel's is pushed back at first, and recovers.
func TestLatecomer(t *testing.T) {
	t.Parallel()
	const runs = 6
	for _, c := range []struct {
		kind string
		late time.Duration
	}{{"cubic", 100 * ms}, {"reno", 100 * ms}, {"bbr1", 500 * ms}} {
		kind, late := c.kind, c.late
		share := 0.0
		for seed := range uint64(runs) {
			s, w := newSim(seed), wire{rate: 20 * mbit, delay: 20 * ms, queue: 50 * ms}
			s.flow(rival(kind), 0, w.delay, &w)
			x := s.flow(New(Config{Seed: seed}), late, w.delay, &w)
			s.run(late + 4*time.Second)
			x.begin()
			s.run(late + 16*time.Second)
			share += x.rate(12*time.Second) / w.rate / runs
		}
		if share < 0.4 {
			t.Errorf("beside %s: %.2f of the link", kind, share)
		} else {
			t.Logf("beside %s: %.2f of the link", kind, share)
		}
	}
}

// When datagrams end that have filled the queue for ten seconds, a flow takes the link back within a
// second, also if its least round trip is too old by then.
func TestDatagramsEnd(t *testing.T) {
	t.Parallel()
	const runs = 60
	for _, jitter := range []time.Duration{0, 2 * ms} {
		mean := 0.0
		for seed := range uint64(runs) {
			s, w := newSim(seed), wire{rate: 10 * mbit, delay: 10 * ms, queue: 50 * ms, jitter: jitter}
			x := s.flow(New(Config{Seed: seed}), 0, w.delay, &w)
			from := 5*time.Second + time.Duration(seed)*17*ms
			until := from + 9700*ms + time.Duration(seed)*13*ms
			const gap = packetBytes * 8 * time.Second / (9 * mbit)
			arrive := s.call(func(int64) {})
			leave := s.call(func(int64) { s.carry(&w, packetBytes, arrive, 0) })
			for at := from; at < until; at += time.Duration(float64(gap) * (0.7 + 0.6*s.random.Float64())) {
				s.at(at, leave, 0)
			}
			s.run(until + 700*ms)
			x.begin()
			s.run(s.now + time.Second)
			mean += x.rate(time.Second) / w.rate / runs
		}
		t.Logf("jitter %v: %.3f of the link", jitter, mean)
		if mean < 0.92 {
			t.Error("too little")
		}
	}
}

// Datagrams give way to nothing. A flow takes what they leave, loses a part of its packets for it,
// and has the path back soon after they end.
func TestDatagrams(t *testing.T) {
	t.Parallel()
	const runs, from, until = 32, 5 * time.Second, 14 * time.Second
	for _, c := range []struct {
		part                     float64 // of the link that they send at
		least, lost, soon, after float64 // soon: in the first second after their end
	}{
		{part: 0.2, least: 0.98, lost: 0.01, soon: 0.9, after: 0.95},
		{part: 0.5, least: 0.93, lost: 0.10, soon: 0.8, after: 0.95},
		{part: 0.8, least: 0.93, lost: 0.28, soon: 0.6, after: 0.95},
	} {
		during, lost, soon, after := 0.0, 0.0, 0.0, 0.0
		for seed := range uint64(runs) {
			s, w := newSim(seed), wire{rate: 10 * mbit, delay: 10 * ms, queue: 50 * ms}
			x := s.flow(New(Config{Seed: seed}), 0, w.delay, &w)
			gap := packetBytes * 8 / (c.part * w.rate) * float64(time.Second)
			arrive := s.call(func(int64) {})
			leave := s.call(func(int64) { s.carry(&w, packetBytes, arrive, 0) })
			for at := from; at < until; at += time.Duration(gap * (0.5 + s.random.Float64())) {
				s.at(at, leave, 0)
			}
			s.run(from)
			x.begin()
			s.run(until)
			during += x.rate(until-from) / ((1 - c.part) * w.rate) / runs
			lost += float64(x.lost) / float64(x.sent) / runs
			x.begin()
			s.run(until + time.Second)
			soon += x.rate(time.Second) / w.rate / runs
			x.begin()
			s.run(until + 9*time.Second)
			after += x.rate(8*time.Second) / w.rate / runs
		}
		line := fmt.Sprintf("datagrams at %.1f of the link: %.2f of the rest, %.3f lost; %.2f of the link at once, %.2f later",
			c.part, during, lost, soon, after)
		if during < c.least || lost > c.lost || soon < c.soon || after < c.after {
			t.Error(line)
		} else {
			t.Log(line)
		}
	}
}
