package report

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"braid/pathsel"
	"braid/testbed"
	"braid/testbed/scenario"
)

// course is one run over time, as its samples tell. Times are the scenario's: seconds after the first payload byte that a
// leecher got.
type course struct {
	end       float64            // the last leecher was done
	peers     []*peer            // in the order in which they started
	links     map[string]*series // by the interface that sends
	flows     []*series
	processes []*process
	events    []event
}

// series is something that grows, from 0 at its first sample or before.
type series struct {
	name  string
	t     []float64
	bytes []float64
	// first and last are samples of a link, with its other counters.
	first, last scenario.Line
}

// counted is how far the counters of a link have come since the first sample of the run. The links of a network
// count on from run to run.
func (s *series) counted() scenario.Line {
	a, b := s.first, s.last
	since := func(before, now uint64) uint64 { return now - min(before, now) }
	return scenario.Line{
		Bytes: b.Bytes - a.Bytes, Packets: since(a.Packets, b.Packets), Late: since(a.Late, b.Late),
		DroppedQueue: since(a.DroppedQueue, b.DroppedQueue), DroppedLoss: since(a.DroppedLoss, b.DroppedLoss),
		DroppedDown: since(a.DroppedDown, b.DroppedDown),
	}
}

// peer is a braid process.
type peer struct {
	name    string
	leecher bool
	payload series
	paths   []*path // those it knew, in the order of their interfaces
	choices []choice
	base    float64 // its own time 0
	hasBase bool
	// fetched is the payload of each torrent so far.
	fetched map[string]float64
}

// path is a path-level peer of somebody: address, path, connection.
type path struct {
	key        pathsel.Key
	name       string // path 1, 2, ...
	via        string // its interfaces, or what is known instead
	interfaces []pathsel.Interface
	read       series
	lastRTT    float64 // ms
	minRTT     float64
	handshake  float64            // ms, the first
	sent, lost float64            // packets
	got        map[string]float64 // bytes for each torrent so far
}

// choice is a step in the life of a path-level peer.
type choice struct {
	t      float64
	path   *path
	event  string // without path-
	reason string
}

type process struct {
	name     string
	t        []float64
	cpu      []float64 // seconds so far
	peak     float64   // memory, bytes
	isPeer   bool
	firstCPU float64
}

// event is something that the scenario did.
type event struct {
	t      float64
	what   string
	at     string
	change *testbed.LinkChange
}

// Bounds of what is kept of a run: 20 leechers with ten paths each for ten minutes are 2.4 million samples.
const (
	maxSamples = 8 << 20
	maxKeys    = 10_000 // paths, processes and events
	// maxTorrents of a peer: all are summed at each sample.
	maxTorrents = 64
)

// peerLine is what matters here of what a peer says.
type peerLine struct {
	Event       string              `json:"event"`
	InfoHash    string              `json:"info_hash"`
	T           float64             `json:"t"`
	Seconds     float64             `json:"seconds"`
	Fetched     float64             `json:"fetched_bytes"`
	Peer        pathsel.PeerID      `json:"peer"`
	Fingerprint pathsel.Fingerprint `json:"fingerprint"`
	Conn        int                 `json:"conn"`
	Reason      string              `json:"reason"`
	Paths       []struct {
		Peer        pathsel.PeerID      `json:"peer"`
		Fingerprint pathsel.Fingerprint `json:"fingerprint"`
		Conn        int                 `json:"conn"`
		Transport   string              `json:"transport"`
		BytesRead   float64             `json:"bytes_read"`
		RTT         float64             `json:"rtt_ms"`
		MinRTT      float64             `json:"min_rtt_ms"`
		Handshake   float64             `json:"handshake_ms"`
		PacketsSent float64             `json:"packets_sent"`
		PacketsLost float64             `json:"packets_lost"`
	} `json:"paths"`
}

// reader puts a course together, line by line.
type reader struct {
	c         *course
	res       scenario.Result
	routes    map[string]map[pathsel.Fingerprint][]pathsel.Interface // of each leecher
	paths     map[*peer]map[pathsel.Key]*path
	processes map[string]*process
	names     names
	samples   int
	keys      int
}

// readCourse reads the samples of a run with that result.
func readCourse(r io.Reader, res scenario.Result, leechers []string, n names) (*course, error) {
	rd := reader{
		c: &course{links: map[string]*series{}}, res: res, routes: map[string]map[pathsel.Fingerprint][]pathsel.Interface{},
		paths: map[*peer]map[pathsel.Key]*path{}, processes: map[string]*process{}, names: n,
	}
	err := scenario.ReadSamples(r, func(l scenario.Line) error { return rd.line(l, leechers) })
	if err != nil {
		return nil, err
	}
	rd.finish()
	return rd.c, nil
}

