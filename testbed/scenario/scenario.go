// Package scenario runs experiments on a real SCION network on this machine. A file says what
// happens, and the results are compared with what the links could have carried.
//
// It owns the format of scenario files, the course of a run, its samples, and the figures. It does
// not measure inside braid: peers are processes of their own, and their events are all that is
// known of them. testbed/scenarios has the files and describes the format.
//
//	scenario.go, value.go, check.go             the file
//	vary.go, neighbours.go                      variants and groups of peers
//	runner.go, fixtures.go, claim.go            repetitions, networks, data, the run directory
//	turns.go                                    the order of runs, and how long they take
//	attempt.go, peer.go, traffic.go             one run
//	place.go, client.go                         where a peer runs, and which program
//	sample.go, fold.go, record.go               samples, and the record that they make
//	limit.go, spread.go, measure.go, propagation.go, watch.go   figures: functions from a record
//	summary.go                                  the figures over all runs
//	rundir.go                                   a run directory, read again
//
// Unsolved: in a swarm, T* assumes links that do not change and very small pieces. Only a gateway
// is on SCION and on IP at once, and no emulated link lies between it and its leecher.
package scenario

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"braid/pathsel"
	"braid/testbed"
)

// Scenario is an experiment, as its file describes it.
type Scenario struct {
	Name     string `yaml:"-"` // of the file, without .yaml
	About    string `yaml:"about"`
	Topology string `yaml:"topology"` // shipped, or a file beside the scenario
	// BFD is the interval at which routers watch links, or "off"; "" is the testbed's default.
	BFD          string   `yaml:"bfd"`
	PathLifetime Duration `yaml:"path_lifetime"`
	// MachineBound tells readers that the links are faster than the machine on purpose. Runs do not
	// depend on it; TestShipped wants it where it is true.
	MachineBound bool   `yaml:"machine_bound"`
	Links        []Link `yaml:"links"` // what differs from the topology, from the beginning

	Settings `yaml:",inline"`
	// Tracker: a tracker on SCION, in the AS of the first seed, introduces the peers. Without it,
	// leechers are told whom to download from.
	Tracker bool `yaml:"tracker"`
	// DHT: the same, with a node of the DHT on SCION in place of a tracker.
	DHT     bool      `yaml:"dht"`
	Peers   []Peer    `yaml:"peers"`
	Traffic []Traffic `yaml:"traffic"`
	// Lasts is the length of a scenario that has traffic only.
	Lasts  Duration `yaml:"lasts"`
	Events []Event  `yaml:"events"`

	Runs    int      `yaml:"runs"`
	Seed    uint64   `yaml:"seed"`
	Takes   Duration `yaml:"takes"`   // one run, about; 0 in the file: as long as the links need
	Timeout Duration `yaml:"timeout"` // of one run
	Sample  Duration `yaml:"sample"`  // time between two samples of a leecher
	// Templates and Matrix make Variants: see expandVariants.
	Templates []yaml.Node `yaml:"variants"`
	Matrix    yaml.Node   `yaml:"matrix"`
	Variants  []Variant   `yaml:"-"`
	Smoke     Smoke       `yaml:"smoke"`

	Measure []Measure         `yaml:"measure"`
	Expect  map[string]string `yaml:"expect"`

	topology testbed.Topology // with Links
	lines    lines
	text     []byte
	data     string  // the folder or file to transfer; empty: random bytes. See Transferring.
	scale    float64 // 1, or see Scaled
	leechers int     // the most that any variant has; 0: no bound
}

// Settings are of the scenario, unless a variant has others.
type Settings struct {
	Size     Bytes  `yaml:"size"`         // of each torrent
	Pieces   Bytes  `yaml:"piece_length"` // 0: what braid create takes for the size
	Torrents int    `yaml:"torrents"`     // that all peers have or want
	Router   string `yaml:"router"`       // stock (or ""), fast
	MTU      int    `yaml:"mtu"`          // of all ASes and links; 0: what the topology says
	// Congestion is braid's congestion controller over SCION and QUIC, TCP the kernel's for braid's
	// TCP. "" is the default of each.
	Congestion string `yaml:"congestion"`
	TCP        string `yaml:"tcp"`
}

// Link is what a link is like at the start of each run.
type Link struct {
	At         At         `yaml:"at"`
	Direction  string     `yaml:"direction"` // must be "": both directions are alike
	Properties properties `yaml:",inline"`

	change testbed.LinkChange // Properties
	line   int                // of the file
}

// Smoke bounds a run that only shows that everything works.
type Smoke struct {
	Scale    float64  `yaml:"scale"`    // of data and times; 0: as much as is done in a second or two
	Variants []string `yaml:"variants"` // by default the first
	Leechers int      `yaml:"leechers"` // at most; 0: all
}

// Roles of a peer.
const (
	Seed  = "seed"
	Leech = "leech"
)

