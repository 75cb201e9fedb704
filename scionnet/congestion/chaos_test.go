package congestion

import (
	"math"
	"testing"
	"time"
)

// Any sequence of events, also impossible ones, keeps window and rate within bounds.
func FuzzFlow(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x01\x10\x00\x05\x30\x02\x01\xff\x03"), uint8(0))
	f.Add([]byte("\x00\x00\x01\x01\x00\x02\x01\xff\x00\x01\x02\x00\x04\xff\xff\xff\xff\x00\x00\x00"), uint8(1))
	f.Fuzz(func(t *testing.T, ops []byte, kind uint8) {
		flow := New(Config{Algorithm: []Algorithm{BBR, NewReno}[kind%2], Seed: uint64(kind)})
		var now time.Duration
		next, inflight := int64(0), 0
		for len(ops) >= 3 {
			op, a, b := ops[0], int(ops[1]), int(ops[2])
			ops = ops[3:]
			now += time.Duration(a*a*b) * time.Microsecond
			switch op % 6 {
			case 0, 1:
				for range b%32 + 1 {
					size := 20 + a*5
					inflight += size
					flow.OnSent(now, next, size, inflight)
					next++
				}
			case 2, 3: // acknowledged or lost, known or not, more than once, too many
				var p []Packet
				for i := range a%40 + 1 {
					p = append(p, Packet{next - int64(b) + int64(i), 20 + b*5})
				}
				acked, lost := p, []Packet(nil)
				if op%6 == 3 {
					acked, lost = p[:len(p)/2], p[len(p)/2:]
				}
				flow.OnAck(now, acked, lost, inflight)
				for _, x := range p {
					inflight = max(0, inflight-x.Size)
				}
			case 4:
				flow.SetPacketSize(a * b)
			case 5:
				next += int64(a * b)
				now -= time.Duration(b) * time.Microsecond
			}
			window, rate := flow.Window(), flow.PacingRate()
			if window < minWindow || window > maxWindow {
				t.Fatalf("window %d", window)
			}
			if math.IsNaN(rate) || rate < minRate || rate > maxRate {
				t.Fatalf("rate %g", rate)
			}
			if wait := flow.NextSend() - now; wait > time.Hour {
				t.Fatalf("the next packet leaves in %v", wait)
			}
			if s := flow.Snapshot(); s.State == "" || math.IsNaN(s.DeliveryRate) {
				t.Fatalf("%+v", s)
			}
		}
	})
}

// A path that was slow, lossy, far, cut off or shared is used fully again once it is good.
func TestRecovers(t *testing.T) { recovers(t, 4) }

func recovers(t *testing.T, seeds int) {
	t.Parallel()
	for seed := range uint64(seeds) {
		for _, algorithm := range []Algorithm{BBR, NewReno} {
			s := newSim(seed)
			w := wire{rate: 20 * mbit, delay: 20 * ms, queue: 50 * ms}
			good := w
			x := s.flow(New(Config{Algorithm: algorithm, Seed: seed}), 0, w.delay, &w)
			for s.now < 20*time.Second {
				s.run(s.now + time.Duration(s.random.IntN(3000))*ms)
				w.rate = (0.5 + 40*s.random.Float64()) * mbit
				w.delay = time.Duration(s.random.IntN(150)) * ms
				w.loss = max(0, s.random.Float64()*1.5-0.5) // two thirds of them are lossy, some lose all
				w.jitter = time.Duration(s.random.IntN(30)) * ms
				x.left = []int{-1, -1, 0, 20}[s.random.IntN(4)]
			}
			w.rate, w.delay, w.queue, w.loss, w.jitter = good.rate, good.delay, good.queue, 0, 0
			x.left = -1
			x.wake()
			const settle, measure = 20 * time.Second, 10 * time.Second
			s.run(s.now + settle)
			x.begin()
			s.run(s.now + measure)
			if got := x.rate(measure) / good.rate; got < 0.9 {
				t.Errorf("%s, seed %d: %.3f of the rate, %+v", algorithm, seed, got, x.Snapshot())
			}
		}
	}
}

// A path that drops everything for a moment, while a flow starts or later, is used as before once it
// is back.
func TestOutage(t *testing.T) { outages(t, 5) }

func outages(t *testing.T, seeds int) {
	t.Parallel()
	const outage = 300 * ms
	for _, delay := range []time.Duration{5 * ms, 20 * ms, 60 * ms} {
		for seed := range uint64(seeds) {
			rate := func(begin, back time.Duration) float64 {
				s, w := newSim(seed), wire{rate: 20 * mbit, delay: delay, queue: 50 * ms}
				x := s.flow(New(Config{Seed: seed}), 0, w.delay, &w)
				s.run(begin)
				w.loss = 1
				s.run(s.now + outage)
				w.loss = 0
				for x.pto > 0 {
					s.run(s.now + ms)
				}
				s.run(s.now + back)
				x.begin()
				s.run(s.now + 2*time.Second)
				return x.rate(2*time.Second) / w.rate
			}
			starts := rate(time.Duration(seed+2)*delay, time.Second)
			cruises := rate(5*time.Second+time.Duration(seed)*370*ms, 2*delay)
			if starts < 0.9 || cruises < 0.75 {
				t.Errorf("%v each way, seed %d: %.3f of the rate after an outage in the start, %.3f after a later one",
					delay, seed, starts, cruises)
			}
		}
	}
}

// A path that becomes slower twice is not taken for an even slower one: the rate that a trial finds
// is that of its own packets.
func TestSlowerTwice(t *testing.T) { slowerTwice(t, 5) }

