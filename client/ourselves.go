package client

import (
	"net"
	"net/netip"
	"slices"
)

// Trackers remember a peer for minutes after it was killed, and name it to the one that is started in its place. Such an
// address is one of this host, and nothing listens there any more.

// isOurs tells whether an address is one at which this session accepts connections, as others may know it.
func isOurs(p Peer, listening []Peer, local func(netip.Addr) bool) bool {
	if slices.ContainsFunc(listening, p.same) {
		return true
	}
	ip, err := netip.ParseAddr(p.host)
	return err == nil && slices.ContainsFunc(listening, func(l Peer) bool {
		at, err := netip.ParseAddr(l.host)
		return l.port == p.port && (l.host == "" || err == nil && at.IsUnspecified()) && local(ip)
	})
}

// isLocal tells whether this host has the address.
func isLocal(ip netip.Addr) bool {
	if ip.IsLoopback() {
		return true
	}
	addrs, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(addrs, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && p.Addr().Unmap() == ip
	})
}

// left tells whether the SCION address is one of this host at which nothing listens: the port is free.
func (t *scionTransport) left(p Peer) bool {
	a := t.endpoint.Addr()
	if p.scion.IA != a.IA || p.scion.Host != a.Host {
		return false
	}
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a.Host, p.scion.Port)))
	if err != nil {
		return false
	}
	c.Close()
	return true
}
