package scionnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"braid/scionnet/congestion"
	"braid/scionnet/quic"
)

// connLimits are those of accepted connections, handshakes included. One network gets at most three
// quarters of the places, so that a large AS cannot keep all others out. A host may be an address
// translator with many peers, each of which has eight paths.
var connLimits = limits{total: 2048, perNet: 2048 * 3 / 4, perHost: 512, unproven: 2048 / 8}

const (
	// acceptQueue is the number of connections that may wait for Accept: more than arrive in one
	// round trip of a busy application, and few enough to need little memory.
	acceptQueue = 64
	// halfOpenMost is the number of handshakes under way above which a newcomer must first prove,
	// at the cost of a round trip, that it receives at its address (RFC 9000, section 8.1.2).
	halfOpenMost = 128
)

// Codes with which a connection is closed (QUIC application error codes).
const (
	codeDone    quic.ApplicationErrorCode = 0 // closed by the application
	codeAbort   quic.ApplicationErrorCode = 1 // aborted: undelivered data is lost
	codeRefused quic.ApplicationErrorCode = 2 // the acceptor has no room, or the dialler broke the protocol
	// codePacketSize: full packets do not arrive. The next connection should use smaller ones.
	codePacketSize quic.ApplicationErrorCode = 3
	// codeMoved: a NAT has given the sender another address, which is the reason's text.
	codeMoved quic.ApplicationErrorCode = 4
)

// pool is the part that Endpoint and IPEndpoint share: a QUIC transport and its live connections,
// dialled and accepted.
type pool[C member] struct {
	name       fmt.Stringer // the local address
	log        *slog.Logger
	identity   *Identity // nil: listen makes one
	congestion congestion.Algorithm
	quic       *quic.Transport
	socket     io.Closer // below quic

	places     quota        // of accepted connections, from their first packet on
	handshakes atomic.Int64 // under way, begun by peers
	accepted   chan C
	ctx        context.Context // ends when the pool closes
	stop       context.CancelFunc
	workers    sync.WaitGroup // accepting and lingering
	endings    sync.WaitGroup // dialling, and cleaning up after connections

	mu     sync.Mutex
	closed bool
	conns  map[C]struct{}
}

type member interface {
	comparable
	lifetime() context.Context // ends with the connection
	isClosing() bool
	abort(quic.ApplicationErrorCode)
}

// greeter makes a connection of a finished handshake. It waits for the dialler's stream.
type greeter[C member] func(ctx context.Context, qc *quic.Conn, a *admission, handshake time.Duration) (C, error)

// listen accepts connections until the pool closes. If it fails, it closes the socket.
func (p *pool[C]) listen(config *quic.Config, greet greeter[C]) (err error) {
	p.accepted = make(chan C, acceptQueue)
	p.conns = map[C]struct{}{}
	p.ctx, p.stop = context.WithCancel(context.Background())
	if p.identity == nil {
		p.identity, err = NewIdentity()
	}
	var l *quic.Listener
	if err == nil {
		p.quic.VerifySourceAddress = p.mustVerify
		l, err = p.quic.Listen(p.identity.TLS(ALPN, nil), config)
	}
	if err != nil {
		p.stop()
		return errors.Join(fmt.Errorf("listen on %s: %w", p.name, err), p.socket.Close())
	}
	// quic-go refuses a connection whose handshake has finished while 32 others wait for its
	// Accept. All handshakes that may run unverified can finish before any goroutine runs here, so
	// as many goroutines wait in Accept.
	for range halfOpenMost {
		p.workers.Go(func() { p.acceptLoop(l, greet) })
	}
	return nil
}

// Key is the public key of the endpoint's identity.
func (p *pool[C]) Key() PeerKey { return p.identity.Key() }

// mustVerify tells whether a newcomer must first prove that it receives at its address.
func (p *pool[C]) mustVerify(net.Addr) bool {
	return p.handshakes.Load() > halfOpenMost || p.places.unprovenFull()
}

// admission is what is known of an accepted connection from its first packet on.
type admission struct {
	peer          fmt.Stringer
	place         *inbound
	packetSize    int // on SCION
	start         time.Time
	handshakeDone func()
}

type admissionKey struct{}

