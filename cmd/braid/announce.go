package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/pathsel"
	"braid/scionnet"
	"braid/tracker"
	"braid/tracker/announce"
	"braid/tracker/wire"
)

// announceFlags are common to the commands that let peers find them.
func announceFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "tracker", Usage: "ask the tracker at `URL` too, beside those of the torrent: http, https, udp or scion (repeatable)", Config: cli.StringConfig{TrimSpace: true}},
		&cli.BoolFlag{Name: "no-trackers", Usage: "ask no tracker of the torrent"},
		peerOrderFlag(), pathKnowledgeFlag(),
	}
}

// tiersOf are the trackers to ask for a torrent. What is not a URL of a tracker is an error on the command line, and
// passed over in a torrent.
func tiersOf(cmd *cli.Command, s client.Source, log *slog.Logger) ([][]tracker.URL, error) {
	var out [][]tracker.URL
	for _, text := range cmd.StringSlice("tracker") {
		u, err := tracker.ParseURL(text)
		if err != nil {
			return nil, usageErrorf("--tracker: %w", err)
		}
		out = append(out, []tracker.URL{u.OfUser()})
	}
	if cmd.Bool("no-trackers") {
		return out, nil
	}
	for _, urls := range s.Trackers {
		var tier []tracker.URL
		for _, text := range urls {
			u, err := tracker.ParseURL(text)
			if err != nil {
				log.Info("tracker passed over", "torrent", s.Name, "error", err)
				continue
			}
			tier = append(tier, u)
		}
		if len(tier) > 0 {
			out = append(out, tier)
		}
	}
	return out, nil
}

// announced is a torrent and whom to ask about it.
type announced struct {
	source client.Source
	tiers  [][]tracker.URL
}

// announcedSources finds the trackers of all torrents.
func announcedSources(cmd *cli.Command, sources []client.Source, log *slog.Logger) ([]announced, error) {
	var out []announced
	for _, s := range sources {
		tiers, err := tiersOf(cmd, s, log)
		if err != nil {
			return nil, err
		}
		out = append(out, announced{s, tiers})
	}
	return out, nil
}

// onSCION tells whether a tracker of the torrents is reached over SCION.
func onSCION(all []announced) bool {
	return slices.ContainsFunc(all, func(a announced) bool {
		return slices.ContainsFunc(slices.Concat(a.tiers...), func(u tracker.URL) bool { _, ok := u.SCION(); return ok })
	})
}

// askedOverHTTP tells whether a tracker of the torrents is asked over HTTP, and may say that it is on SCION, too.
func askedOverHTTP(all []announced) bool {
	return slices.ContainsFunc(all, func(a announced) bool {
		return slices.ContainsFunc(slices.Concat(a.tiers...), tellsSiblings)
	})
}

// announcing is a session's torrents with their trackers.
type announcing struct {
	session *client.Session
	scion   *scionnet.HTTP // nil: not on SCION
	paths   pathKnowledge
	log     *slog.Logger
	ctx     context.Context
	cancel  context.CancelFunc
	all     sync.WaitGroup
}

// openAnnouncing prepares to ask trackers, over SCION if there is a host. Its close says goodbye to them; it comes before
// the session's.
func openAnnouncing(ctx context.Context, cmd *cli.Command, session *client.Session, host *scionnet.Host, log *slog.Logger) (*announcing, error) {
	paths, err := parsePathKnowledge(cmd)
	if err != nil {
		return nil, err
	}
	x := &announcing{session: session, log: log, paths: paths}
	if host != nil {
		if x.scion, err = host.OpenHTTP(ctx, 0); err != nil {
			return nil, fmt.Errorf("open a port for SCION trackers: %w", err)
		}
	}
	// Not the caller's context, which ends with Ctrl-C: close is what ends it.
	x.ctx, x.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return x, nil
}

func (x *announcing) close() error {
	x.cancel()
	x.all.Wait()
	if x.scion != nil {
		return x.scion.Close()
	}
	return nil
}

