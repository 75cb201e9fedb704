package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"braid/pathsel"
	"braid/scionnet"
	"braid/scionnet/crowd"
)

// tcpTransport serves ordinary BitTorrent peers or, in a group, its members.
type tcpTransport struct {
	onIP
	log        *slog.Logger
	congestion string
	identity   *scionnet.Identity // in a group; nil: plain TCP
	listeners  []net.Listener
	workers    sync.WaitGroup
}

// openTCP listens at the addresses, if any. congestion is the kernel's name of the congestion
// control algorithm for all connections; empty is the kernel's default.
func openTCP(
	addrs []Peer, congestion string, id *scionnet.Identity, log *slog.Logger,
) (*tcpTransport, error) {
	if err := hasTCPCongestion(congestion); err != nil {
		return nil, err
	}
	t := &tcpTransport{onIP: newOnIP("tcp"), log: log, congestion: congestion}
	if id != nil && id.Group() != nil {
		t.identity = id
	}
	listen := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return setTCPCongestion(c, congestion)
	}}
	for _, a := range addrs {
		l, err := listen.Listen(t.ctx, "tcp", a.String())
		if err != nil {
			t.Close()
			return nil, fmt.Errorf("listen on %s: %w", a, err)
		}
		t.listeners = append(t.listeners, l)
	}
	for _, l := range t.listeners {
		t.workers.Go(func() { t.acceptFrom(l) })
	}
	return t, nil
}

// acceptFrom accepts connections until the listener closes. TLS handshakes run beside each other,
// so that a silent stranger delays nobody.
func (t *tcpTransport) acceptFrom(l net.Listener) {
	if t.identity != nil {
		l = crowd.Listen(l, maxTLSConns)
	}
	for {
		c, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			// Most likely there are no free file descriptors, and trying again at once would only
			// burn CPU.
			t.log.Warn("connections not accepted", "listen", l.Addr(), "error", err)
			select {
			case <-t.ctx.Done():
			case <-time.After(time.Second):
			}
		case t.identity == nil:
			t.handOver(newTCPWire(c.(*net.TCPConn), 0))
		default:
			t.workers.Go(func() {
				w, err := secure(t.ctx, tls.Server(c, t.identity.TLS(tcpALPN, nil)))
				if err != nil {
					t.log.Debug("connection refused", "peer", c.RemoteAddr(), "error", err)
					return
				}
				t.handOver(w)
			})
		}
	}
}

func (t *tcpTransport) Name() string { return "tcp" }

func (t *tcpTransport) Dial(
	ctx context.Context, p Peer, _ pathsel.Path, want *scionnet.PeerKey,
) (Wire, error) {
	start := time.Now()
	d := net.Dialer{Control: func(_, address string, c syscall.RawConn) error {
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
	if t.identity == nil {
		return newTCPWire(c.(*net.TCPConn), time.Since(start)), nil
	}
	w, err := secure(ctx, tls.Client(c, t.identity.TLS(tcpALPN, want)))
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", c.RemoteAddr(), err)
	}
	w.handshake = time.Since(start)
	return w, nil
}

// onlyUTP adds a hint to the error of a refused connection: the peer may accept only uTP (BEP 29).
func onlyUTP(err error) error {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	more := *op // a copy with the hint inside, so that short forms of the error have it too
	more.Err = fmt.Errorf("%w (the peer is not running, or it speaks only uTP, "+
		"which braid does not)", op.Err)
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

func tcpPeer(a net.Addr) Peer { return ipPeer(a.(*net.TCPAddr).AddrPort()) }

// tcpWire is a TCP connection or, to a member of a group, TLS over one.
type tcpWire struct {
	net.Conn
	remote
	tcp *net.TCPConn // to measure; nil: it is not known
}

func newTCPWire(c *net.TCPConn, handshake time.Duration) *tcpWire {
	r := remote{peer: tcpPeer(c.RemoteAddr()), handshake: handshake}
	return &tcpWire{Conn: c, remote: r, tcp: c}
}

func (w *tcpWire) Measure() (m Measurement) {
	if w.tcp != nil {
		m = measureTCP(w.tcp)
	}
	m.Handshake = w.handshake
	return m
}

// In a group (scionnet.Group), TCP carries TLS, since only members may connect. Other BitTorrent
// clients speak plain TCP and are refused.

// tcpALPN names the protocol inside TLS, which is BitTorrent.
const tcpALPN = "braid-tcp/1"

// tlsPatience is how long a TLS handshake may take.
const tlsPatience = 10 * time.Second

// maxTLSConns bounds the accepted connections, those in a handshake included. When there are more,
// silent ones and those of greedy networks end first (package crowd).
const maxTLSConns = maxAccepted + 256

// secure completes a TLS handshake. If it fails, the connection is closed.
func secure(ctx context.Context, c *tls.Conn) (*tcpWire, error) {
	ctx, cancel := context.WithTimeout(ctx, tlsPatience)
	defer cancel()
	raw := c.NetConn()
	err := c.HandshakeContext(ctx)
	var key scionnet.PeerKey
	if err == nil {
		key, err = scionnet.KeyOf(c.ConnectionState())
	}
	if err != nil {
		raw.Close()
		return nil, err
	}
	w := &tcpWire{Conn: tlsConn{c}, remote: remote{peer: tcpPeer(raw.RemoteAddr()), key: &key}}
	if below, ok := raw.(interface{ NetConn() net.Conn }); ok { // accepted
		raw = below.NetConn()
	}
	w.tcp, _ = raw.(*net.TCPConn)
	return w, nil
}

// tlsConn is TLS over a connection to a member.
type tlsConn struct{ *tls.Conn }

// Close ends the connection without the farewell of TLS, which could wait for the peer: the engine
// holds its lock meanwhile. BitTorrent needs no proof that nothing was cut off at the end.
func (c tlsConn) Close() error { return c.NetConn().Close() }

// Read gives io.EOF at the end of the connection, with or without a farewell.
func (c tlsConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}
