package linkemu

import (
	"errors"
	"net"
	"sync"
	"time"
)

// portableWire uses only package net: a reader for each socket and a system call for each packet.
// It is for systems other than Linux.
type portableWire struct {
	clock   clock
	conns   [2]*net.UDPConn
	inbox   [2]inbox
	ready   chan struct{} // cap 1: an inbox has packets
	woken   chan struct{} // cap 1
	readers sync.WaitGroup
}

// inbox holds the packets that a reader has received, until the loop takes them.
type inbox struct {
	mu      sync.Mutex
	packets fifo[received]
	store   store
	held    int
	err     error
}

type received struct {
	data []byte
	at   instant
}

func newPortableWire(ends [2]Endpoint, c clock) (wire, error) {
	conns, err := listen(ends)
	if err != nil {
		return nil, err
	}
	w := &portableWire{clock: c, conns: conns, ready: make(chan struct{}, 1), woken: make(chan struct{}, 1)}
	for i := range conns {
		w.readers.Go(func() { w.read(conns[i], &w.inbox[i]) })
	}
	return w, nil
}

// read receives packets until the socket is closed or broken. It reports an error only once. It
// ignores passing errors, which come for each packet to a router that is not up.
func (w *portableWire) read(conn *net.UDPConn, in *inbox) {
	buf := make([]byte, 1<<16)
	for {
		n, err := conn.Read(buf)
		at := w.clock.now()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			if passing(err) {
				continue
			}
			in.mu.Lock()
			in.err = err
			in.mu.Unlock()
			signal(w.ready)
			return
		}
		in.mu.Lock()
		if in.held+n+packetCost <= socketBuffer {
			in.packets.push(received{in.store.keep(buf[:n]), at})
			in.held += n + packetCost
		}
		in.mu.Unlock()
		signal(w.ready)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (w *portableWire) wait(until instant, listen bool) {
	var timeout <-chan time.Time
	if until >= 0 {
		d := until - w.clock.now()
		if d <= 0 {
			return
		}
		timer := time.NewTimer(d)
		defer timer.Stop()
		timeout = timer.C
	}
	ready := w.ready
	if !listen {
		ready = nil
	}
	select {
	case <-ready:
	case <-w.woken:
	case <-timeout:
	}
}

func (w *portableWire) wake() { signal(w.woken) }

func (w *portableWire) receive(s End, f func(p []byte, at instant)) error {
	in := &w.inbox[s]
	in.mu.Lock()
	defer in.mu.Unlock()
	for in.packets.len() > 0 {
		p := in.packets.pop()
		f(p.data, p.at)
		in.store.release(p.data)
		in.held -= len(p.data) + packetCost
	}
	return in.err
}

func (w *portableWire) send(s End, packets [][]byte) int {
	for _, p := range packets {
		if _, err := w.conns[s].Write(p); err != nil && passing(err) {
			// The error may be that of an earlier packet, and the system reports it only once.
			_, _ = w.conns[s].Write(p)
		}
	}
	return len(packets)
}

func (w *portableWire) close() error {
	err := errors.Join(w.conns[0].Close(), w.conns[1].Close())
	w.readers.Wait()
	return err
}
