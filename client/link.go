package client

import (
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	pp "github.com/anacrolix/torrent/peer_protocol"

	"braid/client/wire"
	"braid/pathsel"
)

// link is a connection to a peer, dialled or accepted. The engine sees the wire.Link in it.
type link struct {
	*wire.Link
	below     Wire // the transport's
	transport string
	addr      engineAddr
	accepted  bool                  // the peer has opened it
	to        Peer                  // that was dialled, if we have opened it
	carried   atomic.Int64          // Unix ns of the last look that found new data; 0: never
	gauge     atomic.Pointer[gauge] // nil until the engine has added the connection to its torrent

	// The other fields are notes of parts of the transfer, each for itself.
	barred bool  // of server: uploads are held back
	data   int64 // of peerSet: bytes of the torrent that it had carried at the last look
	shown  bool  // of superSeeder: the peer was told of the pieces that were revealed before
	whole  bool  // of superSeeder: the peer was told of all pieces
}

func newLink(l *wire.Link, below Wire, transport string, at engineAddr) *link {
	return &link{Link: l, below: below, transport: transport, addr: at}
}

// Peer is the address of the other side, as far as the transport shows it.
func (l *link) Peer() Peer { return l.below.Peer() }

func (l *link) log(log *slog.Logger) *slog.Logger {
	return log.With("peer", l.Peer(), "path", l.Path().Fingerprint.Short())
}

// Proven tells whether the peer is at that address, and does not only say so.
func (l *link) Proven() bool { return l.Origin().Net != pathsel.Unproven }

// addrOfAccepted is the engine address of an accepted connection. If there is a key, the address is
// made of the key: the peer may only claim the address of its host, and the engine must not ban
// the real owner.
func addrOfAccepted(w Wire) netip.Addr {
	if k := w.Key(); k != nil {
		return engineAddrNamed("key " + string(k[:]))
	}
	return engineAddrOf(w.Peer())
}

// sampleEvery is the time between two looks at the connections, and between two decisions. If it is
// longer, dead paths are noticed late; if it is shorter, there is nothing new to see.
const sampleEvery = 200 * time.Millisecond

// gauge counts what the engine does on one connection, since the engine cannot be asked for that.
type gauge struct {
	conn        engineConn
	link        *link
	outstanding atomic.Int64          // requests sent, neither answered nor taken back
	grace       atomic.Int64          // ns for which a request stays with its connection: see rarest
	swarm       atomic.Bool           // some of the peers lack pieces themselves
	unchoked    atomic.Bool           // the peer serves us
	exchanges   [pexKinds]atomic.Bool // kinds of addresses that the peer takes in peer exchange
	port        atomic.Uint32         // at which the peer says that it listens; 0: it does not say
	node        atomic.Uint32         // the port of its DHT node (BEP 5); 0: it does not say
	toldNode    bool                  // it was told of our DHT node; for the transfer's goroutine
	undescribed atomic.Bool           // it would send the torrent's description, and has none yet
	restart     atomic.Bool           // the pipeline shall begin anew

	// For the engine's callbacks, which have its lock.
	pipeline pipeline
	peak     *int // see peakRequests

	news pieceNews // for super-seeding
}

// stealGrace is the least time for which a request stays with its connection: a round trip between
// continents, and the time of a block on the link. Then an idle connection may take it over.
const stealGrace = 300 * time.Millisecond

// gauges of all connections, for the engine's callbacks. Everybody else finds a connection's gauge
// in its link.
type gauges struct {
	byPeer sync.Map       // *torrent.Peer to *gauge
	grace  *time.Duration // the engine's StealRequestGrace, which it reads with its lock held
}

func (x *gauge) greeted(m *pp.ExtendedHandshakeMessage) {
	for kind, name := range pexNames {
		x.exchanges[kind].Store(m.M[name] != 0)
	}
	x.undescribed.Store(m.M[pp.ExtensionNameMetadata] != 0 && m.MetadataSize == 0)
	if m.Port > 0 && m.Port < 1<<16 {
		x.port.Store(uint32(m.Port))
	}
}

// pending is the number of requests that are neither answered nor taken back.
func (x *gauge) pending() int { return int(max(0, x.outstanding.Load())) }

// counts records a request that was sent (1), or answered or taken back (-1), and tells the engine
// the size of the next batch. The engine calls it with its lock held.
func (x *gauge) counts(n int64, now time.Time) {
	outstanding := int(x.outstanding.Add(n))
	if x.restart.Swap(false) {
		x.pipeline = pipeline{since: now}
	}
	if n > 0 {
		x.pipeline = x.pipeline.sent(outstanding, now)
	} else if x.pipeline = x.pipeline.answered(now); x.pipeline.isDue() {
		x.pipeline = x.pipeline.look(now, x.link.Measure().RTT, x.swarm.Load())
	}
	x.deepen()
}

// deepen tells the engine and the filter how large the next batch is, so that it fills the
// pipeline.
func (x *gauge) deepen() {
	if x.peak != nil {
		target := x.pipeline.target
		if target == 0 {
			target = firstBatch(x.link.Measure().RTT)
		}
		*x.peak = (target + 1) / 2
		x.link.Filter.SetTarget(target)
	}
}
