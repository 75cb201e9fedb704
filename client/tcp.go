package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"braid/pathsel"
	"braid/scionnet"
)

// tcpTransport serves ordinary BitTorrent peers or, in a group, its members (tcptls.go).
type tcpTransport struct {
	onIP
	log        *slog.Logger
	congestion string
	identity   *scionnet.Identity // in a group; nil: plain TCP
	listeners  []*net.TCPListener
	workers    sync.WaitGroup
}

// openTCP listens at the addresses, if any. congestion is the kernel's name of the congestion control
// algorithm for all connections; empty is the kernel's default.
func openTCP(addrs []Peer, congestion string, id *scionnet.Identity, log *slog.Logger) (*tcpTransport, error) {
	if err := hasTCPCongestion(congestion); err != nil {
		return nil, err
	}
	t := &tcpTransport{onIP: newOnIP("tcp"), log: log, congestion: congestion}
	if id != nil && id.Group() != nil {
		t.identity = id
	}
	listen := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error { return setTCPCongestion(c, congestion) }}
	for _, a := range addrs {
		l, err := listen.Listen(t.ctx, "tcp", a.String())
		if err != nil {
			t.Close()
			return nil, fmt.Errorf("listen on %s: %w", a, err)
		}
		t.listeners = append(t.listeners, l.(*net.TCPListener))
	}
	for _, l := range t.listeners {
		if t.identity != nil {
			t.workers.Go(func() { t.acceptMembers(l) })
			continue
		}
		go t.acceptFrom(l)
	}
	return t, nil
}

func (t *tcpTransport) acceptFrom(l *net.TCPListener) {
	for {
		c, err := l.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			t.pause(l.Addr(), err)
			continue
		}
		t.offer(newTCPWire(c, 0))
	}
}

// pause waits after a failed Accept. Most likely there are no free file descriptors, and trying again
// at once would only burn CPU.
func (t *tcpTransport) pause(at net.Addr, err error) {
	t.log.Warn("connections not accepted", "listen", at, "error", err)
	select {
	case <-t.ctx.Done():
	case <-time.After(time.Second):
	}
}

func (t *tcpTransport) Name() string { return "tcp" }

func (t *tcpTransport) Dial(ctx context.Context, p Peer, _ pathsel.Path, want *scionnet.PeerKey) (Wire, error) {
	start := time.Now()
	d := net.Dialer{ControlContext: func(_ context.Context, _, address string, c syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		if err := p.mayDial(to.Addr()); err != nil {
			return err
		}
		return setTCPCongestion(c, t.congestion)
	}}
	c, err := d.DialContext(ctx, "tcp", p.String())
	if err != nil {
		return nil, onlyUTP(err)
	}
	if t.identity != nil {
		return t.dialMember(ctx, c, want, start)
	}
	return newTCPWire(c.(*net.TCPConn), time.Since(start)), nil
}

// onlyUTP adds to the error of a refused connection that the peer may accept only uTP (BEP 29).
func onlyUTP(err error) error {
	var op *net.OpError
	if !errors.As(err, &op) || !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	more := *op // so that short forms of the error have it too
	more.Err = fmt.Errorf("%w (the peer is not running, or it speaks only uTP, which braid does not)", op.Err)
	return &more
}

func (t *tcpTransport) Listening() []Peer {
	var out []Peer
	for _, l := range t.listeners {
		out = append(out, tcpPeer(l.Addr()))
	}
	return out
}

func (t *tcpTransport) Close() error {
	t.stop()
	var errs []error
	for _, l := range t.listeners {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) { // a second time
			errs = append(errs, err)
		}
	}
	t.workers.Wait()
	return errors.Join(errs...)
}

func tcpPeer(a net.Addr) Peer {
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return Peer{host: a.String()}
	}
	return ipPeer(ap)
}

type tcpWire struct {
	*net.TCPConn
	peer      Peer
	handshake time.Duration
}

func newTCPWire(c *net.TCPConn, handshake time.Duration) *tcpWire {
	return &tcpWire{TCPConn: c, peer: tcpPeer(c.RemoteAddr()), handshake: handshake}
}

func (w *tcpWire) Peer() Peer             { return w.peer }
func (w *tcpWire) Path() pathsel.Path     { return pathsel.Path{} }
func (w *tcpWire) Key() *scionnet.PeerKey { return nil }
func (w *tcpWire) Proven() bool           { return true } // the handshake went there and back

func (w *tcpWire) Measure() Measurement {
	m := measureTCP(w.TCPConn)
	m.Handshake = w.handshake
	return m
}
