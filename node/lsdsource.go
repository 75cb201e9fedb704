package node

import (
	"braid/client"
	"braid/node/lsd"
	"braid/scionnet"
)

// neighbours is the Source that finds peers on the local network.
type neighbours struct {
	server *lsd.Server
	node   *Node
}

// openNeighbours opens the source. It returns nil if the node must not send packets on IP.
func (c Config) openNeighbours(n *Node) *neighbours {
	if c.Client.IP == client.NoIP {
		return nil
	}
	x := &neighbours{node: n}
	tcp := c.Client.IP == client.TCP // an announce does not say that its sender speaks QUIC
	x.server = lsd.Serve(lsd.Config{
		Listening: func() []scionnet.Addr {
			return localAddresses(n.session.ListeningInside(), tcp)
		},
		TCP:    tcp,
		SCION:  n.host != nil,
		Logger: n.log,
	})
	x.server.Switch(n.Settings().LSD)
	return x
}

// localAddresses returns the addresses to announce on the local network. Addresses on IP have a
// zero IA.
func localAddresses(listening []client.Peer, tcp bool) (out []scionnet.Addr) {
	for _, p := range listening {
		if a := p.Addr(); a.IsSCION() || a.Host.IsValid() && tcp {
			out = append(out, a)
		}
	}
	return out
}

// Start announces a torrent to the local network. It refuses private torrents, whose peers come
// from trackers only (BEP 27).
func (x *neighbours) Start(s Swarm) (Search, error) {
	if s.Private() || !x.node.Settings().LSD {
		return nil, ErrNoWay
	}
	// The torrent may become private when a peer has described the magnet link.
	mayAnnounce := func() bool { return !s.Private() }
	found := func(a scionnet.Addr) {
		if !s.Private() {
			s.Found(client.FromLSD, client.PeerAt(a))
		}
	}
	f, err := x.server.Follow(lsd.Hash(s.InfoHash), mayAnnounce, found)
	if err != nil {
		return nil, err
	}
	return neighbourSearch{f}, nil
}

// neighbourSearch is the search for one torrent.
type neighbourSearch struct{ *lsd.Followed } // whose Close ends the announces

// Hungry does nothing: announces have a rhythm of their own.
func (neighbourSearch) Hungry(bool) {}

// Completed does nothing: an announce does not say what its sender has.
func (neighbourSearch) Completed() {}

// Announce announces the torrent as soon as the limit of messages allows it.
func (x neighbourSearch) Announce() { x.Now() }
