package wire

import (
	"errors"
	"net"
	"os"
	"slices"
	"time"
)

// How bytes go through a filter: what the engine reads and writes, and the filter's own messages,
// which it inserts between two messages. filter.go decides which messages pass.

// Read is called by the engine.
func (f *Filter) Read(b []byte) (int, error) { return f.reader.Read(b) }

// leastBuffer is the least size of a buffer in which messages can be filtered in place. A handshake
// or the beginning of an extended message fits into it. Filter.reader provides such a buffer for
// shorter reads.
const leastBuffer = 128

// passing reads the messages that a filter lets pass. Its buffers have at least leastBuffer bytes.
type passing struct{ f *Filter }

func (r passing) Read(b []byte) (int, error) {
	for {
		if ready := r.f.ready; len(ready) > 0 {
			n := copy(b, ready)
			r.f.ready = ready[n:]
			return n, nil
		}
		if passed, err := r.f.pass(b); err != nil || len(passed) > 0 {
			return len(passed), err
		}
	}
}

// pass reads and filters some bytes, and returns those that pass; there may be none. At the first
// boundary between messages it makes the filter's own messages ready for the engine.
func (f *Filter) pass(b []byte) ([]byte, error) {
	f.mu.Lock()
	fetch := len(f.fetches) > 0
	stop := len(f.forEngine) > 0 || fetch
	boundary := f.in.begun && f.in.rest == 0
	if boundary && len(f.forEngine) > 0 {
		f.ready, f.forEngine = append(f.ready[:0], f.forEngine...), f.forEngine[:0]
		f.mu.Unlock()
		return nil, nil
	}
	f.mu.Unlock()
	switch {
	case boundary && fetch:
		f.ready = f.fetch()
		return nil, nil
	case f.fault != nil:
		return nil, f.fault
	case f.held:
		return nil, f.await()
	}

	n := copy(b, f.buffered)
	rest := f.buffered[n:]
	if n == 0 || f.needsMore {
		if f.failed != nil {
			return nil, f.failed
		}
		m, err := f.wire.Read(b[n:])
		n += m
		if err != nil && !f.again(err) {
			f.failed = err
		}
	}
	consumed, drops, stopped := f.in.scan(b[:n], stop, f.keepIn)
	if f.in.begun && !f.handshakes.in {
		hideBits(b)
		f.note(&f.handshakes.in, &f.in)
	}
	if f.in.foreign {
		f.fault = errForeign
	}
	if consumed > 0 {
		block, more := f.blockComing, f.in.rest > 0
		f.blockComing = f.inBlock && more
		f.comes(block, more)
	}
	f.needsMore = !stopped && len(rest) == 0
	if left := b[consumed:n]; len(rest) == 0 {
		f.buffered = append(f.buffered[:0], left...)
	} else {
		f.buffered = slices.Concat(left, rest)
	}
	return without(b[:consumed], drops), nil
}

// again tells whether the error means only that wakeLocked has interrupted the read.
func (f *Filter) again(err error) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.woken || f.closed {
		return false
	}
	f.woken = false
	_ = f.wire.SetReadDeadline(f.deadline)
	return true
}

// await returns when the held message may pass, or when there is a message for the engine before
// it.
func (f *Filter) await() error {
	for {
		f.mu.Lock()
		free := f.bounds.room() || len(f.forEngine)+len(f.fetches) > 0
		closed, deadline := f.closed, f.deadline
		f.mu.Unlock()
		switch {
		case closed:
			return net.ErrClosed
		case free:
			f.held = false
			return nil
		}
		var over <-chan time.Time
		if !deadline.IsZero() {
			over = time.After(time.Until(deadline))
		}
		select {
		case <-f.changed:
		case <-over:
			return os.ErrDeadlineExceeded
		}
	}
}

func (f *Filter) note(known *bool, x *framing) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*known = true
	f.noRejects = f.noRejects || !x.fast
	f.ignoresCancels = f.ignoresCancels || x.old
	f.sameEngine = f.sameEngine || x.ours
}

