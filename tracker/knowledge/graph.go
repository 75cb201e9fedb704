package knowledge

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/anacrolix/generics/heap"

	"braid/pathsel"
)

// Peers measure the round trip of a whole path. The figures of its links follow from the paths that
// share them. Each link begins with an even share of the round trips over it. Then, in several
// rounds, each link gets the remainder: the round trip minus the figures of the other links. It is
// the median over the paths of each AS, and then the median over the ASes. So each AS has one vote,
// however many paths it reports, and a minority of the voters on a link cannot move its figure out
// of the range of the others.

const (
	// rounds is enough for figures to converge. Later changes would be smaller than the variation
	// of paths.
	rounds = 12
	// halfway reduces each step. Without it, two neighbours on a path both take the same remainder,
	// and oscillate.
	halfway = 0.5
	// mostLinks bounds a graph. It leaves out further links, and paths over them.
	mostLinks = 1 << 16
	// confirmed is how many ASes must name a link before other ASes use it. A single one could
	// invent short cuts.
	confirmed = 2
	// mostStops bounds the stops on the ways from all ASes, of 150 bytes each. 500 ASes that know
	// the ways to each other fit. Further ASes know no ways until there is a new graph.
	mostStops = 1 << 18
)

// reportedPath is the input of a graph.
type reportedPath struct {
	by  pathsel.IA
	rtt float64 // seconds
	ifs []pathsel.Interface
}

// graph has the known links. Only ways and stopped change after newGraph.
type graph struct {
	links   int
	from    map[pathsel.IA][]edge
	ways    sync.Map     // pathsel.IA -> map[pathsel.IA]stop, a cache
	stopped atomic.Int64 // stops in ways
}

// edge is a link in one direction.
type edge struct {
	out, in pathsel.Interface
	rtt     float64    // seconds
	by      pathsel.IA // the only AS that named it; 0: several did
}

// use is a path over a link.
type use struct {
	path int32
	by   pathsel.IA
}

type linkID struct{ a, b pathsel.Interface }

func compareInterfaces(x, y pathsel.Interface) int {
	return cmp.Or(cmp.Compare(x.IA, y.IA), cmp.Compare(x.ID, y.ID))
}

// linkOf is the same for both directions of a link.
func linkOf(out, in pathsel.Interface) linkID {
	if compareInterfaces(out, in) > 0 {
		out, in = in, out
	}
	return linkID{out, in}
}

func newGraph(paths []reportedPath) *graph {
	// The order decides which links are left out, and how sums round. Sorting makes the result
	// reproducible.
	slices.SortFunc(paths, func(x, y reportedPath) int {
		return cmp.Or(cmp.Compare(x.by, y.by), slices.CompareFunc(x.ifs, y.ifs, compareInterfaces))
	})
	index := map[linkID]int32{}
	var names []linkID
	var uses [][]use
	over := make([][]int32, len(paths)) // the links of each path
	for i, p := range paths {
		for k := 0; k+1 < len(p.ifs); k += 2 {
			id := linkOf(p.ifs[k], p.ifs[k+1])
			at, known := index[id]
			if !known {
				if len(names) == mostLinks {
					break
				}
				at = int32(len(names))
				index[id] = at
				names, uses = append(names, id), append(uses, nil)
			}
			over[i] = append(over[i], at)
		}
		if 2*len(over[i]) < len(p.ifs) {
			over[i] = nil
		}
		for _, at := range over[i] {
			uses[at] = append(uses[at], use{int32(i), p.by})
		}
	}
	figures := make([]float64, len(names))
	evenShare := func(_ int32, u use) float64 { return paths[u.path].rtt / float64(len(over[u.path])) }
	for at := range figures {
		figures[at] = consensus(int32(at), uses[at], evenShare)
	}
	remainder := func(at int32, u use) float64 {
		rest := paths[u.path].rtt
		for _, other := range over[u.path] {
			if other != at {
				rest -= figures[other]
			}
		}
		return max(0, rest)
	}
	for range rounds {
		for at := range figures {
			figures[at] += halfway * (consensus(int32(at), uses[at], remainder) - figures[at])
		}
	}
	g := &graph{links: len(names), from: map[pathsel.IA][]edge{}}
	for at, l := range names {
		if len(uses[at]) == 0 {
			continue
		}
		e := edge{out: l.a, in: l.b, rtt: figures[at]}
		if voters(uses[at]) < confirmed {
			e.by = uses[at][0].by
		}
		g.from[l.a.IA] = append(g.from[l.a.IA], e)
		e.out, e.in = l.b, l.a
		g.from[l.b.IA] = append(g.from[l.b.IA], e)
	}
	return g
}

