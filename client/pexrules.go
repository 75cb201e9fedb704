package client

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"braid/client/wire"
	"braid/pathsel"
	"braid/scionnet"
)

// What peer exchange believes and says, as functions of messages and time.

const (
	// pexEvery is the least time between two messages to a peer (BEP 11).
	pexEvery = time.Minute
	// pexAgain is how often braid looks for addresses that a peer has not been told. Each look goes
	// over all peers.
	pexAgain = 3 * time.Second
	// pexSenderMost addresses named by one host are accepted at once, and one more in each
	// pexSenderEvery. That is a full message each minute, which BEP 11 allows.
	pexSenderMost  = 2 * maxNamed
	pexSenderEvery = time.Minute / maxNamed
	// pexNetMost addresses named by all hosts of a network are accepted at once, and one more in
	// each pexNetEvery. All unproven senders are one network and one host.
	pexNetMost  = 4 * maxNamed
	pexNetEvery = time.Minute / (2 * maxNamed)
	// pexNamedMost is how many addresses of one message may be in the same network. So a message
	// cannot aim all our handshakes at one place, while a small swarm in one AS fits.
	pexNamedMost = maxNamed / 2
	// pexForget is the time after which the whole allowance of a silent sender is there again.
	pexForget = 5 * time.Minute
)

// pexGate bounds the addresses that peers name. It has an allowance for each sending host and each
// of their networks, whose names differ.
type pexGate map[string]*wire.Allowance

// admit returns the peers that are accepted, of those that a sender has named.
func (g pexGate) admit(from pathsel.Origin, named []pexPeer, now time.Time) (out []pexPeer) {
	// Allowances that are full again need not be kept.
	maps.DeleteFunc(g, func(_ string, a *wire.Allowance) bool { return a.Idle(now) >= pexForget })
	host, net := g.of(from.Host), g.of(from.Net)
	in := map[string]int{}
	for _, p := range named {
		to := PeerAt(p.at).origin().Net
		in[to]++
		if in[to] <= pexNamedMost && host.Spend(now, pexSenderMost, pexSenderEvery) &&
			net.Spend(now, pexNetMost, pexNetEvery) {
			out = append(out, p)
		}
	}
	return out
}

func (g pexGate) of(name string) *wire.Allowance {
	g[name] = cmp.Or(g[name], &wire.Allowance{})
	return g[name]
}

// mayName tells whether a host may hear of an address from us, and whether we believe the host if
// it names the address. The address must not be nearer than the host, such as a service of this
// machine. Both are on SCION, or on IP with a zero IA. home is our AS, and own our address in it.
func mayName(host, named scionnet.Addr, home pathsel.IA, own netip.Addr) bool {
	switch scope := scionnet.ScopeOf(named.Host); {
	case named.IA != 0 && named.IA == home:
		return scope >= scionnet.ScopeOf(own)
	case named.IA != 0:
		return true // a host address has a meaning in its AS only
	case host.IA != 0 && host.IA != home:
		return scope == scionnet.ScopePublic
	default:
		return scope >= scionnet.ScopeOf(host.Host)
	}
}

// pexTold is what a peer has been told.
type pexTold struct {
	addrs map[scionnet.Addr]bool // to which it believes us connected
	next  time.Time              // the next message is not before this time
}

// tell returns the next message to a peer. present are the peers to which we are connected now. ok
// is false before the time of the next message, and without news.
func (x *pexTold) tell(present []pexPeer, now time.Time) (m pexMessage, ok bool) {
	if now.Before(x.next) {
		return m, false
	}
	if x.addrs == nil {
		x.addrs = map[scionnet.Addr]bool{}
	}
	there := map[scionnet.Addr]bool{}
	for _, p := range present {
		there[p.at] = true
		if !x.addrs[p.at] && len(m.added) < maxNamed {
			m.added = append(m.added, p)
		}
	}
	for at := range x.addrs {
		if !there[at] {
			m.dropped = append(m.dropped, pexPeer{at: at})
		}
	}
	slices.SortFunc(m.dropped, func(a, b pexPeer) int { return compareAddrs(a.at, b.at) })
	m.dropped = m.dropped[:min(len(m.dropped), maxNamed)]
	if len(m.added)+len(m.dropped) == 0 {
		x.next = now.Add(pexAgain)
		return m, false
	}
	for _, p := range m.added {
		x.addrs[p.at] = true
	}
	for _, p := range m.dropped {
		delete(x.addrs, p.at)
	}
	x.next = now.Add(pexEvery)
	return m, true
}

func compareAddrs(a, b scionnet.Addr) int {
	return cmp.Or(cmp.Compare(a.IA, b.IA), a.Host.Compare(b.Host), cmp.Compare(a.Port, b.Port))
}