func (r *reader) line(l scenario.Line, leechers []string) error {
	if r.samples++; r.samples > maxSamples || r.keys > maxKeys {
		return fmt.Errorf("more than %d samples or %d paths and events", maxSamples, maxKeys)
	}
	t := l.T - r.res.ZeroS
	if !saneTime(l.T) || !sane(l.CPU) {
		return errUnlikely
	}
	switch l.Kind {
	case "link":
		s := r.c.links[l.At]
		if s == nil {
			r.keys++
			s = &series{name: l.At, first: l}
			r.c.links[l.At] = s
		}
		s.last = l
		s.add(t, float64(s.counted().Bytes))
	case "traffic":
		i := slices.IndexFunc(r.c.flows, func(s *series) bool { return s.name == l.What })
		if i < 0 {
			r.keys++
			i = len(r.c.flows)
			r.c.flows = append(r.c.flows, &series{name: l.What})
		}
		r.c.flows[i].add(t, float64(l.Bytes))
	case "process":
		p := r.processes[l.What]
		if p == nil {
			r.keys++
			p = &process{name: l.What, firstCPU: l.CPU}
			r.processes[l.What] = p
			r.c.processes = append(r.c.processes, p)
		}
		p.t, p.cpu, p.peak = append(p.t, t), append(p.cpu, l.CPU), max(p.peak, float64(cmp.Or(l.PSS, l.RSS)))
	case "event":
		r.keys++
		r.c.events = append(r.c.events, event{t, l.What, l.At, l.Change})
	case "path":
		r.keys++
		if r.routes[l.What] == nil {
			r.routes[l.What] = map[pathsel.Fingerprint][]pathsel.Interface{}
		}
		r.routes[l.What][l.Fingerprint] = l.Interfaces
	case "peer":
		var e peerLine
		if err := json.Unmarshal(l.Event, &e); err != nil {
			return fmt.Errorf("peer %s: %w", l.What, err)
		}
		return r.peer(l.What, slices.Contains(leechers, l.What), t, e)
	}
	return nil
}

// peer takes what a peer says. Its own clock is right about when; when the line arrives is right only for the luckiest.
func (r *reader) peer(name string, leecher bool, t float64, e peerLine) error {
	if !saneTime(e.T) || !saneTime(e.Seconds) || !sane(e.Fetched) {
		return errUnlikely
	}
	i := slices.IndexFunc(r.c.peers, func(p *peer) bool { return p.name == name })
	if i < 0 {
		r.keys++
		i = len(r.c.peers)
		r.c.peers = append(r.c.peers, &peer{name: name, leecher: leecher, fetched: map[string]float64{}})
	}
	p := r.c.peers[i]
	own := e.T
	if e.Event == "done" {
		own = e.Seconds
	}
	if e.Event != "ready" && (!p.hasBase || t-own < p.base) {
		p.base, p.hasBase = t-own, true
	}
	switch e.Event {
	case "progress", "done":
		if len(p.fetched) > maxTorrents {
			return fmt.Errorf("more than %d torrents", maxTorrents)
		}
		p.fetched[e.InfoHash] = e.Fetched
		p.payload.add(own, sum(p.fetched))
		for _, x := range e.Paths {
			if !sane(x.BytesRead) || !sane(x.RTT) || !sane(x.MinRTT) || !sane(x.Handshake) || !sane(x.PacketsSent) || !sane(x.PacketsLost) {
				return errUnlikely
			}
			q := r.path(p, pathsel.Key{Peer: x.Peer, Path: x.Fingerprint, Conn: x.Conn}, x.Transport)
			q.got[e.InfoHash] = x.BytesRead
			q.read.add(own, sum(q.got))
			if q.handshake <= 0 {
				q.handshake = x.Handshake
			}
			q.lastRTT, q.minRTT, q.sent, q.lost = x.RTT, x.MinRTT, x.PacketsSent, x.PacketsLost
			r.samples++
		}
	default:
		if event, ok := strings.CutPrefix(e.Event, "path-"); ok {
			q := r.path(p, pathsel.Key{Peer: e.Peer, Path: e.Fingerprint, Conn: e.Conn}, "")
			p.choices = append(p.choices, choice{own, q, event, e.Reason})
			r.keys++
		}
	}
	return nil
}

