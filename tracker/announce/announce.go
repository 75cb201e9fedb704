// Package announce registers a peer with the trackers of a torrent, and learns of other peers from
// them.
//
//	Announcer  one torrent: a goroutine for each tier of its trackers (BEP 12)
//	tier       which tracker to ask next, and when                        tier.go
//	sibling    the same tracker on the other kind of network              sibling.go
//	schedule   how long to wait: functions of answers and failures        schedule.go
//	reporting  when to send path reports                                  report.go
//	asker      one announce over HTTP, HTTP/3 on SCION, or UDP            http.go, udp.go
//	websocket  announces over WebSocket, by which WebRTC peers meet       websocket.go
//	dialer     the source address, and which trackers may be contacted    dial.go
//
// The announcer asks one tracker of every tier, since a tier on IP and one on SCION know different
// peers. BEP 12 stops at the first tier that works, so a peer would never hear of the peers on the
// other network.
package announce

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"braid/pathsel"
	"braid/scionnet"
	"braid/tracker"
	"braid/tracker/wire"
)

// Progress is the state of a transfer in an announce, in bytes.
type Progress struct {
	Uploaded, Downloaded int64
	Left                 int64 // wire.NoCount: unknown
	// Partial says that the peer wants no more, though something is left (BEP 21).
	Partial bool
}

// Config describes an announcer.
type Config struct {
	InfoHash wire.InfoHash
	PeerID   wire.PeerID
	// Tiers of trackers. The order within a tier is shuffled (BEP 12).
	Tiers [][]tracker.URL
	// Listen is where the peer accepts connections on IP. An unspecified address stands for all of
	// its family, and :: for both families. Announces leave from there, since trackers give the
	// source address of an announce to others.
	Listen []netip.AddrPort
	// SCIONPort is where the peer accepts connections on SCION, on the host of SCION; 0: nowhere.
	SCIONPort uint16
	// SCION reaches trackers on SCION. Without it they are left out. The caller closes it.
	SCION *scionnet.HTTP
	// WebRTC connects to the peers of trackers over WebSocket. Without it these are left out.
	WebRTC WebRTC
	// Progress is called before each announce.
	Progress func() Progress
	// Peers is how trackers on SCION are to choose peers.
	Peers wire.Order
	// Hinted may be nil. It gets path hints, before Found gets the peers of the same answer.
	// Several goroutines call it.
	Hinted func(pathsel.Hints)
	// Reports may be nil. It returns the transfer's measurements, the most important first. It is
	// called before announces to trackers that accept reports.
	Reports func() []wire.PathReport
	// Found gets peers, including those of earlier answers. Several goroutines call it.
	Found func([]wire.Addr)
	// Asked may be nil. It is called before the first announce to a tracker, without a result, and
	// with the result of each announce. Several goroutines call it.
	Asked func(Asked)
	// Logger may be nil.
	Logger *slog.Logger

	goodbye time.Duration // for tests; overrides goodbyeTimeout
}

// Asked is the result of an announce to a tracker.
type Asked struct {
	URL      tracker.URL
	Answered bool
	Err      error // why it has not answered; the user's key is hidden in its text
	// Seeds and Leechers are the tracker's counts of the swarm, and Peers the number of peers in
	// its answer.
	Seeds, Leechers int64
	Peers           int
	Warning         string    // of the tracker
	Next            time.Time // it is not asked before, unless there are too few peers; zero: never
}

// Announcer announces one torrent until it is closed.
type Announcer struct {
	cfg       Config
	log       *slog.Logger
	key       string
	hungry    atomic.Bool
	completed atomic.Bool
	ctx       context.Context
	stop      context.CancelFunc
	workers   sync.WaitGroup

	mu       sync.Mutex
	tiers    []*tier       // those of the configuration, then those of siblings
	asked    []tracker.URL // all trackers of the tiers
	siblings int           // number of tiers of siblings
}

const (
	// announceTimeout bounds one announce, also over a slow path with some loss.
	announceTimeout = 30 * time.Second
	// goodbyeTimeout bounds how long a user waits after Ctrl-C.
	goodbyeTimeout = 2 * time.Second
)

// ErrNoTracker says that this host can reach none of the trackers.
var ErrNoTracker = errors.New("no tracker of the torrent can be asked")

// Start begins to announce. It leaves out trackers on networks that the host is not on, and returns
// ErrNoTracker if none remains.
func Start(cfg Config) (*Announcer, error) {
	a := &Announcer{cfg: cfg, log: cfg.Logger}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	key := make([]byte, 4) // over UDP the key is a number of 32 bits
	rand.Read(key)
	a.key = fmt.Sprintf("%X", key)
	a.ctx, a.stop = context.WithCancel(context.Background())
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, urls := range cfg.Tiers {
		urls = slices.Clone(urls)
		mathrand.Shuffle(len(urls), func(i, j int) { urls[i], urls[j] = urls[j], urls[i] })
		// Trackers for WebRTC know other peers than those of the same tier.
		isUsual := func(u tracker.URL) bool { return !u.WebSocket() }
		forWebRTC := slices.DeleteFunc(slices.Clone(urls), isUsual)
		usual := slices.DeleteFunc(urls, tracker.URL.WebSocket)
		a.startTier(usual, scionnet.ScopeLoopback, false)
		a.startTier(forWebRTC, scionnet.ScopeLoopback, false)
	}
	if len(a.tiers) == 0 {
		a.stop()
		return nil, ErrNoTracker
	}
	return a, nil
}

