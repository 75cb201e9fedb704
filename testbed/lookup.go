package testbed

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"connectrpc.com/connect"
	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/proto/control_plane"
	"github.com/scionproto/scion/pkg/proto/control_plane/v1/control_planeconnect"
	"github.com/scionproto/scion/pkg/segment"
	"github.com/scionproto/scion/private/path/combinator"
	"github.com/scionproto/scion/private/segment/segfetcher"
	"github.com/scionproto/scion/private/trust"

	"braid/pathsel"
)

// lookupTimeout bounds one question to a control service, which may in turn wait for another one. A
// question that is given up was work for nothing, which a busy network cannot afford.
const lookupTimeout = 10 * time.Second

// lookup finds paths as a SCION host does: it asks the AS's control service for segments and combines them.
// It does not verify signatures, which takes a host most of its memory.
type lookup struct {
	topology Topology
	http     *http.Client
}

// paths finds the paths from src to each destination. A destination whose lookup fails has none; the error is
// the first one.
func (l lookup) paths(ctx context.Context, src asPlan, dsts []pathsel.IA) (map[pathsel.IA][]combinator.Path, error) {
	client := l.client(src)
	splitter := segfetcher.MultiSegmentSplitter{LocalIA: addr.IA(src.IA), Core: src.Core, Inspector: roleInspector(l.topology)}
	known := map[segfetcher.Request][]*segment.PathSegment{} // many destinations need the same segments
	all := map[pathsel.IA][]combinator.Path{}
	var first error
	for _, dst := range dsts {
		paths, err := func() ([]combinator.Path, error) {
			requests, err := splitter.Split(ctx, addr.IA(dst))
			if err != nil {
				return nil, err
			}
			found := map[segment.Type][]*segment.PathSegment{}
			for _, r := range requests {
				s, ok := known[r]
				if !ok {
					if s, err = fetch(ctx, client, r); err != nil {
						return nil, err
					}
					known[r] = s
				}
				found[r.SegType] = append(found[r.SegType], s...)
			}
			return combinator.Combine(addr.IA(src.IA), addr.IA(dst),
				found[segment.TypeUp], found[segment.TypeCore], found[segment.TypeDown], false), nil
		}()
		if err != nil && first == nil {
			first = fmt.Errorf("ask %s for paths to %s: %w", src.IA, dst, err)
		}
		all[dst] = paths
	}
	return all, first
}

// crossed lists the interfaces of a path.
func crossed(p combinator.Path) []pathsel.Interface {
	var ifs []pathsel.Interface
	for _, i := range p.Metadata.Interfaces {
		ifs = append(ifs, pathsel.Interface{IA: pathsel.IA(i.IA), ID: uint64(i.ID)})
	}
	return ifs
}

// Way is a path for a host that makes its packets itself.
type Way struct {
	Raw        []byte         // the path header, at the source
	Router     netip.AddrPort // the router of the source's AS that takes the packet
	Interfaces []pathsel.Interface
}

// Ways asks the control service of an AS for paths to another one, as a host would.
func (n *Network) Ways(ctx context.Context, src, dst pathsel.IA) ([]Way, error) {
	a, ok := n.as(src)
	if !ok {
		return nil, fmt.Errorf("no AS %s in topology %s", src, n.opts.Topology.Name)
	}
	found, err := n.lookup.paths(ctx, a, []pathsel.IA{dst})
	if err != nil {
		return nil, err
	}
	var out []Way
	for _, p := range found[dst] {
		w := Way{Raw: p.SCIONPath.Raw, Interfaces: crossed(p)}
		for _, r := range a.routers {
			if r.has(w.Interfaces[0].ID) {
				w.Router = r.internal
			}
		}
		out = append(out, w)
	}
	return out, nil
}

// survey is a question that a control service can answer from its own database, and how many segments it has
// once beaconing has converged. Such questions are cheap. Lookups like a host's make control services fetch
// segments from each other, and failing fetches would delay the start of the network by minutes.
type survey struct {
	as      asPlan
	request segfetcher.Request
	want    int
}

