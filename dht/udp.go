package dht

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"braid/scionnet"
)

// udpSocket is a Socket on IP.
type udpSocket struct {
	*net.UDPConn
	network Network
}

// ListenUDP opens a socket on IP. at is host:port; without a host it is all addresses of IPv4.
func ListenUDP(ctx context.Context, at netip.AddrPort) (Socket, error) {
	network, kind := "udp4", OverIP4
	if at.Addr().Is6() && !at.Addr().Is4In6() {
		network, kind = "udp6", OverIP6
	}
	var lc net.ListenConfig
	c, err := lc.ListenPacket(ctx, network, at.String())
	if err != nil {
		return nil, fmt.Errorf("open a DHT node on IP: %w", err)
	}
	return &udpSocket{c.(*net.UDPConn), kind}, nil
}

func (s *udpSocket) Network() Network { return s.network }

func (s *udpSocket) Addr() Addr { return scionnet.IPAddr(s.LocalAddr().(*net.UDPAddr).AddrPort()) }

func (s *udpSocket) Receive(b []byte) (int, Origin, net.Addr, error) {
	n, from, err := s.ReadFromUDPAddrPort(b)
	if err != nil {
		return 0, Origin{}, nil, err
	}
	return n, Origin{Addr: scionnet.IPAddr(from), Proven: true}, net.UDPAddrFromAddrPort(from), nil
}

func (s *udpSocket) Send(b []byte, to Addr, _ bool) {
	_, _ = s.WriteToUDPAddrPort(b, to.AddrPort()) // a lost packet is repeated
}

func (s *udpSocket) Reply(b []byte, back net.Addr) { _, _ = s.WriteTo(b, back) }
