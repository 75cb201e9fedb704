package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// flow is the data of one connection in flight: a NewReno window over the links of a path.
type flow struct {
	hops    []*link // in the order of the data, from the far end
	base    float64 // round trip in seconds with empty queues
	backlog []float64
	in      []float64 // bytes that arrive at each hop in this step
	running bool      // has work
	starts  time.Duration

	window, threshold float64 // packets
	cutAt             float64 // when a loss is noticed, in seconds; 0: none under way
	recover           float64 // losses before then belong to the last cut
	delivered         float64 // bytes
	lastDelivery      time.Duration
}

const (
	initialWindow = 10
	minWindow     = 2
	// keep is the part of the window that remains after a loss, as in quic-go's NewReno.
	keep = 0.7
)

func newFlow(hops []*link) *flow {
	f := &flow{
		hops: hops, backlog: make([]float64, len(hops)), in: make([]float64, len(hops)),
		window: initialWindow, threshold: math.Inf(1),
	}
	for _, l := range hops {
		f.base += 2 * l.Delay.Seconds()
	}
	f.base = max(f.base, 0.001)
	return f
}

func (f *flow) alive() bool { return !slices.ContainsFunc(f.hops, (*link).dead) }

// rtt returns the round-trip time in seconds with the current queues.
func (f *flow) rtt() float64 {
	t := f.base
	for _, l := range f.hops {
		t += l.delay()
	}
	return t
}

// start begins to send one round trip later, when the first requests have arrived, with a fresh
// window as after idling.
func (f *flow) start(at time.Duration) {
	f.running, f.window = true, initialWindow
	f.starts = at + time.Duration(f.rtt()*float64(time.Second))
	f.lastDelivery = at
	f.cutAt, f.recover = 0, 0
}

// send offers this step's packets to the first hop, and what left each hop to the next.
func (f *flow) send(at time.Duration, dt float64) {
	for h := len(f.hops) - 1; h > 0; h-- {
		f.hops[h].arrived += f.in[h]
	}
	f.in[0] = 0
	if f.running && at >= f.starts {
		f.in[0] = f.window * packet * dt / f.rtt()
		f.hops[0].arrived += f.in[0]
	}
}

// move applies what the links accepted and forwarded. Losses and deliveries change the window.
func (f *flow) move(at time.Duration, random *rand.Rand) {
	var lost, pass float64
	for h, l := range f.hops {
		arrives := f.in[h]
		lost += arrives * (1 - l.accept) / packet
		stays := f.backlog[h] + arrives*l.accept
		if l.dead() {
			lost += f.backlog[h] / packet
			stays = 0
		}
		f.in[h] = pass
		pass = stays * l.drain
		f.backlog[h] = stays - pass
		if l.now.Loss > 0 {
			lost += pass * l.now.Loss / packet
			pass *= 1 - l.now.Loss
		}
	}
	// in[h] now holds what left hop h-1; it arrives in the next step.
	got := pass
	f.delivered += got
	if got > 0 {
		f.lastDelivery = at
	}
	now := at.Seconds()
	if f.cutAt > 0 && now >= f.cutAt {
		f.window = max(minWindow, f.window*keep)
		f.threshold, f.cutAt = f.window, 0
	}
	if lost > 0 && now >= f.recover && f.cutAt == 0 && random.Float64() < 1-math.Exp(-lost) {
		rtt := f.rtt()
		f.cutAt, f.recover = now+rtt, now+2*rtt
	}
	if !f.running || got == 0 || f.cutAt > 0 {
		return
	}
	if f.window < f.threshold {
		f.window += got / packet * math.Ln2
		// Hybrid slow start, as in quic-go: a growing round trip ends slow start before the queue
		// overflows.
		if f.rtt() > f.base+min(max(f.base/8, 0.004), 0.016) {
			f.threshold = f.window
		}
	} else {
		f.window += got / packet / f.window
	}
}

// unanswered reports whether nothing arrived for that many probe timeouts although data was in
// flight.
func (f *flow) unanswered(at, ptos time.Duration) bool {
	pto := time.Duration((1.5*f.base + 0.025) * float64(time.Second))
	return f.running && at >= f.starts && at-f.lastDelivery > max(ptos*pto, 200*time.Millisecond)
}
