package testbed

import (
	"context"
	"fmt"
	"net/http"
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

// lookupTimeout bounds one question to a control service, which may in turn wait for another one.
const lookupTimeout = 2 * time.Second

// lookup counts paths as a SCION host finds them: it asks the AS's own control service for segments and
// combines them. It leaves out what costs a host most of its memory, checking the signatures.
type lookup struct {
	topology Topology
	http     *http.Client
}

// paths counts the paths from src to each of the destinations. A destination that could not be asked for
// counts as 0; the error is the first that came up.
func (l lookup) paths(ctx context.Context, src asPlan, dsts []pathsel.IA) (map[pathsel.IA]int, error) {
	client := control_planeconnect.NewSegmentLookupServiceClient(l.http, "http://"+src.control.String())
	splitter := segfetcher.MultiSegmentSplitter{LocalIA: addr.IA(src.IA), Core: src.Core, Inspector: roleInspector(l.topology)}
	known := map[segfetcher.Request][]*segment.PathSegment{} // many destinations need the same segments
	counts := map[pathsel.IA]int{}
	var first error
	for _, dst := range dsts {
		n, err := func() (int, error) {
			requests, err := splitter.Split(ctx, addr.IA(dst))
			if err != nil {
				return 0, err
			}
			found := map[segment.Type][]*segment.PathSegment{}
			for _, r := range requests {
				s, ok := known[r]
				if !ok {
					if s, err = fetch(ctx, client, r); err != nil {
						return 0, err
					}
					known[r] = s
				}
				found[r.SegType] = append(found[r.SegType], s...)
			}
			return len(combinator.Combine(addr.IA(src.IA), addr.IA(dst),
				found[segment.TypeUp], found[segment.TypeCore], found[segment.TypeDown], false)), nil
		}()
		if err != nil && first == nil {
			first = fmt.Errorf("ask %s for paths to %s: %w", src.IA, dst, err)
		}
		counts[dst] = n
	}
	return counts, first
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
