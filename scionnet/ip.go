package scionnet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"braid/pathsel"
	"braid/scionnet/congestion"
	"braid/scionnet/quic"
)

// IPConfig describes an endpoint on IP. The zero value dials and accepts at a free port of every
// local address.
type IPConfig struct {
	// Listen is the UDP address; port 0 is any free one, and :: is every address of both families.
	Listen netip.AddrPort
	// Identity and Congestion are as in ListenConfig.
	Identity   *Identity
	Congestion congestion.Algorithm
	// Logger may be nil.
	Logger *slog.Logger
}

// IPEndpoint makes the connections of an Endpoint over plain UDP, with the same protocol, keys and
// limits. It serves hosts without SCION, and separates the cost of SCION from that of QUIC. The
// network chooses the way of the packets, and QUIC finds their largest size by itself.
type IPEndpoint struct {
	pool[*IPConn]
	addr netip.AddrPort
}

// IPConn is one QUIC connection over IP, as a net.Conn. It ends as Conn does.
type IPConn struct {
	duplex
	local, peer netip.AddrPort
}

var _ net.Conn = (*IPConn)(nil)

// ipPacket is the initial size of QUIC packets: the least that every IPv6 link carries (RFC 8200,
// section 5), less the headers. Path MTU discovery raises it.
const ipPacket = 1232

// ListenIP opens a UDP port.
func ListenIP(cfg IPConfig) (*IPEndpoint, error) {
	at := &net.UDPAddr{Port: int(cfg.Listen.Port())} // no IP: every address of both families that the machine has
	if a := cfg.Listen.Addr(); a.IsValid() && a != netip.IPv6Unspecified() {
		at.IP = a.AsSlice()
	}
	socket, err := net.ListenUDP("udp", at)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", at, err)
	}
	e := &IPEndpoint{addr: ipOf(socket.LocalAddr())}
	e.name, e.log = e.addr, cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	e.identity, e.congestion = cfg.Identity, cfg.Congestion
	e.socket = socket
	e.quic = &quic.Transport{Conn: ipSocket{socket, e.isConnected}, ConnContext: e.admitIP}
	e.places.limits = connLimits
	server := ipQUICConfig()
	server.GetConfigForClient = func(*quic.ClientInfo) (*quic.Config, error) {
		return e.config(), nil
	}
	if err := e.listen(server, e.greet); err != nil {
		return nil, err
	}
	return e, nil
}

// config is the configuration of one more connection.
func (e *IPEndpoint) config() *quic.Config {
	c := ipQUICConfig()
	c.KeepAlivePeriod = keepAliveAmong(e.count())
	return c
}

// ipSocket is the UDP socket of an IPEndpoint. Packets of a connection that cannot be sent count as
// lost. With an error QUIC would end the connection at once, and this host may be cut off for a
// moment only, as while it changes to another wireless network. A handshake fails with the error.
type ipSocket struct {
	*net.UDPConn
	isConnected func(netip.AddrPort) bool // there is a connection to the address
}

var _ quic.OOBCapablePacketConn = ipSocket{}

// WriteMsgUDP sends one packet or several of one size. Routers must drop packets instead of marking
// them: the congestion controllers respond to losses only.
func (s ipSocket) WriteMsgUDP(b, oob []byte, to *net.UDPAddr) (n, oobn int, err error) {
	n, oobn, err = s.UDPConn.WriteMsgUDP(b, withoutECN(oob), to)
	if s.isLost(err, len(b), to) {
		return len(b), len(oob), nil
	}
	return n, oobn, err
}

// WriteTo sends a packet where QUIC sends one by one.
func (s ipSocket) WriteTo(b []byte, to net.Addr) (int, error) {
	n, err := s.UDPConn.WriteTo(b, to)
	if s.isLost(err, len(b), to) {
		return len(b), nil
	}
	return n, err
}

func (s ipSocket) isLost(err error, size int, to net.Addr) bool {
	switch {
	case err == nil, errors.Is(err, net.ErrClosed):
		return false
	case size > mostPacket && (errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EINVAL)):
		return false // the system cannot cut packets apart; QUIC sends them again, one by one
	}
	return s.isConnected(ipOf(to))
}

func (e *IPEndpoint) isConnected(to netip.AddrPort) bool {
	return slices.ContainsFunc(e.list(), func(c *IPConn) bool {
		return ipOf(c.quic.RemoteAddr()) == to
	})
}

// ipQUICConfig is quicConfig with path MTU discovery, since IP does not announce a path's MTU.
func ipQUICConfig() *quic.Config {
	c := quicConfig(ipPacket)
	c.DisablePathMTUDiscovery = false
	return c
}

// ipOf converts a UDP address; IPv4 addresses in IPv6 form become IPv4.
func ipOf(a net.Addr) netip.AddrPort {
	u, ok := a.(*net.UDPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	return unmapped(u.AddrPort())
}

func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// Addr is the address that others dial; the IP is unspecified if the endpoint listens at every
// local address.
func (e *IPEndpoint) Addr() netip.AddrPort { return e.addr }

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
		return nil, errIncomplete
	}
	ctx, done, err := e.startDial(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	start := time.Now()
	to, secret := net.UDPAddrFromAddrPort(remote), e.identity.TLS(ALPN, want)
	qc, err := e.quic.Dial(ctx, to, secret, e.config())
	if err != nil {
		return nil, err
	}
	c, err := e.connection(qc, time.Since(start), qc.OpenStream)
	return e.finishDial(qc, c, err)
}

func (e *IPEndpoint) connection(
	qc *quic.Conn, handshake time.Duration, open func() (*quic.Stream, error),
) (*IPConn, error) {
	c := &IPConn{local: e.addr, peer: ipOf(qc.RemoteAddr())}
	c.remote, c.handshake, c.spawn = net.UDPAddrFromAddrPort(c.peer), handshake, e.spawn
	c.onFeatures = func(byte) {} // there are none on IP
	c.control = newController(e.congestion, ipPacket, nil)
	c.control.Govern(qc)
	return c, c.begin(qc, 0, open)
}

func (e *IPEndpoint) admitIP(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	who := pathsel.OriginIP(ipOf(info.RemoteAddr).Addr(), "")
	a := &admission{peer: info.RemoteAddr, place: newInbound(ctx, who, remoteAS{})}
	return e.admit(ctx, a, info.AddrVerified, func() {})
}

func (e *IPEndpoint) greet(ctx context.Context, qc *quic.Conn, _ *admission, handshake time.Duration) (*IPConn, error) {
	return e.connection(qc, handshake, func() (*quic.Stream, error) { return qc.AcceptStream(ctx) })
}

// LocalAddr is the endpoint's address.
func (c *IPConn) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(c.local) }

// RemoteAddr is the peer's address when the connection was made.
func (c *IPConn) RemoteAddr() net.Addr { return c.remote }

// RemoteIP is RemoteAddr as a value.
func (c *IPConn) RemoteIP() netip.AddrPort { return c.peer }
