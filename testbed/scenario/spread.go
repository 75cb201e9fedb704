package scenario

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize/convex/lp"

	"braid/pathsel"
	"braid/testbed"
)

// How fast data can spread from seeds to leechers that pass it on to each other.
//
// A leecher can pass its data on, so the rate at which all get data is not a sum over paths. If all
// want the same data, the highest rate R for all is the largest for which each
// leecher alone could get a flow R from the seeds over all other peers (Edmonds 1973). So there are
// rates x between pairs that the links can carry, such that no set of peers with a seed is cut off
// from a leecher by less than R. This is a linear programme with a row for each cut. The few cuts
// that matter are found one after another: each is the least cut for the rates found so far.
//
// T* = F / R is the least time in which F can be transferred, however small the pieces.

// overlay is a way on which one peer can send payload to another.
type overlay struct {
	from, to string
	route
}

// findRoutes looks up and writes the ways between peers that exchange data.
func (a *attempt) findRoutes(ctx context.Context) error {
	for i, p := range a.Peers {
		if p.Role != Leech {
			continue
		}
		for _, s := range a.Peers[:i] {
			if !a.exchanges(p, s) {
				continue
			}
			there, err := a.routesBetween(ctx, s, p)
			if err != nil {
				return fmt.Errorf("find what %s can use: %w", p.Name, err)
			}
			for _, r := range there {
				a.writer.write(Line{Kind: "path", What: p.Name, To: s.Name, route: r})
			}
		}
	}
	return nil
}