func slowerTwice(t *testing.T, seeds int) {
	t.Parallel()
	for _, gap := range []time.Duration{400 * ms, 800 * ms} {
		for seed := range uint64(seeds) {
			s, w := newSim(seed), wire{rate: 40 * mbit, delay: 60 * ms, queue: 5 * ms}
			x := s.flow(New(Config{Seed: seed}), 0, w.delay, &w)
			s.run(5*time.Second + time.Duration(seed)*370*ms)
			for range 2 {
				w.rate /= 2
				s.run(s.now + gap)
			}
			x.begin()
			s.run(s.now + 2*time.Second)
			if got := x.rate(2*time.Second) / w.rate; got < 0.8 {
				t.Errorf("seed %d, again after %v: %.3f of the rate, %+v", seed, gap, got, x.Snapshot())
			}
		}
	}
}

// A machine whose timers are late and a path with jitter and losses at once: neither chance nor
// haste ends the start early, and a link that becomes ten times as fast is found.
func TestRough(t *testing.T) { rough(t, 1) }

func rough(t *testing.T, seeds int) {
	t.Parallel()
	for seed := range uint64(seeds) {
		for _, late := range []time.Duration{10 * ms, 20 * ms, 40 * ms} {
			for _, loss := range []float64{0, 0.01, 0.05} {
				s, w := newSim(seed), wire{rate: 20 * mbit, delay: 20 * ms, queue: 50 * ms, loss: loss, jitter: late}
				x := s.flow(New(Config{Seed: seed}), 0, w.delay, &w)
				x.lazy = late
				const d = 15 * time.Second
				s.run(d)
				start := x.rate(d) / w.rate
				w.rate /= 10
				s.run(2 * d)
				w.rate *= 10
				s.run(3 * d)
				x.begin()
				s.run(3*d + 5*time.Second)
				again := x.rate(5*time.Second) / w.rate
				if start < 0.85 || again < 0.8 {
					t.Errorf("seed %d, %v late, %.2f lost: %.3f of the rate, %.3f after it was a tenth", seed, late, loss, start, again)
				}
			}
		}
	}
}

// A path on which both hosts take longer than the path: timers are late, acknowledgements come in
// bunches, the receiver does not run for a moment now and then.
func TestShort(t *testing.T) { short(t, 1) }

func short(t *testing.T, seeds int) {
	t.Parallel()
	for seed := range uint64(seeds) {
		for _, tick := range []time.Duration{0, ms / 4, ms} {
			s, w := newSim(seed), wire{rate: 1000 * mbit, delay: 50 * time.Microsecond, queue: 4 * ms}
			x := s.flow(New(Config{Seed: seed}), 0, w.delay, &w)
			x.lazy, x.ackTick = ms, tick
			for s.now < 2*time.Second {
				s.run(s.now + time.Duration(20+s.random.IntN(100))*ms)
				w.busy = max(w.busy, s.now+5*ms) // the receiver does not run
			}
			if got := x.rate(s.now) / w.rate; got < 0.6 {
				t.Errorf("seed %d, acknowledgements each %v: %.3f of the rate, %+v", seed, tick, got, x.Snapshot())
			}
		}
	}
}

// A switch in a building has a queue for few packets. Hosts that keep more in flight lose the rest.
func TestShortQueue(t *testing.T) { shortQueue(t, 1) }

func shortQueue(t *testing.T, seeds int) {
	t.Parallel()
	for _, c := range []struct {
		rate  float64
		queue time.Duration
		lost  float64 // most of the packets
	}{
		{20 * mbit, 4 * ms, 0.08}, // 10 packets: NewReno loses 0.05
		{100 * mbit, ms, 0.04}, {100 * mbit, 4 * ms, 0.04},
		{1000 * mbit, ms / 2, 0.01}, {1000 * mbit, ms, 0.01}, {1000 * mbit, 4 * ms, 0.01},
	} {
		for seed := range uint64(seeds) {
			s, w := newSim(seed), wire{rate: c.rate, delay: 100 * time.Microsecond, queue: c.queue}
			x := s.flow(New(Config{Seed: seed}), 0, w.delay, &w)
			s.run(5 * time.Second)
			rate, lost := x.rate(s.now)/w.rate, float64(x.lost)/float64(x.sent)
			if rate < 0.97 || lost > c.lost {
				t.Errorf("%.0f Mbit/s, queue %v, seed %d: %.3f of the rate, %.3f lost, %+v", c.rate/mbit, c.queue, seed, rate, lost, x.Snapshot())
			}
		}
	}
}

// A round trip takes 1.4 ms, and busy hosts add about as much. The receiver pauses now and then,
// which spoils probes.
func TestBusyHosts(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		for _, late := range []time.Duration{ms / 2, ms} {
			s, w := newSim(seed), wire{rate: 100 * mbit, delay: 700 * time.Microsecond, queue: 20 * ms}
			x := s.flow(New(Config{Seed: seed}), 0, w.delay, &w)
			x.lazy, x.ackTick = late, late/2
			for s.now < 10*time.Second {
				s.run(s.now + time.Duration(20+s.random.IntN(100))*ms)
				w.busy = max(w.busy, s.now+time.Duration(s.random.IntN(15))*ms)
			}
			if got := x.rate(s.now) / w.rate; got < 0.8 {
				t.Errorf("seed %d, %v late: %.3f of the rate, %+v", seed, late, got, x.Snapshot())
			}
		}
	}
}
