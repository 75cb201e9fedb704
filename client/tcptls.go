package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"braid/pathsel"
	"braid/scionnet"
	"braid/scionnet/crowd"
)

// In a group (scionnet.Group), TCP carries TLS, since only members may connect. Other BitTorrent
// clients speak plain TCP and are refused.

// tcpALPN is the protocol in TLS over TCP: BitTorrent.
const tcpALPN = "braid-tcp/1"

// tlsPatience is how long a TLS handshake may take.
const tlsPatience = 10 * time.Second

// maxTLSConns bounds the accepted connections, those in a handshake included. When there are more,
// silent ones and those of greedy hosts end first (package crowd).
const maxTLSConns = maxAccepted + 256

// acceptMembers accepts connections until the listener closes. Handshakes run beside each other, so
// that a silent stranger delays nobody.
func (t *tcpTransport) acceptMembers(l net.Listener) {
	l = crowd.Listen(l, maxTLSConns)
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			t.pause(l.Addr(), err)
			continue
		}
		t.workers.Go(func() {
			w, err := secure(t.ctx, tls.Server(c, t.identity.TLS(tcpALPN, nil)))
			if err != nil {
				t.log.Debug("connection refused", "peer", c.RemoteAddr(), "error", err)
				return
			}
			t.offer(w)
		})
	}
}

// dialMember makes a connection to a member of the group that began to be dialled at start.
func (t *tcpTransport) dialMember(ctx context.Context, c net.Conn, want *scionnet.PeerKey, start time.Time) (Wire, error) {
	w, err := secure(ctx, tls.Client(c, t.identity.TLS(tcpALPN, want)))
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", c.RemoteAddr(), err)
	}
	w.handshake = time.Since(start)
	return w, nil
}

// secure completes a TLS handshake. If it fails, the connection is closed.
func secure(ctx context.Context, c *tls.Conn) (*tlsWire, error) {
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
	w := &tlsWire{Conn: c, peer: tcpPeer(raw.RemoteAddr()), key: key}
	if below, ok := raw.(interface{ NetConn() net.Conn }); ok { // accepted
		raw = below.NetConn()
	}
	w.tcp, _ = raw.(*net.TCPConn)
	return w, nil
}

// tlsWire is a connection to a member.
type tlsWire struct {
	*tls.Conn
	tcp       *net.TCPConn // nil: nothing is known of it
	peer      Peer
	key       scionnet.PeerKey
	handshake time.Duration
}

// Close ends the connection without the farewell of TLS, which could wait for the peer: the engine
// holds its lock meanwhile. BitTorrent needs no proof that nothing was cut off at the end.
func (w *tlsWire) Close() error { return w.NetConn().Close() }

// Read gives io.EOF at the end of the connection, with or without a farewell.
func (w *tlsWire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}

func (w *tlsWire) Peer() Peer             { return w.peer }
func (w *tlsWire) Path() pathsel.Path     { return pathsel.Path{} }
func (w *tlsWire) Key() *scionnet.PeerKey { return &w.key }
func (w *tlsWire) Proven() bool           { return true } // the handshake went there and back

func (w *tlsWire) Measure() Measurement {
	var m Measurement
	if w.tcp != nil {
		m = measureTCP(w.tcp)
	}
	m.Handshake = w.handshake
	return m
}
