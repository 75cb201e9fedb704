package scionnet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"braid/scionnet/quic"
)

// pool is the live connections of an endpoint, dialled and accepted, and the work on them that its end waits for.
type pool[C member] struct {
	places    quota // of accepted connections, and of those being accepted
	accepted  chan C
	ctx       context.Context // ends when the pool is drained
	stop      context.CancelFunc
	workers   sync.WaitGroup // accepting and lingering
	endings   sync.WaitGroup // dialling, and what is to be done when a connection has ended
	handshake atomic.Int64   // handshakes under way that others have begun

	mu     sync.Mutex
	closed bool
	conns  map[C]struct{}
}

// member is a connection in a pool.
type member interface {
	comparable
	lifetime() context.Context // ends with the connection
	isClosing() bool
	abort(quic.ApplicationErrorCode)
}

func (p *pool[C]) open(l limits) {
	p.places.limits = l
	p.accepted = make(chan C, acceptQueue)
	p.conns = map[C]struct{}{}
	p.ctx, p.stop = context.WithCancel(context.Background())
}

// full tells whether so many handshakes are under way, or strangers there, that a newcomer must first show that it
// receives at its address.
func (p *pool[C]) full(net.Addr) bool { return p.handshake.Load() > halfOpenMost || p.places.crowded() }

// enter lets a handshake begin that somebody else wants, unless there are too many already. ctx is the connection's;
// left is called when it has ended, settled when the handshake is done.
func (p *pool[C]) enter(ctx context.Context, g *guest, verified bool, left func()) (settled func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || !p.places.enter(g, verified) {
		g.evict()
		return nil, errors.New("too many connections")
	}
	p.handshake.Add(1)
	settled = sync.OnceFunc(func() { p.handshake.Add(-1) })
	p.whenEnded(ctx, func() {
		settled()
		left()
		p.places.leave(g)
	})
	return settled, nil
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

// keep takes in a connection that was dialled; with an error, and when the pool is drained, it ends it.
func (p *pool[C]) keep(qc *quic.Conn, c C, err error) (C, error) {
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

// greeter waits for the stream of a dialler and makes a connection of it.
type greeter[C member] func(ctx context.Context, qc *quic.Conn, a *admission, handshake time.Duration) (C, error)

// accept hands the connections that others open to Accept, until the pool is drained. quic-go refuses a connection that is
// through its handshake while 32 wait for its Accept, so as many goroutines wait there as handshakes may begin unproven: on
// one busy processor all of them can be through before any of these runs.
func (p *pool[C]) accept(l *quic.Listener, greet greeter[C], log *slog.Logger) {
	for range halfOpenMost {
		p.workers.Go(func() { p.acceptLoop(l, greet, log) })
	}
}

func (p *pool[C]) acceptLoop(l *quic.Listener, greet greeter[C], log *slog.Logger) {
	for {
		qc, err := l.Accept(p.ctx)
		if err != nil {
			return
		}
		a := qc.Context().Value(admissionKey{}).(*admission)
		a.settled()
		context.AfterFunc(a.guest.ctx, func() { qc.CloseWithError(codeRefused, "") }) // it has lost its place
		handshake := time.Since(a.start)
		p.workers.Go(func() {
			ctx, cancel := context.WithTimeout(p.ctx, handshakeIdle)
			defer cancel()
			c, err := greet(ctx, qc, a, handshake)
			if err != nil {
				log.Debug("connection refused", "peer", a.peer, "error", err)
				qc.CloseWithError(codeRefused, "")
				return
			}
			p.offer(ctx, c)
		})
	}
}

// meet opens the one stream of a connection, or waits for it, sends our feature bits, and tells whose key the peer has shown.
func meet(qc *quic.Conn, features byte, stream func() (*quic.Stream, error)) (*quic.Stream, PeerKey, error) {
	key, err := keyOf(qc.ConnectionState().TLS)
	if err != nil {
		return nil, PeerKey{}, err
	}
	s, err := stream()
	if err != nil {
		return nil, PeerKey{}, fmt.Errorf("open the stream: %w", err)
	}
	if _, err := s.Write([]byte{features}); err != nil {
		return nil, PeerKey{}, fmt.Errorf("greet: %w", err)
	}
	return s, key, nil
}

// offer gives an accepted connection to whoever accepts.
func (p *pool[C]) offer(ctx context.Context, c C) {
	if !p.add(c) {
		c.abort(codeDone)
		return
	}
	select {
	case p.accepted <- c:
	case <-ctx.Done(): // nobody accepts
		c.abort(codeRefused)
	}
}

// Accept waits for the next connection that somebody has opened. After Close the error is net.ErrClosed.
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

// all are the connections of this moment.
func (p *pool[C]) all() []C {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]C, 0, len(p.conns))
	for c := range p.conns {
		out = append(out, c)
	}
	return out
}

// count is how many connections there are at this moment.
func (p *pool[C]) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// hold keeps the pool's end waiting until endings.Done. It does not if the pool is drained already.
func (p *pool[C]) hold() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.endings.Add(1)
	return true
}

// whenEnded runs f when a connection has ended; ctx is the connection's. The pool's end waits for it.
func (p *pool[C]) whenEnded(ctx context.Context, f func()) {
	p.endings.Add(1)
	context.AfterFunc(ctx, func() {
		defer p.endings.Done()
		f()
	})
}

// spawn runs f, for which the pool's end waits. It does not if the pool is drained already.
func (p *pool[C]) spawn(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.workers.Go(f)
	return true
}

// drain ends all connections but those that are being closed, waits for these, and then for all work but what shut
// ends. It does nothing the second time.
func (p *pool[C]) drain(shut func() error) error {
	p.mu.Lock()
	again := p.closed
	p.closed = true
	p.mu.Unlock()
	if again {
		return nil
	}
	p.stop()
	for _, c := range p.all() {
		if !c.isClosing() {
			c.abort(codeDone)
		}
	}
	p.workers.Wait()
	err := shut()
	p.endings.Wait()
	return err
}
