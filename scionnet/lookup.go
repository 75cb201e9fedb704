package scionnet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/scionproto/scion/pkg/snet"
	snetpath "github.com/scionproto/scion/pkg/snet/path"

	"braid/pathsel"
)

// ErrNoPath says that currently no path to a destination is known. The search goes on in the
// background.
var ErrNoPath = errors.New("no path")

// found is a path from the control plane: its announced properties, and the data that packets need.
type found struct {
	path  pathsel.Path
	trail trail
	way   *way
	// latency is the announced latency from each interface to the next; negative if not announced.
	latency   []time.Duration
	epic      bool    // the path offers EPIC
	announced float64 // bytes a second of the narrowest link; 0: not all links are announced
	lacking   bool    // the last whole answer lacks it
}

// foundPath converts a path from the control plane.
func (h *Host) foundPath(p snet.Path) (found, error) {
	meta := p.Metadata()
	f := found{path: pathsel.Path{
		Src: pathsel.IA(p.Source()), Dst: pathsel.IA(p.Destination()),
		MTU: int(meta.MTU),
	}}
	for _, i := range meta.Interfaces {
		f.path.Interfaces = append(f.path.Interfaces, pathsel.Interface{IA: pathsel.IA(i.IA), ID: uint64(i.ID)})
	}
	f.path.Fingerprint = pathsel.FingerprintOf(f.path.Interfaces)
	f.latency = meta.Latency
	f.path.Latency, f.path.LatencyKnown = latency(meta)
	var all bool
	if f.path.Bandwidth, all = bandwidth(meta); all {
		f.announced = float64(f.path.Bandwidth) / 8
	}
	f.trail = trailOf(f.path.Interfaces)

	raw, ok := p.Dataplane().(snetpath.SCION)
	if !ok {
		return found{}, fmt.Errorf("unexpected dataplane path of type %T", p.Dataplane())
	}
	hops, err := readHops(raw.Raw)
	if err != nil {
		return found{}, err
	}
	// Both come from the same segments. If they differed, answers over this path would look like
	// another path.
	if hops.trail != f.trail {
		return found{}, errors.New("hop fields and announced interfaces differ")
	}
	f.path.Expiry = hops.expiry
	f.way = &way{raw: raw.Raw, expiry: hops.expiry, nextHop: ipOf(p.UnderlayNextHop())}
	if f.epic = meta.EpicAuths.SupportsEpic(); f.epic && h.cfg.EPIC {
		f.way.epic, err = newEPIC(raw.Raw, meta.EpicAuths)
	}
	return f, err
}

// sortFound sorts by number of hops, then by interfaces, as 'scion showpaths' does. Among paths of
// equal length, the control plane's order varies from answer to answer.
func sortFound(fs []found) {
	slices.SortStableFunc(fs, func(a, b found) int {
		x, y := a.path.Interfaces, b.path.Interfaces
		return cmp.Or(cmp.Compare(len(x), len(y)), slices.CompareFunc(x, y, func(i, j pathsel.Interface) int {
			return cmp.Or(cmp.Compare(i.IA, j.IA), cmp.Compare(i.ID, j.ID))
		}))
	})
}

// latency is the sum of the announced latencies, and whether all were announced.
func latency(m *snet.PathMetadata) (time.Duration, bool) {
	var sum time.Duration
	known := len(m.Latency) == len(m.Interfaces)-1
	for _, l := range m.Latency {
		if l < 0 {
			known = false
			continue
		}
		sum += l
	}
	return sum, known
}

// bandwidth is the smallest announced bandwidth in bit/s (announced in kbit/s; 0: not announced),
// and whether all links between ASes are announced.
func bandwidth(m *snet.PathMetadata) (least uint64, all bool) {
	all = len(m.Bandwidth) == len(m.Interfaces)-1
	for i, b := range m.Bandwidth {
		if b > 0 && (least == 0 || b < least) {
			least = b
		}
		all = all && (b > 0 || i%2 == 1) // every second entry is a way through an AS
	}
	return least * 1000, all
}

// Paths lists the paths to dst in the order of 'scion showpaths': fewest hops first. The first call
// for a destination asks the control plane; later calls return stored paths, which are refreshed in
// the background. If there are none, the error is ErrNoPath; it is ErrNoControl, too, if the
// control service has not answered. A revoked path stays listed until the control plane drops it;
// see Revoked.
func (h *Host) Paths(ctx context.Context, dst pathsel.IA) ([]pathsel.Path, error) {
	if dst == h.ia {
		return []pathsel.Path{h.localPath()}, nil
	}
	fs, err := h.lookup.paths(ctx, dst)
	if err != nil {
		return nil, err
	}
	return pathsOf(fs), nil
}

