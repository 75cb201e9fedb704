package scenario

import (
	"math"
	"slices"
	"sort"

	"braid/node/event"
	"braid/pathsel"
	"braid/testbed"
)

// Record is a run as its samples describe it. All figures are made from it. Times are in seconds after
// the first payload byte of any leecher; earlier times are negative.
type Record struct {
	Scenario  Scenario // in the variant that was run
	Zero      float64  // the first payload byte, in seconds after the start of the run
	End       float64  // the last leecher has ended
	Leechers  []*Leecher
	Flows     []*Flow
	Links     map[string]*LinkSamples // by the interface that sends
	Processes []*ProcessSamples
	Events    []Line // what the scenario did
	// CPU and OwnCPU are the parts of all processors in use, by all programs and by this run's
	// processes.
	CPU, OwnCPU float64
	// RealTime says that this run's processes got a processor before all ordinary programs
	// (sched(7)).
	RealTime bool

	states  []linkState // each holds until the next one
	overlay []overlay   // between all peers that exchange data
	feed    bool        // leechers download from leechers
}

// linkState is the capacity of each link in bits per second, by the interface that sends; +Inf:
// unlimited. Links are changed while they differ from the start of the run in any property.
type linkState struct {
	t        float64
	capacity map[pathsel.Interface]float64
	changed  map[pathsel.Interface]bool
}

// Leecher is a peer that downloads.
type Leecher struct {
	Name       string
	Start, End float64 // of its transfer
	Complete   bool
	Wasted     float64 // bytes of payload that came twice or for nothing
	Payload    Series  // useful payload
	Paths      []*Path // in the order in which it first named them
	Choices    []Choice

	pieces []event.Piece // that it verified
	delay  float64       // least delay from a seed to its AS, in seconds
	routes []route       // from seeds
}

// Path is a path-level peer of a leecher's torrent.
type Path struct {
	Key        pathsel.Key
	Torrent    string              // info hash; "" if unknown
	Interfaces []pathsel.Interface // nil if unknown
	Transport  string
	Read       Series  // all bytes that came over it, protocol included
	Handshake  float64 // the first one, in ms
	RTT        float64 // the last one, in ms
	MinRTT     float64
	Sent, Lost uint64 // packets
}

// Choice is a step in the life of a path-level peer.
type Choice struct {
	T      float64
	Path   *Path
	Event  string // as in [event.PathStep], without "path-"
	Reason string
}

// What a path-level peer was doing for a while.
const (
	Connecting = "connecting" // selected, no connection yet
	InUse      = "in use"
	Parked     = "parked"
	Probed     = "tried" // parked, but used for a moment
)

// Stay is a path-level peer in one state, or the end of a connection at one moment, and why.
type Stay struct {
	What     string // a state, or how the connection ended: failed or closed
	From, To float64
	Reason   string
}

// Stays returns the states of a path and the ends of its connections, until a time.
func (l *Leecher) Stays(p *Path, end float64) (stays, exits []Stay) {
	in := false
	for _, c := range l.Choices {
		if c.Path != p || c.T > end {
			continue
		}
		if in {
			stays[len(stays)-1].To = c.T
		}
		state, ok := map[string]string{
			"selected": Connecting, "opened": InUse, "returned": InUse, "parked": Parked, "probed": Probed,
		}[c.Event]
		if in = ok; ok {
			stays = append(stays, Stay{state, c.T, end, c.Reason})
		} else {
			exits = append(exits, Stay{c.Event, c.T, c.T, c.Reason})
		}
	}
	return stays, exits
}

// Flow is cross traffic.
type Flow struct {
	Traffic
	Start, End float64
	Received   Series
	route      route
}

// LinkSamples are the counters of one direction of a link.
type LinkSamples struct {
	Sent        Series
	first, last Line
	bfd         [2]*int // state changes that the router has seen, at the start and at the end
}

// Counted returns how far the counters came during the run. A network's counters go on from run to
// run.
func (l *LinkSamples) Counted() Line {
	a, b := l.first, l.last
	since := func(before, now uint64) uint64 { return now - min(before, now) }
	return Line{
		Bytes: b.Bytes - a.Bytes, Packets: since(a.Packets, b.Packets), Late: since(a.Late, b.Late),
		DroppedQueue: since(a.DroppedQueue, b.DroppedQueue), DroppedLoss: since(a.DroppedLoss, b.DroppedLoss),
		DroppedDown: since(a.DroppedDown, b.DroppedDown),
	}
}

// ProcessSamples are what a process used.
type ProcessSamples struct {
	Name      string
	Component string  // one of Components
	Used      float64 // processor time since the first payload byte, in seconds
	Cores     float64 // processors in use since then, on average
	Peak      int64   // memory in bytes
	cpu       Series  // so far
}

// Series is an amount that grows over time.
type Series struct{ T, Amount []float64 }

// add appends a sample. Its time is at least that of the last one.
func (s *Series) add(t, amount float64) {
	if n := len(s.T); n > 0 {
		t = max(t, s.T[n-1])
	}
	s.T, s.Amount = append(s.T, t), append(s.Amount, amount)
}

