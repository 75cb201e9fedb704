package scionnet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"braid/scionnet/congestion"
	"braid/scionnet/quic"
)

// IPConfig describes an endpoint on IP. The zero value is one for dialling, which accepts as well, on every address
// of the machine.
type IPConfig struct {
	// Listen is the UDP address; port 0 is any free one, and :: stands for every address of both families.
	Listen netip.AddrPort
	// Identity, MaxConns and MaxConnsPerHost are as in ListenConfig.
	Identity                  *Identity
	MaxConns, MaxConnsPerHost int
	// Congestion is as in ListenConfig.
	Congestion congestion.Algorithm
	// Logger may be nil.
	Logger *slog.Logger
}

// IPEndpoint makes the connections of an Endpoint, with the same protocol, keys, limits and ends, over plain UDP: where
// there is no SCION, and to tell what SCION costs from what QUIC does. The network chooses the way of packets, and QUIC
// finds out itself how large they may be.
type IPEndpoint struct {
	pool[*IPConn]
	log        *slog.Logger
	identity   *Identity
	addr       netip.AddrPort
	congestion congestion.Algorithm
	socket     *net.UDPConn
	quic       *quic.Transport
	listener   *quic.Listener
}

// IPConn is one QUIC connection over IP, as a net.Conn that ends as Conn does.
type IPConn struct {
	duplex
	local, peer netip.AddrPort
}

var _ net.Conn = (*IPConn)(nil)

// ipPacket is the QUIC packet size to begin with: what IPv6 promises to carry (RFC 8200, section 5), less its headers,
// which quic-go also begins with. Path MTU discovery goes on from there.
const ipPacket = 1232

// ListenIP opens a UDP port.
func ListenIP(cfg IPConfig) (*IPEndpoint, error) {
	id, err := cfg.Identity.orNew()
	if err != nil {
		return nil, err
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	at := &net.UDPAddr{Port: int(cfg.Listen.Port())} // every address of both families, as far as the machine has them
	if a := cfg.Listen.Addr(); a.IsValid() && a != netip.IPv6Unspecified() {
		at.IP = a.AsSlice()
	}
	socket, err := net.ListenUDP("udp", at)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", at, err)
	}
	e := &IPEndpoint{log: log, identity: id, socket: socket, addr: ipOf(socket.LocalAddr()), congestion: cfg.Congestion}
	e.open(limitsOf(cfg.MaxConns, cfg.MaxConnsPerHost))
	e.quic = &quic.Transport{Conn: socket, ConnContext: e.admit, VerifySourceAddress: e.full}
	if e.listener, err = e.quic.Listen(id.TLS(ALPN, nil), ipQUICConfig()); err != nil {
		e.stop()
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", e.addr, err), socket.Close())
	}
	e.accept(e.listener, e.greet, e.log)
	return e, nil
}

// ipQUICConfig differs from quicConfig in what SCION tells and IP does not.
func ipQUICConfig() *quic.Config {
	c := quicConfig(ipPacket)
	c.DisablePathMTUDiscovery = false
	return c
}

// ipOf is a UDP address without the form in which IPv6 holds IPv4.
func ipOf(a net.Addr) netip.AddrPort {
	u, ok := a.(*net.UDPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := u.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// Addr is the address that others dial; the IP is unspecified if it is every one of the machine.
func (e *IPEndpoint) Addr() netip.AddrPort { return e.addr }

// Key is the public key of the endpoint's identity.
func (e *IPEndpoint) Key() PeerKey { return e.identity.Key() }

// Dial connects to remote. want is as for Endpoint.Dial.
func (e *IPEndpoint) Dial(ctx context.Context, remote netip.AddrPort, want *PeerKey) (*IPConn, error) {
	c, err := e.dial(ctx, remote, want)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", remote, plainError(err))
	}
	return c, nil
}

func (e *IPEndpoint) dial(ctx context.Context, remote netip.AddrPort, want *PeerKey) (*IPConn, error) {
	if remote.Port() == 0 || !remote.Addr().IsValid() {
		return nil, errors.New("the address is not complete")
	}
	if !e.hold() {
		return nil, net.ErrClosed
	}
	defer e.endings.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	start := time.Now()
	qc, err := e.quic.Dial(ctx, net.UDPAddrFromAddrPort(remote), e.identity.TLS(ALPN, want), ipQUICConfig())
	if err != nil {
		return nil, err
	}
	handshake := time.Since(start)
	c, err := e.connection(qc, handshake, qc.OpenStream)
	return e.keep(qc, c, err)
}

// connection sends the feature bits, of which IP has none.
func (e *IPEndpoint) connection(qc *quic.Conn, handshake time.Duration, open func() (*quic.Stream, error)) (*IPConn, error) {
	control := newController(e.congestion, ipPacket, nil)
	quic.Control(qc, control)
	stream, key, err := meet(qc, 0, open)
	if err != nil {
		return nil, err
	}
	c := &IPConn{local: e.addr, peer: ipOf(qc.RemoteAddr())}
	c.begin(qc, stream, net.UDPAddrFromAddrPort(c.peer), key, handshake, 0, control)
	c.learn, c.spawn = func(byte) {}, e.spawn
	return c, nil
}

func (e *IPEndpoint) admit(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	host := ipOf(info.RemoteAddr).Addr()
	if p, err := host.Prefix(64); err == nil && host.Is6() {
		host = p.Addr() // the least that a network gets: its hosts choose the rest freely (RFC 4291, section 2.5.1)
	}
	g := newGuest(ctx, hostKey{host: host}, stranger{})
	settled, err := e.enter(ctx, g, info.AddrVerified, func() {})
	if err != nil {
		return nil, err
	}
	return context.WithValue(ctx, admissionKey{}, &admission{peer: info.RemoteAddr, guest: g, start: time.Now(), settled: settled}), nil
}

func (e *IPEndpoint) greet(ctx context.Context, qc *quic.Conn, _ *admission, handshake time.Duration) (*IPConn, error) {
	return e.connection(qc, handshake, func() (*quic.Stream, error) { return qc.AcceptStream(ctx) })
}

// Close ends all connections of the endpoint and frees the port, as Endpoint.Close does.
func (e *IPEndpoint) Close() error {
	err := e.drain(func() error { return errors.Join(e.quic.Close(), e.socket.Close()) })
	if err != nil {
		return fmt.Errorf("close %s: %w", e.addr, err)
	}
	return nil
}

// LocalAddr is the endpoint's address.
func (c *IPConn) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(c.local) }

// RemoteAddr is the peer's address as it was when the connection was made.
func (c *IPConn) RemoteAddr() net.Addr { return c.remote }

// RemoteIP is the same address as a value.
func (c *IPConn) RemoteIP() netip.AddrPort { return c.peer }
