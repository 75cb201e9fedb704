package wire

import "time"

// queue holds the peer's requests that are not answered yet. The engine answers the requests that
// it has in random order. So it gets the oldest first, and none that is more than a window behind
// the oldest one that it has. Without a window, one block could wait for hundreds of others, and
// its piece would be late.
type queue struct {
	asked  map[block]int // the number of each request: they are counted as they come
	order  []block       // by number; some are answered or taken back, but not the first
	first  int           // the number of order[0]
	handed int           // the engine has, or had, the requests with smaller numbers
	pace   pace          // of the engine
}

const (
	// leastGiven is the least window: 0.2 s of 20 Mbit/s.
	leastGiven = 32
	// mostGiven is the largest window: twice as much as the engine reads ahead of what it sends.
	// With more, blocks come so far out of order that the peer cannot join them before it writes
	// them.
	mostGiven = 128
	// maxServing is how many requests may wait for an answer. The engine accepts 1024 from a peer
	// and rejects more. The rejects wait, too, and a peer may ask again while it cancels.
	maxServing = 2048
	// maxOrder bounds the length of order. A third of it may wait for answers, and the others may
	// be taken back.
	maxOrder = 3 * maxServing
)

func newQueue() queue { return queue{asked: map[block]int{}} }

// asks notes a request. It tells whether the engine gets it now, and whether there is room for it.
func (q *queue) asks(b block) (now, room bool) {
	if n, twice := q.asked[b]; twice {
		return n < q.handed, true // the engine answers a repeated request once
	}
	if len(q.asked) >= maxServing || len(q.order) >= maxOrder {
		return false, false
	}
	n := q.first + len(q.order)
	q.asked[b] = n
	q.order = append(q.order, b)
	now = n == q.handed && n < q.first+q.pace.window()
	if now {
		q.handed++
	}
	return now, true
}

// ends forgets a request that was answered or taken back. waited is true if the engine has not got
// the request yet.
func (q *queue) ends(b block) (waited bool) {
	n, ok := q.asked[b]
	waited = ok && n >= q.handed
	delete(q.asked, b)
	for len(q.order) > 0 && !q.isAsked(q.first) {
		q.order = q.order[1:]
		q.first++
	}
	q.handed = max(q.handed, q.first)
	return waited
}

// isAsked tells whether the request with a number is not answered yet.
func (q *queue) isAsked(number int) bool {
	n, ok := q.asked[q.order[number-q.first]]
	return ok && n == number
}

// answers notes that the engine has answered.
func (q *queue) answers(now time.Time) { q.pace = q.pace.answers(now) }

// next returns the requests that the engine gets now.
func (q *queue) next() (out []block) {
	for end := q.first + min(len(q.order), q.pace.window()); q.handed < end; q.handed++ {
		if q.isAsked(q.handed) {
			out = append(out, q.order[q.handed-q.first])
		}
	}
	return out
}

// withdraw forgets the requests that wait, and returns them.
func (q *queue) withdraw() (out []block) {
	for n := q.handed; n < q.first+len(q.order); n++ {
		if q.isAsked(n) {
			out = append(out, q.order[n-q.first])
		}
	}
	q.order = q.order[:q.handed-q.first]
	for _, b := range out {
		delete(q.asked, b)
	}
	return out
}

// given are the requests that the engine has.
func (q *queue) given() (out []block) {
	for b, n := range q.asked {
		if n < q.handed {
			out = append(out, b)
		}
	}
	return out
}

func (q *queue) clear() { *q = queue{asked: map[block]int{}, pace: q.pace} }

// pace measures how fast the engine answers, so that it has requests for 0.2 s. It may have to wait
// for a disk, and a new request takes a while to reach it.
type pace struct {
	since  time.Time // when the present period began
	count  int       // answers in it
	before int       // answers in the period before
}

const pacePeriod = 100 * time.Millisecond

func (p pace) answers(now time.Time) pace {
	if d := now.Sub(p.since); d >= pacePeriod {
		before := p.count
		if d >= 2*pacePeriod {
			before = 0
		}
		p = pace{since: now, before: before}
	}
	p.count++
	return p
}

// window is how far a request may be behind the oldest one that the engine has.
func (p pace) window() int { return min(max(leastGiven, 2*max(p.count, p.before)), mostGiven) }

// asksLocked decides what happens to a request of the peer.
func (f *Filter) asksLocked(b block) verdict {
	switch {
	case len(f.forPeer) >= maxUnsaid:
		return drop
	case f.engineServes && !f.serves:
		f.toPeerLocked(encode(msgReject, b))
		return drop
	case f.noRejects && !f.engineServes:
		return drop // the engine would not answer
	}
	now, room := f.serving.asks(b)
	switch {
	case !room:
		f.fault = errFlood
		return refuse
	case !now:
		return drop
	}
	return pass
}

// cancelsLocked decides what happens to a cancel of the peer.
func (f *Filter) cancelsLocked(b block) verdict {
	if n, ok := f.serving.asked[b]; !f.noRejects && (n < f.serving.handed || !ok) {
		return pass // the engine answers
	}
	switch waited := f.serving.ends(b); {
	case !waited:
		f.feedLocked() // the engine does not answer
		return pass
	case f.noRejects:
		return drop
	case len(f.forPeer) >= maxUnsaid:
		f.fault = errFlood
		return refuse
	}
	f.toPeerLocked(encode(msgReject, b))
	return drop
}

// feedLocked gives the engine the next requests of the peer.
func (f *Filter) feedLocked() {
	f.toEngineLocked(encode(msgRequest, f.serving.next()...))
}

// rejectWaitingLocked answers the requests that wait, since the peer is served no longer.
func (f *Filter) rejectWaitingLocked() {
	if blocks := f.serving.withdraw(); !f.noRejects {
		f.toPeerLocked(encode(msgReject, blocks...))
	}
}
