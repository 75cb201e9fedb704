package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"braid/client"
	"braid/pathsel"
	"braid/scionnet/congestion"
	"braid/testbed"
)

// Bounds of a scenario. Larger values are mistakes in the file, or would take a day.
const (
	maxPeers  = 64
	maxEvents = 256
	maxTimes  = 10_000
	maxRuns   = 1000
	maxSize   = Bytes(1 << 40)
	maxTime   = 24 * time.Hour
	minSample = 10 * time.Millisecond
)

// check returns an error if the scenario cannot be run. It also applies the scenario's links to the
// topology.
func (s *Scenario) check() error {
	wrong := func(key, format string, args ...any) error {
		return onLine(s.lines.of(key), key+": "+format, args...)
	}
	switch {
	case slices.Contains([]string{runFile, csvFile, claimFile, "report"}, s.Name):
		return fmt.Errorf("run directories have something else of the name %s: rename the file", s.Name)
	case strings.TrimSpace(s.About) == "":
		return wrong("about", "describe the scenario in one line")
	case len(s.Peers) == 0 && (len(s.Traffic) == 0 || s.Lasts <= 0 || s.Lasts.D() > maxTime):
		return wrong("peers", "without peers, a scenario needs traffic and lasts")
	case len(s.Peers) > 0 && (s.Size <= 0 || s.Size > maxSize):
		return wrong("size", "want an amount of data, such as 20MB")
	case len(s.Peers) > maxPeers || len(s.Traffic) > maxPeers || len(s.Measure) > maxPeers:
		return fmt.Errorf("more than %d peers, flows or measures", maxPeers)
	case s.Torrents < 1 || s.Torrents > maxPeers:
		return wrong("torrents", "want 1 to %d", maxPeers)
	case s.Smoke.Scale < 0 || s.Smoke.Scale > 1 || s.Smoke.Leechers < 0:
		return wrong("smoke", "want a scale from 0 to 1 and a positive number of leechers")
	case len(s.Events) > maxEvents || len(s.Links) > maxEvents:
		return fmt.Errorf("more than %d events or links", maxEvents)
	case s.Runs < 1 || s.Runs > maxRuns:
		return wrong("runs", "want 1 to %d", maxRuns)
	case s.Takes < 0 || s.Takes.D() > maxTime:
		return wrong("takes", "want the approximate length of a run, such as 20s, at most %v", maxTime)
	case s.Timeout <= 0 || s.Timeout.D() > maxTime:
		return wrong("timeout", "want more than 0, and at most %v", maxTime)
	case len(s.Peers) > 0 && s.Lasts > 0:
		return wrong("lasts", "a run with peers lasts until they are done")
	case s.Sample.D() < minSample || s.Sample.D() > time.Minute:
		return wrong("sample", "want %v to 1m", minSample)
	}
	if _, err := s.options(); err != nil {
		return err
	}
	if err := checkPieces(s.Pieces); err != nil {
		return wrong("piece_length", "%w", err)
	}
	for i, p := range s.Peers {
		if err := s.checkPeer(p, s.Peers[:i]); err != nil {
			return onLine(p.line, "peer %s: %w", p.Name, err)
		}
	}
	leeches := func(p Peer) bool { return p.Role == Leech } // a seed comes before each
	if len(s.Peers) > 0 && !slices.ContainsFunc(s.Peers, leeches) {
		return wrong("peers", "want at least one seed and one leech")
	}
	for i, t := range s.Traffic {
		if err := s.checkTraffic(t, s.Traffic[:i]); err != nil {
			return onLine(s.lines.item("traffic", i), "traffic %q: %w", t.Name, err)
		}
	}
	if err := s.setLinks(s.Links); err != nil {
		return onLine(s.lines.of("mtu"), "%w", err) // a link has its own line
	}
	for i, e := range s.Events {
		if err := s.checkEvent(e); err != nil {
			return onLine(s.lines.item("events", i), "event at %s: %w", cmp.Or(e.Link, e.Pause, &At{}), err)
		}
	}
	if s.Takes == 0 {
		s.Takes = Duration(s.guess())
	}
	for i, m := range s.Measure {
		if err := s.checkMeasure(m, s.Measure[:i]); err != nil {
			return onLine(s.lines.item("measure", i), "measure %s: %w", m.Name, err)
		}
	}
	if err := s.checkExpect(s.Expect); err != nil {
		return wrong("expect", "%w", err)
	}
	for i, v := range s.Variants {
		if err := s.checkVariant(v, s.Variants[:i]); err != nil {
			return onLine(v.line, "variant %s: %w", v.Name, err)
		}
	}
	if _, err := s.Smoky(); err != nil {
		return wrong("smoke", "%w", err)
	}
	return nil
}

