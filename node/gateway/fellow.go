package gateway

import (
	"context"
	"errors"
	"slices"
	"time"

	"braid/client"
	"braid/tracker"
	"braid/tracker/announce"
	"braid/tracker/wire"
)

// Fellows are other gateways for the same torrents. While a client uses a torrent, the gateway keeps
// announcing it to the fellows' trackers. Each fellow then joins the torrent and answers with its
// own addresses. The gateway gives these addresses to its clients while the fellow answers.
//
// A fellow that joins for another gateway does not ask its own fellows. Otherwise two gateways would
// keep each other in a torrent that nobody uses.

const (
	// pulse is the time between two questions to a fellow. They show whether it is alive. The first
	// question about a torrent does not wait for the pulse.
	pulse = time.Second
	// fellowPatience bounds the time for an answer. The fellow may have to join the torrent first.
	fellowPatience = joinPatience + time.Second
	// fellowLife is the time after an answer for which a fellow counts as alive. Clients still hear
	// of a dead fellow for that long.
	fellowLife = pulse + fellowPatience
	// maxFellowAddrs bounds the addresses of one fellow that clients learn.
	maxFellowAddrs = 8
)

// fellow is another gateway. The lock of the gateway guards its fields.
type fellow struct {
	url      tracker.URL
	id       wire.PeerID   // in its last answer
	asked    time.Time     // when it was last asked
	answered time.Time     // when it last answered
	wake     chan struct{} // there is a torrent about which it was never asked
}

// contact is what a gateway knows of a fellow and one torrent.
type contact struct {
	at    []wire.Peer   // addresses in the fellow's last answer
	asked time.Time     // when it was last asked about the torrent
	first chan struct{} // closed when the first question has ended
}

func (f *fellow) alive(now time.Time) bool { return now.Sub(f.answered) <= fellowLife }

// meetFellows makes the contacts of a torrent that the gateway joins. The caller holds the lock.
func (g *Gateway) meetFellows(t *torrent) {
	t.contacts = make([]contact, len(g.fellows))
	for i := range t.contacts {
		t.contacts[i].first = make(chan struct{})
	}
}

// wakeFellows makes the gateway ask all fellows about a new torrent now.
func (g *Gateway) wakeFellows() {
	for _, f := range g.fellows {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

// isFellow tells whether a peer ID belongs to a fellow's node.
func (g *Gateway) isFellow(id wire.PeerID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(g.fellows, func(f *fellow) bool {
		return f.id == id && !f.answered.IsZero()
	})
}

// follow asks one fellow again and again until the context ends.
func (g *Gateway) follow(ctx context.Context, number int) {
	f := g.fellows[number]
	tick := time.NewTicker(pulse)
	defer tick.Stop()
	for {
		g.mu.Lock()
		t := g.nextQuestion(number, time.Now())
		g.mu.Unlock()
		if t != nil {
			g.question(ctx, number, t)
			if ctx.Err() == nil {
				continue
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-f.wake:
		}
	}
}

// nextQuestion returns the torrent about which to ask a fellow now, or nil: the used torrent about
// which it was not asked for longest. The caller holds the lock.
func (g *Gateway) nextQuestion(number int, now time.Time) (next *torrent) {
	f := g.fellows[number]
	for _, t := range g.torrents {
		if (t.state == joining || t.state == here) && !t.removed && now.Sub(t.wanted) <= g.cfg.Idle &&
			(next == nil || t.contacts[number].asked.Before(next.contacts[number].asked)) {
			next = t
		}
	}
	if next == nil {
		return nil
	}
	fresh := next.contacts[number].asked.IsZero() && (f.alive(now) || f.asked.IsZero())
	if !fresh && now.Sub(f.asked) < pulse {
		return nil
	}
	return next
}

// question asks a fellow about a torrent, and notes the answer.
func (g *Gateway) question(ctx context.Context, number int, t *torrent) {
	id, _ := g.addresses()
	f := g.fellows[number]
	a := wire.Announce{
		InfoHash: t.hash,
		PeerID:   id,
		Left:     wire.NoCount,
		NumWant:  maxFellowAddrs,
		SCION:    true,
		Fellow:   true,
	}
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, fellowPatience)
	answer, err := announce.Ask(within, f.url, nil, &a)
	cancel()
	g.mu.Lock()
	defer g.mu.Unlock()
	was := f.alive(began)
	f.asked = began
	c := &t.contacts[number]
	if c.asked.IsZero() {
		close(c.first)
	}
	c.asked = began
	if err == nil || errors.As(err, new(*wire.Failure)) { // a refusal is an answer, too
		f.answered = time.Now()
	}
	if is := f.alive(time.Now()); is != was {
		g.log.Info("a fellow has changed", "fellow", f.url, "alive", is,
			"error", f.url.HideIn(err))
	}
	if err != nil {
		c.at = nil
		return
	}
	c.at = namedFirst(answer.Peers)
	if len(c.at) == 0 {
		return
	}
	before := f.id
	if f.id = c.at[0].ID; f.id == id {
		c.at = nil
		if before != id {
			g.log.Warn("this gateway is named as its own fellow", "fellow", f.url)
		}
	}
	if t.found != nil {
		for _, p := range c.at {
			if p.Addr.Dialable() {
				t.found(client.PeerAt(p.Addr))
			}
		}
	}
}

// namedFirst returns the addresses of the gateway in an answer of its own tracker, which names the
// gateway first.
func namedFirst(peers []wire.Peer) []wire.Peer {
	if len(peers) == 0 || peers[0].ID == (wire.PeerID{}) {
		return nil
	}
	peers = slices.DeleteFunc(peers, func(p wire.Peer) bool {
		return p.ID != peers[0].ID || !p.Addr.Dialable()
	})
	return peers[:min(len(peers), maxFellowAddrs)]
}

// living returns the addresses of the live fellows that serve a torrent. So that the first client
// hears of all fellows, it first waits until each live fellow was asked about the torrent, or until
// the context ends.
func (g *Gateway) living(ctx context.Context, hash wire.InfoHash) (out []wire.Peer) {
	g.mu.Lock()
	var wait []chan struct{}
	if t := g.torrents[hash]; t != nil {
		for i := range t.contacts {
			if f := g.fellows[i]; f.alive(time.Now()) || f.asked.IsZero() {
				wait = append(wait, t.contacts[i].first)
			}
		}
	}
	g.mu.Unlock()
	for _, first := range wait {
		waitFor(ctx, first)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if t := g.torrents[hash]; t != nil {
		for i, c := range t.contacts {
			if g.fellows[i].alive(time.Now()) {
				out = append(out, c.at...)
			}
		}
	}
	return out
}
