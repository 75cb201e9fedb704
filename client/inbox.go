package client

import (
	"sync"

	"braid/pathsel"
)

// inbox takes events for a transfer's goroutine without ever blocking: some come from the engine
// with its lock held, while that goroutine waits for the lock. It cannot grow without bound, since
// every event is caused by a connection, a path lookup or the user.
type inbox struct {
	poke chan struct{} // something is there, or a link has changed

	mu     sync.Mutex
	events []any
}

func newInbox() *inbox { return &inbox{poke: make(chan struct{}, 1)} }

func (i *inbox) put(e any) {
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

func (i *inbox) take() []any {
	i.mu.Lock()
	defer i.mu.Unlock()
	e := i.events
	i.events = nil
	return e
}

// The events.
type (
	newPeers struct {
		peers []Peer
		found bool // by others, such as a tracker, or while the transfer runs
		from  PeerSource
	}
	foundPaths struct { // paths to a peer, or why there are none
		peer  Peer
		paths []pathsel.Path
		err   error
	}
	dialled struct { // the engine has dialled an offer
		offer *offer
		link  *link
		err   error
	}
	hinted   struct{ hints pathsel.Hints }
	accepted struct{ link *link }  // a peer has connected and wants this torrent
	greeted  struct{ addr string } // the handshake with this engine address is done
)
