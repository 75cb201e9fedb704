package node

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"braid/client"
	"braid/scionnet"
	"braid/tracker"
	"braid/tracker/announce"
	"braid/tracker/wire"
)

// ErrNoWay: a source cannot find peers for a torrent, for example because this host can reach none
// of its trackers.
var ErrNoWay = announce.ErrNoTracker

// trackers is the Source that announces to trackers.
type trackers struct {
	scion     *scionnet.HTTP // nil: trackers on SCION are not asked
	rtc       *client.WebRTC // nil: trackers over WebSocket are not asked
	knowledge Knowledge
}

// Start announces the torrent to one tracker of each tier.
func (x trackers) Start(s Swarm) (Search, error) {
	if len(s.Trackers) == 0 {
		return nil, ErrNoWay
	}
	cfg := announce.Config{
		InfoHash: s.InfoHash, PeerID: s.PeerID, Tiers: s.Trackers, SCION: x.scion,
		Progress: func() announce.Progress { return announceProgress(s.Progress()) },
		Found:    func(found []wire.Addr) { s.Found(client.FromTracker, peersAt(found)...) },
		Asked: func(x announce.Asked) {
			state := client.TrackerState{URL: x.URL.String(), Answered: x.Answered, Err: x.Err}
			state.SCION, _ = x.URL.SCION()
			s.Asked(TrackerStatus{
				TrackerState: state,
				Seeds:        x.Seeds,
				Leechers:     x.Leechers,
				Peers:        x.Peers,
				Warning:      x.URL.Hide(x.Warning),
				Next:         x.Next,
			})
		},
		Logger: s.Logger,
	}
	if x.rtc != nil {
		cfg.WebRTC = rtcOf{x.rtc, s}
	}
	x.knowledge.apply(&cfg, s)
	for _, p := range s.Listen {
		if at := p.Addr(); at.IsSCION() {
			cfg.SCIONPort = at.Port
		} else if at.Host.IsValid() {
			cfg.Listen = append(cfg.Listen, at.AddrPort())
		}
	}
	a, err := announce.Start(cfg)
	if err != nil {
		return nil, err // not a nil *Announcer, which would be a Search
	}
	return a, nil
}

// rtcOf makes the WebRTC connections of one torrent.
type rtcOf struct {
	rtc   *client.WebRTC
	swarm Swarm
}

// Offer implements announce.WebRTC.
func (r rtcOf) Offer(ctx context.Context) (announce.Offer, error) {
	o, err := r.rtc.Offer(ctx, r.found)
	if err != nil {
		return nil, err // not a nil *client.RTCOffer, which would be an Offer
	}
	return rtcOffer{o, r}, nil
}

// Answer implements announce.WebRTC.
func (r rtcOf) Answer(ctx context.Context, from wire.PeerID, offer string) (string, error) {
	return r.rtc.Answer(ctx, r.name(from), offer, r.found)
}

// found makes a download dial a connected peer. It returns false for a complete torrent, which
// accepts the connection.
func (r rtcOf) found(p client.Peer) bool {
	if r.swarm.Progress().Phase == client.Complete {
		return false
	}
	r.swarm.Found(client.FromTracker, p)
	return true
}

// name names a peer of this torrent. The same peer has other names in other torrents, since it has
// other connections there.
func (r rtcOf) name(peer wire.PeerID) string { return string(r.swarm.InfoHash[:]) + string(peer[:]) }

type rtcOffer struct {
	*client.RTCOffer
	of rtcOf
}

func (o rtcOffer) SDP() string { return o.RTCOffer.SDP }

func (o rtcOffer) Answered(by wire.PeerID, answer string) error {
	return o.RTCOffer.Answered(o.of.name(by), answer)
}

func announceProgress(p client.Progress) announce.Progress {
	out := announce.Progress{Uploaded: p.Sent, Downloaded: p.Fetched, Left: wire.NoCount}
	switch {
	case p.Phase == client.Complete:
		out.Left, out.Partial = p.Missing, p.Missing > 0
	case p.Total > 0:
		out.Left = max(1, p.Missing) // data that is not verified yet is still missing
	}
	return out
}

