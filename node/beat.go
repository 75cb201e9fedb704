package node

import (
	"context"
	"slices"
	"time"

	"braid/client"
)

// The regular work of a node: one goroutine looks at all torrents once a second, and at the queue
// soon after poke. So idle torrents need no timers of their own.

const (
	// saveEvery bounds how much of the counters a killed process loses.
	saveEvery = time.Minute
	// startsAtOnce is the number of torrents that a service starts at a time, and of those that it
	// checks. Each may have to hash existing files. More of them would only compete for the disk,
	// and exceed the limit of open files.
	startsAtOnce = 4
	// leastSleep keeps small corrections of the clock from being taken for a sleep of the host. Wait
	// looks that often whether the host has slept.
	leastSleep = 30 * time.Second
)

// poke makes beat look at the queue now, or soon if it has just done so.
func (n *Node) poke() { signal(n.wake) }

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// background runs f in a goroutine, for which Close waits. After Close it does nothing.
func (n *Node) background(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.closed {
		n.workers.Go(f)
	}
}

// announceMoves announces all torrents again if the node's addresses have changed, for example
// because a NAT has given this host another address. Only the goroutine of beat calls it.
func (n *Node) announceMoves() {
	now := n.Listening()
	if slices.Equal(now, n.listened) {
		return
	}
	n.listened = now
	n.log.Info("the addresses of this braid have changed", "listen", now)
	n.searchAllAgain()
}

// announceAfterSleep announces all torrents again if the host has slept since the last look. Timers
// stand still meanwhile, so trackers and the DHT may have forgotten this node long before its next
// regular announces. A wall clock that was set forward looks the same.
func (n *Node) announceAfterSleep(slept time.Duration) {
	if slept < leastSleep {
		return
	}
	n.log.Info("this host has slept, or its clock was set", "for", slept.Round(time.Second))
	n.searchAllAgain()
}

// lead is how far the wall clock has run ahead of the monotonic clock, which stops while the host
// sleeps.
func lead(since time.Time) time.Duration { return time.Since(since.Round(0)) - time.Since(since) }

// Wait returns after a time, or when the context ends. The time for which the host sleeps counts; a
// timer stands still meanwhile.
func Wait(ctx context.Context, long time.Duration) {
	began := time.Now()
	waitFor(ctx, long, func() time.Duration { return time.Since(began) + max(0, lead(began)) })
}

// waitFor is Wait with a function that returns the time since its call.
func waitFor(ctx context.Context, long time.Duration, passed func() time.Duration) {
	for left := long; left > 0; left = long - passed() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(left, leastSleep)):
		}
	}
}

// searchAllAgain begins the searches of all torrents anew, in the background.
func (n *Node) searchAllAgain() {
	for _, t := range n.Torrents() {
		if r := t.current(); r != nil {
			n.background(func() { t.searchAgain(r) })
		}
	}
}

func (n *Node) beat() {
	n.listened = n.Listening()

	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	saved, ahead := time.Now(), lead(n.opened)
	wake, rested := n.wake, (<-chan time.Time)(nil)
	var decided []decision // and not carried out yet
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-wake:
			began := time.Now()
			decided = n.conduct()
			// Thousands of torrents that start poke thousands of times. So the looks take at most a
			// twentieth of the time.
			wake, rested = nil, time.After(19*time.Since(began))
		case <-rested:
			wake, rested = n.wake, nil
		case <-n.room:
		case <-tick.C:
			n.applyRates(time.Now())
			n.announceMoves()
			before := ahead
			ahead = lead(n.opened)
			n.announceAfterSleep(ahead - before)
			for _, t := range n.Torrents() {
				t.beat(time.Now())
			}
			decided = n.conduct()
		}
		decided = n.carryOut(decided)
		if time.Since(saved) >= saveEvery {
			if err := n.saveCounters(); err != nil {
				n.log.Warn("the counters cannot be saved", "error", err)
			}
			saved = time.Now()
		}
	}
}

// beat is a torrent's share of the regular work.
func (t *Torrent) beat(now time.Time) {
	r := t.current()
	if r == nil {
		return
	}
	p := r.transfer.Progress()
	completed, idle := r.observe(p, now)
	t.history.record(p.Paths, now)
	if p.Phase != client.Metadata && t.Source().IsMagnet() {
		t.describe(r)
	}
	if completed.IsZero() {
		r.tellHungry(isHungry(p))
		return
	}
	global := t.node.Settings().Goal
	t.mu.Lock()
	g := t.options.Goal.Or(global)
	p.Sent += t.past.Sent
	served := t.countersLocked(now).Seeding
	t.mu.Unlock()
	if g.IsZero() {
		return
	}
	reason := g.reached(p, served, idle)
	beyond := r.beyondGoal(p.Sent, reason != "")
	if reason != "" && !delivers(r.transfer.Peers(), beyond, idle) {
		t.node.background(func() { t.serve(r, reason) })
	}
}

