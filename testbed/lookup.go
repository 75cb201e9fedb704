package testbed

import (
	"cmp"
	"context"
	"fmt"
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
	found, err := n.ways(ctx, a, []pathsel.IA{dst})
	return found[Pair{src, dst}], err
}

// ways finds the paths from src to each destination as a SCION host does: it asks the AS's control
// service for segments and combines them. It does not verify signatures, which takes a host most of
// its memory. A destination whose lookup fails has no paths; the error is the first one.
func (n *Network) ways(ctx context.Context, src asPlan, dsts []pathsel.IA) (map[Pair][]Way, error) {
	splitter := segfetcher.MultiSegmentSplitter{
		LocalIA: addr.IA(src.IA), Core: src.Core, Inspector: roleInspector(n.opts.Topology),
	}
	known := map[segfetcher.Request][]*segment.PathSegment{} // many destinations need the same segments
	all := map[Pair][]Way{}
	var first error
	for _, dst := range dsts {
		requests, err := splitter.Split(ctx, addr.IA(dst))
		found := map[segment.Type][]*segment.PathSegment{}
		for _, r := range requests {
			s, ok := known[r]
			if !ok {
				if s, err = n.fetch(ctx, src, r); err != nil {
					break
				}
				known[r] = s
			}
			found[r.SegType] = append(found[r.SegType], s...)
		}
		if err != nil {
			first = cmp.Or(first, fmt.Errorf("find paths from %s to %s: %w", src.IA, dst, err))
			continue
		}
		for _, p := range combinator.Combine(addr.IA(src.IA), addr.IA(dst),
			found[segment.TypeUp], found[segment.TypeCore], found[segment.TypeDown], false) {
			all[Pair{src.IA, dst}] = append(all[Pair{src.IA, dst}], wayOf(src, p))
		}
	}
	return all, first
}

func wayOf(src asPlan, p combinator.Path) Way {
	w := Way{Raw: p.SCIONPath.Raw}
	for _, i := range p.Metadata.Interfaces {
		w.Interfaces = append(w.Interfaces, pathsel.Interface{IA: pathsel.IA(i.IA), ID: uint64(i.ID)})
	}
	if r := src.routerAt(w.Interfaces[0].ID); r != nil {
		w.Router = r.internal
	}
	return w
}

// fetch asks the control service of an AS for segments.
func (n *Network) fetch(
	ctx context.Context, as asPlan, r segfetcher.Request,
) ([]*segment.PathSegment, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	c := control_planeconnect.NewSegmentLookupServiceClient(n.http, "http://"+as.control.String())
	q := control_plane.SegmentsRequest{SrcIsdAs: uint64(r.Src), DstIsdAs: uint64(r.Dst)}
	reply, err := c.Segments(ctx, connect.NewRequest(&q))
	if err != nil {
		return nil, fmt.Errorf("ask %s for segments: %w", as.IA, err)
	}
	var out []*segment.PathSegment
	for _, pb := range reply.Msg.Segments[int32(r.SegType)].GetSegments() {
		s, err := segment.SegmentFromPB(pb)
		if err != nil {
			return nil, fmt.Errorf("ask %s for segments: %w", as.IA, err)
		}
		out = append(out, s)
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