// saneTime tells whether a time can be that of a run, sane whether an amount can: what is drawn has bounds, and so has
// arithmetic.
func saneTime(v float64) bool { return v > -1e6 && v < 1e6 }

func sane(v float64) bool { return v > -1e15 && v < 1e15 }

var errUnlikely = errors.New("a time or an amount that no run has")

func (r *reader) path(p *peer, k pathsel.Key, transport string) *path {
	if r.paths[p] == nil {
		r.paths[p] = map[pathsel.Key]*path{}
	}
	q := r.paths[p][k]
	if q == nil {
		r.keys++
		q = &path{key: k, got: map[string]float64{}, interfaces: r.routes[p.name][k.Path]}
		r.paths[p][k] = q
		p.paths = append(p.paths, q)
	}
	switch {
	case len(q.interfaces) > 0:
		q.via = r.names.path(q.interfaces)
	case k.Path == "":
		q.via = "IP" // or within one AS
	case q.via == "" || transport != "":
		q.via = strings.TrimSpace(transport + " " + k.Path.Short())
	}
	return q
}

// finish puts everything into the scenario's time and order. The same path has the same name in all runs of a scenario, as
// far as its runs know the same ones.
func (r *reader) finish() {
	for _, p := range r.c.peers {
		p.payload.shift(p.base)
		// A path that carried nothing and was never chosen is a line of noise.
		p.paths = slices.DeleteFunc(p.paths, func(q *path) bool {
			n := len(q.read.bytes)
			return (n == 0 || q.read.bytes[n-1] == 0) && !slices.ContainsFunc(p.choices, func(c choice) bool { return c.path == q })
		})
		slices.SortStableFunc(p.paths, func(a, b *path) int {
			return cmp.Or(cmp.Compare(a.via, b.via), cmp.Compare(a.key.Path, b.key.Path), cmp.Compare(a.key.Peer, b.key.Peer), cmp.Compare(a.key.Conn, b.key.Conn))
		})
		for i, q := range p.paths {
			q.name = "path " + strconv.Itoa(i+1)
			q.read.shift(p.base)
		}
		for i := range p.choices {
			p.choices[i].t += p.base
		}
		if p.leecher && len(p.payload.t) > 0 {
			r.c.end = max(r.c.end, p.payload.t[len(p.payload.t)-1])
		}
		if q := r.processes[p.name]; q != nil {
			q.isPeer, q.firstCPU = true, 0 // it has started in this run
		}
	}
	for _, x := range r.res.Peers {
		r.c.end = max(r.c.end, x.End)
	}
	slices.SortStableFunc(r.c.events, func(a, b event) int { return cmp.Compare(a.t, b.t) })
}

// leechers are those that got something.
func (c *course) leechers() (l []*peer) {
	for _, p := range c.peers {
		if p.leecher {
			l = append(l, p)
		}
	}
	return l
}

// add takes a sample; one that is older than the last is not one.
func (s *series) add(t, bytes float64) {
	if n := len(s.t); n > 0 && t < s.t[n-1] {
		return
	}
	s.t, s.bytes = append(s.t, t), append(s.bytes, bytes)
}

func (s *series) shift(by float64) {
	for i := range s.t {
		s.t[i] += by
	}
}

// at is the amount at a time, between two samples in proportion.
func (s *series) at(t float64) float64 {
	i, _ := slices.BinarySearch(s.t, t)
	switch {
	case len(s.t) == 0:
		return 0
	case i == len(s.t):
		return s.bytes[i-1]
	case i == 0:
		if s.t[0] > t {
			return 0
		}
		return s.bytes[0]
	}
	return s.bytes[i-1] + (s.bytes[i]-s.bytes[i-1])*(t-s.t[i-1])/max(s.t[i]-s.t[i-1], 1e-9)
}

// rates are in Mbit/s, over spans of width from one time on.
func (s *series) rates(from, to, width float64) (v []float64) {
	for t := from; t < to-width/2; t += width {
		a, b := t, min(t+width, to)
		v = append(v, max(0, (s.at(b)-s.at(a))*8/1e6/(b-a)))
	}
	return v
}

func sum(m map[string]float64) (all float64) {
	for _, v := range m {
		all += v
	}
	return all
}

// used is the CPU time that a process took between its first sample of the run and its last, in seconds.
func (p *process) used() float64 {
	if len(p.cpu) == 0 {
		return 0
	}
	return max(0, p.cpu[len(p.cpu)-1]-p.firstCPU)
}
