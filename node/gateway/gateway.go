// Package gateway brings clients on IP into swarms on SCION, and hosts on SCION into swarms on IP.
//
//	Gateway  the allowed torrents, and which of them it has joined            gateway.go
//	Store    the tracker's memory: makes the gateway join, and names it in
//	         answers                                                          store.go
//	fellow   another gateway for the same torrents                            fellow.go
//	figures  the bytes from and to each side, and the hit rate of the cache   figures.go
//	cache    a function that decides which torrents stay on disk              cache.go
//
// A client asks the gateway's tracker for peers of an allowed torrent. The gateway joins the
// torrent with its node, which is on both kinds of network, and names itself in the answer. It
// leaves the torrent when nobody has asked for it, or downloaded it, for a while. The data stays in
// a bounded cache.
//
// The gateway joins and caches whole torrents. To fetch single pieces on request, it would have to
// claim pieces that it does not have, since clients request only such pieces, and to let requests
// wait for data from SCION. If a seed disappeared, all clients would stall. So the gateway
// downloads a torrent like any other peer, rarest pieces first, and claims only the pieces that it
// has.
//
// It is no open relay. It joins only torrents that its operator has allowed, and no private ones.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"braid/client"
	"braid/node"
	"braid/pathsel"
	"braid/storage"
	"braid/tracker"
	"braid/tracker/swarm"
	"braid/tracker/wire"
)

// Config describes a gateway.
type Config struct {
	// Dir is the directory of the cache. Entries whose name is an info hash belong to the gateway.
	Dir string
	// Size bounds the torrents on disk together, in bytes.
	Size int64
	// Idle is the time after which the gateway leaves a torrent that nobody asks for or fetches.
	Idle time.Duration
	// Public are the addresses at which clients on IP reach the gateway; none: where it listens.
	Public []wire.Addr
	// Fellows are the trackers of other gateways for the same torrents, over HTTP.
	Fellows []tracker.URL
	Logger  *slog.Logger
}

// Allowed is a torrent that the gateway may join.
type Allowed struct {
	Source   client.Source
	Trackers [][]tracker.URL // tiers, to ask for peers on SCION and on IP
}

// Gateway joins torrents while somebody asks for them. Call New, open a node with the Gateway in
// node.Config.Sources, and then call Open with that node, and Run.
type Gateway struct {
	cfg     Config
	log     *slog.Logger
	memory  swarm.Store // of the tracker; nil: there is none
	fellows []*fellow
	starts  chan struct{} // has room for the starts at a time
	ctx     context.Context
	stop    context.CancelFunc

	mu       sync.Mutex
	node     *node.Node // nil: it joins nothing
	workers  sync.WaitGroup
	torrents map[wire.InfoHash]*torrent

	scion, ip    traffic
	hits, misses uint64
}

// torrent is an allowed torrent.
type torrent struct {
	Allowed
	hash    wire.InfoHash
	state   state
	kept    bool // some of its data may be on disk
	used    time.Time
	wanted  time.Time // when a client of this gateway has last asked for it
	sent    int64     // payload at the last look
	network string    // the network whose announce has made the gateway join
	// ready is closed when a join has ended, or takes longer than joinPatience; nil: there was none.
	ready <-chan struct{}
	found func(...client.Peer)
	// carried has the counters of the connections at the last look. complete says that all data was
	// in the cache then.
	carried  map[pathsel.Key]traffic
	complete bool
	// contacts are with the fellows, in the order of Gateway.fellows.
	contacts []contact
	removed  bool   // it is no longer allowed, and leaves
	trouble  string // why the last try to join or leave it failed
}

// state says whether the gateway has joined a torrent. Joining and leaving take a moment; the
// goroutine that sets one of these states also carries it out.
type state int

const (
	away state = iota
	joining
	here
	leaving
)

const (
	// startsAtOnce bounds the torrents that are joined at the same time. Each join may hash
	// existing data.
	startsAtOnce = 4
	// sweepEvery is the time between two looks for torrents that nobody uses.
	sweepEvery = time.Second
)

// Refusals, whose text the users of clients see.
var (
	errNotAllowed = &wire.Failure{
		Reason:  "this gateway does not serve this torrent",
		RetryIn: wire.Never,
	}
	errNoRoom = &wire.Failure{
		Reason:  "all room of this gateway is taken by other torrents; try again later",
		RetryIn: time.Minute,
	}
	errNotJoined = &wire.Failure{
		Reason:  "this gateway could not join the torrent; try again later",
		RetryIn: time.Minute,
	}
)

