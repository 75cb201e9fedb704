package pathsel

import "net/netip"

// Origin is where a connection comes from, at three levels. A new key costs an attacker nothing, a
// new host in the attacker's network almost nothing, and a new network much. So everything scarce
// is divided first by Net, then by Host, then by Key. Inventing identities then gains nothing.
//
// A network gets one share, however many hosts it has. Many honest hosts behind one AS thus get
// less each than a lone host elsewhere, but only under contention, and together never less than one
// share. Weighting networks by their hosts would give everything to an attacker with many hosts.
type Origin struct {
	Net  string // an ISD-AS, an IPv4 /24, an IPv6 /48; or Unproven
	Host string // an address (IPv6: /64) in Net; unique across networks and different from all Nets
	Key  string // the key that the peer has proved; empty if the transport has no keys
}

// Unproven is the network of all connections with an unproven ISD-AS. They count as one host.
const Unproven = "unproven"

// OriginSCION returns the origin of a connection with a proven ISD-AS. host is in that AS.
func OriginSCION(ia IA, host netip.Addr, key string) Origin {
	return Origin{Net: ia.String(), Host: ia.String() + "," + hostPrefix(host), Key: key}
}

// OriginIP returns the origin of a connection on IP. Its handshake has proved that the host
// receives packets at the address.
func OriginIP(host netip.Addr, key string) Origin {
	host = host.Unmap().WithZone("")
	bits := 48
	if host.Is4() {
		bits = 24
	}
	net, _ := host.Prefix(bits) // fails only for the zero address, which is a network of its own
	return Origin{Net: net.String(), Host: hostPrefix(host), Key: key}
}

// OriginUnproven returns the origin of a connection whose ISD-AS is not proven.
func OriginUnproven(key string) Origin {
	return Origin{Net: Unproven, Host: Unproven + " host", Key: key}
}

// hostPrefix returns the address, or the /64 of an IPv6 address, since a host can use all of its
// /64.
func hostPrefix(a netip.Addr) string {
	if a = a.Unmap().WithZone(""); !a.Is6() {
		return a.String()
	}
	p, _ := a.Prefix(64)
	return p.String()
}
