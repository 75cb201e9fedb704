package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"braid/pathsel"
	"braid/testbed"
	"braid/testbed/figure"
	"braid/testbed/linkemu"
	"braid/testbed/scenario"
)

// course is a run as it is shown: its record, with names for paths and spans for events.
type course struct {
	*scenario.Record
	result   scenario.Result
	names    names
	of       string // scenario and run, for captions
	leechers []*leecher
	spans    []span
}

type leecher struct {
	*scenario.Leecher
	paths []*path // in the order of their interfaces
}

type path struct {
	*scenario.Path
	name  string // path 1, 2, ...
	via   string // its interfaces, or what is known instead
	got   float64
	stays []scenario.Stay
	exits []scenario.Stay // the ends of its connections
}

// courseOf reads a run of a scenario.
func courseOf(run scenario.RunDir, r scenario.Result, scale string) (*course, error) {
	record, err := run.Record(r)
	if err != nil {
		return nil, err
	}
	return newCourse(record, r, fmt.Sprintf("%s, %s, run %d", scale, r.Variant, r.Run)), nil
}

// newCourse names the paths. A path has the same name in all runs of a scenario, as far as the same
// paths are known there.
func newCourse(r *scenario.Record, res scenario.Result, of string) *course {
	c := &course{Record: r, result: res, names: shortNames(r.Scenario.Network()), of: of}
	c.spans = spansOf(r.Events, r.Scenario.Network(), c.names)
	for _, x := range r.Leechers {
		l := &leecher{Leecher: x}
		several := slices.ContainsFunc(x.Paths, func(p *scenario.Path) bool { return p.Torrent != x.Paths[0].Torrent })
		for _, p := range x.Paths {
			q := &path{Path: p, via: c.names.via(p), got: p.Read.At(r.End)}
			if several {
				q.via += fmt.Sprintf(", torrent %.8s", p.Torrent)
			}
			q.stays, q.exits = x.Stays(p, r.End)
			chosen := slices.ContainsFunc(x.Choices, func(c scenario.Choice) bool { return c.Path == p })
			if _, read := p.Read.Last(); read > 0 || chosen { // else it would be a line of noise
				l.paths = append(l.paths, q)
			}
		}
		slices.SortStableFunc(l.paths, func(a, b *path) int {
			return cmp.Or(cmp.Compare(a.via, b.via), cmp.Compare(a.Key.Path, b.Key.Path),
				cmp.Compare(a.Key.Peer, b.Key.Peer))
		})
		for i, q := range l.paths {
			q.name = fmt.Sprint("path ", i+1)
		}
		c.leechers = append(c.leechers, l)
	}
	return c
}

func (c *course) figures() []figure.Figure {
	return []figure.Figure{c.ratesFigure(), c.timelineFigure(), c.networkFigure(), c.cpuFigure()}
}

// from and to return the beginning and the end of the time that figures show.
func (c *course) from() (from float64) {
	for _, l := range c.leechers {
		if len(l.Payload.T) > 0 {
			from = min(from, l.Payload.T[0])
		}
	}
	return from
}

func (c *course) to() float64 { return max(c.End, c.from()+1e-3) }

// span is a time in which something was different. It is a moment if from and to are equal.
type span struct {
	from, to float64 // to: +Inf until the end of the run
	text     string
}

func (s span) moment() bool { return s.from == s.to }

func (s span) String() string {
	switch {
	case s.moment():
		return fmt.Sprintf("%.1f s: %s", s.from, s.text)
	case math.IsInf(s.to, 1):
		return fmt.Sprintf("from %.1f s on: %s", s.from, s.text)
	}
	return fmt.Sprintf("%.1f to %.1f s: %s", s.from, s.to, s.text)
}