// follow announces the transfer until close. A transfer that is to be complete from the start is announced when it is.
func (x *announcing) follow(t *client.Transfer, tiers [][]tracker.URL, complete bool) error {
	if len(tiers) == 0 {
		return nil
	}
	cfg := announce.Config{
		InfoHash: wire.InfoHash(t.Source().InfoHash), PeerID: wire.PeerID(x.session.PeerID()), Tiers: tiers, SCION: x.scion,
		Progress: func() announce.Progress { return announceProgress(t.Progress()) },
		Found:    func(found []wire.Addr) { t.AddPeers(peersOf(found)...) },
		Asked: func(u tracker.URL, answered bool, err error) {
			s := client.TrackerState{URL: u.String(), Answered: answered, Err: err}
			s.SCION, _ = u.SCION()
			t.TrackerState(s)
		},
		Logger: x.log.With("torrent", t.Source().Name),
	}
	x.paths.apply(&cfg, t)
	for _, p := range x.session.Listening() {
		if _, ok := p.SCION(); ok {
			cfg.SCIONPort = p.Port()
		} else if at, err := netip.ParseAddrPort(p.String()); err == nil {
			cfg.Listen = append(cfg.Listen, at)
		}
	}
	if complete {
		select {
		case <-t.Done():
		case <-x.ctx.Done():
		}
	}
	a, err := announce.Start(cfg)
	if err != nil {
		return err
	}
	x.all.Go(func() {
		defer a.Close()
		x.feed(t, a)
	})
	return nil
}

// feed tells the announcer how the transfer is, until that ends.
func (x *announcing) feed(t *client.Transfer, a *announce.Announcer) {
	const often = 2 * time.Second
	tick := time.NewTicker(often)
	defer tick.Stop()
	done := t.Done()
	for {
		select {
		case <-x.ctx.Done():
			select {
			case <-done: // the session ends because it is complete
				completed(t, a)
			default:
			}
			return
		case <-t.Ended(): // it has been served enough
			completed(t, a)
			return
		case <-done:
			done = nil
			a.Hungry(false)
			completed(t, a)
		case <-tick.C:
			p := t.Progress()
			a.Hungry(p.Phase != client.Complete && p.Phase != client.Broken && connectedPeers(p) < enoughPeers)
		}
	}
}

// completed passes on that a download is complete. Who had everything before it began has completed nothing.
func completed(t *client.Transfer, a *announce.Announcer) {
	if p := t.Progress(); p.Err == nil && p.Fetched > 0 {
		a.Completed()
	}
}

// enoughPeers is below how many connected peers a download asks trackers for more. What a few peers cannot give, many
// more seldom do, and asking costs little: trackers say how often they like it.
const enoughPeers = 4

func connectedPeers(p client.Progress) int {
	peers := map[string]struct{}{}
	for _, x := range p.Paths {
		if x.State == pathsel.Active {
			peers[x.Peer] = struct{}{}
		}
	}
	return len(peers)
}

func announceProgress(p client.Progress) announce.Progress {
	out := announce.Progress{Uploaded: p.Sent, Downloaded: p.Fetched, Left: wire.NoCount}
	switch {
	case p.Phase == client.Complete:
		out.Left, out.Partial = p.Missing, p.Missing > 0
	case p.Total > 0:
		out.Left = max(1, p.Missing) // what is not verified yet is not there
	}
	return out
}

func peersOf(found []wire.Addr) []client.Peer {
	var out []client.Peer
	for _, a := range found {
		if a.IsSCION() {
			out = append(out, client.SCIONPeer(scionnet.Addr(a)))
		} else if p, err := client.ParsePeer(a.String()); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// announceAll announces the transfers, of which each belongs to the torrent at its place. Where no tracker can be asked it
// is an error only if there is no other way to peers.
func (x *announcing) announceAll(transfers []*client.Transfer, torrents []announced, complete, needed bool) error {
	for i, t := range transfers {
		err := x.follow(t, torrents[i].tiers, complete)
		if errors.Is(err, announce.ErrNoTracker) && !needed {
			x.log.Warn("peers must find this braid in another way", "torrent", t.Source().Name, "reason", err)
			continue
		}
		if err != nil {
			return fmt.Errorf("announce %s: %w", t.Source().Name, err)
		}
	}
	return nil
}
