package congestion

import (
	"math/rand/v2"
	"slices"
	"time"
)

// A network in simulated time: links with a rate, a queue, delay, loss, jitter and a policer, and
// senders that put packets on a chain of them. Acknowledgements return after a delay and are not
// lost.

const packetBytes = 1452

type sim struct {
	now    time.Duration
	events events
	count  int
	calls  []func(int64)
	random *rand.Rand
	flows  []*sender
}

type simEvent struct {
	at  time.Duration
	seq int
	do  call
	arg int64
}

// call is the index of a function in sim.calls. With pointers in the heap, the garbage collector
// would take a quarter of the time of all simulations.
type call int

func (e *simEvent) before(other *simEvent) bool {
	return e.at < other.at || e.at == other.at && e.seq < other.seq
}

// events is a binary heap. The one of the standard library would allocate each event, and take a
// third of the time of all simulations.
type events []simEvent

func (e *events) push(x simEvent) {
	h := append(*e, x)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !x.before(&h[up]) {
			break
		}
		h[i], i = h[up], up
	}
	h[i] = x
	*e = h
}

func (e *events) pop() simEvent {
	h := *e
	first, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	*e = h
	for i := 0; len(h) > 0; {
		down := 2*i + 1
		if down+1 < len(h) && h[down+1].before(&h[down]) {
			down++
		}
		if down >= len(h) || !h[down].before(&last) {
			h[i] = last
			break
		}
		h[i], i = h[down], down
	}
	return first
}

func newSim(seed uint64) *sim { return &sim{random: rand.New(rand.NewPCG(seed, 1))} }

// call keeps a function for any number of events.
func (s *sim) call(f func(int64)) call {
	s.calls = append(s.calls, f)
	return call(len(s.calls) - 1)
}

func (s *sim) at(t time.Duration, do call, arg int64) {
	s.count++
	s.events.push(simEvent{max(t, s.now), s.count, do, arg})
}

func (s *sim) run(until time.Duration) {
	for len(s.events) > 0 && s.events[0].at <= until {
		e := s.events.pop()
		s.now = e.at
		s.calls[e.do](e.arg)
	}
	s.now = until
}

// wire is one direction of a link.
type wire struct {
	rate    float64 // bits a second
	delay   time.Duration
	queue   time.Duration // drop-tail, as the time that it takes to drain
	loss    float64
	jitter  time.Duration // uniform, added to the delay
	reorder bool          // jitter may reorder
	police  float64       // bits a second; 0: no policer
	bucket  float64       // its depth in bytes

	tokens  float64
	filled  time.Duration
	busy    time.Duration // when the last queued packet leaves
	arrived time.Duration // when the last packet arrives
	carried float64
}

func (s *sim) carry(w *wire, size int, arrive call, arg int64) {
	if w.police > 0 {
		if w.filled == 0 {
			w.tokens = w.bucket
		}
		w.tokens = min(w.bucket, w.tokens+(s.now-w.filled).Seconds()*w.police/8)
		w.filled = s.now
		if w.tokens < float64(size) {
			return
		}
		w.tokens -= float64(size)
	}
	if w.busy > s.now+w.queue {
		return
	}
	w.busy = max(w.busy, s.now) + time.Duration(float64(size)*8/w.rate*1e9)
	if s.random.Float64() < w.loss {
		return
	}
	at := w.busy + w.delay + time.Duration(s.random.Float64()*float64(w.jitter))
	if !w.reorder {
		at = max(at, w.arrived)
	}
	w.arrived = at
	w.carried += float64(size)
	s.at(at, arrive, arg)
}

// sender is one connection with endless data, unless it is told otherwise.
type sender struct {
	*Flow
	s       *sim
	path    []*wire
	back    time.Duration // delay of acknowledgements
	jitter  time.Duration // of acknowledgements, as of a wire
	ackTick time.Duration // acknowledgements leave the path in batches this far apart; 0: at once
	start   time.Duration
	left    int           // packets that the application still has; < 0: endless
	lazy    time.Duration // timers are late by up to this much

	next      int64
	out       []outstanding // by number
	inflight  int
	largest   int64
	srtt, rtt time.Duration
	timer     time.Duration
	pto       int
	lastAck   time.Duration
	arrives   time.Duration // when the last acknowledgement does
	sent      int
	lost      int
	delivered int // bytes
	mark      int // delivered when the measurement began
	rtts      []time.Duration
	pending   []Packet // at the receiver, not acknowledged yet
	flush     bool
	acks      [][]Packet // on their way, in the order in which they arrive
	spare     [][]Packet // memory of earlier ones
	trace     func()

	hops                  []call // what a packet does at the end of each wire
	alarm, flushes, acked call
	done                  time.Duration // when the last packet arrived
}

type outstanding struct {
	number int64
	at     time.Duration
	gone   bool
}

func (s *sim) flow(f *Flow, start, back time.Duration, path ...*wire) *sender {
	x := &sender{Flow: f, s: s, path: path, back: back, start: start, left: -1, largest: -1}
	x.alarm = s.call(x.onTimer)
	x.flushes = s.call(func(int64) {
		x.flush = false
		x.acknowledge()
	})
	x.acked = s.call(func(int64) {
		acks := x.acks[0]
		x.acks = x.acks[1:]
		x.gotAck(acks)
		x.spare = append(x.spare, acks[:0])
	})
	for i := range path {
		x.hops = append(x.hops, s.call(func(n int64) { x.hop(n, i+1) }))
	}
	f.SetPacketSize(packetBytes)
	s.flows = append(s.flows, x)
	s.at(start, s.call(func(int64) { x.wake() }), 0)
	return x
}

