// Package knowledgebench measures the value of path knowledge (braid-testbed bench knowledge): how much
// sooner a download has its first piece, its best set of paths, and all of its data, if the tracker
// names near peers and good paths.
//
// The network and the downloads are simulated (pathsel/sim) with the default selector, between 16
// regions with measured delays and random rates. The tracker's own code learns from reports and
// gives hints. There are two experiments:
//
//	peers  Leechers in all regions come one after another. Each takes four of the seeds in the
//	       other regions: random ones, the nearest, or half and half.
//	paths  Several leechers in one region come one after another. They have one seed with 15
//	       paths, and each may use two at a time. Nth counts the leechers; all earlier ones
//	       have reported.
//
// Each leecher has the network to itself, so the benchmark measures the value of knowledge and not
// of sharing.
package knowledgebench

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"gonum.org/v1/gonum/stat"

	"braid/pathsel"
	"braid/pathsel/sim"
	"braid/testbed/bench"
	"braid/tracker/knowledge"
	"braid/tracker/wire"
)

// Config of a run.
type Config struct {
	// Worlds is the number of networks with different random rates; Seed determines all of them.
	Worlds int
	Seed   uint64

	rounds, pairs int // of peers and of paths; tests have fewer
}

// Row is the result of one case.
type Row struct {
	Experiment string `json:"experiment"` // peers, paths
	Order      string `json:"peer_order,omitempty"`
	Hints      string `json:"hints"` // off, on, lies
	Nth        string `json:"nth"`   // which leechers
	Runs       int    `json:"runs"`
	// Seconds until the first piece (256 KiB), until the two best paths are in use (paths only),
	// and until all of the data. An event that did not happen counts as the length of the run.
	First   Spread `json:"first_piece_s"`
	BestSet Spread `json:"best_set_s,omitzero"`
	Done    Spread `json:"done_s"`
	// Early is the payload of the first 30 s in Mbit/s.
	Early Spread `json:"first_30s_mbit_s"`
}

// Spread is the median and the 90th percentile.
type Spread struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
}

const (
	piece = 256 << 10
	// length ends a run in which a download does not.
	length = 4 * time.Minute
	// tick is shorter than the client's, since the client also acts on events.
	tick = 50 * time.Millisecond
	// apart is the time between two leechers.
	apart = 3 * time.Minute
	// enough: a set of paths counts as the best one if it has this part of the rate of the two best
	// paths, because some paths are almost equal.
	enough = 0.9
)

var epoch = time.Unix(1e9, 0)

// sample is one leecher.
type sample struct {
	first, best, done, early float64
}

func row(r Row, of []sample) Row {
	spread := func(figure func(sample) float64) Spread {
		x := bench.Figures(of, figure)
		return Spread{bench.Median(of, figure), stat.Quantile(0.9, stat.Empirical, x, nil)}
	}
	r.Runs = len(of)
	r.First = spread(func(s sample) float64 { return s.first })
	r.Done = spread(func(s sample) float64 { return s.done })
	r.Early = spread(func(s sample) float64 { return s.early })
	if r.Experiment == "paths" {
		r.BestSet = spread(func(s sample) float64 { return s.best })
	}
	return r
}

// Run simulates all cases and calls result with each row.
func Run(ctx context.Context, cfg Config, result func(Row)) error {
	cfg.rounds, cfg.pairs = cmp.Or(cfg.rounds, 3), cmp.Or(cfg.pairs, 4)
	r := readRegions()
	var worlds []*world
	for n := range cfg.Worlds {
		random := rand.New(rand.NewPCG(cfg.Seed, uint64(n)))
		worlds = append(worlds, newWorld(r, cfg.Seed+uint64(n), random))
	}
	for _, order := range []wire.Order{wire.Random, wire.Mixed, wire.Nearest} {
		for _, hints := range []string{"off", "on"} {
			got, err := each(ctx, worlds, func(w *world) [][]sample {
				return w.peers(cfg.rounds, order, hints == "on")
			})
			if err != nil {
				return err
			}
			r := Row{Experiment: "peers", Order: order.String(), Hints: hints, Nth: "first of each region"}
			result(row(r, got[0]))
			if later := slices.Concat(got[1:]...); len(later) > 0 {
				r.Nth = "second and third"
				result(row(r, later))
			}
		}
	}
	for _, hints := range []string{"off", "on", "lies"} {
		got, err := each(ctx, worlds, func(w *world) [][]sample { return w.pairs(cfg.pairs, hints) })
		if err != nil {
			return err
		}
		for nth, of := range got {
			if slices.Contains([]int{1, 2, 3, 5, 10}, nth+1) {
				result(row(Row{Experiment: "paths", Hints: hints, Nth: fmt.Sprint(nth + 1)}, of))
			}
		}
	}
	return nil
}

