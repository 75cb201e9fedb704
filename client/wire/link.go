package wire

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anacrolix/torrent/mse"

	"braid/pathsel"
)

// Link is a connection as the engine sees it. The engine closes links while it holds its own lock,
// so nothing here may block or call the engine.
type Link struct {
	Conn
	Filter  *Filter
	Opened  time.Time
	addr    net.Addr
	below   *counted
	greeted atomic.Bool
	closed  atomic.Bool

	// onChange is called when greeted or closed has changed, if it is not nil. It must not block.
	onChange atomic.Pointer[func()]

	once     sync.Once
	onClose  func()
	closeErr error
	last     atomic.Pointer[Measurement]    // taken just before the end
	proven   atomic.Pointer[pathsel.Origin] // nil: the ISD-AS is only claimed so far
}

// Options of a link.
type Options struct {
	Addr    net.Addr // the remote address that the engine sees
	Limits  *Limiter // nil: none
	OnClose func()   // called once when the link is closed; must not block
	// Obfuscate is the info hash with which a connection that we have opened is obfuscated; nil: it
	// is not obfuscated. It has no effect on a connection with a key, which is encrypted.
	Obfuscate []byte
	// InfoHashes are the info hashes with which a peer may obfuscate a connection that it has
	// opened.
	InfoHashes mse.SecretKeyIter
}

// Dialled makes a link of a connection that we have opened. It closes the connection if that fails.
func Dialled(ctx context.Context, c Conn, o Options) (*Link, error) {
	below := &counted{Conn: o.Limits.wrap(c)}
	if o.Obfuscate == nil || c.Key() != nil {
		return newLink(below, below, o), nil
	}
	defer context.AfterFunc(ctx, func() { below.Close() })()
	x, err := obfuscate(ctx, below, o.Obfuscate)
	if err != nil {
		below.Close()
		return nil, err
	}
	return newLink(x, below, o), nil
}

// Accepted makes a link of a connection that a peer has opened.
func Accepted(c Conn, o Options) *Link {
	below := &counted{Conn: o.Limits.wrap(c)}
	if c.Key() != nil {
		return newLink(below, below, o)
	}
	return newLink(&obfuscated{Conn: below, keys: o.InfoHashes}, below, o)
}

func newLink(c Conn, n *counted, o Options) *Link {
	l := &Link{Conn: c, addr: o.Addr, below: n, onClose: o.OnClose, Opened: time.Now()}
	l.Filter = newFilter(c)
	l.Filter.onInterest = l.changed
	return l
}

// LimitBy has the link obey the limits of its torrent, too. It has no effect without
// Options.Limits.
func (l *Link) LimitBy(x *Limiter) {
	if w, ok := l.below.Conn.(*limited); ok && x != nil {
		w.torrent.Store(x)
	}
}

// WaitsForTurn reports whether bytes that have arrived wait for their turn under a rate limit.
func (l *Link) WaitsForTurn() bool {
	w, ok := l.below.Conn.(*limited)
	return ok && w.waits.Load()
}

// counted counts what its connection carries.
type counted struct {
	Conn
	read, written       atomic.Uint64
	firstRead, lastRead atomic.Int64 // Unix ns; 0: nothing was read yet
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.read.Add(uint64(n))
		now := time.Now().UnixNano()
		c.firstRead.CompareAndSwap(0, now)
		c.lastRead.Store(now)
	}
	return n, err
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(uint64(n))
	return n, err
}

// Bytes are the numbers of bytes read and written so far.
func (l *Link) Bytes() (read, written uint64) {
	return l.below.read.Load(), l.below.written.Load()
}

// Reads are the times of the first and the last read that brought bytes, in Unix ns; 0 before them.
func (l *Link) Reads() (first, last int64) {
	return l.below.firstRead.Load(), l.below.lastRead.Load()
}

// Origin is where the connection comes from.
func (l *Link) Origin() pathsel.Origin {
	if o := l.proven.Load(); o != nil {
		return *o
	}
	o := l.Conn.Origin()
	if o.Net != pathsel.Unproven {
		l.proven.Store(&o)
	}
	return o
}

// Measure also works after the end of the connection, when many transports know nothing any more.
func (l *Link) Measure() Measurement {
	if m := l.last.Load(); m != nil {
		return *m
	}
	return l.Conn.Measure()
}

func (l *Link) Read(b []byte) (int, error)  { return l.Filter.Read(b) }
func (l *Link) Write(b []byte) (int, error) { return l.Filter.Write(b) }

// Close ends the connection.
func (l *Link) Close() error {
	l.once.Do(func() {
		m := l.Conn.Measure()
		l.last.Store(&m)
		l.Filter.close()
		l.closeErr = l.Conn.Close()
		l.closed.Store(true)
		if l.onClose != nil {
			l.onClose()
		}
		l.changed()
	})
	return l.closeErr
}

// Closed tells whether the connection has ended.
func (l *Link) Closed() bool { return l.closed.Load() }

// SetDeadline never fails: the engine would panic, and braid may close a link just when the engine
// gets it. Reads and writes return the error.
func (l *Link) SetDeadline(t time.Time) error {
	_ = l.Filter.SetReadDeadline(t)
	_ = l.Conn.SetWriteDeadline(t)
	return nil
}

// SetReadDeadline never fails, like SetDeadline.
func (l *Link) SetReadDeadline(t time.Time) error {
	_ = l.Filter.SetReadDeadline(t)
	return nil
}

// SetWriteDeadline never fails, like SetDeadline.
func (l *Link) SetWriteDeadline(t time.Time) error {
	_ = l.Conn.SetWriteDeadline(t)
	return nil
}

// RemoteAddr is the address in the link's options.
func (l *Link) RemoteAddr() net.Addr { return l.addr }

// Greeted tells whether the BitTorrent handshake is done.
func (l *Link) Greeted() bool { return l.greeted.Load() }

// Greet notes that the BitTorrent handshake is done.
func (l *Link) Greet() {
	l.greeted.Store(true)
	l.changed()
}

// OnChange sets a function that is called when the link is greeted or closed, and when the peer has
// become interested or is no longer. It must not block. OnChange itself also calls it, since
// something may have happened before.
func (l *Link) OnChange(f func()) {
	l.onChange.Store(&f)
	f()
}

func (l *Link) changed() {
	if f := l.onChange.Load(); f != nil {
		(*f)()
	}
}