// admit lets a peer's handshake begin if there is a place for it. onEnd then runs when the
// connection ends. The returned context, for the connection, carries a.
func (p *pool[C]) admit(ctx context.Context, a *admission, verified bool, onEnd func()) (context.Context, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || !p.places.take(a.place, verified) {
		a.place.evict()
		return nil, errors.New("too many connections")
	}
	p.handshakes.Add(1)
	a.start = time.Now()
	a.handshakeDone = sync.OnceFunc(func() { p.handshakes.Add(-1) })
	p.whenEnded(ctx, func() {
		a.handshakeDone()
		onEnd()
		p.places.release(a.place)
	})
	return context.WithValue(ctx, admissionKey{}, a), nil
}

func (p *pool[C]) acceptLoop(l *quic.Listener, greet greeter[C]) {
	for {
		qc, err := l.Accept(p.ctx)
		if err != nil {
			return
		}
		a := qc.Context().Value(admissionKey{}).(*admission)
		a.handshakeDone()
		context.AfterFunc(a.place.ctx, func() { qc.CloseWithError(codeRefused, "") }) // evicted
		handshake := time.Since(a.start)
		p.workers.Go(func() {
			ctx, cancel := context.WithTimeout(p.ctx, handshakeIdle)
			defer cancel()
			c, err := greet(ctx, qc, a, handshake)
			if err != nil {
				p.log.Debug("connection refused", "peer", a.peer, "error", err)
				qc.CloseWithError(codeRefused, "")
				return
			}
			p.deliver(ctx, c)
		})
	}
}

// deliver hands an accepted connection to Accept.
func (p *pool[C]) deliver(ctx context.Context, c C) {
	if !p.add(c) {
		c.abort(codeDone)
		return
	}
	select {
	case p.accepted <- c:
	case <-ctx.Done(): // nobody calls Accept
		c.abort(codeRefused)
	}
}

// Accept waits for the next connection from a peer. After Close the error is net.ErrClosed.
func (p *pool[C]) Accept(ctx context.Context) (C, error) {
	var none C
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.ctx.Done():
		return none, net.ErrClosed
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// startDial gives a context for one attempt to dial, which ends with the pool. Close waits until
// done is called.
func (p *pool[C]) startDial(ctx context.Context) (_ context.Context, done func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, net.ErrClosed
	}
	p.endings.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(p.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
		p.endings.Done()
	}, nil
}

// finishDial adds a dialled connection to the pool. After an error, or if the pool is closed, it
// ends the connection.
func (p *pool[C]) finishDial(qc *quic.Conn, c C, err error) (C, error) {
	var none C
	if err != nil {
		qc.CloseWithError(codeAbort, "")
		return none, err
	}
	if !p.add(c) {
		qc.CloseWithError(codeDone, "")
		return none, net.ErrClosed
	}
	return c, nil
}

func (p *pool[C]) add(c C) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.conns[c] = struct{}{}
	p.whenEnded(c.lifetime(), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
	})
	return true
}

func (p *pool[C]) list() []C {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.conns))
}

func (p *pool[C]) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// whenEnded runs f after the end of the connection with that context. Close waits for it.
func (p *pool[C]) whenEnded(ctx context.Context, f func()) {
	p.endings.Add(1)
	context.AfterFunc(ctx, func() {
		defer p.endings.Done()
		f()
	})
}

// spawn runs f, for which Close waits. It returns false, and does not run f, if the pool is closed.
func (p *pool[C]) spawn(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.workers.Go(f)
	return true
}

// Close ends all connections of the endpoint and frees the port. Connections on which Close was
// called before still deliver what was written, within the time that their Close allows. A second
// call does nothing.
func (p *pool[C]) Close() error {
	p.mu.Lock()
	again := p.closed
	p.closed = true
	p.mu.Unlock()
	if again {
		return nil
	}
	p.stop()
	for _, c := range p.list() {
		if !c.isClosing() {
			c.abort(codeDone)
		}
	}
	p.workers.Wait()
	err := errors.Join(p.quic.Close(), p.socket.Close())
	p.endings.Wait()
	if err != nil {
		return fmt.Errorf("close %s: %w", p.name, err)
	}
	return nil
}
