package testbed

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/segment"
	"github.com/scionproto/scion/private/path/combinator"
	"github.com/scionproto/scion/private/segment/segfetcher"

	"braid/pathsel"
)

// Pair is a source AS and a destination AS.
type Pair struct{ Src, Dst pathsel.IA }

// maxSegmentHops is the control service's default limit on the ASes of one path segment. Without it
// the enumeration would also count segments that no beacon ever travels.
const maxSegmentHops = 10

// segments are the path segments that control services know once beaconing has converged. A Pair
// is the core AS where a beacon started and the AS that it reached.
type segments struct {
	core, down map[Pair][]*segment.PathSegment
}

// discover enumerates the segments that beacons discover: loop-free walks along CORE links between
// core ASes, and down CHILD links from the core of one ISD, with the PEER links of every AS on the
// way.
//
// A control service keeps at most bestSetSize segments, the shorter ones first: for each origin in
// a core AS, in all elsewhere. down has one more for each origin, which shows that there are too
// many.
//
// Dense networks have too many walks to count, and their control services could not send the
// beacons either. Then the result is an error.
func discover(t Topology, bestSetSize int) (segments, error) {
	g := newBeaconGraph(t)
	all := segments{map[Pair][]*segment.PathSegment{}, map[Pair][]*segment.PathSegment{}}
	for _, as := range t.ASes {
		if !as.Core {
			continue
		}
		for _, x := range []struct {
			kind LinkType
			most int
			to   map[Pair][]*segment.PathSegment
		}{{Core, bestSetSize, all.core}, {Child, bestSetSize + 1, all.down}} {
			found, err := g.segments(as.IA, x.kind, x.most)
			if err != nil {
				return all, fmt.Errorf("topology %s: %w", t.Name, err)
			}
			for ia, s := range found {
				x.to[Pair{as.IA, ia}] = s
			}
		}
	}
	return all, nil
}

// paths says how many paths SCION's control plane finds for each ordered pair of different ASes. It
// combines segments with scionproto's own combinator, the code a SCION host runs. Where a topology
// has more segments than control services keep, their choice among equals is not known here, and
// the number is a lower bound.
func (all segments) paths(t Topology, bestSetSize int) map[Pair]int {
	up := map[pathsel.IA][]*segment.PathSegment{}
	// cores are the core ASes from which an AS is reached: itself, or where its segments begin.
	cores := map[pathsel.IA][]pathsel.IA{}
	for _, as := range t.ASes {
		if as.Core {
			cores[as.IA] = []pathsel.IA{as.IA}
			continue
		}
		var s []*segment.PathSegment
		for _, core := range t.ASes {
			s = append(s, all.down[Pair{core.IA, as.IA}]...)
		}
		up[as.IA] = shortest(s, bestSetSize)
		for _, s := range up[as.IA] {
			if first := pathsel.IA(s.FirstIA()); !slices.Contains(cores[as.IA], first) {
				cores[as.IA] = append(cores[as.IA], first)
			}
		}
	}
	implied := map[Pair]int{}
	for _, src := range t.ASes {
		for _, dst := range t.ASes {
			if src.IA == dst.IA {
				continue
			}
			var between []*segment.PathSegment
			for _, a := range cores[src.IA] {
				for _, b := range cores[dst.IA] {
					// It is used against the direction of its beacon.
					between = append(between, all.core[Pair{b, a}]...)
				}
			}
			paths := combinator.Combine(addr.IA(src.IA), addr.IA(dst.IA), up[src.IA], between, up[dst.IA], false)
			implied[Pair{src.IA, dst.IA}] = len(paths)
		}
	}
	return implied
}

// survey is a question that the control service of the source can answer from its own database, and
// how many segments it has once beaconing has converged. Such questions are cheap. Lookups like a
// host's make control services fetch segments from each other, and failing fetches would delay the
// start of the network by minutes.
type survey struct {
	segfetcher.Request
	want int
}

// surveys lists the questions whose answers show a converged network: the up segments of every
// non-core AS, and the core and down segments of every core AS.
func (all segments) surveys(t Topology, bestSetSize int) (out []survey) {
	up := map[pathsel.IA]int{}
	for p, s := range all.down {
		up[p.Dst] += len(s)
	}
	ask := func(kind segment.Type, src, dst addr.IA, want int) {
		if want > 0 {
			out = append(out, survey{segfetcher.Request{SegType: kind, Src: src, Dst: dst}, want})
		}
	}
	for _, as := range t.ASes {
		ia := addr.IA(as.IA)
		ask(segment.TypeUp, ia, addr.MustIAFrom(ia.ISD(), 0), min(up[as.IA], bestSetSize))
		for _, other := range t.ASes {
			ask(segment.TypeCore, ia, addr.IA(other.IA), len(all.core[Pair{other.IA, as.IA}]))
			down := len(all.down[Pair{as.IA, other.IA}])
			if down > 0 && up[other.IA] > bestSetSize {
				down = 1 // the other AS registers its best segments of all origins
			}
			ask(segment.TypeDown, ia, addr.IA(other.IA), down)
		}
	}
	return out
}

