package announce

import (
	"context"
	"crypto/rand"
	"slices"

	"braid/scionnet"
	"braid/tracker"
	"braid/tracker/wire"
)

// A sibling is the address of the same tracker on the other kind of network, IP or SCION. A tracker
// names its siblings in its answers, and the announcer asks them as well, so that peers on both
// networks find each other. The tracker is a stranger: a sibling gets only the requests that the
// torrent has for the tracker itself, and only at an address that is not nearer than the tracker's
// (named.may).

// maxSiblingTiers is how many trackers of a torrent have their siblings asked.
const maxSiblingTiers = 4

// siblingsOf are the URLs of a tracker on the other kind of network, made of the addresses in its
// answer.
func siblingsOf(u tracker.URL, addresses []string) []tracker.URL {
	var out []tracker.URL
	_, onSCION := u.SCION()
	for _, address := range addresses {
		v, err := u.Sibling(address)
		_, scion := v.SCION()
		// A key in the URL must not leave TLS.
		if err == nil && scion != onSCION && (u.Scheme() != "https" || u.Plain()) {
			out = append(out, v)
		}
	}
	return out
}

// adopt announces to the siblings of a tracker as a tier of their own. It ignores siblings of
// siblings.
func (a *Announcer) adopt(t *tier, s *source, addresses []string) {
	if t.sibling || t.adopted || len(addresses) == 0 {
		return
	}
	urls := siblingsOf(s.url, addresses)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.siblings == maxSiblingTiers ||
		slices.ContainsFunc(urls, func(u tracker.URL) bool { return slices.ContainsFunc(a.asked, u.Same) }) {
		return
	}
	if t.adopted = a.startTier(urls, s.ask.scope(), true); t.adopted {
		a.siblings++
		a.log.Info("tracker is on another network, too", "tracker", s.url, "at", urls[0])
	}
}

// Siblings asks a tracker for its addresses on the other kind of network. Other peers do not hear
// of this request. scion may be nil if the tracker is on IP.
func Siblings(ctx context.Context, u tracker.URL, scion *scionnet.HTTP, torrent wire.InfoHash) ([]tracker.URL, error) {
	a := wire.Announce{InfoHash: torrent, Left: wire.NoCount, Event: wire.Stopped, Compact: true, SCION: true}
	rand.Read(a.PeerID[:])
	answer, err := Ask(ctx, u, scion, &a)
	return siblingsOf(u, answer.Siblings), err
}

// Ask makes one announce. scion may be nil if the tracker is on IP. There the announce has port 0,
// so that other peers do not hear of it.
func Ask(ctx context.Context, u tracker.URL, scion *scionnet.HTTP, a *wire.Announce) (wire.Answer, error) {
	ask, err := newAsker(u, &Config{SCION: scion}, scionnet.ScopeLoopback)
	if err != nil {
		return wire.Answer{}, err
	}
	defer ask.close()
	return ask.announce(ctx, a, nil)
}
