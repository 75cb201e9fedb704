package wire

// queue holds the peer's requests that are not answered yet. The engine gets only some of them at a
// time, the oldest first, since it answers those that it has in random order. With a thousand of them
// a piece would be whole after seconds, and whoever waits for a certain piece would wait for most of
// the others.
type queue struct {
	asked   map[block]bool // the engine has it; otherwise it waits
	waiting []block        // in order; some may be answered or taken back meanwhile
	engine  int            // requests that the engine has
	most    int            // that it may have
}

const (
	// leastGiven is how many requests the engine has to begin with: 0.2 s of 20 Mbit/s.
	leastGiven = 32
	// maxServing is how many requests may wait for an answer. The engine accepts 1024 of a peer and
	// rejects more, but the rejects wait too, and a peer may ask again while it cancels.
	maxServing = 2048
)

func newQueue() queue { return queue{asked: map[block]bool{}, most: leastGiven} }

// asks notes a request. It tells whether the engine gets it now, and whether there is room for it.
func (q *queue) asks(b block) (now, room bool) {
	if has, twice := q.asked[b]; twice {
		return has, true // what the engine has twice, it answers once
	}
	if len(q.asked) >= maxServing || len(q.waiting) >= 2*maxServing { // most of those were taken back
		return false, false
	}
	now = q.engine < q.most && len(q.waiting) == 0
	q.asked[b] = now
	if now {
		q.engine++
	} else {
		q.waiting = append(q.waiting, b)
	}
	return now, true
}

// ends forgets a request that was answered or taken back. It tells whether that was waiting.
func (q *queue) ends(b block) (waited bool) {
	has, ok := q.asked[b]
	delete(q.asked, b)
	if has {
		q.engine--
	}
	return ok && !has
}

// next returns the requests that the engine gets now. unread is the number of earlier ones that it has
// not read yet. If more than half of its requests are unread, it answers faster than it gets new ones.
// Then the limit doubles.
func (q *queue) next(unread int) (out []block) {
	if len(q.waiting) > 0 && 2*unread > q.most {
		q.most = min(2*q.most, maxServing)
	}
	for len(q.waiting) > 0 && q.engine < q.most {
		b := q.waiting[0]
		q.waiting = q.waiting[1:]
		if has, ok := q.asked[b]; ok && !has {
			q.asked[b] = true
			q.engine++
			out = append(out, b)
		}
	}
	return out
}

// withdraw forgets the requests that wait, and returns them.
func (q *queue) withdraw() (out []block) {
	for _, b := range q.waiting {
		if q.ends(b) {
			out = append(out, b)
		}
	}
	q.waiting = nil
	return out
}

// given are the requests that the engine has.
func (q *queue) given() (out []block) {
	for b, has := range q.asked {
		if has {
			out = append(out, b)
		}
	}
	return out
}

func (q *queue) clear() { *q = queue{asked: map[block]bool{}, most: q.most} }

// feedLocked gives the engine the next requests of the peer.
func (f *Filter) feedLocked() {
	f.toEngineLocked(encode(msgRequest, f.serving.next(len(f.forEngine)/blockHead)...))
}

// rejectWaitingLocked answers the requests that wait, since the peer is served no longer.
func (f *Filter) rejectWaitingLocked() {
	if blocks := f.serving.withdraw(); !f.noRejects {
		f.toPeerLocked(encode(msgReject, blocks...))
	}
}