// startTier begins to ask the trackers that can be reached from here, and reports whether there is
// one. If another tracker named them, they are its siblings, and from is its scope. The caller
// holds a.mu.
func (a *Announcer) startTier(urls []tracker.URL, from scionnet.Scope, siblings bool) bool {
	t := &tier{announcer: a, wake: make(chan struct{}, 1), sibling: siblings}
	for _, u := range urls {
		var ask asker
		var err error
		if u.WebSocket() && a.cfg.WebRTC != nil && !siblings {
			ask = newOverWebSocket(u, &a.cfg, a.log, t.again)
		} else {
			ask, err = newAsker(u, &a.cfg, from)
		}
		if err != nil {
			a.log.Log(a.ctx, t.level(slog.LevelInfo), "tracker cannot be asked", "tracker", u, "reason", err)
			continue
		}
		t.trackers = append(t.trackers, &source{url: u, ask: ask})
	}
	if len(t.trackers) == 0 {
		return false
	}
	a.tiers = append(a.tiers, t)
	for _, s := range t.trackers {
		a.asked = append(a.asked, s.url)
	}
	a.workers.Go(t.run)
	return true
}

// Completed tells the trackers that the download is complete, or has all that it wants. Do not call
// it for a download that was complete when it began.
func (a *Announcer) Completed() {
	if !a.completed.Swap(true) {
		a.wake()
	}
}

// Hungry says whether the transfer has too few peers. If so, trackers are asked again as soon as
// they allow it.
func (a *Announcer) Hungry(is bool) {
	if a.hungry.Swap(is) != is {
		a.wake()
	}
}

// Announce has all trackers asked now or, if that is too soon for a tracker, as soon as it allows.
func (a *Announcer) Announce() {
	a.mu.Lock()
	for _, t := range a.tiers {
		t.now.Store(true)
	}
	a.mu.Unlock()
	a.wake()
}

func (a *Announcer) wake() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.tiers {
		t.wakeUp()
	}
}

// Close stops, and tells the trackers that know the peer. It waits at most two seconds for them.
func (a *Announcer) Close() {
	a.stop()
	a.workers.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.tiers {
		for _, s := range t.trackers {
			s.ask.close()
		}
	}
}

// announceOf is the announce for a tracker. On IP the asker sets the port, which depends on the
// source address.
func (a *Announcer) announceOf(s *source, e wire.Event, p Progress) *wire.Announce {
	out := &wire.Announce{
		InfoHash: a.cfg.InfoHash, PeerID: a.cfg.PeerID, Key: a.key, TrackerID: s.trackerID,
		Uploaded: p.Uploaded, Downloaded: p.Downloaded, Left: p.Left, Event: e, NumWant: wire.NoCount,
		Compact: true, SCION: a.cfg.SCION != nil,
	}
	if _, ok := s.url.SCION(); ok {
		out.Port = a.cfg.SCIONPort
		out.Peers, out.Hints = a.cfg.Peers, a.cfg.Hinted != nil
	}
	if e == wire.Stopped {
		out.NumWant = 0
	}
	return out
}

func (a *Announcer) reportAsked(x Asked) {
	if a.cfg.Asked != nil {
		a.cfg.Asked(x)
	}
}

// found passes on the peers and hints of an answer. It reports whether one of the peers is new
// since the tracker's previous answer.
func (a *Announcer) found(s *source, answer wire.Answer) (fresh bool) {
	out := a.cfg.others(answer.Peers)
	fresh = slices.ContainsFunc(out, func(x wire.Addr) bool {
		return !slices.Contains(s.lastPeers, x)
	})
	s.lastPeers = out
	a.log.Info("tracker answered", "tracker", s.url, "peers", len(out),
		"complete", answer.Complete, "incomplete", answer.Incomplete)
	if answer.Warning != s.lastWarning && answer.Warning != "" {
		a.log.Warn("tracker warns", "tracker", s.url, "warning", s.url.Hide(answer.Warning))
	}
	s.lastWarning = answer.Warning
	if len(answer.Hints) > 0 && a.cfg.Hinted != nil {
		a.cfg.Hinted(answer.Hints)
	}
	a.cfg.passOn(answer.Peers)
	return fresh
}

// others are the addresses of peers in an answer, without those of this peer.
func (c *Config) others(peers []wire.Peer) (out []wire.Addr) {
	for _, p := range peers {
		if p.ID == (wire.PeerID{}) || p.ID != c.PeerID {
			out = append(out, p.Addr)
		}
	}
	return out
}

// passOn passes on the peers of an answer.
func (c *Config) passOn(peers []wire.Peer) {
	if out := c.others(peers); len(out) > 0 && c.Found != nil {
		c.Found(out)
	}
}
