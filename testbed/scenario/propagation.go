package scenario

import (
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"
)

// How pieces spread through a swarm, compared with the delays of the shortest ways (the relative
// delay penalty of overlay networks).
//
// No event says when a seed first sent a piece. Times count from the latest possible moment: the
// shortest delay before the first leecher had the piece. Pieces that the seed sent before each
// leecher had its first piece do not count, since they show how leechers start.

// spreading is one piece: for each leecher the seconds since the seed sent it, and the least
// possible.
type spreading struct{ actual, least []float64 }

// spreadings returns the pieces that count. Each leecher that stayed to the end has them.
func (r *Record) spreadings() []spreading {
	type key struct {
		torrent string
		piece   int
	}
	var there []*Leecher
	var allStarted float64
	for _, l := range r.Leechers {
		if !l.Complete || len(l.pieces) == 0 {
			continue
		}
		there = append(there, l)
		first := math.Inf(1)
		for _, p := range l.pieces {
			first = min(first, p.T)
		}
		allStarted = max(allStarted, first)
	}
	came := map[key]map[string]float64{} // by leecher
	for _, l := range there {
		for _, p := range l.pieces {
			k := key{p.InfoHash, p.Piece}
			if came[k] == nil {
				came[k] = map[string]float64{}
			}
			if t, ok := came[k][l.Name]; !ok || p.T < t {
				came[k][l.Name] = p.T
			}
		}
	}
	var out []spreading
	for _, at := range came {
		if len(at) < len(there) || len(there) < 2 {
			continue
		}
		sent := math.Inf(1)
		for _, l := range there {
			sent = min(sent, at[l.Name]-l.delay)
		}
		if sent < allStarted {
			continue
		}
		var s spreading
		for _, l := range there {
			s.actual, s.least = append(s.actual, at[l.Name]-sent), append(s.least, l.delay)
		}
		out = append(out, s)
	}
	return out
}

// addPropagation adds to the figures of a swarm how pieces spread.
func (r *Record) addPropagation(figures map[string]float64) {
	if !r.feed {
		return
	}
	var took, penalty, last []float64
	for _, s := range r.spreadings() {
		took = append(took, s.actual...)
		for i, d := range s.least {
			if d > 0 {
				penalty = append(penalty, s.actual[i]/d)
			}
		}
		if d := slices.Max(s.least); d > 0 {
			last = append(last, slices.Max(s.actual)/d)
		}
	}
	add := func(name string, values []float64, part float64) {
		if len(values) > 0 {
			slices.Sort(values)
			figures[name] = stat.Quantile(part, stat.Empirical, values, nil)
		}
	}
	add("propagation", took, 0.5)
	add("propagation-95", took, 0.95)
	add("delay-penalty", penalty, 0.5)
	add("delay-penalty-95", penalty, 0.95)
	add("last-penalty", last, 0.5)
	if d := r.Scenario.degree(); d > 0 {
		figures["degree"] = d
	}
}

// seedDelay returns the least delay in seconds from a seed to a peer's AS; 0 if no links lead
// there.
func (s Scenario) seedDelay(p Peer) float64 {
	var all []time.Duration
	delay := delays(s.topology, p.AS)
	for _, x := range s.Peers {
		if d, ok := delay[x.AS]; ok && x.Role == Seed {
			all = append(all, d)
		}
	}
	if len(all) == 0 {
		return 0
	}
	return slices.Min(all).Seconds()
}

// degree returns the number of peers that a peer exchanges data with, on average.
func (s Scenario) degree() float64 {
	pairs := 0
	for i, p := range s.Peers {
		for _, x := range s.Peers[:i] {
			if p.Role == Leech && s.exchanges(p, x) {
				pairs++
			}
		}
	}
	return 2 * float64(pairs) / float64(max(1, len(s.Peers)))
}
