package gateway

import (
	"context"
	"slices"
	"time"

	"braid/client"
	"braid/tracker/swarm"
	"braid/tracker/wire"
	"braid/units/lists"
)

// joinPatience bounds the time for which announces wait for the gateway to join, all of a torrent
// together: each of them takes a reader of the tracker. A client connects as soon as it has its
// answer. If the gateway is not in the torrent then, the client comes back only after a minute.
const joinPatience = 2 * time.Second

// maxFound is the number of members that the node hears of when it joins.
const maxFound = 200

// membersOf returns members of a swarm, for the gateway's node.
func (g *Gateway) membersOf(hash wire.InfoHash) (out []client.Peer) {
	if g.memory == nil {
		return nil
	}
	v, err := g.memory.Announce(context.Background(), swarm.Visit{
		InfoHash: hash, Want: maxFound, Reaches: swarm.IPv4 | swarm.IPv6 | swarm.SCION,
	})
	if err != nil {
		return nil // the peers announce again
	}
	for _, p := range v.Peers {
		if p.Addr.Dialable() {
			out = append(out, client.PeerAt(p.Addr))
		}
	}
	return out
}

// store is the memory of the gateway's tracker. Its answers name the gateway.
type store struct {
	swarm.Store // below
	gateway     *Gateway
}

// Store returns the memory for the gateway's tracker. It keeps peers in the store below, which the
// caller closes. Call it once, before Open.
func (g *Gateway) Store(below swarm.Store) swarm.Store {
	g.memory = below
	return store{below, g}
}

// Waits implements swarm.Waiter: an announce may wait for a join.
func (store) Waits() {}

// Announce makes the gateway join the torrent, and names the gateway before other peers.
func (s store) Announce(ctx context.Context, v swarm.Visit) (swarm.View, error) {
	g := s.gateway
	id, own := g.addresses()
	named := lists.Map(own, func(a wire.Addr) wire.Peer { return wire.Peer{ID: id, Addr: a} })
	switch {
	case v.ID == id && !v.Fellow: // its own node asks, since the torrent names this tracker
		v.Addr.Port, named = 0, nil
	case v.Event == wire.Stopped:
		named = nil
	case !v.Fellow && g.isFellow(v.ID): // a fellow's node asks, even if no client uses the torrent
	default:
		joined, err := g.ask(v.InfoHash, networkOf(v.Addr), v.Fellow, time.Now())
		if err != nil {
			return swarm.View{}, err
		}
		patience, cancel := context.WithTimeout(ctx, joinPatience)
		waitFor(patience, joined)
		if g.hasFailed(v.InfoHash) {
			cancel()
			return swarm.View{}, errNotJoined
		}
		if !v.Fellow {
			named = append(named, g.living(patience, v.InfoHash)...)
		}
		cancel()
	}
	view, err := s.Store.Announce(ctx, v)
	if err != nil {
		return view, err
	}
	if v.Event != wire.Stopped {
		g.meet(v.InfoHash, v.Addr)
	}
	view.Peers = introduce(named, v, view.Peers)
	return view, nil
}

// introduce puts those gateways before the other peers that the visitor can reach.
func introduce(gateways []wire.Peer, v swarm.Visit, others []wire.Peer) []wire.Peer {
	var out []wire.Peer
	for _, p := range gateways {
		if v.Reaches&swarm.NetworkOf(p.Addr) != 0 {
			out = append(out, p)
		}
	}
	out = append(out, others...)
	return out[:min(len(out), max(v.Want, 0))]
}

// Scrape counts the peers of allowed torrents, and refuses others.
func (s store) Scrape(ctx context.Context, hashes []wire.InfoHash) ([]wire.Counts, error) {
	for _, h := range hashes {
		if !s.gateway.allows(h) {
			return nil, errNotAllowed
		}
	}
	return s.Store.Scrape(ctx, hashes)
}

func (g *Gateway) allows(hash wire.InfoHash) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.torrents[hash]
	return t != nil && !t.removed
}

// hasFailed tells whether the gateway is not in a torrent after a client has asked for it.
func (g *Gateway) hasFailed(hash wire.InfoHash) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.torrents[hash]
	return t == nil || t.state == away
}

// waitFor waits until a channel is closed or the context ends.
func waitFor(ctx context.Context, done <-chan struct{}) {
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// meet tells the node of a client, since not all clients connect to the gateway by themselves.
func (g *Gateway) meet(hash wire.InfoHash, at wire.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t := g.torrents[hash]; t != nil && t.found != nil && at.Dialable() {
		t.found(client.PeerAt(at))
	}
}

// addresses returns the peer ID of the gateway, and the addresses at which peers reach it.
func (g *Gateway) addresses() (id wire.PeerID, out []wire.Addr) {
	g.mu.Lock()
	n := g.node
	g.mu.Unlock()
	if n == nil {
		return id, nil
	}
	for _, p := range n.Listening() {
		if a := p.Addr(); a.IsSCION() || len(g.cfg.Public) == 0 {
			out = append(out, a)
		}
	}
	out = append(out, g.cfg.Public...)
	return n.PeerID(), slices.DeleteFunc(out, func(a wire.Addr) bool { return !a.Dialable() })
}