// each runs an experiment in every world, on all processors, and joins the results.
func each(ctx context.Context, worlds []*world, play func(*world) [][]sample) ([][]sample, error) {
	all := make([][][]sample, len(worlds))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for n, w := range worlds {
		g.Go(func() error {
			if ctx.Err() == nil {
				all[n] = play(w)
			}
			return ctx.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var out [][]sample
	for _, got := range all {
		for i, of := range got {
			if i == len(out) {
				out = append(out, nil)
			}
			out[i] = append(out[i], of...)
		}
	}
	return out, nil
}

func hostOf(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}) }

// peers is the experiment of that name. Every region has a leecher in each round.
func (w *world) peers(rounds int, order wire.Order, hints bool) (results [][]sample) {
	const wanted, seedsEach, pathsEach, size = 4, 2, 4, 50e6
	random := rand.New(rand.NewPCG(w.seed, 1))
	base := knowledge.New()
	var all []wire.Peer
	for n := range w.names {
		for k := range seedsEach {
			all = append(all, wire.Peer{Addr: wire.Addr{IA: w.as(n), Host: hostOf(k), Port: 1}})
		}
	}
	now := epoch
	for round := range rounds {
		var of []sample
		for _, self := range random.Perm(len(w.names)) {
			base.Meet(now, iasOf(all)...)
			others := slices.DeleteFunc(slices.Clone(all), func(p wire.Peer) bool { return p.Addr.IA == w.as(self) })
			distance := func(ia pathsel.IA) (time.Duration, bool) { return base.Distance(now, w.as(self), ia) }
			told := knowledge.Choose(others, wanted, order, distance, random)
			c := sim.Client{
				MaxPaths: 2, Size: size, Piece: piece, Seed: random.Uint64(), Selector: selector("adaptive"),
			}
			for _, p := range told {
				c.Peers = append(c.Peers, w.paths(self, w.number(p.Addr.IA), pathsEach))
			}
			if hints {
				c.Hints = base.Hints(now, w.as(self), iasOf(told), wire.MaxHints, random)
			}
			r := w.leech(c)
			base.Report(now.Add(length), wire.Addr{IA: w.as(self), Host: hostOf(round)}, reportsOf(r.Last))
			now = now.Add(apart)
			base.Refresh(now)
			of = append(of, measured(r))
		}
		results = append(results, of)
	}
	return results
}

// pairs is the experiment "paths": for some pairs of regions, leechers with one seed.
func (w *world) pairs(pairs int, hints string) [][]sample {
	const leechers, size = 10, 100e6
	random := rand.New(rand.NewPCG(w.seed, 2))
	out := make([][]sample, leechers)
	for range pairs {
		from, to := random.IntN(len(w.names)), random.IntN(len(w.names)-1)
		if to >= from {
			to++
		}
		paths := w.paths(from, to, len(w.names))
		rates := map[pathsel.Fingerprint]float64{}
		for _, p := range paths {
			rates[p.Fingerprint] = w.alone(p)
		}
		byRate := slices.SortedFunc(maps.Keys(rates), func(p, q pathsel.Fingerprint) int {
			return cmp.Or(cmp.Compare(rates[q], rates[p]), cmp.Compare(p, q))
		})
		base := knowledge.New()
		now := epoch
		for n := range leechers {
			base.Meet(now, w.as(from), w.as(to))
			c := sim.Client{
				MaxPaths: 2, Size: size, Piece: piece, Seed: random.Uint64(), Selector: selector("adaptive"),
				Peers: [][]pathsel.Path{paths},
			}
			switch hints {
			case "on":
				c.Hints = base.Hints(now, w.as(from), []pathsel.IA{w.as(to)}, wire.MaxHints, random)
			case "lies": // the worst first
				c.Hints = pathsel.Hints{}
				for _, p := range slices.Backward(byRate[len(byRate)-8:]) {
					c.Hints[w.as(to)] = append(c.Hints[w.as(to)], pathsel.Hint{Path: p})
				}
			}
			r := w.leech(c)
			base.Report(now.Add(length), wire.Addr{IA: w.as(from), Host: hostOf(n)}, reportsOf(r.Last))
			now = now.Add(apart)
			base.Refresh(now)
			s := measured(r)
			s.best = bestSet(r, rates, enough*(rates[byRate[0]]+rates[byRate[1]]))
			out[n] = append(out[n], s)
		}
	}
	return out
}

// selector returns one of pathsel's selectors.
func selector(name string) pathsel.Selector {
	s, err := pathsel.New(name)
	if err != nil {
		panic(err) // the name is a constant
	}
	return s
}

func iasOf(peers []wire.Peer) (out []pathsel.IA) {
	for _, p := range peers {
		out = append(out, p.Addr.IA)
	}
	return out
}

func measured(r sim.ClientResult) sample {
	// An event that did not happen counts as the length of the run.
	s := sample{first: cmp.Or(r.First, length).Seconds(), done: cmp.Or(r.Done, length).Seconds()}
	early := 30 * time.Second
	if r.Done > 0 {
		early = min(early, r.Done.Truncate(time.Second))
	}
	if early > 0 {
		s.early = r.Rate(0, early) / 1e6
	}
	return s
}

// bestSet returns when the paths in use first had a rate of want together, counting for each path
// the rate it has alone.
func bestSet(r sim.ClientResult, rates map[pathsel.Fingerprint]float64, want float64) float64 {
	in := map[pathsel.Fingerprint]bool{}
	for _, e := range r.Events {
		switch e.Action {
		case pathsel.Open, pathsel.Return, pathsel.Probe:
			in[e.Key.Path] = true
		default:
			delete(in, e.Key.Path)
		}
		sum := 0.0
		for f := range in {
			sum += rates[f]
		}
		if sum >= want {
			return e.At.Seconds()
		}
	}
	return length.Seconds()
}

// reportsOf returns a client's measurements of its paths.
func reportsOf(v pathsel.View) (out []wire.PathReport) {
	for _, c := range v.Candidates {
		rate, until := pathsel.Latest(c.Slots)
		rtt := c.Handshake / 2 // a handshake is two round trips
		r := wire.PathReport{Interfaces: c.Path.Interfaces, Rate: int64(rate.Rate), RTT: rtt}
		switch {
		case c.Handshake == 0:
			continue
		case len(c.Slots) > 0:
			r.RTT = c.Slots[len(c.Slots)-1].MinRTT
			r.Age = v.Now.Sub(until).Truncate(time.Second)
		}
		out = append(out, r)
	}
	return out
}
