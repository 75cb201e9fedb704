package knowledgebench

import (
	_ "embed"
	"encoding/csv"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"braid/pathsel"
	"braid/pathsel/sim"
)

//go:embed aws16-one-way-delay-ms.csv
var regionDelays string

// regions are places with mean one-way delays between them, row = from.
type regions struct {
	names []string
	delay [][]time.Duration
}

func readRegions() regions {
	rows, err := csv.NewReader(strings.NewReader(regionDelays)).ReadAll()
	if err != nil {
		panic(err) // the table is ours, and tested
	}
	r := regions{names: rows[0][1:]}
	for _, row := range rows[1:] {
		var line []time.Duration
		for _, s := range row[1:] {
			ms, _ := strconv.ParseFloat(s, 64) // a test looks at each
			line = append(line, time.Duration(ms*float64(time.Millisecond)))
		}
		r.delay = append(r.delay, line)
	}
	return r
}

// world has an AS in each region and a link between any two of them. The delay of a link is the
// mean of both directions, its rate is random, and it announces neither.
type world struct {
	regions
	links [][]sim.Link
	seed  uint64
}

// slowest and fastest bound the rates of links in Mbit/s, whose logarithms are uniformly
// distributed.
const slowest, fastest = 3, 48

func newWorld(r regions, seed uint64, random *rand.Rand) *world {
	w := &world{regions: r, links: make([][]sim.Link, len(r.names)), seed: seed}
	for a := range r.names {
		w.links[a] = make([]sim.Link, len(r.names))
		for b := range a {
			rate := slowest * math.Pow(fastest/slowest, random.Float64())
			l := sim.NewLink(w.as(a), w.as(b), uint64(1+a*len(r.names)+b), rate, (r.delay[a][b]+r.delay[b][a])/2)
			w.links[a][b] = l
			l.A, l.B = l.B, l.A
			w.links[b][a] = l
		}
	}
	return w
}

func (w *world) as(n int) pathsel.IA { return pathsel.IA(1<<48 | 0xff00_0000_0000 | uint64(0x100+n)) }

// paths returns the direct path and paths over one other AS, at most so many, in the order of a
// lookup: by hops.
func (w *world) paths(from, to, most int) []pathsel.Path {
	all := []pathsel.Path{sim.PathOver(w.links[from][to])}
	for k := range w.names {
		if k != from && k != to && len(all) < most {
			all = append(all, sim.PathOver(w.links[from][k], w.links[k][to]))
		}
	}
	for i := range all {
		all[i].Bandwidth, all[i].Latency, all[i].LatencyKnown = 0, 0, false
	}
	return all
}

// linksOf returns the links of some paths.
func (w *world) linksOf(paths ...[]pathsel.Path) []sim.Link {
	used := map[pathsel.Interface]bool{}
	for _, some := range paths {
		for _, p := range some {
			for _, i := range p.Interfaces {
				used[i] = true
			}
		}
	}
	var out []sim.Link
	for a := range w.names {
		for b := range a {
			if l := w.links[a][b]; used[l.A] && used[l.B] {
				out = append(out, l)
			}
		}
	}
	return out
}

// leech simulates a download that has the network to itself.
func (w *world) leech(c sim.Client) sim.ClientResult {
	return sim.Run(sim.Scenario{
		Links: w.linksOf(c.Peers...), Clients: []sim.Client{c}, Duration: length, Seed: w.seed, Tick: tick,
	})[0]
}

// alone returns the rate of a download over that path only, in bits per second, in its first
// minute. On a long path that is much less than its links carry.
func (w *world) alone(p pathsel.Path) float64 {
	one := [][]pathsel.Path{{p}}
	c := sim.Client{MaxPaths: 1, Peers: one, Selector: selector("first")}
	s := sim.Scenario{Links: w.linksOf(one...), Clients: []sim.Client{c}, Duration: time.Minute, Seed: 1}
	return sim.Run(s)[0].Rate(0, time.Minute)
}

func (w *world) number(ia pathsel.IA) int { return int(ia&0xfff) - 0x100 }
