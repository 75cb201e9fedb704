package node

import (
	"log/slog"
	"net/netip"

	"braid/client"
	"braid/dht"
	"braid/pathsel"
	"braid/scionnet"
	"braid/tracker"
)

// Source finds peers for torrents and makes this node known to others: trackers (trackers.go), DHTs
// (dht.go) and the local network (lsdsource.go).
type Source interface {
	// Start begins to search for peers of a torrent. It returns ErrNoWay if this source cannot help
	// that torrent.
	Start(Swarm) (Search, error)
}

// Search is a source's work for one torrent.
type Search interface {
	// Hungry says whether the torrent has too few peers.
	Hungry(bool)
	// Completed says that the download has become complete.
	Completed()
	// Announce has others asked at once, as far as they allow it.
	Announce()
	// Close ends the search and waits for it.
	Close()
}

// Swarm is what a source needs to know of a torrent, and where its results go. The functions may be
// called from several goroutines.
type Swarm struct {
	InfoHash [20]byte
	PeerID   [20]byte
	Trackers [][]tracker.URL // tiers
	Nodes    []dht.Addr      // of a DHT, as the torrent names them
	// Private says that peers may come from the torrent's trackers only (BEP 27). Of a magnet link
	// that is known only once a peer has sent the description.
	Private  func() bool
	Listen   []client.Peer // where this node accepts peers
	Progress func() client.Progress
	Found    func(client.PeerSource, ...client.Peer)
	Hint     func(pathsel.Hints)
	Asked    func(TrackerStatus)
	Logger   *slog.Logger
}

// enoughPeers is the number of connected peers from which on a download asks for no more. A few
// good peers are enough, and trackers bound how often they are asked anyway.
const enoughPeers = 4

// isHungry tells whether a torrent should look for more peers.
func isHungry(p client.Progress) bool {
	return p.Phase != client.Complete && p.Phase != client.Broken && ConnectedPeers(p) < enoughPeers
}

// ConnectedPeers counts the peers with a connection that carries data.
func ConnectedPeers(p client.Progress) int {
	peers := map[string]struct{}{}
	for _, x := range p.Paths {
		if x.State == pathsel.Active {
			peers[x.Peer] = struct{}{}
		}
	}
	return len(peers)
}

// PeerAt returns the peer at an address, which has no ISD-AS if it is on IP.
func PeerAt(a scionnet.Addr) (client.Peer, error) {
	if a.IA != 0 {
		return client.SCIONPeer(a), nil
	}
	return client.ParsePeer(netip.AddrPortFrom(a.Host, a.Port).String())
}

// peersAt returns the peers at the addresses that are usable.
func peersAt(found []scionnet.Addr) (out []client.Peer) {
	for _, a := range found {
		if p, err := PeerAt(a); err == nil {
			out = append(out, p)
		}
	}
	return out
}