// routesBetween returns the ways of payload from s to p, over any path between their ASes. Inside
// one AS there is one way without links.
func (a *attempt) routesBetween(ctx context.Context, s, p Peer) ([]route, error) {
	if s.AS == p.AS {
		return []route{{Share: 1}}, nil
	}
	if p.onIP() {
		r, err := ipRouteOf(a.ip, p.Transport, s.AS, p.AS)
		return []route{r}, err
	}
	host, err := a.host(ctx, p.AS)
	if err != nil {
		return nil, err
	}
	paths, err := patiently(ctx, func() ([]pathsel.Path, error) { return host.Paths(ctx, s.AS) })
	if err != nil {
		return nil, err
	}
	var out []route
	for _, path := range paths {
		r, err := routeOf(a.network.Topology(), path, true)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// patiently repeats a question that fails, for a while. With many ASes on few processors, control
// services answer late for some seconds after their start.
func patiently[T any](ctx context.Context, ask func() (T, error)) (v T, err error) {
	const times, between = 5, 2 * time.Second
	for i := 1; ; i++ {
		if v, err = ask(); err == nil || i == times {
			return v, err
		}
		if testbed.Sleep(ctx, between) != nil {
			return v, err
		}
	}
}

// addSpread adds the figures of a swarm to those of a run: the limit T*, and the time divided by it.
func (r *Record) addSpread(figures map[string]float64) {
	if !r.feed {
		return
	}
	s := r.Scenario
	seeds, receivers := map[string]bool{}, []string(nil)
	for _, p := range s.Peers {
		if seeds[p.Name] = p.Role == Seed; p.Role == Leech && p.Stop == nil && p.Crash == nil {
			receivers = append(receivers, p.Name)
		}
	}
	separate := slices.ContainsFunc(s.Peers, func(p Peer) bool { return s.torrentsOf(p) < s.Torrents })
	if len(s.Events)+len(s.Traffic) > 0 || len(receivers) == 0 || s.throttled() || separate {
		return // no one rate holds all the time or for all, or not the links' alone
	}
	rate := spreadRate(r.overlay, func(n string) bool { return seeds[n] }, receivers, r.states[0].capacity)
	if rate > 0 { // else there is no limit, or a link is down from the start
		figures["t-star"] = float64(s.Torrents) * float64(s.Size) * 8 / rate
		figures["over-t-star"] = figures["seconds"] / figures["t-star"]
	}
}

// throttled tells whether a peer limits its rate.
func (s Scenario) throttled() bool {
	limits := func(arg string) bool { return arg == "--upload-rate" || strings.HasPrefix(arg, "--upload-rate=") }
	return slices.ContainsFunc(s.Peers, func(p Peer) bool { return slices.ContainsFunc(p.Args, limits) })
}

// spreadRate returns the rate R, described above, in bits of payload per second. It returns NaN if
// some way has no link with a rate, or if too many cuts matter.
func spreadRate(
	ways []overlay, isSeed func(string) bool, receivers []string, capacity map[pathsel.Interface]float64,
) float64 {
	node, n := nodesOf(ways, isSeed, receivers)
	var arcs []arc
	var used []route
	for _, w := range ways {
		// Seeds need nothing.
		if x := (arc{node[w.from], node[w.to]}); x.to != 0 && x.from != x.to {
			if !w.hasLimit(capacity) {
				return math.NaN()
			}
			arcs, used = append(arcs, x), append(used, w.route)
		}
	}
	receivers = slices.DeleteFunc(slices.Clone(receivers), func(r string) bool { return node[r] == 0 })
	if len(receivers) == 0 {
		return math.NaN()
	}
	bounds := boundsOf(used, capacity)
	// A cut says which nodes are on the seeds' side. The first cuts are the seeds alone, and all
	// nodes but one. Without the latter, the programmes of a large swarm take minutes.
	only := make([]bool, n)
	only[0] = true
	cuts := [][]bool{only}
	for _, r := range receivers {
		c := slices.Repeat([]bool{true}, n)
		c[node[r]] = false
		cuts = append(cuts, c)
	}
	const slack = 1e-6
	for range 1000 {
		rate, rates := mostWithCuts(arcs, bounds, cuts)
		between := make([][]float64, n)
		for i := range between {
			between[i] = make([]float64, n)
		}
		for j, e := range arcs {
			between[e.from][e.to] += rates[j]
		}
		before := len(cuts)
		for _, r := range receivers {
			flow, side := leastCut(between, 0, node[r])
			known := slices.ContainsFunc(cuts, func(c []bool) bool { return slices.Equal(c, side) })
			if flow < rate*(1-slack) && !known {
				cuts = append(cuts, side)
			}
		}
		if len(cuts) == before {
			return rate * mega
		}
	}
	return math.NaN()
}

// arc is a way between two nodes; see nodesOf.
type arc struct{ from, to int }

// mostWithCuts returns the largest R such that rates of the arcs, which it returns too, lead at
// least R out of each cut within the bounds of the links.
func mostWithCuts(arcs []arc, bounds linkBounds, cuts [][]bool) (rate float64, rates []float64) {
	// Variables are the rates of the arcs and R; rows are links and then cuts.
	gain := make([]float64, len(arcs)+1)
	gain[len(arcs)] = 1
	links := len(bounds.rates)
	x := maximise(gain, links+len(cuts), func(a *mat.Dense, b []float64) {
		bounds.fill(a, b)
		for i, c := range cuts {
			a.Set(links+i, len(arcs), 1)
			for j, e := range arcs {
				if c[e.from] && !c[e.to] {
					a.Set(links+i, j, -1)
				}
			}
		}
	})
	return x[len(arcs)], x[:len(arcs)]
}

// nodesOf numbers the peers, below n. All seeds are node 0. Peers that reach each other without a
// link are one node.
func nodesOf(ways []overlay, isSeed func(string) bool, receivers []string) (node map[string]int, n int) {
	node, n = map[string]int{}, 1
	add := func(peer string) {
		if _, ok := node[peer]; !ok && !isSeed(peer) {
			node[peer] = n
			n++
		}
	}
	for _, r := range receivers {
		add(r)
	}
	for _, w := range ways {
		add(w.from)
		add(w.to)
	}
	for merged := true; merged; {
		merged = false
		for _, w := range ways {
			if a, b := node[w.from], node[w.to]; len(w.Links) == 0 && a != b {
				node[w.from], node[w.to], merged = min(a, b), min(a, b), true
			}
		}
	}
	return node, n
}

// maximise returns the variables that gain the most within the upper bounds of the rows that fill
// writes. Equal bounds make a programme degenerate, and the simplex algorithm may fail. Then each
// bound grows by a different amount, as small as possible and no more than rounding. The variables
// are NaN if the algorithm still fails: the figures that need them cannot be measured.
func maximise(gain []float64, rows int, fill func(a *mat.Dense, b []float64)) []float64 {
	vars := len(gain)
	for _, more := range []float64{0, 1e-9, 1e-8, 1e-7, 1e-6} {
		// Each row has a slack, with which the programme starts.
		a := mat.NewDense(rows, vars+rows, nil)
		b, basis, cost := make([]float64, rows), make([]int, rows), make([]float64, vars+rows)
		for i, g := range gain {
			cost[i] = -g
		}
		fill(a, b)
		for i := range rows {
			a.Set(i, vars+i, 1)
			basis[i] = vars + i
			b[i] += more * float64(i+1)
		}
		if _, x, err := lp.Simplex(cost, a, b, 1e-10, basis); err == nil {
			return x
		}
	}
	return slices.Repeat([]float64{math.NaN()}, vars)
}

// leastCut returns the largest flow from s to t, by shortest augmenting paths (Edmonds and Karp
// 1972), and the nodes on the side of s of a least cut.
func leastCut(capacity [][]float64, s, t int) (flow float64, side []bool) {
	const nothing = 1e-9
	n := len(capacity)
	free := make([][]float64, n)
	for i := range free {
		free[i] = slices.Clone(capacity[i])
	}
	for {
		before := slices.Repeat([]int{-1}, n)
		before[s] = s
		for queue := []int{s}; len(queue) > 0; queue = queue[1:] {
			for v, c := range free[queue[0]] {
				if before[v] < 0 && c > nothing {
					before[v] = queue[0]
					queue = append(queue, v)
				}
			}
		}
		if before[t] < 0 {
			side = make([]bool, n)
			for v := range side {
				side[v] = before[v] >= 0
			}
			return flow, side
		}
		most := math.Inf(1)
		for v := t; v != s; v = before[v] {
			most = min(most, free[before[v]][v])
		}
		for v := t; v != s; v = before[v] {
			free[before[v]][v] -= most
			free[v][before[v]] += most
		}
		flow += most
	}
}