// ParseTrackers returns the tiers of trackers that a torrent names. It ignores invalid URLs. A
// tracker that is named several times is in its first tier only.
func ParseTrackers(s client.Source, log *slog.Logger) (tiers [][]tracker.URL) {
	seen := map[tracker.URL]bool{}
	for _, urls := range s.Trackers {
		var tier []tracker.URL
		for _, text := range urls {
			u, err := tracker.ParseURL(text)
			if err != nil {
				log.Info("tracker passed over", "torrent", s.Name, "error", err)
				continue
			}
			if !seen[u] {
				seen[u] = true
				tier = append(tier, u)
			}
		}
		if len(tier) > 0 {
			tiers = append(tiers, tier)
		}
	}
	return tiers
}

// onNetwork tells whether a tracker names peers on SCION or, if scion is false, on IP. A tracker
// over WebSocket names neither.
func onNetwork(scion bool) func(tracker.URL) bool {
	return func(u tracker.URL) bool { _, s := u.SCION(); return s == scion && !u.WebSocket() }
}

// MayKnowSiblings tells whether a tracker can name its other addresses. The protocols over UDP and
// WebSocket have no field for them.
func MayKnowSiblings(u tracker.URL) bool { return u.Scheme() != "udp" && !u.WebSocket() }

// anyTracker tells whether f is true for a tracker of one of the torrents.
func anyTracker(torrents []Options, f func(tracker.URL) bool) bool {
	return slices.ContainsFunc(torrents, func(o Options) bool {
		return slices.ContainsFunc(slices.Concat(o.Trackers...), f)
	})
}

// Unheard lists torrents without a tracker on one network: peers there do not hear of this node.
type Unheard struct {
	SCION    bool // the network: SCION or IP
	Torrents []string
	// Through is a tracker on the other network. If it is on this network as well, and says so,
	// peers here still hear of the node. Empty: there is none.
	Through string
}

// FindUnheard finds torrents without a tracker on a network on which the node listens.
func FindUnheard(listen []client.Peer, torrents []Options) (out []Unheard) {
	for _, scion := range []bool{true, false} {
		isThere := func(p client.Peer) bool { return isSCION(p) == scion }
		if !slices.ContainsFunc(listen, isThere) {
			continue
		}
		u := Unheard{SCION: scion}
		for _, o := range torrents {
			urls := slices.Concat(o.Trackers...)
			if len(urls) == 0 || slices.ContainsFunc(urls, onNetwork(scion)) {
				continue
			}
			u.Torrents = append(u.Torrents, o.Source.Name)
			if i := slices.IndexFunc(urls, MayKnowSiblings); i >= 0 {
				u.Through = urls[i].String()
			}
		}
		if len(u.Torrents) > 0 {
			out = append(out, u)
		}
	}
	return out
}

// Tracker reads an announce URL that the user names. If the torrent has this tracker already, it
// counts as the torrent's. Otherwise it counts as the user's: a user may name trackers in networks
// where a torrent may not.
func (o Options) Tracker(text string) (tracker.URL, error) {
	u, err := tracker.ParseURL(text)
	all := slices.Concat(o.Trackers...)
	isSame := func(x tracker.URL) bool { return x.String() == u.String() }
	if i := slices.IndexFunc(all, isSame); i >= 0 {
		return all[i], err
	}
	return u.OfUser(), err
}

// parseTiers makes a tier of each URL that the user names.
func parseTiers(urls []string) (tiers [][]tracker.URL, err error) {
	if len(urls) > maxTrackers {
		return nil, fmt.Errorf("%d trackers: at most %d", len(urls), maxTrackers)
	}
	for _, text := range urls {
		u, err := Options{}.Tracker(text)
		if err != nil {
			return nil, err
		}
		tiers = append(tiers, []tracker.URL{u})
	}
	return tiers, nil
}