// SetReadDeadline is called by the engine.
func (f *Filter) SetReadDeadline(t time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deadline = t
	f.signalLocked()
	if f.woken || f.closed {
		return nil
	}
	return f.wire.SetReadDeadline(t)
}

// toEngineLocked queues messages of the filter for the engine.
func (f *Filter) toEngineLocked(b []byte) {
	if len(b) == 0 || f.closed {
		return
	}
	f.forEngine = append(f.forEngine, b...)
	f.wakeLocked()
}

// wakeLocked interrupts the reader, since the filter has a message for the engine.
func (f *Filter) wakeLocked() {
	f.signalLocked()
	if !f.woken && !f.closed {
		f.woken = true
		_ = f.wire.SetReadDeadline(time.Unix(1, 0)) // fails only when closed
	}
}

// signalLocked lets a reader that waits look again.
func (f *Filter) signalLocked() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// turns is a lock for the time in which a wire is written. A peer that does not read makes this
// time long. In simulated time, goroutines that wait for a sync.Mutex would stop the clock.
type turns chan struct{}

func (t turns) take()  { t <- struct{}{} }
func (t turns) leave() { <-t }

// Write is called by the engine.
func (f *Filter) Write(b []byte) (int, error) {
	f.writing.take()
	defer f.writing.leave()
	if err := f.writeOurs(); err != nil {
		return 0, err
	}
	all := b
	if len(f.unfinished) > 0 {
		all = slices.Concat(f.unfinished, b)
	}
	consumed, drops, _ := f.out.scan(all, false, f.keepOut)
	if f.out.begun && !f.handshakes.out {
		f.note(&f.handshakes.out, &framing{fast: f.out.fast})
		all = slices.Clone(all)
		all[handshakeHead-1] &^= v2Bit
	}
	if f.out.foreign {
		return 0, errForeign
	}
	f.unfinished = append(f.unfinished[:0], all[consumed:]...)
	from := 0
	for _, d := range drops {
		if err := f.put(all[from:d.from]); err != nil {
			return 0, err
		}
		from = d.to
		if err := f.put(f.instead); err != nil { // before any other message about pieces
			return 0, err
		}
		f.instead = nil
	}
	if err := f.put(all[from:consumed]); err != nil {
		return 0, err
	}
	return len(b), f.writeOurs()
}

func (f *Filter) put(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	_, err := f.wire.Write(b)
	return err
}

// toPeerLocked queues messages of the filter for the peer. A write may take as long as the peer
// likes, so a goroutine writes them, or the engine's next Write.
func (f *Filter) toPeerLocked(b []byte) {
	if len(b) == 0 || f.closed {
		return
	}
	f.forPeer = append(f.forPeer, b...)
	f.writeSoonLocked()
}

// writeSoonLocked starts a goroutine that writes the messages for the peer.
func (f *Filter) writeSoonLocked() {
	if !f.sending && !f.closed {
		f.sending = true
		go f.send() // ends at the latest when the wire is closed
	}
}

func (f *Filter) send() {
	f.writing.take()
	defer f.writing.leave()
	f.mu.Lock()
	f.sending = false
	f.mu.Unlock()
	_ = f.writeOurs() // the engine's next call fails, too
}

// writeOurs writes the filter's own messages to the peer, at a boundary between messages. Called
// with writing taken.
func (f *Filter) writeOurs() error {
	if len(f.unfinished) > 0 || f.out.rest > 0 {
		return nil // in the middle of a message, whose end is written soon
	}
	f.mu.Lock()
	b := append(f.forPeer, f.portionLocked()...)
	f.forPeer = nil
	more := len(f.unannounced) > 0 && len(b) > 0
	f.mu.Unlock()
	if err := f.put(b); err != nil || !more {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writeSoonLocked() // on another goroutine, so that the engine can write in between
	return nil
}

// close wakes a waiting reader, since the wire is closed.
func (f *Filter) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.signalLocked()
}
