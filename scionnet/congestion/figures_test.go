package congestion

import (
	"fmt"
	"testing"
	"time"
)

const mbit = 1e6

// One flow alone, from its start. Rates are parts of the link's, all packets counted.
func TestAlone(t *testing.T) {
	for _, c := range []struct {
		name string
		wire
		least float64       // of the rate
		added time.Duration // most that 95 % of the round trips are longer than the base, once started; 0: any
		lost  float64       // most of the packets; 0: any
		lazy  time.Duration
		tick  time.Duration
	}{
		{name: "clean", wire: wire{rate: 20 * mbit, delay: 40 * ms, queue: 80 * ms}, least: 0.96, lost: 0.005},
		{name: "0.5 % loss", wire: wire{rate: 20 * mbit, delay: 40 * ms, queue: 80 * ms, loss: 0.005}, least: 0.95},
		{name: "1 % loss", wire: wire{rate: 20 * mbit, delay: 40 * ms, queue: 80 * ms, loss: 0.01}, least: 0.93},
		{name: "5 % loss", wire: wire{rate: 20 * mbit, delay: 40 * ms, queue: 80 * ms, loss: 0.05}, least: 0.87},
		{name: "5 % loss, short", wire: wire{rate: 20 * mbit, delay: 10 * ms, queue: 50 * ms, loss: 0.05}, least: 0.85},
		{name: "shallow", wire: wire{rate: 40 * mbit, delay: 60 * ms, queue: 10 * ms}, least: 0.94, lost: 0.03},
		{name: "jitter", wire: wire{rate: 20 * mbit, delay: 20 * ms, queue: 50 * ms, jitter: 30 * ms, loss: 0.01}, least: 0.90},
		{name: "deep", wire: wire{rate: 20 * mbit, delay: 30 * ms, queue: 240 * ms}, least: 0.96, added: 25 * ms, lost: 0.001},
		{name: "deep, long", wire: wire{rate: 20 * mbit, delay: 60 * ms, queue: 480 * ms}, least: 0.93, added: 25 * ms, lost: 0.001},
		{name: "policer", wire: wire{rate: 100 * mbit, delay: 30 * ms, queue: 50 * ms, police: 20 * mbit, bucket: 64e3}, least: 0.92, lost: 0.05},
		{name: "policer, long", wire: wire{rate: 100 * mbit, delay: 60 * ms, queue: 50 * ms, police: 20 * mbit, bucket: 250e3}, least: 0.92, lost: 0.05},
		{name: "late timers", wire: wire{rate: 30 * mbit, delay: 20 * ms, queue: 50 * ms}, least: 0.94, lazy: 5 * ms},
		{name: "bunched acknowledgements", wire: wire{rate: 20 * mbit, delay: 20 * ms, queue: 50 * ms}, least: 0.93, tick: 20 * ms},
		{name: "reordering", wire: wire{rate: 20 * mbit, delay: 20 * ms, queue: 50 * ms, jitter: 5 * ms, reorder: true}, least: 0.45},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(3) {
				const d = 20 * time.Second
				s, w := newSim(seed), c.wire
				x := s.flow(New(Config{Seed: seed}), 0, w.delay, &w)
				x.lazy, x.ackTick = c.lazy, c.tick
				s.run(3 * time.Second)
				x.rtts = nil
				s.run(d)
				rate := w.rate
				if w.police > 0 {
					rate = w.police
				}
				got, added := x.rate(d)/rate, x.percentile(0.95)-2*w.delay
				lost := float64(x.lost) / float64(x.sent)
				line := fmt.Sprintf("seed %d: %.3f of the rate, %v added, %.3f lost, window %d, %s",
					seed, got, added.Round(ms), lost, x.Window(), x.Snapshot().State)
				if got < c.least || c.added > 0 && added > c.added || c.lost > 0 && lost > c.lost {
					t.Error(line)
				} else {
					t.Log(line)
				}
			}
		})
	}
}

// TestLargeSeeds repeats simulations with many more seeds.
func TestLargeSeeds(t *testing.T) {
	for name, c := range map[string]struct {
		test  func(t *testing.T, seeds int)
		seeds int
	}{
		"ManyHosts":          {manyHosts, 12},
		"Jitter":             {jitters, 100},
		"StartEnds":          {startEnds, 100},
		"Outage":             {outages, 20},
		"SlowerTwice":        {slowerTwice, 20},
		"Vacated":            {vacated, 40},
		"VacatedByTwo":       {vacatedByTwo, 40},
		"ShortQueue":         {shortQueue, 4},
		"SiblingsShortQueue": {siblingsShortQueue, 20},
		"Short":              {short, 4},
		"Rough":              {rough, 4},
		"Recovers":           {recovers, 12},
	} {
		t.Run(name, func(t *testing.T) { c.test(t, c.seeds) })
	}
}

// Startup ends soon after the queue overflows, and not because of a queue that jitter only feigns.
func TestStartEnds(t *testing.T) { startEnds(t, 10) }

func startEnds(t *testing.T, seeds int) {
	t.Parallel()
	for _, c := range []struct {
		delay, jitter time.Duration
		loss          float64
		lost          int
		least         float64 // of the link in eight seconds
	}{
		{delay: 20 * ms, lost: 45, least: 0.95}, {delay: 60 * ms, lost: 80, least: 0.9},
		{delay: 20 * ms, jitter: 30 * ms, loss: 0.01, lost: 1e4, least: 0.8},
	} {
		for seed := range uint64(seeds) {
			w := wire{rate: 20 * mbit, delay: c.delay, queue: 8 * c.delay / 5, jitter: c.jitter, loss: c.loss}
			s := newSim(seed)
			x := s.flow(New(Config{Seed: seed}), 0, c.delay, &w)
			s.run(8 * time.Second)
			if got := x.rate(8*time.Second) / w.rate; x.lost > c.lost || got < c.least {
				t.Errorf("%+v, seed %d: %d lost, %.3f of the rate", c, seed, x.lost, got)
			}
		}
	}
}

// Jitter in both directions delays all packets, and is not taken for a queue.
func TestJitter(t *testing.T) { jitters(t, 10) }

func jitters(t *testing.T, seeds int) {
	t.Parallel()
	for _, c := range []struct {
		there, back time.Duration
		loss        float64
	}{{there: 30 * ms}, {30 * ms, 30 * ms, 0}, {30 * ms, 30 * ms, 0.01}, {there: 60 * ms}} {
		for seed := range uint64(seeds) {
			s, w := newSim(seed), wire{rate: 20 * mbit, delay: 20 * ms, queue: 50 * ms, jitter: c.there, loss: c.loss}
			x := s.flow(New(Config{Seed: seed}), 0, w.delay, &w)
			x.jitter = c.back
			s.run(10 * time.Second)
			if got := x.rate(s.now) / w.rate; got < 0.85 {
				t.Errorf("%+v, seed %d: %.3f of the rate, %+v", c, seed, got, x.Snapshot())
			}
		}
	}
}
