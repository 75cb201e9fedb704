package announce

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"braid/scionnet"
	"braid/tracker/wire"
)

// Two things are decided before a tracker on IP is contacted: from which of our addresses, and whether at all. A torrent
// comes from a stranger, and so do the answers and redirects of its trackers.

// outlet is an address to announce from. The tracker tells others to connect to it at the port.
type outlet struct {
	local  netip.Addr // zero: the one that the system chooses
	family string     // "4", "6", or "" for either
	port   uint16     // 0: nobody listens there
}

// outletsOf are where to announce from if peers are accepted on those addresses, to be tried in turn: the first address of
// each family, and at the end whatever leads to a tracker of another family or network, with a port that says
// that nobody listens there.
func outletsOf(listen []netip.AddrPort) []outlet {
	var out []outlet
	for _, l := range listen {
		o := outlet{l.Addr(), "6", l.Port()}
		if l.Addr().Is4() {
			o.family = "4"
		}
		if l.Addr().IsUnspecified() {
			o.local = netip.Addr{}
			if o.family == "6" {
				o.family = "" // :: takes connections of both
			}
		}
		if !slices.ContainsFunc(out, func(x outlet) bool { return x.family == o.family || x.family == "" }) {
			out = append(out, o)
		}
	}
	if !slices.ContainsFunc(out, func(x outlet) bool { return x.family == "" }) {
		out = append(out, outlet{})
	}
	return out
}

// elsewhere tells whether an error means that the tracker is not reached from the outlet, but perhaps from another one.
func elsewhere(err error) bool {
	for _, e := range []error{syscall.EINVAL, syscall.ENETUNREACH, syscall.EADDRNOTAVAIL, syscall.EAFNOSUPPORT} {
		if errors.Is(err, e) {
			return true
		}
	}
	var none *net.AddrError // no address of the tracker has the outlet's family
	return errors.As(err, &none)
}

// named is who has named a tracker, and what is asked of it.
type named struct {
	user bool // the user himself, else a torrent
	// plain: nothing of the request but the info hash was chosen by the torrent.
	plain bool
	// hops are the redirects so far; from is the widest scope that one of them came from, or the tracker that has named this one.
	hops int
	from scionnet.Scope
}

// may tells whether an address of that scope may be contacted. A user names what he likes. A torrent may name a
// tracker of the local network or machine, as people do on a LAN, if all that it can make us send there is an
// announce; never one that is link-local. A redirect leads no nearer than it came from, and a tracker names none that is
// nearer than itself.
func (n named) may(to scionnet.Scope) error {
	switch {
	case to == scionnet.ScopePublic:
		return nil
	case n.hops > 0 && (!n.user || to < n.from):
		return fmt.Errorf("a redirect to a %s address is not followed", to)
	case to < n.from:
		return fmt.Errorf("a tracker may not name another one at a %s address, nearer than itself", to)
	case n.user, n.hops == 0 && n.plain && to != scionnet.ScopeLinkLocal:
		return nil
	}
	return fmt.Errorf("a torrent may not name this tracker at a %s address; name it with --tracker if you trust it", to)
}

// dialer contacts one tracker on IP, for one announce.
type dialer struct {
	scionnet.ScopedDialer
	outlet outlet
	named  named
}

func newDialer(o outlet, n named, scopeOf func(netip.Addr) scionnet.Scope) *dialer {
	d := &dialer{outlet: o, named: n}
	d.ScopeOf, d.May = scopeOf, func(to scionnet.Scope) error { return d.named.may(to) }
	return d
}

// connectTimeout bounds the time until a tracker takes a connection.
const connectTimeout = 10 * time.Second

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	from := net.Dialer{Timeout: connectTimeout}
	if d.outlet.local.IsValid() {
		local := netip.AddrPortFrom(d.outlet.local, 0)
		if from.LocalAddr = net.Addr(net.TCPAddrFromAddrPort(local)); network == "udp" {
			from.LocalAddr = net.UDPAddrFromAddrPort(local)
		}
	}
	return d.Dial(ctx, from, network+d.outlet.family, address)
}

// redirected notes that the tracker contacted last sends us on.
func (d *dialer) redirected() {
	d.Redirected(func(by scionnet.Scope) { d.named.hops, d.named.from = d.named.hops+1, max(d.named.from, by) })
}

// reachable are the peers that a tracker of the scope may name: on IP none that are nearer than itself. On SCION no address
// is one of our machine or network but by way of its AS.
func reachable(peers []wire.Peer, by scionnet.Scope) []wire.Peer {
	return slices.DeleteFunc(peers, func(p wire.Peer) bool {
		return !p.Addr.IsSCION() && scionnet.ScopeOf(p.Addr.Host) < by
	})
}