func (s *Series) shift(by float64) {
	for i := range s.T {
		s.T[i] += by
	}
}

// Last returns the last sample, or zeros.
func (s *Series) Last() (t, amount float64) {
	if n := len(s.T); n > 0 {
		return s.T[n-1], s.Amount[n-1]
	}
	return 0, 0
}

// before returns the amount of the last sample up to a time, or 0.
func (s *Series) before(t float64) float64 {
	i := sort.Search(len(s.T), func(i int) bool { return s.T[i] > t })
	if i == 0 {
		return 0
	}
	return s.Amount[i-1]
}

// At returns the amount at a time, interpolated between two samples.
func (s *Series) At(t float64) float64 {
	i, _ := slices.BinarySearch(s.T, t)
	switch {
	case len(s.T) == 0 || i == 0 && s.T[0] > t:
		return 0
	case i == len(s.T):
		return s.Amount[i-1]
	case i == 0:
		return s.Amount[0]
	}
	return s.Amount[i-1] + (s.Amount[i]-s.Amount[i-1])*(t-s.T[i-1])/max(s.T[i]-s.T[i-1], 1e-9)
}

// Rates returns rates in Mbit/s for consecutive spans of the width.
func (s *Series) Rates(from, to, width float64) (v []float64) {
	for t := from; t < to-width/2; t += width {
		a, b := t, min(t+width, to)
		v = append(v, max(0, (s.At(b)-s.At(a))*8/1e6/(b-a)))
	}
	return v
}

// route is a way that payload takes.
type route struct {
	Fingerprint pathsel.Fingerprint `json:"fingerprint,omitempty"`
	Interfaces  []pathsel.Interface `json:"interfaces,omitempty"` // all, in the direction of the path
	Share       float64             `json:"share,omitempty"`      // payload's part of a full packet
	Links       []pathsel.Interface `json:"links,omitempty"`      // that payload takes, by the interface that sends
	Back        []pathsel.Interface `json:"back,omitempty"`       // that acknowledgements take
	Acks        float64             `json:"acks,omitempty"`       // bits on Back for each bit of payload
}

// routeOf returns the way along a path. With against, payload flows back to the host that chose the
// path, as to a leecher.
func routeOf(t testbed.Topology, p pathsel.Path, against bool) (route, error) {
	header, err := testbed.PathHeader(t, p.Interfaces)
	if err != nil {
		return route{}, err
	}
	packet := testbed.QUICPacket(p.MTU, header)
	r := route{
		Fingerprint: p.Fingerprint, Interfaces: p.Interfaces,
		Share: packet.PayloadShare(), Acks: packet.AckLoad(),
	}
	for i := 0; i+1 < len(p.Interfaces); i += 2 {
		out, in := p.Interfaces[i], p.Interfaces[i+1]
		if against {
			out, in = in, out
		}
		r.Links, r.Back = append(r.Links, out), append(r.Back, in)
	}
	return r, nil
}

// ipRouteOf returns the way of payload from one AS to another on IP.
func ipRouteOf(ip *testbed.IPNetwork, transport string, src, dst pathsel.IA) (route, error) {
	packet := testbed.TCPPacket(ip.MTU())
	switch transport {
	case QUIC:
		packet = testbed.QUICOnIP(ip.MTU())
	case WebRTC:
		packet = testbed.WebRTCPacket
	}
	r := route{Share: packet.PayloadShare(), Acks: packet.AckLoad()}
	var err error
	if r.Links, err = ip.Route(src, dst); err != nil {
		return r, err
	}
	if r.Back, err = ip.Route(dst, src); err != nil {
		return r, err
	}
	r.Interfaces = slices.Concat(r.Links, r.Back)
	return r, nil
}

// capacityAt returns what the links carry at a time.
func (r *Record) capacityAt(t float64) map[pathsel.Interface]float64 {
	i := len(r.states) - 1
	for i > 0 && r.states[i].t > t {
		i--
	}
	return r.states[i].capacity
}

// crosses tells whether a path of the leecher contains an interface. On IP, samples do not say
// which peer a path leads to. So there a path counts if the way from any seed contains the
// interface.
func (l *Leecher) crosses(p *Path, at pathsel.Interface) bool {
	if p.Key.Path != "" {
		return slices.Contains(p.Interfaces, at)
	}
	return slices.ContainsFunc(l.routes, func(r route) bool {
		return r.Fingerprint == "" && slices.Contains(r.Interfaces, at)
	})
}

// overAt returns how many bytes had come over the paths with an interface.
func (l *Leecher) overAt(t float64, at pathsel.Interface) (n float64) {
	for _, p := range l.Paths {
		if l.crosses(p, at) {
			n += p.Read.before(t)
		}
	}
	return n
}

// scionChoices returns the choices that are about SCION paths.
func (l *Leecher) scionChoices() []Choice {
	return slices.DeleteFunc(slices.Clone(l.Choices), func(c Choice) bool { return c.Path.Key.Path == "" })
}

func (l *Leecher) firstByte() float64 {
	if i := slices.IndexFunc(l.Payload.Amount, func(v float64) bool { return v > 0 }); i >= 0 {
		return l.Payload.T[i]
	}
	return math.Inf(1)
}
