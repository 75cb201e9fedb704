package client

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anacrolix/torrent/mse"

	"braid/pathsel"
)

// link is a wire as the engine sees it: with a face for an address and behind a gate, counted, and told of when it ends. The engine
// closes links with its own lock held, so that nothing here may block or call the engine.
type link struct {
	Wire
	transport string
	face      face
	gate      *gate
	accepted  bool
	opened    time.Time

	read, written       atomic.Uint64
	firstRead, lastRead atomic.Int64 // Unix ns; 0: nothing was read yet
	greeted             atomic.Bool  // the BitTorrent handshake is done
	carried             atomic.Int64 // Unix ns when it was last seen to have carried data of the torrent; 0: never
	gone                atomic.Bool

	barred bool  // held back; belongs to Transfer.serve
	data   int64 // bytes of the torrent that it has carried, at the last look; belongs to Transfer.measure
	shown  bool  // told of what was revealed to its peer before; belongs to Transfer.reveal
	whole  bool  // told of everything; likewise

	described bool // its gate knows the number of pieces; belongs to Transfer.tellPieces

	mu       sync.Mutex
	onChange func() // called without the lock when greeted or gone has changed; must not block
	release  func() // gives back what the link holds: once
	once     sync.Once
	closeErr error
	last     atomic.Pointer[Measurement]    // taken just before the end
	from     atomic.Pointer[pathsel.Origin] // nil: only claimed so far
}

// origin is where the connection comes from.
func (l *link) origin() pathsel.Origin {
	if o := l.from.Load(); o != nil {
		return *o
	}
	o := originOf(l.Wire)
	if o.Net != pathsel.Unproven {
		l.from.Store(&o)
	}
	return o
}

// Measure also works after the end, when many wires do not know any more.
func (l *link) Measure() Measurement {
	if m := l.last.Load(); m != nil {
		return *m
	}
	return l.Wire.Measure()
}

// counted is a link's wire below its gate: what it carries is counted.
type counted struct {
	Wire
	l *link
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Wire.Read(b)
	if l := c.l; n > 0 {
		l.read.Add(uint64(n))
		now := time.Now().UnixNano()
		l.firstRead.CompareAndSwap(0, now)
		l.lastRead.Store(now)
	}
	return n, err
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.Wire.Write(b)
	c.l.written.Add(uint64(n))
	return n, err
}

func (l *link) Read(b []byte) (int, error)  { return l.gate.Read(b) }
func (l *link) Write(b []byte) (int, error) { return l.gate.Write(b) }

func (l *link) Close() error {
	l.once.Do(func() {
		m := l.Wire.Measure()
		l.last.Store(&m)
		l.gate.close()
		l.closeErr = l.Wire.Close()
		l.gone.Store(true)
		l.release()
		l.changed()
	})
	return l.closeErr
}

// SetDeadline never fails: the engine panics if it does, and a link may be closed here, because its path is parked or has
// failed, in the moment in which the engine gets it. Reads and writes then tell.
func (l *link) SetDeadline(t time.Time) error {
	_ = l.gate.SetReadDeadline(t)
	_ = l.Wire.SetWriteDeadline(t)
	return nil
}

// SetReadDeadline never fails, like SetDeadline.
func (l *link) SetReadDeadline(t time.Time) error {
	_ = l.gate.SetReadDeadline(t)
	return nil
}

// SetWriteDeadline never fails, like SetDeadline.
func (l *link) SetWriteDeadline(t time.Time) error {
	_ = l.Wire.SetWriteDeadline(t)
	return nil
}

// RemoteAddr is the same on both ends' kinds of connections, dialled and accepted: see face.
func (l *link) RemoteAddr() net.Addr { return l.face }

func (l *link) greet() {
	l.greeted.Store(true)
	l.changed()
}

func (l *link) changed() {
	l.mu.Lock()
	f := l.onChange
	l.mu.Unlock()
	if f != nil {
		f()
	}
}

// watch sets who is told of changes, and tells at once, since some may have happened.
func (l *link) watch(f func()) {
	l.mu.Lock()
	l.onChange = f
	l.mu.Unlock()
	f()
}

// newLink makes a link of a wire. Over it the peer may obfuscate what it says, with one of the keys, if we have accepted it.
func newLink(w Wire, transport string, f face, keys mse.SecretKeyIter, release func()) *link {
	l := &link{Wire: w, transport: transport, face: f, accepted: keys != nil, opened: time.Now(), release: release}
	var below Wire = counted{w, l}
	if l.accepted {
		below = unveil(below, keys)
	}
	l.gate = newGate(&v1Only{Conn: below})
	l.gate.onPeer = l.changed
	return l
}
