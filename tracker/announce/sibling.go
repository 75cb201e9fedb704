package announce

import (
	"context"
	"crypto/rand"
	"slices"

	"braid/scionnet"
	"braid/tracker"
	"braid/tracker/wire"
)

// A tracker may be reached on SCION and on IP, while a torrent names it on one of them. It says so in its answers, and the
// announcer goes to both, so that the peer is known on both. The tracker is a stranger: a sibling is asked for nothing but what
// the torrent has asked of the tracker itself, and at no address that is nearer than the tracker's (named.may).

// maxSiblingTiers bounds the trackers of a torrent whose siblings are asked.
const maxSiblingTiers = 4

// siblingsOf are the URLs of a tracker on the other kind of network, of those that it names itself.
func siblingsOf(u tracker.URL, said []string) []tracker.URL {
	var out []tracker.URL
	_, onSCION := u.SCION()
	for _, address := range said {
		v, err := u.Sibling(address)
		_, scion := v.SCION()
		// The key in a URL does not leave TLS.
		if err != nil || scion == onSCION || u.Scheme() == "https" && !u.Plain() {
			continue
		}
		out = append(out, v)
	}
	return out
}

// adopt announces to the siblings that a tracker of the tier has named, as a tier of their own. It takes the first ones that
// can be asked from here, and no siblings of siblings.
func (a *Announcer) adopt(t *tier, s *source, said []string) {
	if t.sibling || t.adopted || len(said) == 0 {
		return
	}
	more := &tier{announcer: a, wake: make(chan struct{}, 1), sibling: true}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.siblings == maxSiblingTiers {
		return
	}
	for _, u := range siblingsOf(s.url, said) {
		if slices.ContainsFunc(a.asked, u.Same) {
			return // the torrent names it
		}
		ask, err := newAsker(u, &a.cfg, s.ask.scope())
		if err != nil {
			a.log.Debug("tracker passed over", "tracker", u, "reason", err)
			continue
		}
		a.log.Info("a tracker is on another network, too", "tracker", s.url, "at", u)
		more.trackers = append(more.trackers, &source{url: u, ask: ask})
	}
	if len(more.trackers) == 0 {
		return
	}
	t.adopted = true
	a.siblings++
	a.tiers = append(a.tiers, more)
	for _, s := range more.trackers {
		a.asked = append(a.asked, s.url)
	}
	a.workers.Go(more.run)
}

// Siblings asks a tracker where it is reached on the other kind of network. The peer that asks is told to nobody. scion may be nil if
// the tracker is on IP.
func Siblings(ctx context.Context, u tracker.URL, scion *scionnet.HTTP, torrent wire.InfoHash) ([]tracker.URL, error) {
	ask, err := newAsker(u, &Config{SCION: scion}, scionnet.ScopeLoopback)
	if err != nil {
		return nil, err
	}
	defer ask.close()
	a := wire.Announce{InfoHash: torrent, Left: wire.NoCount, Event: wire.Stopped, Compact: true, SCION: true}
	rand.Read(a.PeerID[:])
	answer, err := ask.announce(ctx, &a, nil)
	return siblingsOf(u, answer.Siblings), err
}
