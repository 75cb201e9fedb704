package wire

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"braid/pathsel"
)

// Limits bound the rates of a session's connections, in bits per second without the headers of the
// network. 0 is no bound. A rate is shared fairly between networks, hosts and peers (see
// pathsel.Origin), however many connections each has. A burst is at most the volume that the rate
// allows in 50 ms, or 4 KiB if that is more.
type Limits struct {
	Upload, Download int64
	// Paths bound the connections whose path matches. Each limit is for all such connections
	// together, and for each direction by itself.
	Paths []PathLimit
}

// PathLimit is a limit for paths with a matching interface. A connection obeys all limits that
// match. Paths inside one AS, and those that the network chooses (TCP), have no interfaces. The
// path of an accepted connection may be known only after a second or so.
type PathLimit struct {
	Pattern pathsel.Pattern
	Rate    int64
}

// MinRate is the lowest limit in bits per second. Below it, peers would give up handshakes.
const MinRate = 10_000

// Validate finds limits that are too low.
func (l Limits) Validate() error {
	check := func(what string, rate int64) error {
		if rate != 0 && rate < MinRate {
			return fmt.Errorf("%s limit of %d bit/s: at least %d", what, rate, MinRate)
		}
		return nil
	}
	if err := check("upload", l.Upload); err != nil {
		return err
	}
	if err := check("download", l.Download); err != nil {
		return err
	}
	for _, p := range l.Paths {
		if err := check(p.Pattern.String(), p.Rate); err != nil {
			return err
		}
	}
	return nil
}

// limit is a share with a clock. Goroutines wait at it for their turns.
type limit struct {
	mu    sync.Mutex
	share *share
	alarm *time.Timer
}

// newLimit makes a limit; nil for 0.
func newLimit(bitsPerSecond int64) *limit {
	if bitsPerSecond == 0 {
		return nil
	}
	return &limit{share: newShare(bitsPerSecond)}
}

// wait returns when n bytes, at most a chunk, may be sent, or with an error when done is closed.
func (l *limit) wait(f *flow, n int, done <-chan struct{}) error {
	select {
	case <-done: // then an earlier call may have left a grant in f.ready, which has room for one
		return net.ErrClosed
	default:
	}
	l.do(func(s *share) { s.claim(f, n) })
	select {
	case <-f.ready:
		return nil
	case <-done:
		return net.ErrClosed // leave takes the claim back
	}
}

// do changes the share, and grants the claims that can be granted then.
func (l *limit) do(change func(*share)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l.share)
	granted, next := l.share.serve(time.Now())
	for _, f := range granted {
		f.ready <- struct{}{} // has room: a flow has one claim at a time
	}
	switch {
	case next == 0 && l.alarm != nil:
		l.alarm.Stop()
	case next == 0:
	case l.alarm == nil:
		l.alarm = time.AfterFunc(next, func() { l.do(func(*share) {}) })
	default:
		l.alarm.Reset(next)
	}
}

func (l *limit) join(o pathsel.Origin) (f *flow) {
	l.do(func(s *share) { f = s.join(o) })
	return f
}

// lift grants all claims, at once and from now on. l may be nil.
func (l *limit) lift() {
	if l != nil {
		l.do((*share).lift)
	}
}

func (l *limit) move(f *flow, o pathsel.Origin) { l.do(func(s *share) { s.move(f, o) }) }

// leave removes the flow. Smaller claims that waited behind its claim may be granted then.
func (l *limit) leave(f *flow) { l.do(func(s *share) { s.leave(f) }) }

// Limiter applies the limits of a session or a torrent. The zero value has none until Set; nil has
// none, for ever.
type Limiter struct {
	version atomic.Uint64 // grows with each change

	mu    sync.Mutex
	alone bool // the session's limiter does not hold for the torrent of this limiter
	rules []rule
}

// rule limits the connections whose path matches.
type rule struct {
	pattern  *pathsel.Pattern // nil: all connections
	up, down *limit           // nil: not limited
}

// NewLimiter makes the limiter for valid limits. It is nil if there are none.
func NewLimiter(c Limits) *Limiter {
	if c.Upload == 0 && c.Download == 0 && len(c.Paths) == 0 {
		return nil
	}
	l := &Limiter{}
	l.Set(c)
	return l
}

// Set changes the limits, which must be valid. Connections obey the new ones from their next read
// or write on. None of them waits for its turn at an old one any more.
func (l *Limiter) Set(c Limits) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version.Add(1)
	for _, r := range l.rules {
		r.up.lift()
		r.down.lift()
	}
	l.rules = []rule{{nil, newLimit(c.Upload), newLimit(c.Download)}}
	for _, p := range c.Paths {
		l.rules = append(l.rules, rule{&p.Pattern, newLimit(p.Rate), newLimit(p.Rate)})
	}
}

// SetAlone says whether the limits of the session do not hold for the torrent of this limiter.
func (l *Limiter) SetAlone(alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version.Add(1)
	l.alone = alone
}

func (l *Limiter) isAlone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.alone
}

// limits are the limits for one direction of a connection over the path. uncertain says that more
// limits may hold once the path is known.
func (l *Limiter) limits(out bool, path pathsel.Path) (all []*limit, uncertain bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.rules {
		x := r.down
		if out {
			x = r.up
		}
		if x != nil && (r.pattern == nil || r.pattern.Matches(path)) {
			all = append(all, x)
		}
	}
	return all, len(l.rules) > 1 && path.Fingerprint == ""
}

