package client

import "sync"

// inbox takes events for a transfer's goroutine. An event is a function, which that goroutine
// calls. Putting an event in never blocks: the engine does it with its lock held, and the
// transfer's goroutine may be waiting for that lock. The inbox cannot grow without bound, since
// every event is caused by a connection, a path lookup or the user.
type inbox struct {
	poke chan struct{} // there is an event, or a link has changed

	mu     sync.Mutex
	events []func()
}

func newInbox() *inbox { return &inbox{poke: make(chan struct{}, 1)} }

func (i *inbox) put(e func()) {
	i.mu.Lock()
	i.events = append(i.events, e)
	i.mu.Unlock()
	i.touch()
}

func (i *inbox) touch() {
	select {
	case i.poke <- struct{}{}:
	default:
	}
}

func (i *inbox) take() []func() {
	i.mu.Lock()
	defer i.mu.Unlock()
	e := i.events
	i.events = nil
	return e
}
