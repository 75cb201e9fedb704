package gateway

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"braid/client"
	"braid/scionnet"
	"braid/tracker/swarm"
	"braid/tracker/wire"
)

// joinPatience is how long an announce waits until the gateway has joined. A client connects as soon
// as it has its answer, and comes back only after a minute if the torrent is not there yet.
const joinPatience = 2 * time.Second

// maxFound is the number of members that the node hears of when it joins.
const maxFound = 200

// members is the memory of the gateway's tracker.
type members struct{ swarm.Store }

// all returns members of a swarm, for the gateway itself.
func (m members) all(hash wire.InfoHash) (out []client.Peer) {
	if m.Store == nil {
		return nil
	}
	v, err := m.Announce(context.Background(), swarm.Visit{
		InfoHash: hash, Want: maxFound, Reaches: swarm.IPv4 | swarm.IPv6 | swarm.SCION,
	})
	if err != nil {
		return nil // the peers announce again
	}
	for _, p := range v.Peers {
		if p, ok := peerAt(p.Addr); ok {
			out = append(out, p)
		}
	}
	return out
}

func peerAt(a wire.Addr) (client.Peer, bool) {
	if !a.Dialable() {
		return client.Peer{}, false
	}
	if a.IsSCION() {
		return client.SCIONPeer(scionnet.Addr(a)), true
	}
	p, err := client.ParsePeer(a.String())
	return p, err == nil
}

// store is the memory of a tracker whose answers name the gateway.
type store struct {
	members
	gateway *Gateway
}

// Store returns the memory for the gateway's tracker, with another one below it, which the caller
// closes. Call it once, before Open.
func (g *Gateway) Store(below swarm.Store) swarm.Store {
	g.members = members{below}
	return store{g.members, g}
}

// Waits implements swarm.Waiter: an announce may wait for a join.
func (store) Waits() {}

// Announce has the gateway join the torrent, and names it before other peers.
func (s store) Announce(ctx context.Context, v swarm.Visit) (swarm.View, error) {
	g := s.gateway
	id, own := g.addresses()
	if v.ID == id { // our own node asks, since the torrent names this tracker
		v.Addr.Port = 0
	} else if v.Event != wire.Stopped {
		joined, err := g.ask(v.InfoHash, networkOf(v.Addr), time.Now())
		if err != nil {
			return swarm.View{}, err
		}
		g.await(ctx, joined)
	}
	view, err := s.members.Announce(ctx, v)
	if err != nil {
		return view, err
	}
	if v.Event != wire.Stopped {
		g.meet(v.InfoHash, v.Addr)
	}
	view.Peers = introduce(id, own, v, view.Peers)
	return view, nil
}

// introduce puts the gateway before the other peers, as far as the visitor can reach it.
func introduce(id wire.PeerID, own []wire.Addr, v swarm.Visit, others []wire.Peer) []wire.Peer {
	if v.ID == id || v.Event == wire.Stopped {
		return others
	}
	var out []wire.Peer
	for _, a := range own {
		if v.Reaches&networkBit(a) != 0 {
			out = append(out, wire.Peer{ID: id, Addr: a})
		}
	}
	out = append(out, others...)
	return out[:min(len(out), max(v.Want, 0))]
}

func networkBit(a wire.Addr) swarm.Networks {
	switch {
	case a.IsSCION():
		return swarm.SCION
	case a.Host.Is6():
		return swarm.IPv6
	}
	return swarm.IPv4
}

// Scrape counts the peers of torrents that are allowed.
func (s store) Scrape(ctx context.Context, hashes []wire.InfoHash) ([]wire.Counts, error) {
	for _, h := range hashes {
		if !s.gateway.allows(h) {
			return nil, errNotAllowed
		}
	}
	return s.members.Scrape(ctx, hashes)
}

func (g *Gateway) allows(hash wire.InfoHash) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.torrents[hash]
	return t != nil && !t.removed
}

// await waits a moment for a join.
func (g *Gateway) await(ctx context.Context, joined <-chan struct{}) {
	patience := time.NewTimer(joinPatience)
	defer patience.Stop()
	select {
	case <-joined:
	case <-patience.C:
	case <-ctx.Done():
	}
}

// meet tells the node of a client. Some never connect to others, and seeds not to seeds.
func (g *Gateway) meet(hash wire.InfoHash, at wire.Addr) {
	p, ok := peerAt(at)
	g.mu.Lock()
	defer g.mu.Unlock()
	if t := g.torrents[hash]; ok && t != nil && t.found != nil {
		t.found(p)
	}
}

// addresses returns the peer ID of the gateway, and where it is reached.
func (g *Gateway) addresses() (id wire.PeerID, out []wire.Addr) {
	g.mu.Lock()
	n := g.node
	g.mu.Unlock()
	if n == nil {
		return id, nil
	}
	for _, p := range n.Listening() {
		if a, ok := p.SCION(); ok {
			out = append(out, wire.Addr(a))
		} else if at, err := netip.ParseAddrPort(p.String()); err == nil && len(g.cfg.Public) == 0 {
			out = append(out, wire.IP(at))
		}
	}
	out = append(out, g.cfg.Public...)
	return n.PeerID(), slices.DeleteFunc(out, func(a wire.Addr) bool { return !a.Dialable() })
}
