package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"braid/pathsel"
	"braid/storage"
)

// common is what the transfers of a session share.
type common struct {
	cfg        Config // with its defaults; policy and pex may have changed since
	log        *slog.Logger
	policy     atomic.Pointer[pathsel.Policy]
	engine     engineClient
	offers     *offers
	transfers  sync.Map // metainfo.Hash to *Transfer
	gauges     gauges
	pex        atomic.Bool         // peer exchange is on
	dht        atomic.Pointer[DHT] // nil: none
	transports []Transport
	web        *webPort
	examiners  *semaphore.Weighted // of the transfers whose checkups examine paths
	ctx        context.Context     // ends with the session
}

func (c *common) transportFor(p Peer) (Transport, error) {
	for _, t := range c.transports {
		if t.Reaches(p) {
			return t, nil
		}
	}
	if _, ok := p.SCION(); !ok {
		return nil, fmt.Errorf("peer %s: this session reaches peers over SCION only", p)
	}
	return nil, fmt.Errorf("peer %s: this host has no connection to SCION", p)
}

// transportOf is the session's transport of that type; nil if it has none.
func transportOf[T Transport](c *common) (none T) {
	for _, t := range c.transports {
		if found, ok := t.(T); ok {
			return found
		}
	}
	return none
}

// Listening are the addresses that other peers may dial.
func (c *common) Listening() []Peer {
	var out []Peer
	for _, t := range c.transports {
		out = append(out, t.Listening()...)
	}
	return out
}

// ListeningInside are the addresses that peers on the same network may dial. They differ from
// Listening behind a NAT.
func (c *common) ListeningInside() []Peer {
	var out []Peer
	for _, t := range c.transports {
		if s, ok := t.(*scionTransport); ok {
			out = append(out, PeerAt(s.endpoint.LocalAddr()))
		} else {
			out = append(out, t.Listening()...)
		}
	}
	return out
}

// core is what the parts of a transfer share. It belongs to the transfer's goroutine, except where
// a field says otherwise.
type core struct {
	*common
	log     *slog.Logger
	source  Source
	torrent engineTorrent
	store   *oneFile
	policy  pathsel.Policy // of this transfer alone
	peers   peerSet
	blame   *blame      // may be used from every goroutine
	inbox   *inbox      // likewise
	calls   chan func() // see do
	start   time.Time
	seeds   *webTransport
	want    *want // nil until it is known what is in the torrent
	isDone  bool  // complete or failed
	err     error // why it has failed

	fail func(error) // loop.fail

	// conceals: connections that begin when we have all pieces tell their peers only of those that
	// superSeeder reveals. Any goroutine may read it.
	conceals atomic.Bool
	// described is the source with what is in the torrent; nil until that is known. Until then,
	// fetching fetches it. Any goroutine may read both pointers.
	described atomic.Pointer[Source]
	fetching  atomic.Pointer[metadata]

	ctx     context.Context // ends with the transfer
	workers sync.WaitGroup  // end with ctx; the transfer waits for them
}

func newCore(x *common, src Source, store storage.Store, opts Options) *core {
	c := &core{
		common: x, log: cmp.Or(opts.Logger, x.log).With("torrent", src.title()),
		source: src, store: &oneFile{Store: store},
		policy: opts.Policy, inbox: newInbox(), calls: make(chan func()), start: time.Now(),
	}
	c.peers.most = opts.MaxPeers
	c.blame = newBlame(c.store.onBlock)
	c.seeds = &webTransport{
		routes: routes{x.web.host}, port: x.web,
		source: src, described: c.described.Load, log: c.log,
	}
	if src.IsMagnet() {
		c.fetching.Store(&metadata{hash: src.InfoHash})
	} else {
		c.described.Store(&src)
	}
	return c
}

// firstPeers are the peers that the user names, and those in the source. It returns an error if no
// transport reaches one that the user names.
func (c *core) firstPeers(named []Peer) ([]Peer, error) {
	for _, p := range named {
		if _, err := c.transportFor(p); err != nil {
			return nil, err
		}
	}
	peers := slices.Clone(named)
	for _, p := range c.source.Peers {
		p, err := p.ofStranger()
		if err == nil {
			_, err = c.transportFor(p)
		}
		if err != nil {
			c.log.Warn("peer passed over", "peer", p, "reason", err)
			continue
		}
		peers = append(peers, p)
	}
	return peers, nil
}

func (c *core) diallerFor(p Peer) (dialler, error) {
	if p.IsWebSeed() {
		return c.seeds, nil
	}
	return c.transportFor(p)
}

// policies are the two policies that hold for the transfer: the session's, then its own.
func (c *core) policies() (both [2]pathsel.Policy) {
	if p := c.common.policy.Load(); p != nil {
		both[0] = *p
	}
	both[1] = c.policy
	return both
}

// do has the transfer's goroutine call f, and waits for that. It returns false if the transfer
// ends.
func (c *core) do(f func()) bool {
	done := make(chan struct{})
	select {
	case c.calls <- func() { defer close(done); f() }:
		<-done
		return true
	case <-c.ctx.Done():
		return false
	}
}

// isDescribed tells whether it is known what is in the torrent.
func (c *core) isDescribed() bool {
	pieces, _ := c.torrent.Size()
	return pieces > 0
}

// isPrivate tells whether it is known that the torrent is private (BEP 27). Any goroutine may call
// it.
func (c *core) isPrivate() bool {
	d := c.described.Load()
	return d != nil && d.IsPrivate()
}

// hasAll tells whether every piece of the torrent is verified.
func (c *core) hasAll() bool {
	_, missing := c.torrent.Bytes()
	return c.isDescribed() && missing == 0
}

// DefaultMaxPaths is how many paths to one peer are used at a time. Most pairs of ASes have fewer
// disjoint paths. The bound keeps a peer that offers thousands of paths from taking as many
// connections.
const DefaultMaxPaths = 8

// errNotDescribed says that it is not known yet which files a magnet link stands for.
var errNotDescribed = errors.New("it is not known yet what is in the torrent")

// Described is the source with its files and pieces. For a magnet link it returns an error
// until a peer has sent the description. Any goroutine may call it.
func (c *core) Described() (Source, error) {
	if d := c.described.Load(); d != nil {
		return *d, nil
	}
	return c.source, errNotDescribed
}

// sparingly is the earliest time to repeat costly work that began at that time and ends now. So the
// work takes at most a twentieth of the time.
func sparingly(began time.Time) time.Time { return began.Add(20 * time.Since(began)) }
