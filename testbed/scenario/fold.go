package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"braid/node/event"
	"braid/pathsel"
	"braid/testbed/linkemu"
)

// fold makes the record of a run from its samples, one by one. The runner folds samples as it
// writes them, and a run directory is folded when it is read, so both get the same record.
type fold struct {
	Record    // in seconds after the start of the run, until record shifts it
	hasZero   bool
	now       float64 // the latest sample
	leechers  map[string]*leecherFold
	processes map[string]*ProcessSamples
	machine   []Line
	configs   map[pathsel.Interface]linkemu.Config
	paused    map[string][]pathsel.Interface // by the interface at which a router was stopped

	samples, keys int
}

// leecherFold is a leecher on its own clock, which counts from the start of its transfer.
type leecherFold struct {
	*Leecher
	fetched  map[string]float64 // by torrent
	wasted   map[string]float64
	finished map[string]bool
	wanted   int // torrents
	paths    map[pathOf]*Path
}

// pathOf names a path-level peer of a torrent.
type pathOf struct {
	pathsel.Key
	torrent string
}

// Bounds of the samples that are read: 20 leechers with ten paths each make 2.4 million samples in ten minutes.
const (
	maxSamples  = 8 << 20
	maxKeys     = 10_000 // paths, processes and events
	maxTorrents = 64     // of a leecher; each sample sums them
	maxPieces   = 1 << 20
	stateSize   = 8 // of a link, in samples
)

var errUnlikely = errors.New("a time or an amount that no run has")

// saneTime and sane bound numbers of files that may be damaged, so that arithmetic stays finite.
func saneTime(v float64) bool { return v > -1e6 && v < 1e6 }

func sane(values ...float64) bool {
	return !slices.ContainsFunc(values, func(v float64) bool { return !(v > -1e15 && v < 1e15) })
}

// newFold starts the record of a run of a scenario, as it is in its variant.
func newFold(s Scenario) *fold {
	f := &fold{
		Record:   Record{Scenario: s, Links: map[string]*LinkSamples{}},
		leechers: map[string]*leecherFold{}, processes: map[string]*ProcessSamples{},
		configs: map[pathsel.Interface]linkemu.Config{}, paused: map[string][]pathsel.Interface{},
	}
	for _, l := range s.topology.Links {
		f.configs[l.A.Interface], f.configs[l.B.Interface] = l.Config, l.Config
	}
	for _, t := range s.Traffic {
		f.Flows = append(f.Flows, &Flow{Traffic: t, Start: math.Inf(1), End: math.Inf(1)})
	}
	for _, p := range s.Peers {
		if p.Role == Leech {
			f.leechers[p.Name] = &leecherFold{
				Leecher: &Leecher{Name: p.Name, Start: math.Inf(1), delay: s.seedDelay(p)},
				wanted:  s.torrentsOf(p),
				fetched: map[string]float64{}, wasted: map[string]float64{}, finished: map[string]bool{},
				paths: map[pathOf]*Path{},
			}
		}
	}
	f.noteLinks(0)
	return f
}

// add takes the next sample.
func (f *fold) add(l Line) (err error) {
	if f.samples++; f.samples > maxSamples || f.keys > maxKeys {
		return fmt.Errorf("more than %d samples or %d paths and events", maxSamples, maxKeys)
	}
	if !saneTime(l.T) || !sane(l.CPU, l.AllCPU) {
		return errUnlikely
	}
	f.now = max(f.now, l.T)
	switch l.Kind {
	case "path":
		f.addRoute(l)
	case "peer":
		if l.said == nil {
			if l.said, err = event.Parse(l.Event); err != nil {
				return fmt.Errorf("peer %s: %w", l.What, err)
			}
		}
		return f.addSaid(l.What, l.T, l.said)
	case "event":
		f.keys++
		f.addEvent(l)
	case "traffic":
		if x := f.flow(l.What); x != nil {
			x.Received.add(l.T, float64(l.Bytes))
		}
	case "link":
		s := f.Links[l.At]
		if s == nil {
			f.keys++
			s = &LinkSamples{first: l}
			f.Links[l.At] = s
		}
		s.last = l
		s.Sent.add(l.T, float64(l.Bytes-s.first.Bytes))
		if l.BFD != nil {
			s.bfd = [2]*int{cmp.Or(s.bfd[0], l.BFD), l.BFD}
		}
	case "process":
		p := f.processes[l.What]
		if p == nil {
			f.keys++
			p = &ProcessSamples{Name: l.What, Component: f.Scenario.componentOf(l.What)}
			f.processes[l.What], f.Processes = p, append(f.Processes, p)
		}
		_, before := p.cpu.Last()
		p.cpu.add(l.T, max(before, l.CPU))
		p.Peak = max(p.Peak, cmp.Or(l.PSS, l.RSS))
	case "machine":
		f.machine = append(f.machine, l)
	}
	return nil
}

