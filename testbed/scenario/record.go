package scenario

import (
	"slices"
	"time"

	"braid/pathsel"
	"braid/testbed"
)

// record is what was seen of a run, all that figures are made of. Times are in seconds after the first payload byte
// that a leecher got; before it they are negative.
type record struct {
	leechers []leecherRecord
	flows    []flowRecord
	// states are the links' capacities, each from its time until the next one's; the first is from the beginning.
	states []linkState
	end    float64 // the last leecher is gone
	feed   bool    // leechers download from leechers
	degree float64 // of the swarm: see Scenario.degree
}

// linkState is what links carry, in bits per second of SCION packets by the interface that sends; +Inf: not limited.
type linkState struct {
	t        float64
	capacity map[pathsel.Interface]float64
}

type leecherRecord struct {
	name       string
	start, end float64 // of its transfer
	complete   bool    // it has all of the data
	wasted     int64   // bytes of payload that came twice or for nothing
	samples    []sample
	choices    []choice
	pieces     []pieceSample
	delay      float64                         // the least in which anything comes from a seed to its AS, in seconds; 0: it is in the same
	handshakes map[pathsel.Fingerprint]float64 // seconds
	routes     []route                         // from its sources
}

// sample is what a leecher has at a moment: useful payload, and what came over each path, protocol and all.
type sample struct {
	t     float64
	bytes int64
	paths map[pathsel.Fingerprint]uint64
}

// pieceSample is when a leecher had verified a piece.
type pieceSample struct {
	t       float64
	torrent string
	piece   int
}

// choice is an event of path selection.
type choice struct {
	t    float64
	key  pathsel.Key
	name string // path-selected, path-failed, ...
}

// flowRecord is cross traffic.
type flowRecord struct {
	Traffic
	route    route
	start    float64
	end      float64
	received []amount
}

type amount struct {
	t     float64
	bytes int64 // so far
}

// route is a way that payload takes: its links by the interface that sends, and what part of a full packet is payload.
type route struct {
	fingerprint pathsel.Fingerprint
	links       []pathsel.Interface
	interfaces  []pathsel.Interface // all of them
	share       float64
	// back are the links on the way of acknowledgements, which take acks bits of it for each bit of payload.
	back []pathsel.Interface
	acks float64
}

// routeOf is the way along a path; against it if the payload flows back to who chose the path, as a leecher's does.
func routeOf(t testbed.Topology, p pathsel.Path, against bool) (route, error) {
	header, err := testbed.PathHeader(t, p.Interfaces)
	if err != nil {
		return route{}, err
	}
	r := route{
		fingerprint: p.Fingerprint, interfaces: p.Interfaces,
		share: testbed.PayloadShare(p.MTU, header), acks: testbed.AckLoad(p.MTU, header),
	}
	for i := 0; i+1 < len(p.Interfaces); i += 2 {
		out, in := p.Interfaces[i], p.Interfaces[i+1]
		if against {
			out, in = in, out
		}
		r.links, r.back = append(r.links, out), append(r.back, in)
	}
	return r, nil
}

// ipRouteOf is the way of payload from one AS to another on IP.
func ipRouteOf(ip *testbed.IPNetwork, transport string, src, dst pathsel.IA) (route, error) {
	r := route{share: testbed.TCPShare(ip.MTU()), acks: testbed.TCPAckLoad(ip.MTU())}
	if transport == QUIC {
		r.share, r.acks = testbed.QUICShare(ip.MTU()), testbed.QUICAckLoad(ip.MTU())
	}
	var err error
	if r.links, err = ip.Route(src, dst); err != nil {
		return r, err
	}
	if r.back, err = ip.Route(dst, src); err != nil {
		return r, err
	}
	r.interfaces = slices.Concat(r.links, r.back)
	return r, nil
}

func (r route) crosses(at pathsel.Interface) bool { return slices.Contains(r.interfaces, at) }

// capacityAt is what the links carry at a time.
func (r record) capacityAt(t float64) map[pathsel.Interface]float64 {
	i := len(r.states) - 1
	for i > 0 && r.states[i].t > t {
		i--
	}
	return r.states[i].capacity
}

// bytesAt is what the leecher has at a time. Between two samples it is the earlier one's.
func (l leecherRecord) bytesAt(t float64) int64 {
	if i := l.before(t); i >= 0 {
		return l.samples[i].bytes
	}
	return 0
}

func (l leecherRecord) before(t float64) int {
	i, found := slices.BinarySearchFunc(l.samples, t, func(s sample, t float64) int {
		switch {
		case s.t < t:
			return -1
		case s.t > t:
			return 1
		}
		return 0
	})
	if !found {
		i--
	}
	return i
}

// overAt is what has come over the paths that cross an interface.
func (l leecherRecord) overAt(t float64, at pathsel.Interface) (n uint64) {
	i := l.before(t)
	if i < 0 {
		return 0
	}
	for f, b := range l.samples[i].paths {
		if j := slices.IndexFunc(l.routes, func(r route) bool { return r.fingerprint == f }); j >= 0 && l.routes[j].crosses(at) {
			n += b
		}
	}
	return n
}

// receivedAt is what a flow has delivered, between two samples in proportion.
func (f flowRecord) receivedAt(t float64) float64 {
	for i, b := range f.received {
		if b.t < t {
			continue
		}
		if i == 0 {
			return 0
		}
		a := f.received[i-1]
		return float64(a.bytes) + float64(b.bytes-a.bytes)*(t-a.t)/(b.t-a.t)
	}
	if len(f.received) == 0 {
		return 0
	}
	return float64(f.received[len(f.received)-1].bytes)
}

func seconds(d time.Duration) float64 { return d.Seconds() }