// New makes a gateway that may join no torrent yet.
func New(cfg Config) (*Gateway, error) {
	if cfg.Size <= 0 || cfg.Idle <= 0 {
		return nil, fmt.Errorf("a cache of %d bytes, idle time %v: want more than 0",
			cfg.Size, cfg.Idle)
	}
	g := &Gateway{
		cfg:      cfg,
		log:      cfg.Logger,
		starts:   make(chan struct{}, startsAtOnce),
		torrents: map[wire.InfoHash]*torrent{},
	}
	for _, u := range cfg.Fellows {
		g.fellows = append(g.fellows, &fellow{url: u.OfUser(), wake: make(chan struct{}, 1)})
	}
	g.ctx, g.stop = context.WithCancel(context.Background())
	return g, nil
}

// Check returns an error if a gateway may not or cannot serve a torrent.
func (g *Gateway) Check(s client.Source) error {
	switch {
	case s.IsMagnet():
		return errors.New("a magnet link does not say whether the torrent is private: " +
			"give its .torrent file")
	case s.IsPrivate():
		return errors.New("the torrent is private: " +
			"a gateway would bring in peers that its trackers do not know") // see BEP 27
	case s.Layout.Length > g.cfg.Size:
		return fmt.Errorf("it has %d bytes, and the cache only %d", s.Layout.Length, g.cfg.Size)
	}
	return nil
}

// Allow replaces the list of torrents that the gateway may join. It leaves those that are no longer
// in the list. A torrent that Check refuses is left out, and named in the log.
func (g *Gateway) Allow(all []Allowed) {
	g.mu.Lock()
	defer g.mu.Unlock()
	next := map[wire.InfoHash]*torrent{}
	for _, a := range all {
		if err := g.Check(a.Source); err != nil {
			g.log.Warn("torrent left out", "torrent", a.Source.Name, "reason", err)
			continue
		}
		hash := wire.InfoHash(a.Source.InfoHash)
		t := g.torrents[hash]
		if t == nil {
			t = &torrent{hash: hash}
		}
		before := t.Trackers
		t.Allowed, t.removed = a, false
		g.updateTrackers(t, before)
		next[hash] = t
	}
	for hash, t := range g.torrents {
		if next[hash] == nil && (t.state != away || t.kept) { // sweep leaves and forgets it
			t.removed = true
			next[hash] = t
		}
	}
	g.torrents = next
}

// updateTrackers gives a joined torrent the trackers of the list, if they are not those from
// before. The caller holds the lock.
func (g *Gateway) updateTrackers(t *torrent, before [][]tracker.URL) {
	if g.node == nil || t.state != here || reflect.DeepEqual(t.Trackers, before) {
		return
	}
	n, a := g.node, t.Allowed
	g.workers.Go(func() { // without the lock, which the torrent's searches take
		x, err := n.Torrent(a.Source.InfoHash.HexString())
		if err == nil {
			err = x.Change(func(o *node.Options) error { o.Trackers = a.Trackers; return nil })
		}
		if err != nil && !errors.Is(err, node.ErrUnknown) { // it was left
			g.log.Error("the trackers of a torrent stay", "torrent", a.Source.Name, "error", err)
		}
	})
}

// Open lets the gateway join torrents with the node, which was opened with the gateway as a source.
// It first reads the cache of earlier processes. Call Run next.
func (g *Gateway) Open(n *node.Node) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.openCache(); err != nil {
		return err
	}
	g.node = n
	return nil
}

// Run leaves torrents that nobody uses, and asks the fellows, until the context ends. From then on
// the gateway joins no torrent, and the node may be closed.
func (g *Gateway) Run(ctx context.Context) {
	for i := range g.fellows {
		g.workers.Go(func() { g.follow(ctx, i) })
	}
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			g.sweep(time.Now())
		}
	}
	g.mu.Lock()
	g.node = nil
	g.stop()
	g.mu.Unlock()
	g.workers.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range g.holdings() { // for the order in the cache after a restart
		_ = os.Chtimes(g.dirOf(h.hash), h.used, h.used)
	}
}

// ask notes that a network asks for a torrent, and joins the torrent if there is room. fellow says
// that a fellow asks, for its clients. The channel is torrent.ready.
func (g *Gateway) ask(
	hash wire.InfoHash, network string, fellow bool, now time.Time,
) (<-chan struct{}, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.torrents[hash]
	switch {
	case t == nil || t.removed:
		return nil, errNotAllowed
	case g.node == nil || t.state == leaving:
		return nil, errNoRoom
	}
	if !fellow {
		t.wanted = now
		if t.complete {
			g.hits++
		} else {
			g.misses++
		}
	}
	if t.used = now; t.state != away {
		return t.ready, nil
	}
	out, ok := makeRoom(t.holding(), g.holdings(), g.cfg.Size, network)
	if !ok {
		return nil, errNoRoom
	}
	var evicted []*torrent
	for _, hash := range out {
		v := g.torrents[hash]
		v.state = leaving
		evicted = append(evicted, v)
	}
	t.carried = nil
	waiting, ready := context.WithTimeout(g.ctx, joinPatience)
	t.state, t.network, t.kept, t.sent, t.ready = joining, network, true, 0, waiting.Done()
	g.meetFellows(t)
	n, a := g.node, t.Allowed // both may change when the lock is free
	g.workers.Go(func() { defer ready(); g.join(n, t, a, evicted) })
	g.wakeFellows()
	return t.ready, nil
}

