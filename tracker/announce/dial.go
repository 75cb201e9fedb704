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

// Before contacting a tracker on IP, two decisions are made: which of our addresses to use, and
// whether the tracker may be contacted at all. Torrents come from strangers, and so do the answers
// and redirects of their trackers.

// outlet is an address to announce from. Other peers will connect to it at the port.
type outlet struct {
	local  netip.Addr // zero: the system chooses
	family string     // "4", "6", or "" for both
	port   uint16     // 0: nobody listens there
}

// outletsOf returns lists of outlets of a peer that listens on those addresses, the first one of
// each family. The lists are tried in turn, and the outlets of a list together: a tracker tells
// others the source address of an announce, and over UDP it names only peers of the same family. The
// last list has port 0. It is for trackers that the others cannot reach.
func outletsOf(listen []netip.AddrPort, udp bool) (out [][]outlet) {
	var with []outlet // with a port
	everywhere := false
	for _, l := range listen {
		o, families := outlet{local: l.Addr(), port: l.Port()}, []string{"6"}
		if l.Addr().Is4() {
			families = []string{"4"}
		}
		if l.Addr().IsUnspecified() {
			o.local = netip.Addr{}
		}
		if l.Addr() == netip.IPv6Unspecified() { // takes connections of both
			families, everywhere = []string{"4", "6"}, true
		}
		for _, o.family = range families {
			if !slices.ContainsFunc(with, func(x outlet) bool { return x.family == o.family }) {
				with = append(with, o)
			}
		}
	}
	if len(with) > 0 {
		out = append(out, with)
	}
	switch {
	case everywhere:
	case udp:
		out = append(out, []outlet{{family: "4"}, {family: "6"}})
	default:
		out = append(out, []outlet{{}})
	}
	return out
}

// unreachable reports whether an error means that this outlet cannot reach the tracker, while
// another one might.
func unreachable(err error) bool {
	for _, e := range []error{syscall.EINVAL, syscall.ENETUNREACH, syscall.EADDRNOTAVAIL, syscall.EAFNOSUPPORT} {
		if errors.Is(err, e) {
			return true
		}
	}
	// The tracker has no address of the outlet's family: none in /etc/hosts or its URL, or none in DNS.
	none, _ := errors.AsType[*net.AddrError](err)
	notFound, _ := errors.AsType[*net.DNSError](err)
	return none != nil || notFound != nil && notFound.IsNotFound
}

// named describes the origin of a tracker's URL.
type named struct {
	user bool // the user named it, and not a torrent
	// plain: the torrent chose nothing in the request except the info hash.
	plain bool
	// hops counts the redirects so far. from is the widest scope of the addresses that redirected
	// us, or of the tracker that named this one.
	hops int
	from scionnet.Scope
}

// may returns an error if no address of that scope may be contacted. Users may name any tracker. A
// torrent may name a tracker on the local network or machine, as people do on a LAN, if the request
// is a plain announce, but no link-local one. A redirect must not lead to a nearer address than it
// came from, and a tracker must not name a sibling nearer than itself.
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
	return fmt.Errorf("a torrent may not name this tracker at a %s address; add it yourself if you trust it", to)
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

// connectTimeout bounds the time until a tracker accepts a connection.
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

// redirected notes a redirect by the tracker that was contacted last.
func (d *dialer) redirected() {
	d.Redirected(func(by scionnet.Scope) { d.named.hops, d.named.from = d.named.hops+1, max(d.named.from, by) })
}

// allowed are the peers that a tracker of the scope may name: on IP none that is nearer than
// itself. SCION addresses are harmless, since the AS is part of them.
func allowed(peers []wire.Peer, by scionnet.Scope) []wire.Peer {
	return slices.DeleteFunc(peers, func(p wire.Peer) bool {
		return !p.Addr.IsSCION() && scionnet.ScopeOf(p.Addr.Host) < by
	})
}
