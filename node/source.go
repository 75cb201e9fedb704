package node

import (
	"log/slog"

	"braid/client"
	"braid/dht"
	"braid/pathsel"
	"braid/scionnet"
	"braid/tracker"
)

// Source finds peers for torrents, and announces this node to others. Trackers (trackers.go), DHTs
// (dht.go) and the local network (lsdsource.go) are sources.
type Source interface {
	// Start starts a search for peers of a torrent. It returns ErrNoWay if this source cannot help
	// that torrent.
	Start(Swarm) (Search, error)
}

// Search is a source's search for peers of one torrent.
type Search interface {
	// Hungry says whether the torrent has too few peers.
	Hungry(bool)
	// Completed says that the download has become complete.
	Completed()
	// Announce searches at once, or as soon as others allow it.
	Announce()
	// Close ends the search, and waits for its goroutines.
	Close()
}

// Swarm has the properties of a torrent that a source needs, and functions for its results. The
// functions may be called from several goroutines.
type Swarm struct {
	InfoHash [20]byte
	PeerID   [20]byte
	Trackers [][]tracker.URL // tiers
	Nodes    []dht.Addr      // of a DHT, as the torrent names them
	// Private says that peers may come from the torrent's trackers only (BEP 27). A magnet link may
	// become private when a peer has sent the description.
	Private  func() bool
	Listen   []client.Peer // where this node accepts peers
	Progress func() client.Progress
	Found    func(client.PeerSource, ...client.Peer)
	Hint     func(pathsel.Hints)
	Asked    func(TrackerStatus)
	Logger   *slog.Logger
}

// enoughPeers is the number of connected peers at which a download stops asking for more. A few
// good peers are enough, and trackers limit how often they may be asked.
const enoughPeers = 4

// isHungry tells whether a torrent should look for more peers.
func isHungry(p client.Progress) bool {
	return p.Phase != client.Complete && p.Phase != client.Broken && ConnectedPeers(p) < enoughPeers
}

// ConnectedPeers counts the peers with a connection that carries data.
func ConnectedPeers(p client.Progress) int {
	return countPeers(p, func(client.PathProgress) bool { return true })
}

// countPeers counts the peers with such a connection that carries data.
func countPeers(p client.Progress, is func(client.PathProgress) bool) int {
	peers := map[string]struct{}{}
	for _, x := range p.Paths {
		if x.State == pathsel.Active && is(x) {
			peers[x.Peer] = struct{}{}
		}
	}
	return len(peers)
}

// peersAt returns the peers at those of the addresses at which somebody can be.
func peersAt(found []scionnet.Addr) (out []client.Peer) {
	for _, a := range found {
		if a.Dialable() {
			out = append(out, client.PeerAt(a))
		}
	}
	return out
}