// Transports of a peer: how data comes from seeds to leechers.
const (
	SCION   = "scion"   // or ""
	Web     = "web"     // seeds are web seeds on SCION, from which leechers read over HTTP/3
	Gateway = "gateway" // seeds are on SCION; a leecher is on IP, beside a gateway of its own: see place.go
	TCP     = "tcp"     // on IP, over the same links, by the shortest way
	QUIC    = "quic"    // likewise
	WebRTC  = "webrtc"  // likewise; a tracker over WebSocket tells all of these peers of each other
)

// Peer is one process.
type Peer struct {
	Name      string     `yaml:"name"`
	AS        pathsel.IA `yaml:"as"`
	Role      string     `yaml:"role"`
	Transport string     `yaml:"transport"`
	// Client is braid (or ""), or another BitTorrent client with its stock settings, which speaks
	// TCP: see client.go.
	Client   string   `yaml:"client"`
	Selector string   `yaml:"selector"` // a leecher's, unless a variant says otherwise
	Args     []string `yaml:"args"`     // more flags for braid
	// From names peers that a leecher downloads from. They come before it in the list and have its
	// transport. "all" names all of them; the default is all seeds. Other clients and peers on
	// WebRTC find peers through a tracker.
	From []string `yaml:"from"`
	// Stays: a complete leecher serves others until all are complete. Other clients always do.
	Stays bool `yaml:"stays"`
	Start When `yaml:"start"`
	// Stop interrupts the peer, Crash kills it. A leecher ends by itself when it is done.
	Stop  *When `yaml:"stop"`
	Crash *When `yaml:"crash"`
	// Count makes a group of peers, each of which starts and stops Every later than the one before.
	Count int      `yaml:"count"`
	Every Duration `yaml:"every"`

	torrent int // its torrent, from 1; 0: all
	line    int // of the file
}

// everybody in From means all peers that come before.
const everybody = "all"

// Kinds of cross traffic.
const (
	Bulk      = "bulk"      // one QUIC connection that takes all it can get
	Datagrams = "datagrams" // at a constant rate, even if they are lost
)

// Traffic is a flow that competes with the peers, over one path.
type Traffic struct {
	Name  string     `yaml:"name"`
	Kind  string     `yaml:"kind"`
	From  pathsel.IA `yaml:"from"`
	To    pathsel.IA `yaml:"to"`
	Over  At         `yaml:"over"` // an interface of its path; the first path that has it is taken
	Rate  Rate       `yaml:"rate"` // of datagrams: of whole SCION packets
	Start When       `yaml:"start"`
	Stop  *When      `yaml:"stop"`
}

// Event changes a link or stops a router during a run.
type Event struct {
	At         *When      `yaml:"at"`
	Link       *At        `yaml:"link"`
	Direction  string     `yaml:"direction"` // both (or ""), out, in; seen from the interface
	Properties properties `yaml:",inline"`
	// Pause stops the router that has the interface.
	Pause *At `yaml:"pause"`
	// For is how long it lasts; 0: to the end of the run. Then the link is again as at the start.
	For Duration `yaml:"for"`
	// Times repeats the event, every Every from its first time.
	Every Duration `yaml:"every"`
	Times int      `yaml:"times"`

	change testbed.LinkChange // Properties of Link in Direction
}

// Measure is a figure of each run; testbed/scenarios/README.md describes them.
type Measure struct {
	Name string `yaml:"name"`
	What string `yaml:"what"`
	Over *At    `yaml:"over"` // an interface: only paths that have it
	Of   string `yaml:"of"`   // a peer, or traffic; by default all leechers
	// From and To are the window, in time after the first payload byte; To is by default the end of
	// the run.
	From Duration `yaml:"from"`
	To   Duration `yaml:"to"`
	// Base is another window to compare with.
	Base *Window `yaml:"base"`
}

// Window is a span of time after the first payload byte.
type Window struct {
	From Duration `yaml:"from"`
	To   Duration `yaml:"to"`
}

const maxFile = 64 << 10

// Parse reads a scenario file. The base name of the file without .yaml is the scenario's name.
// topology finds the topology that the file names. Errors name the file and the line.
func Parse(file string, r io.Reader, topology func(string) (testbed.Topology, error)) (s Scenario, err error) {
	defer func() {
		if err != nil {
			err = inFile(file, err)
		}
	}()
	s = Scenario{
		Name: strings.TrimSuffix(filepath.Base(file), ".yaml"), scale: 1, Settings: Settings{Torrents: 1},
		Runs: 5, Seed: 1, Timeout: Duration(2 * time.Minute), Sample: Duration(50 * time.Millisecond),
	}
	if s.text, err = io.ReadAll(io.LimitReader(r, maxFile+1)); err != nil {
		return s, err
	}
	if len(s.text) > maxFile {
		return s, fmt.Errorf("larger than %d bytes", maxFile)
	}
	if err := decode(s.text, &s); err != nil {
		return s, err
	}
	if err = yaml.Unmarshal(s.text, &s.lines); err != nil {
		return s, err
	}
	for i := range s.Peers {
		s.Peers[i].line = s.lines.item("peers", i)
	}
	if err := s.expand(); err != nil {
		return s, err
	}
	if s.topology, err = topology(s.Topology); err != nil {
		return s, onLine(s.lines.of("topology"), "%w", err)
	}
	s.setDefaults()
	return s, s.check()
}