// wrap makes a connection obey the limits. Without limits it returns the connection itself.
func (l *Limiter) wrap(w Conn) Conn {
	if l == nil {
		return w
	}
	x := &limited{Conn: w, session: l, closed: make(chan struct{})}
	x.in.wire, x.out.wire, x.out.out = x, x, true
	return x
}

// limited reads and writes at limited rates. A read waits after the bytes have come: meanwhile
// nothing else is read, and the transport's flow control slows the sender.
type limited struct {
	Conn
	session *Limiter
	torrent atomic.Pointer[Limiter] // nil: none, or the torrent is not known yet
	in, out lane
	waits   atomic.Bool // a read waits for its turn
	closed  chan struct{}
	once    sync.Once
	err     error
}

// version changes whenever the limits do: the versions of both limiters only grow.
func (w *limited) version() uint64 {
	v := w.session.version.Load()
	if t := w.torrent.Load(); t != nil {
		v += 1<<32 + t.version.Load()
	}
	return v
}

// limits are those of the session and the torrent for one direction.
func (w *limited) limits(out bool) (all []*limit, uncertain bool) {
	session, torrent := w.session, w.torrent.Load()
	if torrent != nil && torrent.isAlone() {
		session = nil
	}
	path := w.Path()
	for _, x := range []*Limiter{session, torrent} {
		if x != nil {
			more, u := x.limits(out, path)
			all, uncertain = append(all, more...), uncertain || u
		}
	}
	return all, uncertain
}

func (w *limited) Read(b []byte) (int, error) {
	w.in.serial.Lock()
	defer w.in.serial.Unlock()
	tolls := w.in.tolls()
	n, err := w.Conn.Read(b[:chunk(tolls, len(b))])
	if n > 0 {
		w.waits.Store(true)
		_ = w.in.pay(tolls, n) // an error means that it was closed, which the next read returns
		w.waits.Store(false)
	}
	return n, err
}

func (w *limited) Write(b []byte) (done int, err error) {
	w.out.serial.Lock()
	defer w.out.serial.Unlock()
	for {
		tolls := w.out.tolls()
		part := b[done:][:chunk(tolls, len(b)-done)]
		if len(part) > 0 {
			if err := w.out.pay(tolls, len(part)); err != nil {
				return done, err
			}
		}
		n, err := w.Conn.Write(part)
		if done += n; err != nil || done == len(b) {
			return done, err
		}
	}
}

// Close wakes goroutines that wait for a turn.
func (w *limited) Close() error {
	w.once.Do(func() {
		close(w.closed)
		w.err = w.Conn.Close()
		w.in.leave()
		w.out.leave()
	})
	return w.err
}

// lane is one direction of a connection.
type lane struct {
	wire   *limited
	out    bool       // what we send
	serial sync.Mutex // held for a whole read or write

	mu      sync.Mutex
	version uint64         // of the limits that are joined
	joined  []toll         // the lowest first
	origin  pathsel.Origin // under which the limits are joined
	certain bool           // the limits change only with the version
	closed  bool
	looked  time.Time // at the path and the origin, the last time
}

// toll is a limit that a lane has joined.
type toll struct {
	limit *limit
	flow  *flow
}

// lookAgain is the time between two looks at a connection whose path or ISD-AS is still uncertain.
const lookAgain = time.Second

// tolls are the limits that hold for the lane now, the lowest rate first. In another order, bytes
// would use up a rate that others share, and then wait for a lower one.
func (l *lane) tolls() []toll {
	l.mu.Lock()
	defer l.mu.Unlock()
	version := l.wire.version()
	if l.closed || version == l.version && (l.certain || time.Since(l.looked) < lookAgain) {
		return l.joined
	}
	l.version, l.looked = version, time.Now()
	origin := l.wire.Conn.Origin()
	limits, uncertain := l.wire.limits(l.out)
	l.certain = !uncertain && origin.Net != pathsel.Unproven
	var joined []toll
	for _, t := range l.joined {
		switch i := slices.Index(limits, t.limit); {
		case i < 0:
			t.limit.leave(t.flow)
			continue
		case origin != l.origin:
			t.limit.move(t.flow, origin)
			fallthrough
		default:
			limits = slices.Delete(limits, i, i+1)
		}
		joined = append(joined, t)
	}
	for _, x := range limits {
		joined = append(joined, toll{x, x.join(origin)})
	}
	slices.SortStableFunc(joined, func(a, b toll) int {
		return cmp.Compare(a.limit.share.rate, b.limit.share.rate)
	})
	l.joined, l.origin = joined, origin
	return joined
}

// pay waits for the lane's turn at each limit, one after another.
func (l *lane) pay(tolls []toll, n int) error {
	for _, t := range tolls {
		if err := t.limit.wait(t.flow, n, l.wire.closed); err != nil {
			return err
		}
	}
	return nil
}

// chunk is how much of n may be sent at a time.
func chunk(tolls []toll, n int) int {
	for _, t := range tolls {
		n = min(n, t.limit.share.chunk)
	}
	return n
}

func (l *lane) leave() {
	l.mu.Lock()
	joined := l.joined
	l.joined, l.closed = nil, true
	l.mu.Unlock()
	for _, t := range joined {
		t.limit.leave(t.flow)
	}
}
