package testbed

import (
	"cmp"
	"slices"
	"time"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/segment"
	"github.com/scionproto/scion/private/path/combinator"

	"braid/pathsel"
)

// Pair is a source AS and a destination AS.
type Pair struct{ Src, Dst pathsel.IA }

// maxSegmentHops is the control service's default limit on the ASes of one path segment. Without it the
// enumeration would also count segments that no beacon ever travels.
const maxSegmentHops = 10

// ImpliedPaths says how many paths SCION's control plane finds for each ordered pair of different ASes
// once beaconing has converged. It enumerates the segments that beacons discover (loop-free walks along
// CORE links between core ASes, and down CHILD links from the core of one ISD, with the PEER links of
// every AS on the way) and combines them with scionproto's own combinator, the code a SCION host runs.
//
// A control service keeps at most bestSetSize segments, the shorter ones first: for each origin in a
// core AS, in all elsewhere. Where a topology has more, its choice among equals is not known here and
// the count is a lower bound.
func ImpliedPaths(t Topology, bestSetSize int) map[Pair]int {
	g := newBeaconGraph(t)
	core := map[Pair][]*segment.PathSegment{} // Src: where the beacon started
	up := map[pathsel.IA][]*segment.PathSegment{}
	for _, as := range t.ASes {
		if !as.Core {
			continue
		}
		g.walk(as.IA, Core, func(s *segment.PathSegment) {
			p := Pair{as.IA, pathsel.IA(s.LastIA())}
			core[p] = append(core[p], s)
		})
		g.walk(as.IA, Child, func(s *segment.PathSegment) {
			up[pathsel.IA(s.LastIA())] = append(up[pathsel.IA(s.LastIA())], s)
		})
	}
	for p, s := range core {
		core[p] = shortest(s, bestSetSize)
	}
	for ia, s := range up {
		up[ia] = shortest(s, bestSetSize)
	}

	// Everybody asks for the core segments between any core AS of the two ISDs.
	between := map[[2]uint16][]*segment.PathSegment{}
	for p, s := range core {
		// A core segment is used against the direction of its beacon.
		k := [2]uint16{p.Dst.ISD(), p.Src.ISD()}
		between[k] = append(between[k], s...)
	}
	implied := map[Pair]int{}
	for _, src := range t.ASes {
		for _, dst := range t.ASes {
			if src.IA == dst.IA {
				continue
			}
			cores := between[[2]uint16{src.IA.ISD(), dst.IA.ISD()}]
			paths := combinator.Combine(addr.IA(src.IA), addr.IA(dst.IA), up[src.IA], cores, up[dst.IA], false)
			implied[Pair{src.IA, dst.IA}] = len(paths)
		}
	}
	return implied
}

func shortest(s []*segment.PathSegment, n int) []*segment.PathSegment {
	slices.SortStableFunc(s, func(a, b *segment.PathSegment) int {
		return cmp.Compare(len(a.ASEntries), len(b.ASEntries))
	})
	return s[:min(len(s), n)]
}

// beaconGraph holds for each AS the links on which it sends beacons on, by the type of beaconing, and its
// peering links.
type beaconGraph struct {
	next map[LinkType]map[pathsel.IA][]halfLink
	peer map[pathsel.IA][]halfLink
}

// halfLink is a link seen from one of its ends.
type halfLink struct {
	near, far pathsel.Interface
	mtu       int
}

func newBeaconGraph(t Topology) beaconGraph {
	g := beaconGraph{
		next: map[LinkType]map[pathsel.IA][]halfLink{Core: {}, Child: {}},
		peer: map[pathsel.IA][]halfLink{},
	}
	for _, l := range t.Links {
		ab := halfLink{l.A.Interface, l.B.Interface, l.MTU}
		ba := halfLink{l.B.Interface, l.A.Interface, l.MTU}
		switch l.Type {
		case Core:
			g.next[Core][ab.near.IA] = append(g.next[Core][ab.near.IA], ab)
			g.next[Core][ba.near.IA] = append(g.next[Core][ba.near.IA], ba)
		case Child:
			g.next[Child][ab.near.IA] = append(g.next[Child][ab.near.IA], ab)
		case Peer:
			g.peer[ab.near.IA] = append(g.peer[ab.near.IA], ab)
			g.peer[ba.near.IA] = append(g.peer[ba.near.IA], ba)
		}
	}
	return g
}

// walk visits every segment that beacons of that type make from the origin, of two ASes or more.
func (g beaconGraph) walk(origin pathsel.IA, kind LinkType, visit func(*segment.PathSegment)) {
	var links []halfLink
	on := map[pathsel.IA]bool{origin: true}
	var step func(at pathsel.IA)
	step = func(at pathsel.IA) {
		if len(links) > 0 {
			visit(g.segment(origin, links))
		}
		if len(links)+1 == maxSegmentHops {
			return
		}
		for _, l := range g.next[kind][at] {
			if on[l.far.IA] {
				continue
			}
			on[l.far.IA] = true
			links = append(links, l)
			step(l.far.IA)
			links = links[:len(links)-1]
			on[l.far.IA] = false
		}
	}
	step(origin)
}

// segment makes the unsigned skeleton of a path segment: what the combinator looks at and no more.
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
			for _, p := range g.peer[at] {
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