// addRoute takes a way between two peers, or that of a flow.
func (f *fold) addRoute(l Line) {
	r := l.route
	if x := f.flow(l.What); x != nil {
		x.route = r
		return
	}
	fromSeed := slices.ContainsFunc(f.Scenario.Peers, func(p Peer) bool { return p.Name == l.To && p.Role == Seed })
	f.overlay = append(f.overlay, overlay{l.To, l.What, r})
	f.feed = f.feed || !fromSeed
	to := f.leechers[l.What]
	switch {
	case to == nil:
	case fromSeed:
		to.routes = append(to.routes, r)
	case len(r.Links) > 0: // else nothing between the peers limits them
		r.Links, r.Back = r.Back, r.Links
		f.overlay = append(f.overlay, overlay{l.What, l.To, r})
	}
}

// flow returns the flow of a name; nil if there is none.
func (f *fold) flow(name string) *Flow {
	i := slices.IndexFunc(f.Flows, func(x *Flow) bool { return x.Name == name })
	if i < 0 {
		return nil
	}
	return f.Flows[i]
}

// addEvent takes what the scenario did.
func (f *fold) addEvent(l Line) {
	f.Events = append(f.Events, l)
	switch l.What {
	case "traffic", "traffic-end":
		if x := f.flow(l.At); x != nil && l.What == "traffic" {
			x.Start = l.T
		} else if x != nil {
			x.End = l.T
		}
	case "zero":
		f.Zero, f.hasZero = l.T, true
	case "end":
		if p := f.leechers[l.At]; p != nil {
			p.End = l.T
		}
	case "pause":
		f.paused[l.At] = l.Interfaces
		f.noteLinks(l.T)
	case "resume":
		delete(f.paused, l.At)
		f.noteLinks(l.T)
	case "link":
		i := -1
		if l.Change != nil {
			i = f.Scenario.topology.LinkAt(l.Change.Interface)
		}
		if i < 0 {
			return
		}
		link := f.Scenario.topology.Links[i]
		for _, e := range []pathsel.Interface{link.A.Interface, link.B.Interface} {
			if c := f.configs[e]; l.Change.Concerns(e) {
				l.Change.Apply(&c)
				f.configs[e] = c
			}
		}
		f.noteLinks(l.T)
	}
}

// noteLinks records what the links carry from a time on.
func (f *fold) noteLinks(t float64) {
	stopped := slices.Concat(slices.Collect(maps.Values(f.paused))...)
	s := linkState{t, map[pathsel.Interface]float64{}, map[pathsel.Interface]bool{}}
	for _, l := range f.Scenario.topology.Links {
		a, b := l.A.Interface, l.B.Interface
		still := slices.Contains(stopped, a) || slices.Contains(stopped, b)
		for _, e := range []pathsel.Interface{a, b} {
			c := f.configs[e]
			if still || c != l.Config {
				s.changed[e] = true
			}
			switch {
			case c.Down || still:
				s.capacity[e] = 0
			case c.Rate == 0:
				s.capacity[e] = math.Inf(1)
			default:
				s.capacity[e] = float64(c.Rate) * (1 - c.Loss)
			}
		}
	}
	f.states = append(f.states, s)
	f.samples += stateSize * len(s.capacity)
}

// addSaid takes an event of a leecher that arrived at t. The leecher's own clock says when it
// happened; the arrival says when that clock was started. Events take a moment or longer to arrive,
// so the earliest start that any event suggests is right.
func (f *fold) addSaid(name string, t float64, said any) error {
	l := f.leechers[name]
	if l == nil {
		return nil
	}
	var own float64
	switch e := said.(type) {
	case *event.Progress:
		own = e.T
		if err := f.addProgress(l, e); err != nil {
			return err
		}
	case *event.Done:
		own = e.Seconds
		p := event.Progress{T: own, InfoHash: e.InfoHash, Fetched: e.Fetched, Wasted: e.Wasted, Paths: e.Paths}
		if err := f.addProgress(l, &p); err != nil {
			return err
		}
		l.finished[e.InfoHash] = true
		// Who is observed from outside is done with all torrents at once.
		l.Complete = e.InfoHash == "" || len(l.finished) >= l.wanted
	case *event.Piece:
		own = e.T
		if e.Piece >= 0 && e.Piece < maxPieces {
			l.pieces = append(l.pieces, *e)
		}
	case *event.PathStep:
		own = e.T
		if e.Conn > 0 {
			break // in a recording of braid 0.2: one more connection on the path
		}
		p := f.path(l, pathOf{pathsel.Key{Peer: e.Peer, Path: e.Fingerprint}, e.InfoHash})
		l.Choices = append(l.Choices, Choice{own, p, strings.TrimPrefix(e.Event, "path-"), e.Reason})
		f.keys++
	default:
		return nil
	}
	if !saneTime(own) {
		return errUnlikely
	}
	if math.IsInf(l.Start, 1) { // its first event
		f.Leechers = append(f.Leechers, l.Leecher)
	}
	l.Start = min(l.Start, t-own)
	if _, got := l.Payload.Last(); !f.hasZero && got > 0 {
		f.Zero, f.hasZero = t, true
	}
	return nil
}

