package linkemu

import (
	"bytes"
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
	inbox   [2]chan received // closed if the socket is broken
	broken  [2]error         // why; for receive, after that
	ready   chan struct{}    // cap 1: an inbox has packets, or is closed
	woken   chan struct{}    // cap 1
	readers sync.WaitGroup
}

// received is a packet that a reader has received, until the loop takes it.
type received struct {
	data []byte
	at   instant
}

// inboxPackets bounds an inbox: about as many full packets as fit into socketBuffer.
const inboxPackets = 2048

func newPortableWire(ends [2]Endpoint, c clock) (wire, error) {
	conns, err := listen(ends)
	if err != nil {
		return nil, err
	}
	w := &portableWire{clock: c, conns: conns, ready: make(chan struct{}, 1), woken: make(chan struct{}, 1)}
	for s := range w.inbox {
		w.inbox[s] = make(chan received, inboxPackets)
		w.readers.Go(func() { w.read(s) })
	}
	return w, nil
}

// read receives packets until the socket is closed or broken. It ignores passing errors, which come
// for each packet to a router that is not up.
func (w *portableWire) read(s int) {
	buf := make([]byte, 1<<16)
	for {
		n, err := w.conns[s].Read(buf)
		at := w.clock.now()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil && passing(err):
			continue
		case err != nil:
			w.broken[s] = err
			close(w.inbox[s])
			signal(w.ready)
			return
		}
		select {
		case w.inbox[s] <- received{bytes.Clone(buf[:n]), at}:
		default: // it is full
		}
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
	for range inboxPackets {
		select {
		case p, ok := <-w.inbox[s]:
			if !ok {
				return w.broken[s]
			}
			f(p.data, p.at)
		default:
			return nil
		}
	}
	return nil
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