// surveys lists the questions whose answers show a converged network: the up segments of every non-core AS, and
// the core and down segments of every core AS.
func surveys(t Topology, ases []asPlan) ([]survey, error) {
	g := newBeaconGraph(t)
	core, down, up := map[Pair]int{}, map[Pair]int{}, map[pathsel.IA]int{}
	for _, as := range ases {
		if !as.Core {
			continue
		}
		found, err := g.segments(as.IA, Core, bestSetSize)
		if err != nil {
			return nil, err
		}
		for ia, s := range found {
			core[Pair{ia, as.IA}] = len(s)
		}
		if found, err = g.segments(as.IA, Child, bestSetSize+1); err != nil {
			return nil, err
		}
		for ia, s := range found {
			down[Pair{as.IA, ia}] = len(s)
			up[ia] += len(s)
		}
	}
	var out []survey
	for _, as := range ases {
		if n := up[as.IA]; n > 0 {
			r := segfetcher.Request{SegType: segment.TypeUp, Src: addr.IA(as.IA), Dst: addr.MustIAFrom(addr.ISD(as.IA.ISD()), 0)}
			out = append(out, survey{as, r, min(n, bestSetSize)})
		}
		for _, other := range ases {
			p := Pair{as.IA, other.IA}
			if n := core[p]; n > 0 {
				r := segfetcher.Request{SegType: segment.TypeCore, Src: addr.IA(as.IA), Dst: addr.IA(other.IA)}
				out = append(out, survey{as, r, min(n, bestSetSize)})
			}
			if n := down[p]; n > 0 {
				if up[other.IA] > bestSetSize {
					n = 1 // the other AS registers its best segments of all origins
				}
				r := segfetcher.Request{SegType: segment.TypeDown, Src: addr.IA(as.IA), Dst: addr.IA(other.IA)}
				out = append(out, survey{as, r, n})
			}
		}
	}
	return out, nil
}

// ask answers a survey.
func (l lookup) ask(ctx context.Context, s survey) (int, error) {
	found, err := fetch(ctx, l.client(s.as), s.request)
	if err != nil {
		return 0, fmt.Errorf("ask %s for segments: %w", s.as.IA, err)
	}
	return len(found), nil
}

func (l lookup) client(as asPlan) control_planeconnect.SegmentLookupServiceClient {
	return control_planeconnect.NewSegmentLookupServiceClient(l.http, "http://"+as.control.String())
}

func fetch(ctx context.Context, c control_planeconnect.SegmentLookupServiceClient, r segfetcher.Request) ([]*segment.PathSegment, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	reply, err := c.Segments(ctx, connect.NewRequest(&control_plane.SegmentsRequest{SrcIsdAs: uint64(r.Src), DstIsdAs: uint64(r.Dst)}))
	if err != nil {
		return nil, err
	}
	var out []*segment.PathSegment
	for kind, list := range reply.Msg.Segments {
		if segment.Type(kind) != r.SegType {
			continue
		}
		for _, pb := range list.Segments {
			s, err := segment.SegmentFromPB(pb)
			if err != nil {
				return nil, err
			}
			out = append(out, s)
		}
	}
	return out, nil
}

// roleInspector answers from the topology what a host reads in the trust root configurations.
type roleInspector Topology

func (i roleInspector) ByAttributes(_ context.Context, isd addr.ISD, _ trust.Attribute) ([]addr.IA, error) {
	var cores []addr.IA
	for _, as := range i.ASes {
		if as.Core && as.IA.ISD() == uint16(isd) {
			cores = append(cores, addr.IA(as.IA))
		}
	}
	return cores, nil
}

func (i roleInspector) HasAttributes(_ context.Context, ia addr.IA, _ trust.Attribute) (bool, error) {
	return slices.ContainsFunc(i.ASes, func(a AS) bool { return a.IA == pathsel.IA(ia) && a.Core }), nil
}
