package client

import (
	"cmp"
	"context"
	"slices"
	"time"

	"braid/pathsel"
)

// Which of the peers that were named to a transfer it dials.
//
// Anybody can name addresses: a tracker, a magnet link. A transfer knows more of them than it dials, and those that lead
// nowhere make room for the others, again and again, so that no list of dead addresses hides a peer that is there.

const (
	// maxPeers is the number of address-level peers that one torrent dials. A swarm is well connected with a tenth of it;
	// a list from outside without end would take memory and path lookups without end.
	maxPeers = 256
	// maxKnown is the number that it knows. They take their turns when others fail.
	maxKnown = 1024
	// maxPeersPerNet and maxPeersPerHost of them are dialled at a time: without them whoever names addresses aims all of a
	// transfer's handshakes at one victim.
	maxPeersPerNet  = maxPeers / 2
	maxPeersPerHost = maxPeers / 4
	// deliveredPatience is how often in a row an attempt may fail with a peer that has delivered before it is as any that
	// fails. A minute or two pass meanwhile: the time of a restart.
	deliveredPatience = 5
)

// acquaintance is a peer that was named, as choosePeers sees it.
type acquaintance struct {
	origin    pathsel.Origin
	active    bool // it is being dialled
	connected bool
	delivered bool // data
	banned    bool
	failures  int       // attempts in a row that have failed
	retry     time.Time // not dialled before
}

// standing orders peers, the best first: those that are connected, those that have delivered, those that are new, then
// by how often they have failed.
func (a acquaintance) standing() int {
	switch {
	case a.banned:
		return 1 << 20
	case a.connected:
		return 0
	case a.delivered && a.failures < deliveredPatience:
		return 1
	}
	return 2 + a.failures
}

// choosePeers says which peers to dial, and which to forget. Of equals each network has one before any has another, and
// within a network each host; then those that are dialled already stay, and those that were named first come first.
func choosePeers(all []acquaintance, now time.Time) (dial, forget []bool) {
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := all[i], all[j]
		if c := a.standing() - b.standing(); c != 0 || a.active == b.active {
			return c
		}
		if a.active {
			return -1
		}
		return 1
	})
	rankBy := func(of func(acquaintance) string) {
		seen, nth := map[string]int{}, make([]int, len(all))
		for _, i := range order {
			nth[i] = seen[of(all[i])]
			seen[of(all[i])]++
		}
		slices.SortStableFunc(order, func(i, j int) int {
			return cmp.Or(all[i].standing()-all[j].standing(), nth[i]-nth[j])
		})
	}
	rankBy(func(a acquaintance) string { return a.origin.Host })
	rankBy(func(a acquaintance) string { return a.origin.Net })
	dial, forget = make([]bool, len(all)), make([]bool, len(all))
	nets, hosts, n := map[string]int{}, map[string]int{}, 0
	for _, i := range order {
		a := all[i]
		if n >= maxPeers || nets[a.origin.Net] >= maxPeersPerNet || hosts[a.origin.Host] >= maxPeersPerHost ||
			!a.active && (a.banned || now.Before(a.retry)) {
			continue
		}
		dial[i] = true
		n++
		nets[a.origin.Net]++
		hosts[a.origin.Host]++
	}
	over := len(all) - maxKnown
	for _, i := range slices.Backward(order) {
		if over > 0 && !dial[i] {
			forget[i] = true
			over--
		}
	}
	return dial, forget
}

// spare is a peer that is known and not dialled.
type spare struct {
	peer      Peer
	transport Transport
	acquaintance
}

// addPeer takes note of a peer, unless it is known, ourselves, or out of reach.
func (t *Transfer) addPeer(p Peer, found bool) {
	tr, err := t.session.transportFor(p)
	scion, onSCION := tr.(*scionTransport)
	switch {
	case slices.ContainsFunc(t.peers, func(s *peerState) bool { return s.peer.same(p) }),
		slices.ContainsFunc(t.spares, func(s spare) bool { return s.peer.same(p) }):
	case err != nil:
		t.log.Debug("peer passed over", "peer", p, "error", err)
	case isOurs(p, t.session.Listening(), isLocal):
		t.log.Info("peer passed over: it is this braid", "peer", p)
	case found && onSCION && scion.left(p):
		t.log.Info("peer passed over: it was on this host, and has gone", "peer", p)
	default:
		t.spares = append(t.spares, spare{p, tr, acquaintance{origin: p.origin()}})
		if len(t.spares) >= 2*maxKnown {
			t.choosePeers() // a long list is not kept whole until it is at its end
		}
	}
}

// choosePeers has failed peers make room for others.
func (t *Transfer) choosePeers() {
	if len(t.spares) == 0 {
		return
	}
	now := time.Now()
	var all []acquaintance
	for _, p := range t.peers {
		all = append(all, p.acquaintance(now))
	}
	for _, s := range t.spares {
		all = append(all, s.acquaintance)
	}
	dial, forget := choosePeers(all, now)
	peers, spares := t.peers, t.spares
	t.peers, t.spares = nil, nil
	for i, p := range peers {
		if dial[i] {
			t.peers = append(t.peers, p)
			continue
		}
		t.putAside(p)
		if !forget[i] {
			a := all[i]
			a.active = false
			t.spares = append(t.spares, spare{p.peer, p.transport, a})
		}
	}
	for i, s := range spares {
		switch i += len(peers); {
		case dial[i]:
			t.takeUp(s)
		case !forget[i]:
			t.spares = append(t.spares, s)
		}
	}
}

// acquaintance is what choosePeers is to know of a peer that is dialled.
func (p *peerState) acquaintance(now time.Time) acquaintance {
	a := acquaintance{origin: p.origin, active: true, delivered: p.delivered, banned: p.banned, failures: p.lookupFailures}
	for _, s := range p.paths {
		a.connected = a.connected || s.link != nil && s.link.Greeted() && !s.link.Closed()
		a.delivered = a.delivered || s.delivered
		a.failures = max(a.failures, s.candidate.Failures)
	}
	if a.failures += p.failures; a.failures > 0 {
		a.retry = now.Add(pathsel.RetryDelay(a.failures))
	}
	return a
}

func (t *Transfer) takeUp(s spare) {
	t.peers = append(t.peers, &peerState{
		peer: s.peer, transport: s.transport, origin: s.origin, delivered: s.delivered, banned: s.banned, failures: s.failures,
	})
	ctx, end := context.WithCancel(t.ctx)
	t.lookupEnd[s.peer] = end
	t.lookups.Go(func() { t.lookPaths(ctx, s.transport, s.peer) })
}

// putAside ends what there is with a peer. What it has carried stays in the report.
func (t *Transfer) putAside(p *peerState) {
	t.lookupEnd[p.peer]()
	delete(t.lookupEnd, p.peer)
	for _, s := range p.paths {
		t.close(s, "another peer is tried in its place")
		if read, written := s.bytes(); read+written > 0 {
			r := s.row
			t.inbound = append(t.inbound, &r)
		}
	}
}