// voters counts the ASes that named a link. Its uses are sorted by AS.
func voters(of []use) int {
	n := 0
	for i := range of {
		if i == 0 || of[i].by != of[i-1].by {
			n++
		}
	}
	return n
}

// consensus is the median over the ASes of the median of their figures for the link.
func consensus(at int32, of []use, figure func(int32, use) float64) float64 {
	var own, votes []float64
	for i, u := range of {
		own = append(own, figure(at, u))
		if i+1 == len(of) || of[i+1].by != u.by {
			votes = append(votes, middle(own))
			own = own[:0]
		}
	}
	return middle(votes)
}

// middle is the median, which may be the mean of the two in the middle, or 0 if there is none. It
// sorts its argument.
func middle(x []float64) float64 {
	n := len(x)
	if n == 0 {
		return 0
	}
	slices.Sort(x)
	return (x[(n-1)/2] + x[n/2]) / 2
}

// stop is an AS on the shortest way from another one.
type stop struct {
	rtt  float64
	last edge // zero in the first AS
}

// distance is the sum of the round trips of the links on the shortest way.
func (g *graph) distance(src, dst pathsel.IA) (rtt float64, known bool) {
	s, known := g.stops(src)[dst]
	return s.rtt, known
}

// way are the interfaces on the shortest known way, or nil. SCION need not have such a path.
func (g *graph) way(src, dst pathsel.IA) []pathsel.Interface {
	stops := g.stops(src)
	var out []pathsel.Interface
	for at := dst; at != src; {
		s, known := stops[at]
		if !known {
			return nil
		}
		out = append(out, s.last.in, s.last.out)
		at = s.last.out.IA
	}
	slices.Reverse(out)
	return out
}

// stops are the shortest ways from an AS (Dijkstra's algorithm).
func (g *graph) stops(src pathsel.IA) map[pathsel.IA]stop {
	if len(g.from[src]) == 0 {
		return nil
	}
	if known, ok := g.ways.Load(src); ok {
		return known.(map[pathsel.IA]stop)
	}
	if g.stopped.Load() >= mostStops {
		return nil
	}
	done, reachable := map[pathsel.IA]stop{}, []arrival{{at: src}}
	open := heap.InterfaceForSlice(&reachable, arrival.before)
	for len(reachable) > 0 {
		next := heap.Pop(open)
		if _, was := done[next.at]; was {
			continue
		}
		done[next.at] = next.stop
		for _, e := range g.from[next.at] {
			if _, was := done[e.in.IA]; !was && (e.by == 0 || e.by == src) {
				heap.Push(open, arrival{e.in.IA, stop{next.rtt + e.rtt, e}})
			}
		}
	}
	g.stopped.Add(int64(len(done)))
	g.ways.Store(src, done)
	return done
}

// arrival is a reachable AS.
type arrival struct {
	at pathsel.IA
	stop
}

// before reports whether this AS is nearer than the other one. Ties have a fixed order.
func (a arrival) before(b arrival) bool {
	return cmp.Or(cmp.Compare(a.rtt, b.rtt), cmp.Compare(a.at, b.at), compareInterfaces(a.last.out, b.last.out)) < 0
}
