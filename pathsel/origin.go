package pathsel

import "net/netip"

// Origin is where a connection comes from, in three steps. A new key costs nothing, a new host in one's own network next
// to nothing, a new network much. So whatever is divided or limited goes by Net first, then by Host, then by Key: whoever
// makes up identities divides what he has and gains nothing.
//
// All of one network share what one network gets, however many they are. Many honest hosts behind one AS thus get less
// each than a lone host elsewhere, but only of what both want at the same time, and never less than one network's part.
// Weighing networks by their hosts would be kinder to them, and would give an attacker, who has as many hosts as he
// likes, everything.
type Origin struct {
	Net  string // an ISD-AS, an IPv4 /24, an IPv6 /48; or Unproven
	Host string // an address of the network, of IPv6 the /64; no two networks have the same, and none is named like a network
	Key  string // that the peer has proved to have; empty where a transport has no keys
}

// Unproven is the network of all connections whose ISD-AS is only claimed. Together they are one stranger, with one host.
const Unproven = "unproven"

// OriginSCION is the origin of a connection whose ISD-AS is proven. host is of that AS.
func OriginSCION(ia IA, host netip.Addr, key string) Origin {
	return Origin{Net: ia.String(), Host: ia.String() + "," + hostPrefix(host), Key: key}
}

// OriginIP is the origin of a connection on IP whose handshake has shown that the host receives at its address.
func OriginIP(host netip.Addr, key string) Origin {
	host = host.Unmap().WithZone("")
	bits := 48
	if host.Is4() {
		bits = 24
	}
	net, _ := host.Prefix(bits) // fails only for the zero address, which is a network of its own
	return Origin{Net: net.String(), Host: hostPrefix(host), Key: key}
}

// OriginUnproven is the origin of a connection that claims an ISD-AS.
func OriginUnproven(key string) Origin {
	return Origin{Net: Unproven, Host: Unproven + " host", Key: key}
}

// hostPrefix is the host, of IPv6 its /64, in which anybody has as many addresses as he likes.
func hostPrefix(a netip.Addr) string {
	if a = a.Unmap().WithZone(""); !a.Is6() {
		return a.String()
	}
	p, _ := a.Prefix(64)
	return p.String()
}
