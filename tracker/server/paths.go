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

	"github.com/prometheus/client_golang/prometheus"

	"braid/pathsel"
	"braid/tracker/knowledge"
	"braid/tracker/swarm"
	"braid/tracker/wire"
)

// Path knowledge: peers on SCION report what they have measured of paths, and are told whom and what to try first. It is for announces
// over SCION only, and where a peer's AS is proven. Where the store is a keeper it outlives the tracker, and trackers that share the
// store share it.
type paths struct {
	base          *knowledge.Base
	keeper        swarm.Keeper // nil: there is none
	log           *slog.Logger
	version       uint64 // of the base, when it was kept last; belongs to exchange
	failing       bool   // the last exchange has failed; belongs to exchange
	hosts, ases   limiter
	taken, passed prometheus.Counter
}

const (
	// reportsPerHost and reportsPerAS bound announces with reports, a second in the long run. A peer has something new to say
	// every few minutes, in each of its torrents.
	reportsPerHost, reportsPerAS = 0.2, 50
	// bodyPatience is how long a peer may take to send its reports.
	bodyPatience = 5 * time.Second
	// candidatesFor each peer that is asked for are looked at, mostCandidates in all: the nearest of them are near enough,
	// also where the swarm is larger.
	candidatesFor, mostCandidates = 8, 1000
	// hintsEach is how many paths are named to each AS: all that are known, as a rule.
	hintsEach = wire.MaxHints
	// refreshEvery is how old the figures of links may be.
	refreshEvery = 10 * time.Second
	// keepEvery is how much of it a crash forgets, and how old what other trackers know may be.
	keepEvery = time.Minute
)

func newPaths(store swarm.Store, log *slog.Logger) *paths {
	p := &paths{base: knowledge.New(knowledge.Limits{}), log: log}
	p.keeper, _ = store.(swarm.Keeper)
	p.hosts.init(limiterSlots)
	p.ases.init(limiterSlots)
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "braid_tracker", Name: name, Help: help})
	}
	p.taken = counter("path_reports_total", "Path reports that were taken.")
	p.passed = counter("path_reports_passed_over_total", "Path reports that came too often, or from or to where they may not.")
	return p
}

// Collect implements prometheus.Collector, with Describe.
func (p *paths) Collect(ch chan<- prometheus.Metric) {
	k := p.base.Known()
	for name, n := range map[string]int{"pairs": k.Pairs, "paths": k.Paths, "links": k.Links} {
		ch <- prometheus.MustNewConstMetric(describe("known_"+name, "Path knowledge: "+name+" that are known."), prometheus.GaugeValue, float64(n))
	}
	p.taken.Collect(ch)
	p.passed.Collect(ch)
}

// Describe implements prometheus.Collector.
func (p *paths) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(p, ch) }

// run keeps the figures of links up to date, and what is known in the store if on says so, until the context ends.
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

// exchange takes in what the store has of earlier times and of other trackers, and keeps there what is known here.
func (p *paths) exchange(ctx context.Context, on bool) {
	if p.keeper == nil || !on {
		return
	}
	err := func() error {
		notes, err := p.keeper.Kept(ctx)
		for _, note := range notes {
			if _, e := p.base.Merge(time.Now(), note); e != nil {
				p.log.Warn("what the store has of path knowledge is not used", "error", e)
			}
		}
		if err != nil {
			return err
		}
		note, version := p.base.Snapshot(p.version)
		if note == nil {
			return nil
		}
		if err := p.keeper.Keep(ctx, note, knowledge.DefaultForget); err != nil {
			return err
		}
		p.version = version
		return nil
	}()
	if err != nil && !p.failing && ctx.Err() == nil { // said once
		p.log.Warn("path knowledge is not kept until the store works again", "error", err)
	}
	p.failing = err != nil
}

// ranks tells whether path knowledge is for this peer. A vote in the name of an AS is for those who are in it.
func (g *gate) ranks(r request) bool { return g.cfg.Paths && r.from.IsSCION() && !r.claimed }

// candidates is how many peers to ask the store for, of which guide chooses.
func candidates(v swarm.Visit, order wire.Order) int {
	if order == wire.Random {
		return v.Want
	}
	return max(v.Want, min(candidatesFor*v.Want, mostCandidates))
}

// guide puts what is known into an answer: want of its peers, the near ones first if the peer wants that, and hints.
func (p *paths) guide(r request, a *wire.Announce, want int, out *wire.Answer) {
	now, self := time.Now(), r.from.IA
	ases := []pathsel.IA{self}
	for _, x := range out.Peers {
		if x.Addr.IsSCION() {
			ases = append(ases, x.Addr.IA)
		}
	}
	p.base.Meet(now, ases...)
	out.Reports = wire.MaxReports
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	if a.Peers != wire.Random {
		out.Peers = knowledge.Choose(out.Peers, want, a.Peers, func(ia pathsel.IA) (time.Duration, bool) { return p.base.Distance(now, self, ia) }, random)
	}
	if !a.Hints {
		return
	}
	var to []pathsel.IA
	for _, x := range out.Peers {
		if x.Addr.IsSCION() {
			to = append(to, x.Addr.IA)
		}
	}
	out.Hints = p.base.Hints(now, self, to, hintsEach, random)
}

// learn reads the reports that come with an announce. Those that come too often are passed over.
func (s *Server) learn(w http.ResponseWriter, r *http.Request, from request) error {
	if !s.gate.Load().ranks(from) {
		return nil
	}
	// Where it cannot be set, the connection's own bounds hold.
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
	now, taken := time.Now(), 0
	if s.paths.hosts.take(limitKey{from.from.IA, block(from.from)}, reportsPerHost, now) && s.paths.ases.take(limitKey{ia: from.from.IA}, reportsPerAS, now) {
		taken = s.paths.base.Report(now, from.from, reports)
	}
	s.paths.taken.Add(float64(taken))
	s.paths.passed.Add(float64(len(reports) - taken))
	return nil
}

// PathStats are what /stats shows of path knowledge.
type PathStats struct {
	Enabled bool `json:"enabled"`
	knowledge.Known
	Reports    uint64 `json:"reports"`
	PassedOver uint64 `json:"passed_over"`
}

func (s *Server) pathStats() PathStats {
	return PathStats{s.gate.Load().cfg.Paths, s.paths.base.Known(), value(s.paths.taken), value(s.paths.passed)}
}
