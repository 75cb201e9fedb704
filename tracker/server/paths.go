package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"braid/pathsel"
	"braid/tracker/knowledge"
	"braid/tracker/swarm"
	"braid/tracker/wire"
)

// paths is path knowledge: peers on SCION report what they measured of paths, and learn which peers
// and paths to try first. It serves only announces over SCION from a proven AS. A store that is a
// keeper preserves it over restarts, and shares it between trackers.
type paths struct {
	base        *knowledge.Base
	keeper      swarm.Keeper // or nil
	log         *slog.Logger
	version     uint64 // of the base in the last note; belongs to exchange
	failing     bool   // the last exchange failed; belongs to exchange
	hosts, ases *limiter
}

const (
	// reportsPerHost and reportsPerAS bound announces with reports, in announces per second. A peer
	// has something new to report every few minutes, in each of its torrents.
	reportsPerHost, reportsPerAS = 0.2, 50
	// bodyPatience is how long a peer may take to send its reports.
	bodyPatience = 5 * time.Second
	// The store is asked for candidatesFor times the wanted peers, but at most mostCandidates. The
	// nearest of them are near enough, also in a larger swarm.
	candidatesFor, mostCandidates = 8, 1000
	// hintsEach is how many paths to one AS are named: usually all known ones.
	hintsEach = wire.MaxHints
	// refreshEvery is the greatest age of the figures of links.
	refreshEvery = 10 * time.Second
	// keepEvery is how much path knowledge a crash loses, and the greatest age of what other
	// trackers know.
	keepEvery = time.Minute
)

func newPaths(store swarm.Store, log *slog.Logger) *paths {
	keeper, _ := store.(swarm.Keeper)
	return &paths{
		base: knowledge.New(), keeper: keeper, log: log,
		hosts: newLimiter(limiterSlots), ases: newLimiter(limiterSlots),
	}
}

// run keeps the figures of links up to date until the context ends and, while on returns true, also
// the notes in the store.
func (p *paths) run(ctx context.Context, on func() bool) {
	tick, keep := time.NewTicker(refreshEvery), time.NewTicker(keepEvery)
	defer tick.Stop()
	defer keep.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
			defer cancel()
			p.exchange(last, on())
			return
		case now := <-tick.C:
			p.base.Refresh(now)
		case <-keep.C:
			p.exchange(ctx, on())
		}
	}
}

// exchange merges the notes of earlier runs and other trackers that are in the store, and stores a
// new one. It logs only the first of several failures.
func (p *paths) exchange(ctx context.Context, on bool) {
	if p.keeper == nil || !on {
		return
	}
	err := p.tryExchange(ctx)
	if err != nil && !p.failing && ctx.Err() == nil {
		p.log.Warn("path knowledge is not stored until the store works again", "error", err)
	}
	p.failing = err != nil
}

func (p *paths) tryExchange(ctx context.Context) error {
	notes, err := p.keeper.Kept(ctx)
	for _, note := range notes {
		if _, err := p.base.Merge(time.Now(), note); err != nil {
			p.log.Warn("path knowledge from the store is not used", "error", err)
		}
	}
	if err != nil {
		return err
	}
	note, version := p.base.Snapshot(p.version)
	if note == nil {
		return nil
	}
	if err := p.keeper.Keep(ctx, note, knowledge.Forget); err != nil {
		return err
	}
	p.version = version
	return nil
}

// ranks reports whether this peer may use path knowledge. Only peers in an AS vote in its name.
func (g *admission) ranks(r request) bool { return g.cfg.Paths && r.from.IsSCION() && !r.claimed }

// candidates is how many peers to get from the store, for guide to choose from.
func candidates(v swarm.Visit, order wire.Order) int {
	if order == wire.Random {
		return v.Want
	}
	return max(v.Want, min(candidatesFor*v.Want, mostCandidates))
}

// guide reduces the peers of an answer to want, in the order that the peer asked for, and adds
// hints.
func (p *paths) guide(r request, a *wire.Announce, want int, out *wire.Answer) {
	now, self := time.Now(), r.from.IA
	p.base.Meet(now, append(asesOf(out.Peers), self)...)
	out.Reports = wire.MaxReports
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	if a.Peers != wire.Random {
		distance := func(ia pathsel.IA) (time.Duration, bool) { return p.base.Distance(now, self, ia) }
		out.Peers = knowledge.Choose(out.Peers, want, a.Peers, distance, random)
	}
	if a.Hints {
		out.Hints = p.base.Hints(now, self, asesOf(out.Peers), hintsEach, random)
	}
}

// asesOf are the ASes of the peers on SCION.
func asesOf(peers []wire.Peer) (out []pathsel.IA) {
	for _, x := range peers {
		if x.Addr.IsSCION() {
			out = append(out, x.Addr.IA)
		}
	}
	return out
}

// learn reads the reports of an announce. It ignores those that come too often.
func (s *Server) learn(w http.ResponseWriter, r *http.Request, from request) error {
	if !s.admission.Load().ranks(from) {
		return nil
	}
	// If this deadline cannot be set, the server's timeouts still hold.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyPatience))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, wire.MaxReportBody))
	if e := (*http.MaxBytesError)(nil); errors.As(err, &e) {
		return &wire.Failure{Reason: fmt.Sprintf("%s: more than %d bytes", wire.ReportsRefused, e.Limit)}
	}
	if err != nil {
		return &wire.Failure{Reason: wire.ReportsRefused + ": the announce ends too early"}
	}
	reports, err := wire.ParseReports(body)
	if err != nil {
		return err
	}
	now, taken, p := time.Now(), 0, s.paths
	if p.hosts.take(swarm.HostOf(from.from), reportsPerHost, now) &&
		p.ases.take(swarm.Origin{IA: from.from.IA}, reportsPerAS, now) {
		taken = p.base.Report(now, from.from, reports)
	}
	s.metrics.reports.Add(float64(taken))
	s.metrics.passedOver.Add(float64(len(reports) - taken))
	return nil
}
