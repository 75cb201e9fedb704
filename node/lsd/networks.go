package lsd

import (
	"net"
	"net/netip"
	"slices"

	"braid/scionnet"
)

// link is an interface of this host, with its addresses of one family.
type link struct {
	index    int
	name     string
	loopback bool
	addrs    []netip.Prefix // all of IPv4, or all of IPv6
}

// network is a link on which torrents are announced.
type network struct {
	link
	from netip.Addr // the source of the announces
	port uint16     // where peers are accepted over TCP; 0: nowhere
}

func (l link) is6() bool { return l.addrs[0].Addr().Is6() }

// address returns the address that is most useful to other hosts: not a link-local one, if there is
// another.
func (l link) address() netip.Addr {
	for _, p := range l.addrs {
		if !p.Addr().IsLinkLocalUnicast() {
			return p.Addr()
		}
	}
	return l.addrs[0].Addr()
}

// has tells whether an address is in one of the link's subnets.
func (l link) has(a netip.Addr) bool {
	return slices.ContainsFunc(l.addrs, func(p netip.Prefix) bool {
		return p.Contains(a.WithZone(""))
	})
}

// ours tells whether an address is one of the link's. The loopback interface has all addresses of
// its subnet.
func (l link) ours(a netip.Addr) bool {
	return slices.ContainsFunc(l.addrs, func(p netip.Prefix) bool {
		return p.Addr() == a || l.loopback && p.Contains(a)
	})
}

// choose returns the networks on which to announce. listening are the addresses at which peers are
// accepted; addresses on IP have a zero IA.
//
// If listening names hosts on IP, choose returns their links only. Otherwise it returns all links, so
// that we find peers to dial. It returns the loopback interface only if an address is on it.
func choose(links []link, listening []scionnet.Addr) (out []network) {
	named := slices.ContainsFunc(listening, func(a scionnet.Addr) bool {
		return !a.Host.IsUnspecified() && a.IA == 0
	})
	for _, l := range links {
		n := network{link: l, from: l.address()}
		chosen := !l.loopback && !named
		for _, a := range listening {
			switch {
			case a.IA == 0 && a.Host.IsUnspecified() && !l.loopback && (a.Host.Is6() || !l.is6()):
				n.port, chosen = a.Port, true
			case !l.ours(a.Host):
			case a.IA == 0:
				n.port, n.from, chosen = a.Port, a.Host, true
			default:
				chosen = true
				if n.port == 0 {
					n.from = a.Host
				}
			}
		}
		if chosen {
			out = append(out, n)
		}
	}
	return out
}

// links returns this host's links that carry multicast.
func links() (out []link, err error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, i := range all {
		l := link{index: i.Index, name: i.Name, loopback: i.Flags&net.FlagLoopback != 0}
		if i.Flags&net.FlagUp == 0 || i.Flags&(net.FlagMulticast|net.FlagLoopback) == 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue // the interface has just gone
		}
		families := map[bool][]netip.Prefix{} // of IPv6 and of IPv4
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				is6 := p.Addr().Is6()
				families[is6] = append(families[is6], p)
			}
		}
		for _, is6 := range []bool{false, true} {
			if l.addrs = families[is6]; len(l.addrs) > 0 {
				out = append(out, l)
			}
		}
	}
	return out, nil
}