// expand makes the variants and the peers that the file describes.
func (s *Scenario) expand() error {
	matrix, err := parseMatrix(&s.Matrix)
	if err != nil {
		return onLine(s.lines.of("matrix"), "matrix: %w", err)
	}
	if s.Variants, err = expandVariants(s.Templates, matrix); err != nil {
		return onLine(s.lines.of("variants"), "variants: %w", err)
	}
	s.Peers, err = expandPeers(s.Peers)
	return err
}

// setDefaults sets defaults of peers and variants.
func (s *Scenario) setDefaults() {
	for i := range s.Peers {
		p := &s.Peers[i]
		p.Transport = cmp.Or(p.Transport, SCION)
		p.Client = cmp.Or(p.Client, Braid)
		if p.Role == Leech {
			p.Selector = cmp.Or(p.Selector, "adaptive")
		}
	}
	if len(s.Variants) == 0 {
		s.Variants = []Variant{{Name: "default"}}
	}
}

// Only returns the scenario with some of its variants, which are also those of Smoky.
func (s Scenario) Only(names []string) (Scenario, error) {
	variants := s.Variants
	s.Variants, s.Smoke.Variants = nil, names
	for _, n := range names {
		i := slices.IndexFunc(variants, func(v Variant) bool { return v.Name == n })
		if i < 0 {
			return s, fmt.Errorf("scenario %s has no variant %s", s.Name, n)
		}
		if slices.Index(names, n) < len(s.Variants) {
			return s, fmt.Errorf("variant %s is named twice", n)
		}
		s.Variants = append(s.Variants, variants[i])
	}
	return s, nil
}

// Transferring returns the scenario with other data: the folder or file at path, of so many bytes,
// instead of random bytes. Its torrent is written beside it.
func (s Scenario) Transferring(path string, size int64) Scenario {
	s.data, s.Size = path, Bytes(size)
	return s
}

// In returns the scenario as it is in one of its variants.
func (s Scenario) In(variant string) (Scenario, error) {
	only, err := s.Only([]string{variant})
	if err != nil {
		return s, err
	}
	return s.in(only.Variants[0])
}

// Network returns the topology, with its links as they are at the start of a run.
func (s Scenario) Network() testbed.Topology { return s.topology }

// Scaled returns the scenario with that part of its data and of its times, for a quick look.
// Reactions, such as noticing that a path is down, keep their length, so they take a larger part of
// the run.
func (s Scenario) Scaled(by float64) (Scenario, error) {
	if !(by > 0 && by <= 1) {
		return s, fmt.Errorf("scale %v: want more than 0 and at most 1", by)
	}
	s.scale *= by
	scale := func(times ...*Duration) {
		for _, t := range times {
			*t = scaled(*t, by)
		}
	}
	size := func(b *Bytes) { *b = max(1, Bytes(float64(*b)*by)) }
	size(&s.Size)
	scale(&s.Takes, &s.Lasts)
	s.Variants, s.Peers, s.Traffic = slices.Clone(s.Variants), slices.Clone(s.Peers), slices.Clone(s.Traffic)
	s.Events, s.Measure = slices.Clone(s.Events), slices.Clone(s.Measure)
	for i := range s.Variants {
		if v := &s.Variants[i]; v.Size > 0 {
			size(&v.Size)
		}
	}
	for i := range s.Peers {
		p := &s.Peers[i]
		p.Start, p.Stop, p.Crash = *p.Start.scaled(by), p.Stop.scaled(by), p.Crash.scaled(by)
	}
	for i := range s.Traffic {
		t := &s.Traffic[i]
		t.Start, t.Stop = *t.Start.scaled(by), t.Stop.scaled(by)
	}
	for i := range s.Events {
		e := &s.Events[i]
		e.At = e.At.scaled(by)
		scale(&e.For, &e.Every)
	}
	for i := range s.Measure {
		m := &s.Measure[i]
		scale(&m.From, &m.To)
		if m.Base != nil {
			m.Base = &Window{scaled(m.Base.From, by), scaled(m.Base.To, by)}
		}
	}
	return s, nil
}

// Smoky returns a scenario of a few seconds, with one run of a few variants. It shows that
// everything works.
func (s Scenario) Smoky() (Scenario, error) {
	const enough = 2 * time.Second // of a run that is scaled down
	names := s.Smoke.Variants
	if len(names) == 0 {
		names = []string{s.Variants[0].Name}
	}
	s, err := s.Only(names)
	if err != nil {
		return s, err
	}
	s.Runs, s.leechers = 1, s.Smoke.Leechers
	scale := s.Smoke.Scale
	if scale == 0 {
		scale = min(1, enough.Seconds()/s.Takes.D().Seconds())
	}
	return s.Scaled(scale)
}

func (w *When) scaled(by float64) *When {
	if w == nil {
		return nil
	}
	return &When{scaled(w.After, by), w.Done}
}

func scaled[T Duration | time.Duration](t T, by float64) T { return T(float64(t) * by) }
