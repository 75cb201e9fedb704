package node

import (
	"context"
	"io"
	"sync"

	"braid/node/event"
)

// stream hands each event to all subscriptions. It never waits for a reader: transfers publish from
// goroutines that must not be held up.
type stream struct {
	mu     sync.Mutex
	all    map[*Subscription]struct{}
	closed bool
}

func (s *stream) publish(e any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for x := range s.all {
		x.put(e)
	}
}

func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for x := range s.all {
		x.end()
	}
}

// Subscription is one reader's queue of events. Its methods may be called from several goroutines.
type Subscription struct {
	stream *stream
	most   int
	wake   chan struct{} // has room for one; a token says that something has changed

	mu     sync.Mutex
	queue  []any
	missed int // events that were dropped before the first of queue
	ended  bool
}

// Subscribe returns a queue of the events from now on. It holds at most that many events: if the
// reader falls further behind, the oldest are dropped, and an event.Missed takes their place.
// The caller closes the subscription.
func (n *Node) Subscribe(most int) *Subscription {
	x := &Subscription{stream: &n.stream, most: max(1, most), wake: make(chan struct{}, 1)}
	n.stream.mu.Lock()
	defer n.stream.mu.Unlock()
	if n.stream.closed {
		x.ended = true
		return x
	}
	n.stream.all[x] = struct{}{}
	return x
}

// Next returns the next event: a value of a type of package event. When the node or the
// subscription is closed and the queue is empty, the error is io.EOF.
func (x *Subscription) Next(ctx context.Context) (any, error) {
	for {
		if e, err := x.take(); e != nil || err != nil {
			return e, err
		}
		select {
		case <-x.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (x *Subscription) take() (any, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.missed > 0:
		e := event.Missed{Event: "missed", Events: x.missed}
		x.missed = 0
		return e, nil
	case len(x.queue) > 0:
		e := x.queue[0]
		x.queue[0] = nil // the array lives on
		x.queue = x.queue[1:]
		if len(x.queue) > 0 || x.ended {
			x.signal() // another reader may wait
		}
		return e, nil
	case x.ended:
		x.signal()
		return nil, io.EOF
	}
	return nil, nil
}

func (x *Subscription) put(e any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.queue) == x.most {
		x.queue[0] = nil
		x.queue = x.queue[1:]
		x.missed++
	}
	x.queue = append(x.queue, e)
	x.signal()
}

func (x *Subscription) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ended = true
	x.signal()
}

func (x *Subscription) signal() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// Close ends the subscription. Events in the queue can still be read.
func (x *Subscription) Close() {
	x.stream.mu.Lock()
	delete(x.stream.all, x)
	x.stream.mu.Unlock()
	x.end()
}
