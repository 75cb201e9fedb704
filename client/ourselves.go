package client

import (
	"net/netip"
	"slices"

	"braid/scionnet"
)

// Addresses of this host that others name: this session itself, or an earlier one that was killed.
// Trackers name the latter for some minutes, although nothing listens there any more.

// isOurs tells whether this session accepts connections at an address that others have named.
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
	return ip.IsLoopback() || slices.Contains(scionnet.OwnAddrs(), ip)
}

// Abandoned implements Transport.
func (t *scionTransport) Abandoned(p Peer) bool {
	a := t.endpoint.Addr()
	return p.scion.IA == a.IA && p.scion.Host == a.Host &&
		scionnet.IsFree("udp", netip.AddrPortFrom(a.Host, p.scion.Port).String())
}

// Abandoned implements Transport.
func (t *onIP) Abandoned(p Peer) bool {
	ip, err := netip.ParseAddr(p.host)
	return err == nil && isLocal(ip) &&
		scionnet.IsFree(t.network, netip.AddrPortFrom(ip, p.port).String())
}