// list writes the names in a map.
func list[V any](names map[string]V) string {
	return strings.Join(slices.Sorted(maps.Keys(names)), ", ")
}

// tcpName matches names of the kernel's congestion controllers, of at most 15 characters
// (TCP_CA_NAME_MAX).
var tcpName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,14}$`)

// checkExpect returns an error for an expectation that no run can meet or miss.
func (s *Scenario) checkExpect(expect map[string]string) error {
	for _, n := range slices.Sorted(maps.Keys(expect)) {
		if rankAlways(n) < 0 && !slices.ContainsFunc(s.Measure, func(m Measure) bool { return m.Name == n }) {
			return fmt.Errorf("no measure is called %q", n)
		}
		c, err := parseComparison(expect[n])
		if err != nil {
			return fmt.Errorf("%s: %w", n, err)
		}
		if c.of != "" && !slices.ContainsFunc(s.Variants, func(v Variant) bool { return v.Name == c.of }) {
			return fmt.Errorf("%s: no variant is called %q", n, c.of)
		}
	}
	return nil
}

// checkVariant does the same for the scenario in a variant.
func (s *Scenario) checkVariant(v Variant, earlier []Variant) error {
	if err := plainName(v.Name); err != nil {
		return err
	}
	if slices.ContainsFunc(earlier, func(x Variant) bool { return x.Name == v.Name }) {
		return errors.New("there are two variants of this name")
	}
	x, err := s.in(v)
	if err != nil {
		return err
	}
	switch {
	case x.Size < 0 || x.Size > maxSize, x.Torrents < 0 || x.Torrents > maxPeers || v.Leechers < 0:
		return errors.New("size, torrents or leechers are out of bounds")
	case x.onlyIP() && slices.ContainsFunc(x.Events, func(e Event) bool { return e.Pause != nil }):
		return errors.New("pause: peers on IP have no routers; quiet leaves out the events")
	case v.Degree != 0 && v.Neighbours == "":
		return errors.New("degree needs neighbours")
	case !slices.Contains(routers, x.Router):
		return fmt.Errorf("router %q: want stock or fast", x.Router)
	case x.TCP != "" && !tcpName.MatchString(x.TCP):
		return fmt.Errorf("tcp %q: want a congestion controller of the kernel, such as cubic", x.TCP)
	case x.TCP != "" && cmp.Or(v.Client, Braid) != Braid:
		return errors.New("tcp: the congestion controller of other clients cannot be chosen")
	}
	if err := checkPieces(v.Pieces); err != nil {
		return fmt.Errorf("piece_length: %w", err)
	}
	if err := s.checkExpect(v.Expect); err != nil {
		return fmt.Errorf("expect: %w", err)
	}
	if len(v.Expect) > 0 && v.baseline() {
		return errors.New("expect: nothing is expected of a baseline")
	}
	if x.Congestion != "" {
		if _, err := congestion.ParseAlgorithm(x.Congestion); err != nil {
			return err
		}
	}
	if v.Selector != "" {
		if _, err := pathsel.New(v.Selector); err != nil {
			return fmt.Errorf("selector: %w", err)
		}
	}
	for _, n := range v.Traffic {
		if !slices.ContainsFunc(s.Traffic, func(t Traffic) bool { return t.Name == n }) {
			return fmt.Errorf("traffic %q: no flow has that name", n)
		}
	}
	if len(x.Peers) > maxPeers {
		return fmt.Errorf("more than %d peers", maxPeers)
	}
	for i, p := range x.Peers {
		if err := x.checkSwarm(p, x.Peers[:i]); err != nil {
			return fmt.Errorf("peer %s: %w", p.Name, err)
		}
	}
	return nil
}

// checkPieces returns an error if a torrent cannot have pieces of that length; 0 is the default.
func checkPieces(length Bytes) error {
	return client.CreateOptions{PieceLength: int64(length), ShortPieces: true}.Check()
}

var (
	routers    = []string{"", "stock", "fast"}
	transports = []string{SCION, Web, Gateway, TCP, QUIC, WebRTC}
)

// checkSwarm returns why a peer cannot run, or cannot exchange data with the earlier peers that it
// knows.
func (s *Scenario) checkSwarm(p Peer, earlier []Peer) error {
	switch {
	case slices.ContainsFunc(earlier, func(x Peer) bool { return x.Name == p.Name }):
		return errors.New("there are two peers of this name")
	case slices.ContainsFunc(s.Traffic, func(t Traffic) bool { return t.Name == p.Name }):
		return errors.New("a flow has that name")
	case !slices.Contains(transports, p.Transport):
		return fmt.Errorf("transport %q: want one of %s", p.Transport, strings.Join(transports, ", "))
	case p.Client != Braid && clients[p.Client].command == nil:
		return fmt.Errorf("client %q: want braid, %s", p.Client, list(clients))
	case p.Client != Braid && len(p.Args) > 0:
		return errors.New("args are for braid; other clients have their default settings")
	case s.Tracker && s.DHT:
		return errors.New("tracker: true and dht: true: peers are introduced in one way")
	case s.Tracker && p.onIP():
		return fmt.Errorf("tracker: true is for peers on SCION, not on %s", p.Transport)
	case s.DHT && p.Transport != SCION:
		return fmt.Errorf("dht: true is for peers on SCION, not on %s", p.Transport)
	case p.Transport == Gateway && !s.Tracker:
		return errors.New("transport gateway needs tracker: true, because gateways find seeds through a tracker")
	case p.Transport == Web && (s.introduced() || s.Torrents > 1):
		return errors.New("transport web is for one torrent, without a tracker or the DHT")
	case s.foreign() && p.Transport != TCP:
		return fmt.Errorf("with other clients all peers need transport tcp, not %s", p.Transport)
	case p.Role == Seed:
		return nil
	}
	for _, q := range earlier {
		if slices.Contains(p.From, q.Name) && q.Transport != p.Transport {
			return fmt.Errorf("from %s: peers that exchange data need the same transport, not %s and %s",
				q.Name, q.Transport, p.Transport)
		}
	}
	if !slices.ContainsFunc(earlier, func(q Peer) bool { return s.downloads(p, q) }) {
		if p.Client == Iperf3 {
			return errors.New("no seed before it has client iperf3")
		}
		return fmt.Errorf("no peer before it has transport %s", p.Transport)
	}
	shares := func(q Peer) bool {
		return q.Role == Leech && slices.ContainsFunc(earlier, func(x Peer) bool {
			return x.Role == Seed && s.downloads(p, x) && s.downloads(q, x)
		})
	}
	if p.Client == Iperf3 && slices.ContainsFunc(earlier, shares) {
		return errors.New("a seed of iperf3 serves one leecher: give each leecher a seed of its own with from")
	}
	return nil
}

// manyASes is the size above which only paths that are used are looked up when a network starts.
// Looking up all pairs of a large network loads it for a minute.
const manyASes = 10

// options returns the options of the testbed.
func (s *Scenario) options() (o testbed.Options, err error) {
	o.Topology, o.PathLifetime = s.topology, s.PathLifetime.D()
	if len(s.topology.ASes) > manyASes {
		o.Between = s.ends()
	}
	if s.BFD != "" {
		if o.BFD, err = testbed.ParseBFD(s.BFD); err == nil {
			bfd := testbed.Options{Topology: o.Topology, BFD: o.BFD}
			err = bfd.Check()
		}
		if err != nil {
			return o, onLine(s.lines.of("bfd"), "bfd: %w", err)
		}
	}
	if err = o.Check(); err != nil {
		err = onLine(s.lines.of("path_lifetime"), "%w", err)
	}
	return o, err
}

// ends returns the ASes in which a peer or a flow uses SCION, in order.
func (s *Scenario) ends() (ends []pathsel.IA) {
	for _, p := range s.Peers {
		if !p.onIP() {
			ends = append(ends, p.AS)
		}
	}
	for _, t := range s.Traffic {
		ends = append(ends, t.From, t.To)
	}
	slices.Sort(ends)
	return slices.Compact(ends)
}

func (s *Scenario) hasAS(ia pathsel.IA) bool {
	return slices.ContainsFunc(s.topology.ASes, func(a testbed.AS) bool { return a.IA == ia })
}

func plainName(n string) error {
	if n == "" || len(n) > 60 || strings.Trim(n, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" || n[0] == '.' {
		return fmt.Errorf("name %q: want small letters, digits, -, _, and . except in front", n)
	}
	return nil
}

// checkPeer returns an error for a peer that cannot follow the earlier ones in the list.
func (s *Scenario) checkPeer(p Peer, earlier []Peer) error {
	if err := plainName(p.Name); err != nil {
		return err
	}
	named := func(n string) bool { return slices.ContainsFunc(earlier, func(p Peer) bool { return p.Name == n }) }
	switch {
	case named(p.Name):
		return errors.New("there are two peers of this name")
	case !s.hasAS(p.AS):
		return fmt.Errorf("AS %s is not in topology %s", p.AS, s.topology.Name)
	case p.Start.After >= s.Timeout.D():
		return fmt.Errorf("start: %v is after the timeout", p.Start.After)
	case p.Stop.comesBefore(p.Start) || p.Crash.comesBefore(p.Start):
		return errors.New("it stops before it starts")
	case p.Role == Seed && (len(p.From) > 0 || p.Selector != "" || p.Stays):
		return errors.New("a seed has no from, selector or stays")
	case p.Role == Seed && !p.Start.immediately() && !s.introduced():
		return errors.New("a seed starts at 0s, unless peers find each other by themselves")
	case p.Name == everybody || p.Name == trackerName || p.Name == runnerName:
		return errors.New("this name is reserved")
	case p.Role != Seed && p.Role != Leech:
		return fmt.Errorf("role %q: want seed or leech", p.Role)
	}
	for _, f := range p.From {
		if !named(f) && f != everybody {
			return fmt.Errorf("from %q: no peer of that name before it", f)
		}
	}
	if p.Role == Seed {
		return nil
	}
	if !slices.ContainsFunc(earlier, func(p Peer) bool { return p.Role == Seed }) {
		return errors.New("a seed must come before it")
	}
	if _, err := pathsel.New(p.Selector); err != nil {
		return fmt.Errorf("selector: %w", err)
	}
	return nil
}

func (s *Scenario) checkTraffic(t Traffic, earlier []Traffic) error {
	if err := plainName(t.Name); err != nil {
		return err
	}
	switch {
	case slices.ContainsFunc(s.Peers, func(p Peer) bool { return p.Name == t.Name }):
		return errors.New("a peer has that name")
	case slices.ContainsFunc(earlier, func(x Traffic) bool { return x.Name == t.Name }):
		return errors.New("there are two flows of this name")
	case t.Kind != Bulk && t.Kind != Datagrams:
		return fmt.Errorf("kind %q: want bulk or datagrams", t.Kind)
	case (t.Kind == Datagrams) != (t.Rate > 0):
		return errors.New("datagrams need a rate, bulk has none")
	case t.Start.After >= s.end():
		return s.tooLate(t.Start)
	case len(s.Peers) == 0 && t.Start.Done+cmp.Or(t.Stop, &When{}).Done > 0:
		return errNoData
	case t.Stop.comesBefore(t.Start):
		return errors.New("it stops before it starts")
	case !s.hasAS(t.From) || !s.hasAS(t.To) || t.From == t.To:
		return fmt.Errorf("want two ASes of topology %s", s.topology.Name)
	case s.topology.LinkAt(t.Over.Interface) < 0:
		return fmt.Errorf("over: no link of topology %s ends at %s", s.topology.Name, t.Over)
	}
	return nil
}

func (s *Scenario) checkEvent(e Event) error {
	where := cmp.Or(e.Link, e.Pause)
	switch {
	case (e.Link == nil) == (e.Pause == nil):
		return errors.New("want a link or a pause")
	case e.At == nil:
		return errors.New("want a time at, such as 5s or 30%")
	case e.At.After >= s.end():
		return s.tooLate(*e.At)
	case len(s.Peers) == 0 && e.At.Done > 0:
		return errNoData
	case s.topology.LinkAt(where.Interface) < 0:
		return fmt.Errorf("no link of topology %s ends at %s", s.topology.Name, where)
	case e.Link != nil && len(e.Properties) == 0:
		return fmt.Errorf("want a property that changes at %s", where)
	case e.Pause != nil && (len(e.Properties) > 0 || e.Direction != "" || e.For <= 0):
		return errors.New("a pause needs for, and no properties of a link")
	case e.For < 0 || e.For.D() > maxTime || e.Every < 0 || e.Every.D() > maxTime || e.Times < 0 || e.Times > maxTimes:
		return errors.New("for, every or times are out of bounds")
	case (e.Every > 0) != (e.Times > 1) || e.Every > 0 && (e.For == 0 || e.For >= e.Every):
		return errors.New("to repeat, want times, every, and a for that is shorter than every")
	}
	if e.Link == nil {
		return nil
	}
	if d := e.Direction; d != "" && d != "both" && d != "out" && d != "in" {
		return fmt.Errorf("direction %q: want in, out or both", d)
	}
	c := s.topology.Links[s.topology.LinkAt(where.Interface)].Config
	e.change.Apply(&c)
	return c.Validate()
}

// errNoData is returned for a moment that never comes.
var errNoData = errors.New("without peers there is no part of the data: want a time such as 5s")

func (s *Scenario) tooLate(w When) error {
	return fmt.Errorf("%v is after the end of the run, which takes about %v (takes)", w.After, s.end())
}

// end returns when a run is over at the latest.
func (s *Scenario) end() time.Duration {
	switch {
	case len(s.Peers) == 0:
		return s.Lasts.D()
	case s.Takes > 0:
		return s.Takes.D()
	}
	return s.Timeout.D()
}

// guess estimates how long a run takes, if the file does not say: as long as the links of the
// busiest AS need for the data of its leechers, or for one copy from its seeds.
func (s *Scenario) guess() time.Duration {
	const (
		unlimited = 200e6 // bits per second: about what the machine moves over links without a rate
		around    = time.Second
	)
	if len(s.Peers) == 0 {
		return s.Lasts.D()
	}
	rate, copies := map[pathsel.IA]float64{}, map[pathsel.IA]int{}
	for _, l := range s.topology.Links {
		r := float64(cmp.Or(l.Config.Rate, unlimited))
		rate[l.A.Interface.IA] += r
		rate[l.B.Interface.IA] += r
	}
	for _, p := range s.Peers {
		if p.Role == Leech {
			copies[p.AS]++
		} else {
			copies[p.AS] = max(1, copies[p.AS])
		}
	}
	var longest float64
	for ia, n := range copies {
		longest = max(longest, float64(n)*float64(s.Size)*float64(s.Torrents)*8/max(rate[ia], 1))
	}
	return min(maxTime, around+time.Duration(min(longest, maxTime.Seconds())*float64(time.Second)))
}

func (s *Scenario) checkMeasure(m Measure, earlier []Measure) error {
	if err := plainName(m.Name); err != nil {
		return err
	}
	f, ok := figures[m.What]
	isFlow := func(t Traffic) bool { return t.Name == m.Of && t.Kind == Bulk }
	isLeecher := func(p Peer) bool { return p.Name == m.Of && p.Role == Leech }
	switch {
	case rankAlways(m.Name) >= 0 || slices.ContainsFunc(earlier, func(x Measure) bool { return x.Name == m.Name }):
		return errors.New("there are two measures of this name")
	case !ok:
		return fmt.Errorf("what %q: want one of %s", m.What, list(figures))
	case m.From < 0 || m.From.D() > maxTime || m.To < 0 || m.To.D() > maxTime || m.To != 0 && m.To <= m.From:
		return errors.New("from must lie before to")
	case m.What == "first" && (m.From != 0 || m.To != 0):
		return errors.New("first has no from and no to")
	case f.over != (m.Over != nil) && !f.maybeOver:
		return errors.New("out and back need over, rate and ratio may have it, others must not")
	case f.base != (m.Base != nil) || m.Base != nil && m.Base.To <= m.Base.From:
		return errors.New("ratio needs a window base, others must not have one")
	case f.flow != slices.ContainsFunc(s.Traffic, isFlow):
		return errors.New("share needs the name of bulk traffic in of, others must not name a flow")
	case m.Of != "" && !f.flow && !slices.ContainsFunc(s.Peers, isLeecher):
		return fmt.Errorf("of %q: no leecher has that name", m.Of)
	case m.Over != nil && s.topology.LinkAt(m.Over.Interface) < 0:
		return fmt.Errorf("no link of topology %s ends at %s", s.topology.Name, m.Over)
	}
	return nil
}