// observe notes the time if payload has been transferred since the last look. It returns when the
// run became complete, and for how long it has transferred no payload since then.
func (r *run) observe(p client.Progress, now time.Time) (completed time.Time, idle time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if moved := p.Fetched + p.Sent; moved != r.moved {
		r.moved, r.active = moved, now
	}
	return r.completed, now.Sub(later(r.completed, r.active))
}

// beyondGoal returns the number of bytes sent since the goal was reached.
func (r *run) beyondGoal(sent int64, reached bool) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !reached:
		r.enough = 0
		return 0
	case r.enough == 0:
		r.enough = sent
	}
	return sent - r.enough
}

func (r *run) tellHungry(hungry bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.searches {
		x.Hungry(hungry)
	}
}

// decision says that a torrent must start, or stop.
type decision struct {
	torrent *Torrent
	start   bool
}

// conduct decides which torrents of a service start and stop, according to the queue.
func (n *Node) conduct() (out []decision) {
	if !n.service {
		return nil
	}
	q := n.Settings().Queue
	now := time.Now()
	var all []*Torrent
	var turns []turn
	for _, t := range n.Torrents() {
		if x, ok := t.turn(now, q.stalled()); ok {
			all, turns = append(all, t), append(turns, x)
		}
	}
	for i, run := range q.plan(turns) {
		if run != turns[i].running {
			out = append(out, decision{all[i], run})
		}
	}
	return out
}

// carryOut starts and stops torrents in the background. It returns the decisions for which there is
// no room yet.
func (n *Node) carryOut(all []decision) []decision {
	for i, d := range all {
		t := d.torrent
		if !t.deciding.CompareAndSwap(false, true) {
			continue
		}
		select {
		case n.starts <- struct{}{}:
		default:
			t.deciding.Store(false)
			return all[i:]
		}
		n.background(func() {
			defer n.poke()
			defer signal(n.room)
			defer func() { <-n.starts }()
			defer t.deciding.Store(false)
			if d.start {
				t.takeTurn()
			} else {
				t.loseTurn()
			}
		})
	}
	return nil
}

// turn is how the queue sees the torrent; false: the torrent does not want to run.
func (t *Torrent) turn(now time.Time, stalled time.Duration) (turn, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := turn{
		forced:   t.forced,
		priority: t.options.Priority,
		seeds:    t.complete || !t.completed.IsZero(),
	}
	switch {
	case t.state == Queued:
	case t.state == Starting && !t.verifying:
		x.running = true
	case t.state == Running:
		if t.run == nil || isClosed(t.run.transfer.Done()) && !t.complete {
			return x, false // it has failed
		}
		x.running, x.stalled = true, t.stalledLocked(now, stalled)
	default:
		return x, false
	}
	return x, true
}

// stalledLocked tells whether the torrent runs and has carried no data for a while.
func (t *Torrent) stalledLocked(now time.Time, limit time.Duration) bool {
	r := t.run
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return now.Sub(later(r.began, r.active)) >= limit
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// takeTurn starts a torrent whose turn it is.
func (t *Torrent) takeTurn() {
	t.op.Lock()
	defer t.op.Unlock()
	ctx, cancel := context.WithCancel(t.node.ctx)
	defer cancel()
	t.mu.Lock()
	if t.state != Queued {
		t.mu.Unlock()
		return
	}
	t.state, t.abort = Starting, cancel
	t.mu.Unlock()
	err := t.start(ctx)
	t.mu.Lock()
	t.abort = nil
	cancelled := ctx.Err() != nil
	if err != nil {
		t.state = Queued // if the start was cancelled, the canceller sets the final state
	}
	t.mu.Unlock()
	switch {
	case err == nil:
		t.save() // the check that was due has begun, and the record continues it after a kill
	case !cancelled:
		t.fail(err)
	}
}

// loseTurn stops a torrent that has to wait.
func (t *Torrent) loseTurn() {
	t.op.Lock()
	defer t.op.Unlock()
	if t.State() != Running {
		return
	}
	t.end(Queued)
	t.changed("queued")
}

// Reorder changes the order of the queue and saves it. order gets the torrents in their present
// order. It returns them in the new order, and the torrents that it has moved.
func (n *Node) Reorder(order func(queue []*Torrent) (next, moved []*Torrent)) error {
	n.ordering.Lock() // until the order is saved, or an older one could be saved later
	defer n.ordering.Unlock()
	n.mu.Lock()
	next, moved := order(slices.Clone(n.torrents))
	n.torrents = next
	n.mu.Unlock()
	if err := n.saveOrder(); err != nil {
		return err
	}
	for _, t := range moved {
		t.changed("changed")
	}
	n.poke()
	return nil
}