// join makes room and joins a torrent, whose state is joining.
func (g *Gateway) join(n *node.Node, t *torrent, a Allowed, evicted []*torrent) {
	for _, v := range evicted {
		g.leave(n, v, true)
	}
	g.starts <- struct{}{}
	_, err := n.Add(g.ctx, node.Options{
		Source:   a.Source,
		Trackers: a.Trackers,
		Storage:  node.Storage{Kind: storage.KindFile, Dir: g.dirOf(t.hash), AllowDotfiles: true},
	})
	<-g.starts
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() == nil {
		g.report(t, "a torrent cannot be joined", err)
	}
	if t.state = here; err != nil {
		t.state = away
	}
	g.updateTrackers(t, a.Trackers)
}

// leave ends a torrent, whose state is leaving. If it has to make room, its data is deleted.
func (g *Gateway) leave(n *node.Node, t *torrent, drop bool) {
	hash := fmt.Sprintf("%x", t.hash)
	if x, err := n.Torrent(hash); err == nil {
		p := x.Progress()
		g.mu.Lock()
		g.count(t, p)
		g.mu.Unlock()
	}
	err := n.Remove(hash, false)
	if errors.Is(err, node.ErrUnknown) { // only its data is there
		err = nil
	}
	if drop {
		err = errors.Join(err, os.RemoveAll(g.dirOf(t.hash)))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.report(t, "a torrent cannot be left", err)
	t.state, t.kept = away, !drop || err != nil
	t.complete = t.complete && t.kept
}

// report logs the error of a try to join or leave a torrent, if there is one, and the last try had
// another or none: every client makes the gateway try again, and sweep does every second. The
// caller holds the lock.
func (g *Gateway) report(t *torrent, what string, err error) {
	before := t.trouble
	if t.trouble = ""; err != nil {
		t.trouble = err.Error()
	}
	if err != nil && t.trouble != before {
		g.log.Error(what, "torrent", t.Source.Name, "error", err)
	}
}

// sweep leaves the torrents that nobody has used for a while, those that have failed, for example
// because the disk was full, and those that are no longer allowed.
func (g *Gateway) sweep(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for hash, t := range g.torrents {
		failed := false
		if t.state == here {
			if x, err := g.node.Torrent(t.Source.InfoHash.HexString()); err == nil {
				p := x.Progress()
				failed = p.Err != nil // the next client makes the gateway join again
				if g.count(t, p); p.Sent > t.sent {
					t.sent, t.used = p.Sent, now
				}
			}
		}
		switch {
		case t.removed && t.state == away && !t.kept:
			delete(g.torrents, hash)
		case t.removed && (t.state == here || t.state == away),
			t.state == here && (failed || now.Sub(t.used) > g.cfg.Idle):
			t.state = leaving
			n, drop := g.node, t.removed
			g.workers.Go(func() { g.leave(n, t, drop) })
		}
	}
}

func (g *Gateway) dirOf(hash wire.InfoHash) string {
	return filepath.Join(g.cfg.Dir, fmt.Sprintf("%x", hash))
}

// Start implements node.Source: peers of the tracker are peers of the node.
func (g *Gateway) Start(s node.Swarm) (node.Search, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.torrents[s.InfoHash]
	if t == nil || s.Private() {
		return nil, node.ErrNoWay
	}
	t.found = func(peers ...client.Peer) { s.Found(client.FromTracker, peers...) }
	if peers := g.membersOf(s.InfoHash); len(peers) > 0 {
		t.found(peers...)
	}
	return search{g, t}, nil
}

// search is the node's search for peers of a joined torrent.
type search struct {
	gateway *Gateway
	torrent *torrent
}

func (search) Hungry(bool) {}
func (search) Completed()  {}
func (search) Announce()   {}

func (s search) Close() {
	s.gateway.mu.Lock()
	defer s.gateway.mu.Unlock()
	s.torrent.found = nil
}

// networkOf is the network that an announce comes from.
func networkOf(a wire.Addr) string {
	if a.IsSCION() {
		return pathsel.OriginSCION(a.IA, a.Host, "").Net
	}
	return pathsel.OriginIP(a.Host, "").Net
}

// holdings are the torrents whose data is on disk.
func (g *Gateway) holdings() (all []holding) {
	for _, t := range g.torrents {
		if t.state != away || t.kept {
			all = append(all, t.holding())
		}
	}
	slices.SortFunc(all, func(a, b holding) int { return a.used.Compare(b.used) })
	return all
}

func (t *torrent) holding() holding {
	return holding{
		hash:    t.hash,
		size:    t.Source.Layout.Length,
		state:   t.state,
		used:    t.used,
		network: t.network,
	}
}
