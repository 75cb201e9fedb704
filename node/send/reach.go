package send

import (
	"net"
	"net/netip"
	"slices"
	"strconv"

	"braid/client"
	"braid/scionnet"
)

// Reach returns the addresses for a line: those that the user names, then those on SCION, then
// those on IP. listening are the addresses at which the sender accepts peers, own those of its
// interfaces: they stand for an unspecified address, public ones first. Loopback and link-local
// addresses lead receivers elsewhere, so they count only if there are no others.
func Reach(named, listening []client.Peer, own []netip.Addr) []client.Peer {
	out := slices.Clone(named)
	var ip []client.Peer
	for _, p := range listening {
		switch a := p.Addr(); {
		case a.IsSCION():
			out = append(out, p)
		case p.Host() != "" && !a.Host.IsUnspecified():
			ip = append(ip, p)
		default:
			for _, h := range hosts(own) {
				ip = append(ip, client.PeerAt(scionnet.Addr{Host: h, Port: a.Port}))
			}
		}
	}
	out = append(out, ip...)
	return slices.Compact(out[:min(len(out), MaxPeers)])
}

// maxHosts bounds the addresses of one host in a line. Hosts with containers have dozens.
const maxHosts = 6

// hosts are the addresses that may lead to this host, the likeliest first.
func hosts(own []netip.Addr) []netip.Addr {
	rank := func(a netip.Addr) int {
		switch {
		case a.IsLoopback(), a.IsLinkLocalUnicast(), a.IsMulticast(), a.IsUnspecified():
			return -1
		case scionnet.ScopeOf(a) != scionnet.ScopePublic:
			return 1
		}
		return 0
	}
	out := slices.DeleteFunc(slices.Clone(own), func(a netip.Addr) bool { return rank(a) < 0 })
	if len(out) == 0 {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	}
	slices.SortStableFunc(out, func(a, b netip.Addr) int { return rank(a) - rank(b) })
	isOther := func(a netip.Addr) bool { return a.Is6() != out[0].Is6() }
	if i := slices.IndexFunc(out, isOther); i >= maxHosts { // receivers may have the other family only
		out[maxHosts-1] = out[i]
	}
	return out[:min(len(out), maxHosts)]
}

// Free returns the port if nothing listens there, and otherwise 0, which is any free port. network
// is tcp or udp.
func Free(network, host string, port uint16) uint16 {
	if scionnet.IsFree(network, net.JoinHostPort(host, strconv.Itoa(int(port)))) {
		return port
	}
	return 0
}