// spansOf returns what the scenario did, in the order of time.
func spansOf(events []scenario.Line, t testbed.Topology, n names) []span {
	var out []span
	open := map[string]int{} // what is under way, by what ends it
	begin := func(key string, at float64, text string) {
		open[key] = len(out)
		out = append(out, span{at, math.Inf(1), text})
	}
	end := func(key string, at float64) {
		if i, ok := open[key]; ok {
			out[i].to = at
			delete(open, key)
		}
	}
	now := ends{}
	for _, l := range t.Links {
		now[l.A.Interface], now[l.B.Interface] = l.Config, l.Config
	}
	start := maps.Clone(now)
	inForce := map[int]testbed.LinkChange{} // by the span
	for _, e := range events {
		switch e.What {
		case "link":
			if e.Change == nil {
				continue
			}
			now.change(*e.Change, t)
			for i, c := range inForce {
				if !now.have(c, t) {
					out[i].to = e.T
					delete(inForce, i)
				}
			}
			if !start.have(*e.Change, t) {
				inForce[len(out)] = *e.Change
				out = append(out, span{e.T, math.Inf(1), n.written(e.At) + " " + e.Change.String()})
			}
		case "pause":
			begin("pause "+e.At, e.T, "router of "+n.written(e.At)+" stopped")
		case "resume":
			end("pause "+e.At, e.T)
		case "traffic":
			begin("traffic "+e.At, e.T, e.At)
		case "traffic-end":
			end("traffic "+e.At, e.T)
		case "crash":
			out = append(out, span{e.T, e.T, e.At + " killed"})
		case "stop":
			out = append(out, span{e.T, e.T, e.At + " leaves"})
		case "start":
			if e.T > 0 {
				out = append(out, span{e.T, e.T, e.At + " starts"})
			}
		}
	}
	return out
}

// ends are the properties of links, by the interface that sends.
type ends map[pathsel.Interface]linkemu.Config

// changed returns the ends that a change is about, as they are after it.
func (e ends) changed(c testbed.LinkChange, t testbed.Topology) ends {
	out := ends{}
	if i := t.LinkAt(c.Interface); i >= 0 {
		for _, at := range []pathsel.Interface{t.Links[i].A.Interface, t.Links[i].B.Interface} {
			if c.Concerns(at) {
				now := e[at]
				c.Apply(&now)
				out[at] = now
			}
		}
	}
	return out
}

func (e ends) change(c testbed.LinkChange, t testbed.Topology) { maps.Copy(e, e.changed(c, t)) }

// have tells whether the ends are as after a change.
func (e ends) have(c testbed.LinkChange, t testbed.Topology) bool {
	for at, after := range e.changed(c, t) {
		if e[at] != after {
			return false
		}
	}
	return true
}

// names are short forms of the ASes of a network.
type names map[pathsel.IA]string

// shortNames calls each AS by the last part of its number, such as 110 for 1-ff00:0:110, if that
// tells the ASes apart.
func shortNames(t testbed.Topology) names {
	n, taken := names{}, map[string]bool{}
	for _, a := range t.ASes {
		s := a.IA.String()
		short := s[strings.LastIndexAny(s, ":-")+1:]
		if taken[short] {
			return names{}
		}
		n[a.IA], taken[short] = short, true
	}
	return n
}

func (n names) as(ia pathsel.IA) string { return cmp.Or(n[ia], ia.String()) }

func (n names) at(i pathsel.Interface) string { return fmt.Sprintf("%s#%d", n.as(i.IA), i.ID) }

// written returns the short form of an interface that a file names.
func (n names) written(s string) string {
	i, err := pathsel.ParseInterface(s)
	if err != nil {
		return s
	}
	return n.at(i)
}

// via writes the interfaces of a path as scion showpaths does: 111 1>2 110 4>1 112.
func (n names) via(p *scenario.Path) string {
	switch {
	case p.Key.Path == "":
		return "IP" // or within one AS
	case len(p.Interfaces) == 0:
		return strings.TrimSpace(p.Transport + " " + p.Key.Path.Short())
	}
	s := n.as(p.Interfaces[0].IA)
	for i := 0; i+1 < len(p.Interfaces); i += 2 {
		s += fmt.Sprintf(" %d>%d %s", p.Interfaces[i].ID, p.Interfaces[i+1].ID, n.as(p.Interfaces[i+1].IA))
	}
	return s
}

// process returns the short form of a process's name. Names of SCION programs begin with their AS.
func (n names) process(s string) string {
	if as, own, ok := strings.Cut(s, " "); ok {
		if ia, err := pathsel.ParseIA(as); err == nil {
			return n.as(ia) + " " + own
		}
	}
	return s
}