// wanted sums up the segments that surveys want.
func wanted(surveys []survey) (n int) {
	for _, s := range surveys {
		n += s.want
	}
	return n
}

func shortest(s []*segment.PathSegment, n int) []*segment.PathSegment {
	slices.SortStableFunc(s, func(a, b *segment.PathSegment) int {
		return cmp.Compare(len(a.ASEntries), len(b.ASEntries))
	})
	return s[:min(len(s), n)]
}

// beaconGraph holds for each AS the links on which it sends beacons on, by the type of beaconing,
// and its peering links.
type beaconGraph map[LinkType]map[pathsel.IA][]halfLink

// halfLink is a link seen from one of its ends.
type halfLink struct {
	near, far pathsel.Interface
	mtu       int
}

func newBeaconGraph(t Topology) beaconGraph {
	g := beaconGraph{Core: {}, Child: {}, Peer: {}}
	for _, l := range t.Links {
		a, b := l.A.Interface, l.B.Interface
		g[l.Type][a.IA] = append(g[l.Type][a.IA], halfLink{a, b, l.MTU})
		if l.Type != Child {
			g[l.Type][b.IA] = append(g[l.Type][b.IA], halfLink{b, a, l.MTU})
		}
	}
	return g
}

// maxSteps bounds the walks from one origin, to about a second.
const maxSteps = 10_000_000

// segments are the most segments, the shorter ones first, that beacons of that type make from the
// origin to each AS. Walks get longer until everybody has enough: in a mesh there are many short
// ones, and more long ones than can be counted.
func (g beaconGraph) segments(
	origin pathsel.IA, kind LinkType, most int,
) (map[pathsel.IA][]*segment.PathSegment, error) {
	reached := map[pathsel.IA]bool{}
	spread(g[kind], origin, reached)
	found := map[pathsel.IA][]*segment.PathSegment{}
	missing := len(reached) - 1 // who do not have enough
	steps := 0
	var links []halfLink
	on := map[pathsel.IA]bool{origin: true}
	var walk func(at pathsel.IA, length int)
	walk = func(at pathsel.IA, length int) {
		if steps++; steps > maxSteps {
			return
		}
		if len(links) == length {
			if len(found[at]) < most {
				if found[at] = append(found[at], g.segment(origin, links)); len(found[at]) == most {
					missing--
				}
			}
			return
		}
		for _, l := range g[kind][at] {
			if on[l.far.IA] {
				continue
			}
			on[l.far.IA] = true
			links = append(links, l)
			walk(l.far.IA, length)
			links = links[:len(links)-1]
			on[l.far.IA] = false
		}
	}
	for length := 1; length < maxSegmentHops && missing > 0; length++ {
		walk(origin, length)
	}
	if steps > maxSteps {
		return nil, fmt.Errorf("there are too many ways through its %s links from %s to find all segments: "+
			"leave out links", kind, origin)
	}
	return found, nil
}

// segment makes the unsigned skeleton of a path segment, with the fields that the combinator reads.
func (g beaconGraph) segment(origin pathsel.IA, links []halfLink) *segment.PathSegment {
	s := &segment.PathSegment{Info: segment.Info{Timestamp: time.Unix(1, 0)}}
	at, ingress, ingressMTU := origin, uint16(0), 0
	for i := 0; i <= len(links); i++ {
		egress := uint16(0)
		if i < len(links) {
			egress = uint16(links[i].near.ID)
		}
		e := segment.ASEntry{
			Local: addr.IA(at),
			MTU:   1<<16 - 1,
			HopEntry: segment.HopEntry{
				HopField:   segment.HopField{ConsIngress: ingress, ConsEgress: egress},
				IngressMTU: ingressMTU,
			},
		}
		if i > 0 { // the origin announces no peerings
			for _, p := range g[Peer][at] {
				e.PeerEntries = append(e.PeerEntries, segment.PeerEntry{
					Peer:          addr.IA(p.far.IA),
					PeerInterface: uint16(p.far.ID),
					PeerMTU:       p.mtu,
					HopField:      segment.HopField{ConsIngress: uint16(p.near.ID), ConsEgress: egress},
				})
			}
		}
		s.ASEntries = append(s.ASEntries, e)
		if i < len(links) {
			at, ingress, ingressMTU = links[i].far.IA, uint16(links[i].far.ID), links[i].mtu
		}
	}
	return s
}
