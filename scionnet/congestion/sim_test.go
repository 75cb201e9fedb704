package congestion

import (
	"container/heap"
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
	random *rand.Rand
	flows  []*sender
}

type simEvent struct {
	at  time.Duration
	seq int
	do  func()
}

type events []simEvent

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(simEvent)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func newSim(seed uint64) *sim { return &sim{random: rand.New(rand.NewPCG(seed, 1))} }

func (s *sim) at(t time.Duration, do func()) {
	s.count++
	heap.Push(&s.events, simEvent{max(t, s.now), s.count, do})
}

func (s *sim) run(until time.Duration) {
	for len(s.events) > 0 && s.events[0].at <= until {
		e := heap.Pop(&s.events).(simEvent)
		s.now = e.at
		e.do()
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

func (s *sim) carry(w *wire, size int, arrive func()) {
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
	s.at(at, arrive)
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
	trace     func()
	done      time.Duration // when the last packet arrived
}

type outstanding struct {
	number int64
	at     time.Duration
	gone   bool
}

func (s *sim) flow(f *Flow, start, back time.Duration, path ...*wire) *sender {
	x := &sender{Flow: f, s: s, path: path, back: back, start: start, left: -1, largest: -1}
	f.SetPacketSize(packetBytes)
	s.flows = append(s.flows, x)
	s.at(start, x.wake)
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
	x.s.at(t, func() {
		if x.timer != t {
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
	})
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
	x.s.carry(x.path[i], packetBytes, func() { x.hop(n, i+1) })
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
		x.s.at(x.s.now+wait, func() {
			x.flush = false
			x.acknowledge()
		})
	}
}

func (x *sender) acknowledge() {
	if len(x.pending) == 0 {
		return
	}
	acks := x.pending
	x.pending = nil
	slices.SortFunc(acks, func(a, b Packet) int { return int(a.Number - b.Number) })
	x.arrives = max(x.arrives, x.s.now+x.back)
	if x.jitter > 0 {
		x.arrives = max(x.arrives, x.s.now+x.back+time.Duration(x.s.random.Float64()*float64(x.jitter)))
	}
	x.s.at(x.arrives, func() { x.gotAck(acks) })
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