func (x *sender) wake() {
	s := x.s
	x.detectLost()
	for x.left != 0 && x.CanSend(x.inflight) && x.HasBudget(s.now) {
		x.send()
	}
	if x.left != 0 && x.CanSend(x.inflight) {
		late := time.Duration(s.random.Float64() * float64(x.lazy))
		x.wakeAt(max(x.NextSend(), s.now+1) + late)
	}
	if x.inflight > 0 {
		x.wakeAt(x.ptoAt())
	}
}

func (x *sender) ptoAt() time.Duration {
	return x.lastAck + max(3*x.srtt, 300*time.Millisecond)<<min(x.pto, 6)
}

func (x *sender) wakeAt(t time.Duration) {
	if x.timer > x.s.now && x.timer <= t {
		return
	}
	x.timer = t
	x.s.at(t, x.alarm, int64(t))
}

// onTimer ignores a timer that another has replaced.
func (x *sender) onTimer(t int64) {
	if x.timer != time.Duration(t) {
		return
	}
	x.timer = 0
	if x.inflight > 0 && x.s.now >= x.ptoAt() {
		x.pto++
		x.lastAck = x.s.now
		x.send()
		x.send()
	}
	x.wake()
}

func (x *sender) send() {
	s := x.s
	if x.inflight == 0 {
		x.lastAck = s.now
	}
	n := x.next
	x.next++
	if x.left > 0 {
		x.left--
	}
	x.sent++
	x.inflight += packetBytes
	x.out = append(x.out, outstanding{number: n, at: s.now})
	x.OnSent(s.now, n, packetBytes, x.inflight)
	x.hop(n, 0)
}

func (x *sender) hop(n int64, i int) {
	if i == len(x.path) {
		x.receive(n)
		return
	}
	x.s.carry(x.path[i], packetBytes, x.hops[i], n)
}

// receive acknowledges every second packet, or after 25 ms.
func (x *sender) receive(n int64) {
	x.pending = append(x.pending, Packet{n, packetBytes})
	x.done = x.s.now
	if len(x.pending) >= 2 && x.ackTick == 0 {
		x.acknowledge()
		return
	}
	if !x.flush {
		x.flush = true
		wait := 25 * time.Millisecond
		if x.ackTick > 0 {
			wait = x.ackTick
		}
		x.s.at(x.s.now+wait, x.flushes, 0)
	}
}

func (x *sender) acknowledge() {
	if len(x.pending) == 0 {
		return
	}
	acks := x.pending
	x.pending = nil
	if n := len(x.spare); n > 0 {
		x.pending, x.spare = x.spare[n-1], x.spare[:n-1]
	}
	slices.SortFunc(acks, func(a, b Packet) int { return int(a.Number - b.Number) })
	x.arrives = max(x.arrives, x.s.now+x.back)
	if x.jitter > 0 {
		x.arrives = max(x.arrives, x.s.now+x.back+time.Duration(x.s.random.Float64()*float64(x.jitter)))
	}
	x.acks = append(x.acks, acks)
	x.s.at(x.arrives, x.acked, 0)
}

func (x *sender) gotAck(acks []Packet) {
	prior := x.inflight
	fresh := acks[:0]
	x.pto, x.lastAck = 0, x.s.now
	for _, a := range acks {
		i, found := slices.BinarySearchFunc(x.out, a.Number,
			func(o outstanding, n int64) int { return int(o.number - n) })
		if !found || x.out[i].gone {
			continue
		}
		x.out[i].gone = true
		x.inflight -= packetBytes
		x.delivered += packetBytes
		fresh = append(fresh, a)
		if a.Number > x.largest {
			x.largest = a.Number
			x.rtt = x.s.now - x.out[i].at
			if x.srtt == 0 {
				x.srtt = x.rtt
			}
			x.srtt += (x.rtt - x.srtt) / 8
			x.rtts = append(x.rtts, x.rtt)
		}
	}
	if len(fresh) > 0 {
		x.report(fresh, prior)
	}
	x.wake()
}

func (x *sender) detectLost() { x.report(nil, x.inflight) }

func (x *sender) report(acked []Packet, prior int) {
	var lost []Packet
	limit := x.s.now - max(x.srtt, x.rtt)*9/8
	for i := range x.out {
		o := &x.out[i]
		if o.number > x.largest {
			break
		}
		if o.gone {
			continue
		}
		if o.number+3 > x.largest && o.at > limit {
			x.wakeAt(o.at + max(x.srtt, x.rtt)*9/8 + 1)
			break
		}
		o.gone = true
		x.inflight -= packetBytes
		x.lost++
		if x.left >= 0 {
			x.left++ // sent again
		}
		lost = append(lost, Packet{o.number, packetBytes})
	}
	for len(x.out) > 0 && x.out[0].gone {
		x.out = x.out[1:]
	}
	if len(acked)+len(lost) > 0 {
		x.OnAck(x.s.now, acked, lost, prior)
		if x.trace != nil {
			x.trace()
		}
	}
}

// begin starts a measurement; rate is bits a second since then.
func (x *sender) begin() {
	x.mark, x.rtts = x.delivered, nil
	x.sent, x.lost = 0, 0
}

func (x *sender) rate(d time.Duration) float64 {
	return float64(x.delivered-x.mark) * 8 / d.Seconds()
}

// percentile of the round trips since begin.
func (x *sender) percentile(p float64) time.Duration {
	if len(x.rtts) == 0 {
		return 0
	}
	r := slices.Sorted(slices.Values(x.rtts))
	return r[int(p*float64(len(r)-1))]
}