// PathsOnce is Paths for a destination that gets single messages: its paths are not refreshed in
// the background, so it costs a question to the control plane only when somebody asks for it. Paths
// may be five minutes old.
func (h *Host) PathsOnce(ctx context.Context, dst pathsel.IA) ([]pathsel.Path, error) {
	if known, ok := h.KnownPaths(dst); ok {
		return known, nil
	}
	fs, err := h.lookup.once(ctx, dst)
	return pathsOf(fs), err
}

// KnownPaths returns the paths to dst that PathsOnce would return without a question to the control
// plane; ok is false if it would ask.
func (h *Host) KnownPaths(dst pathsel.IA) (paths []pathsel.Path, ok bool) {
	if dst == h.ia {
		return []pathsel.Path{h.localPath()}, true
	}
	fs := h.lookup.glance(dst)
	return pathsOf(fs), len(fs) > 0
}

func pathsOf(fs []found) []pathsel.Path {
	out := make([]pathsel.Path, len(fs))
	for i, f := range fs {
		out[i] = f.path
	}
	return out
}

// resolvePath finds the dataplane path and the next hop of a path. It asks the control plane if the
// path is not known.
func (h *Host) resolvePath(ctx context.Context, remote Addr, path pathsel.Path) (found, error) {
	if path.Dst != remote.IA {
		return found{}, fmt.Errorf("the path leads to %s, not to %s", path.Dst, remote.IA)
	}
	if remote.IA == h.ia {
		nextHop := netip.AddrPortFrom(remote.Host, h.underlayPort(remote.Port))
		return found{path: h.localPath(), way: &way{nextHop: nextHop}}, nil
	}
	t := trailOf(path.Interfaces)
	if f, ok := h.lookup.find(remote.IA, t); ok {
		return f, nil
	}
	if _, err := h.lookup.paths(ctx, remote.IA); err != nil {
		return found{}, err
	}
	f, ok := h.lookup.find(remote.IA, t)
	if !ok {
		return found{}, errors.New("the control plane no longer offers the path")
	}
	return f, nil
}

// Details are properties of a path that pathsel.Path does not have.
type Details struct {
	// NextHop is the underlay address of the first router; empty inside the AS.
	NextHop string
	// Latency is the announced latency from each interface to the next; negative if not announced.
	Latency []time.Duration
	// EPIC says that the path's last two ASes check packets with EPIC.
	EPIC bool
}

// Details returns the details of a path that Paths has listed.
func (h *Host) Details(p pathsel.Path) Details {
	f, ok := h.lookup.find(p.Dst, trailOf(p.Interfaces))
	if !ok {
		return Details{}
	}
	return Details{NextHop: f.way.nextHop.String(), Latency: slices.Clone(f.latency), EPIC: f.epic}
}

// Refresh asks the control plane for the paths to dst now, bypassing its cache. If that fails, it
// returns the error, and the known paths stay.
func (h *Host) Refresh(ctx context.Context, dst pathsel.IA) error {
	if dst == h.ia {
		return nil
	}
	d, _, err := h.lookup.ensure(dst)
	if err != nil {
		return err
	}
	if err := h.lookup.lookUp(ctx, dst, true); err != nil {
		return err
	}
	h.lookup.mu.Lock()
	defer h.lookup.mu.Unlock()
	if d.err != nil {
		return fmt.Errorf("look up paths to %s: %w", dst, d.err)
	}
	return nil
}

// Subscribe returns a channel that receives a value when the set of paths to dst or their announced
// properties change, when one of them is revoked, and when the paths of the last value are about to
// expire but were renewed. Several changes may give one value. The paths are kept fresh until cancel
// is called.
func (h *Host) Subscribe(dst pathsel.IA) (changes <-chan struct{}, cancel func()) {
	c := make(chan struct{}, 1)
	if dst == h.ia {
		return c, func() {}
	}
	l := h.lookup
	d, _, err := l.ensure(dst)
	if err != nil {
		h.log.Warn("changes of paths not watched", "destination", dst, "error", err)
		return c, func() {}
	}
	l.mu.Lock()
	d.watchers[c] = struct{}{}
	l.mu.Unlock()
	l.want(dst)
	return c, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(d.watchers, c)
	}
}
