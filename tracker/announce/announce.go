// Package announce tells trackers of a torrent that a peer is there, and hears of others.
//
//	Announcer  one torrent: a goroutine for each tier of its trackers (BEP 12)
//	tier       which tracker next, and when                              tier.go
//	siblings   trackers that are reached on another network, too         sibling.go
//	schedule   how long to wait: functions of answers and failures       schedule.go
//	asker      one announce over HTTP, HTTP/3 on SCION, or UDP           http.go, udp.go
//	dialer     from which address, and whether at all                    dial.go
//
// All tiers are asked, one tracker of each: a tier on IP and one on SCION lead to different peers. Where BEP 12 stops
// at the first tier that works, a peer would never hear of those on the other network.
package announce

import (
	"context"
	"crypto/rand"
	"encoding/hex"
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

// Progress is what trackers are told of a transfer, in bytes.
type Progress struct {
	Uploaded, Downloaded int64
	Left                 int64 // wire.NoCount: not known yet
	// Partial says that the peer wants no more, though something is left (BEP 21).
	Partial bool
}

// Config describes an announcer.
type Config struct {
	InfoHash wire.InfoHash
	PeerID   wire.PeerID
	// Tiers of trackers. Their order within a tier is drawn anew (BEP 12).
	Tiers [][]tracker.URL
	// Listen is where the peer accepts connections on IP, an unspecified address standing for all of its family, and :: for all.
	// Announces leave from there, since trackers hand out the address that they come from.
	Listen []netip.AddrPort
	// SCIONPort is where it does on SCION, on the host of SCION; 0: nowhere.
	SCIONPort uint16
	// SCION reaches trackers on SCION; nil: they are passed over. It is the caller's to close.
	SCION *scionnet.HTTP
	// Progress is asked before each announce.
	Progress func() Progress
	// Peers is how trackers on SCION are to choose peers.
	Peers wire.Order
	// Hinted, if not nil, is told of path hints, always before the peers of the same answer, from several goroutines.
	Hinted func(pathsel.Hints)
	// Reports, if not nil, are what the transfer has measured, the most important first. It is asked before announces to trackers
	// that take reports.
	Reports func() []wire.PathReport
	// Found is told of peers, from several goroutines, also of those it knows already.
	Found func([]wire.Addr)
	// Asked, if not nil, is told how it goes with each tracker that is asked, from several goroutines: when it is asked the
	// first time, with neither answered nor an error, and how each announce has ended.
	Asked func(u tracker.URL, answered bool, err error)
	// Logger may be nil.
	Logger *slog.Logger
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
	asked    []tracker.URL // all that are in them
	siblings int           // tiers
}

// ErrNoTracker says that none of the trackers can be reached from this host.
var ErrNoTracker = errors.New("no tracker of the torrent can be asked")

// Start begins to announce. Trackers of networks that the host is not on are passed over; if none is left the error is
// ErrNoTracker.
func Start(cfg Config) (*Announcer, error) {
	a := &Announcer{cfg: cfg, log: cfg.Logger}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	// Hexadecimal digits of a number of 32 bits, which is what the key is over UDP.
	key := make([]byte, 4)
	rand.Read(key)
	a.key = fmt.Sprintf("%X", key)
	a.ctx, a.stop = context.WithCancel(context.Background())
	for _, urls := range cfg.Tiers {
		t := &tier{announcer: a, wake: make(chan struct{}, 1)}
		for _, u := range urls {
			ask, err := newAsker(u, &a.cfg, scionnet.ScopeLoopback)
			if err != nil {
				a.log.Info("tracker passed over", "tracker", u, "reason", err)
				continue
			}
			t.trackers = append(t.trackers, &source{url: u, ask: ask})
			a.asked = append(a.asked, u)
		}
		mathrand.Shuffle(len(t.trackers), func(i, j int) { t.trackers[i], t.trackers[j] = t.trackers[j], t.trackers[i] })
		if len(t.trackers) > 0 {
			a.tiers = append(a.tiers, t)
		}
	}
	if len(a.tiers) == 0 {
		a.stop()
		return nil, ErrNoTracker
	}
	for _, t := range a.tiers {
		a.workers.Go(t.run)
	}
	return a, nil
}

// Completed tells the trackers that the download is complete, or has all that it wants. It is for downloads that had not when they
// began.
func (a *Announcer) Completed() {
	if !a.completed.Swap(true) {
		a.wake()
	}
}

// Hungry says whether the transfer has too few peers, and asks trackers again as soon as they allow it.
func (a *Announcer) Hungry(is bool) {
	if a.hungry.Swap(is) != is {
		a.wake()
	}
}

func (a *Announcer) wake() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.tiers {
		select {
		case t.wake <- struct{}{}:
		default: // awake already
		}
	}
}

// Close says goodbye to the trackers that know the peer, for which each has two seconds, and stops.
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

// announceOf is the announce for a tracker. On IP the port follows from the address that it leaves from.
func (a *Announcer) announceOf(s *source, e wire.Event, p Progress) *wire.Announce {
	out := &wire.Announce{
		InfoHash: a.cfg.InfoHash, PeerID: a.cfg.PeerID, Key: a.key, TrackerID: s.id,
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

func (a *Announcer) tellAsked(s *source, answered bool, err error) {
	if a.cfg.Asked != nil {
		a.cfg.Asked(s.url, answered, err)
	}
}

func (a *Announcer) found(s *source, answer wire.Answer) (fresh bool) {
	var out []wire.Addr
	for _, p := range answer.Peers {
		if p.ID != (wire.PeerID{}) && p.ID == a.cfg.PeerID {
			continue
		}
		out = append(out, p.Addr)
		fresh = fresh || !slices.Contains(s.told, p.Addr)
	}
	s.told = out
	a.log.Info("tracker answered", "tracker", s.url, "peers", len(out), "complete", answer.Complete, "incomplete", answer.Incomplete)
	if answer.Warning != s.warned && answer.Warning != "" { // once is enough to know
		a.log.Warn("tracker warns", "tracker", s.url, "warning", s.url.Hide(answer.Warning))
	}
	s.warned = answer.Warning
	if len(answer.Hints) > 0 && a.cfg.Hinted != nil {
		a.cfg.Hinted(answer.Hints)
	}
	if len(out) > 0 {
		a.cfg.Found(out)
	}
	return fresh
}

// title is the torrent in logs.
func (a *Announcer) title() string { return hex.EncodeToString(a.cfg.InfoHash[:4]) }

// announceTimeout bounds one announce, also over a slow path with some loss.
const announceTimeout = 30 * time.Second

// goodbyeTimeout bounds what a user waits for after Ctrl-C.
const goodbyeTimeout = 2 * time.Second