func (f *fold) addProgress(l *leecherFold, e *event.Progress) error {
	if l.Complete {
		return nil // it serves others now
	}
	if !saneTime(e.T) || !sane(float64(e.Fetched)) || len(l.fetched) > maxTorrents {
		return errUnlikely
	}
	l.wasted[e.InfoHash] = max(l.wasted[e.InfoHash], float64(e.Wasted))
	l.Wasted = total(l.wasted)
	l.fetched[e.InfoHash] = float64(e.Fetched)
	l.Payload.add(e.T, total(l.fetched))
	for _, x := range e.Paths {
		f.samples++
		if x.Conn > 0 {
			continue // as in addSaid
		}
		p := f.path(l, pathOf{pathsel.Key{Peer: pathsel.PeerID(x.Peer), Path: x.Fingerprint}, e.InfoHash})
		if !sane(x.RTT, x.MinRTT, x.Handshake, float64(x.BytesRead)) {
			return errUnlikely
		}
		p.Read.add(e.T, float64(x.BytesRead))
		if p.Handshake <= 0 {
			p.Handshake = x.Handshake
		}
		p.Transport, p.RTT, p.MinRTT, p.Sent, p.Lost = x.Transport, x.RTT, x.MinRTT, x.PacketsSent, x.PacketsLost
	}
	return nil
}

// path returns the path of that key, or a new one.
func (f *fold) path(l *leecherFold, k pathOf) *Path {
	p := l.paths[k]
	if p == nil {
		f.keys++
		p = &Path{Key: k.Key, Torrent: k.torrent}
		i := slices.IndexFunc(f.overlay, func(o overlay) bool { return o.Fingerprint == k.Path })
		if i >= 0 && k.Path != "" {
			p.Interfaces = f.overlay[i].Interfaces
		}
		l.paths[k], l.Paths = p, append(l.Paths, p)
	}
	return p
}

func total(m map[string]float64) (all float64) {
	for _, v := range m {
		all += v
	}
	return all
}

// fetched returns how many bytes of payload all leechers have so far.
func (f *fold) fetched() (n float64) {
	for _, l := range f.leechers {
		n += total(l.fetched)
	}
	return n
}

// record returns the finished record. The fold must not be used after that.
func (f *fold) record() (*Record, error) {
	if !f.hasZero {
		return nil, errors.New("no payload came at all")
	}
	r := &f.Record
	for _, l := range r.Leechers {
		start := l.Start - r.Zero
		l.Payload.shift(start)
		for _, p := range l.Paths {
			p.Read.shift(start)
		}
		for i := range l.Choices {
			l.Choices[i].T += start
		}
		for i := range l.pieces {
			l.pieces[i].T += start
		}
		last, _ := l.Payload.Last()
		if l.Complete || l.End == 0 {
			l.End = last
		} else {
			l.End -= r.Zero
		}
		l.Start = start
		r.End = max(r.End, l.End)
	}
	if len(r.Scenario.Peers) == 0 {
		r.End = r.Scenario.Lasts.D().Seconds()
	}
	r.Flows = slices.DeleteFunc(r.Flows, func(x *Flow) bool { return math.IsInf(x.Start, 1) })
	for _, x := range r.Flows {
		x.Start, x.End = x.Start-r.Zero, min(x.End, f.now)-r.Zero
		x.Received.shift(-r.Zero)
	}
	for _, s := range r.Links {
		s.Sent.shift(-r.Zero)
	}
	for i := range r.states {
		r.states[i].t -= r.Zero
	}
	for i := range r.Events {
		r.Events[i].T -= r.Zero
	}
	slices.SortStableFunc(r.Events, func(a, b Line) int { return cmp.Compare(a.T, b.T) })
	f.countCPU()
	return r, nil
}

// countCPU counts processor time from the first look at the processes after the first payload byte.
func (f *fold) countCPU() {
	from := math.Inf(1)
	for _, p := range f.Processes {
		if i, _ := slices.BinarySearch(p.cpu.T, f.Zero); i < len(p.cpu.T) {
			from = min(from, p.cpu.T[i])
		}
	}
	var all float64
	for _, p := range f.Processes {
		last, used := p.cpu.Last()
		p.Used = used - p.cpu.before(from)
		p.Cores = p.Used / max(last-max(from, p.cpu.T[0]), 1e-3)
		all += p.Used
	}
	i := slices.IndexFunc(f.machine, func(l Line) bool { return l.T >= from })
	if i < 0 {
		return
	}
	a, b := f.machine[i], f.machine[len(f.machine)-1]
	if whole := b.AllCPU - a.AllCPU; whole > 0 {
		f.CPU, f.OwnCPU, f.RealTime = (b.CPU-a.CPU)/whole, all/whole, b.RealTime
	}
}
