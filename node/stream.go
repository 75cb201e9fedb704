package node

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"braid/node/event"
)

// stream gives each event to all subscriptions. It never waits for a reader, since that would hold
// up the transfers that publish events.
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
		close(x.queue)
	}
	clear(s.all)
}

// Subscription is one reader's queue of events. Its methods may be called from several goroutines.
type Subscription struct {
	stream *stream
	queue  chan any     // closed at the end of the subscription
	missed atomic.Int64 // dropped events that the reader does not know of yet
}

// Subscribe returns a queue of the events from now on, which the caller must close. It holds at
// most most events. If the reader is slower, the oldest are dropped, and an event.Missed takes
// their place.
func (n *Node) Subscribe(most int) *Subscription {
	x := &Subscription{stream: &n.stream, queue: make(chan any, max(1, most))}
	n.stream.mu.Lock()
	defer n.stream.mu.Unlock()
	if n.stream.closed {
		close(x.queue)
	} else {
		n.stream.all[x] = struct{}{}
	}
	return x
}

// Next returns the next event: a value of a type of package event. When the node or the
// subscription is closed and the queue is empty, the error is io.EOF.
func (x *Subscription) Next(ctx context.Context) (any, error) {
	if missed := x.missed.Swap(0); missed > 0 {
		return event.Missed{Event: "missed", Events: int(missed)}, nil
	}
	select {
	case e, ok := <-x.queue:
		if !ok {
			return nil, io.EOF
		}
		return e, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// put adds an event. The caller holds the stream's lock.
func (x *Subscription) put(e any) {
	for {
		select {
		case x.queue <- e:
			return
		default:
		}
		select {
		case <-x.queue:
			x.missed.Add(1)
		default: // the reader has just taken an event
		}
	}
}

// Close ends the subscription. Events in the queue can still be read.
func (x *Subscription) Close() {
	x.stream.mu.Lock()
	defer x.stream.mu.Unlock()
	if _, open := x.stream.all[x]; open {
		delete(x.stream.all, x)
		close(x.queue)
	}
}
