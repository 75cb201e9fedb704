package scenario

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"braid/pathsel"
)

// figure says what a Measure needs, and computes it. The result is NaN or infinite if there is
// nothing to measure: for example, if the run was over before the window.
type figure struct {
	over, maybeOver, base, flow bool
	meaning                     string // with its unit; OVER is the interface, OF the flow
	of                          func(*Record, Measure) float64
}

// figures by name; testbed/scenarios/README.md describes them.
var figures = map[string]figure{
	"first": {of: first, meaning: "time from the start to the first payload, in s"},
	"gap":   {of: gap, meaning: "longest time without payload, in s"},
	"rate":  {maybeOver: true, of: rate, meaning: "rate over OVER, in Mbit/s"},
	"ratio": {
		maybeOver: true, base: true, of: ratio,
		meaning: "rate over OVER in parts of that in another window",
	},
	"efficiency": {of: efficiency, meaning: "payload in parts of the computed limit"},
	"out":        {over: true, of: out, meaning: "time until the first path over OVER was taken out, in s"},
	"back":       {over: true, of: back, meaning: "time until something came over OVER again, in s"},
	"share":      {flow: true, of: share, meaning: "payload of the flow OF in parts of its fair share"},
}

// Meaning describes a figure of the scenario, with its unit; "" if there is no such figure.
func (s Scenario) Meaning(figure string) string {
	if i := rankAlways(figure); i >= 0 {
		return measuredAlways[i].meaning
	}
	for _, m := range s.Measure {
		if m.Name == figure {
			return m.String()
		}
	}
	return ""
}

// String describes the measure, with its unit.
func (m Measure) String() string {
	text := figures[m.What].meaning
	if m.Over != nil {
		text = strings.ReplaceAll(text, "OVER", m.Over.String())
	}
	text = strings.NewReplacer(" over OVER", "", "OF", m.Of).Replace(text)
	if m.Of != "" && !figures[m.What].flow {
		text += ", of " + m.Of
	}
	switch {
	case m.To > 0:
		text += fmt.Sprintf(", from %v to %v", m.From, m.To)
	case m.From > 0:
		text += fmt.Sprintf(", from %v on", m.From)
	}
	if m.Base != nil {
		text += fmt.Sprintf(", against %v to %v", m.Base.From, m.Base.To)
	}
	return text
}

// measuredAlways are the figures of every run in the order of the table, with descriptions.
var measuredAlways = []struct{ name, meaning string }{
	{"e", "efficiency: part of the computed limit that was reached, handshakes included"},
	{"e-payload", "part of the computed limit that was reached from the first payload byte on"},
	{"seconds", "time until the last leecher was done, in s"},
	{"t-star", "T*, the least time in which the links could have carried the payload, in s"},
	{"over-t-star", "time divided by T*; 1 is the limit"},
	{"mbit", "payload of all leechers or, without leechers, of all flows, in Mbit/s"},
	{"gap", "longest time in which a leecher got no payload, in s"},
	{"wasted", "payload that came twice or for nothing, divided by useful payload"},
	{"changes", "how often a path left the selection or came back into it"},
	{"needless", "unexplained changes of the selection per minute"},
	{"handshake-rank", "rank correlation of paths by handshake and by rate; 1 is a perfect prediction"},
	{"cpu", "part of all processors in use, by all programs"},
	{"cpu-seeders", "processor time of seeders, in s per GB of payload"},
	{"cpu-leechers", "processor time of leechers, in s per GB of payload"},
	{"cpu-routers", "processor time of routers, in s per GB of payload"},
	{"cpu-control", "processor time of control services and trackers, in s per GB of payload"},
	{"cpu-emulator", "processor time of the runner (links, competing traffic), in s per GB of payload"},
	{"late", "part of the worst link's packets that left the emulator more than 2 ms late"},
	{"propagation", "time until a leecher had verified a piece, median, in s"},
	{"propagation-95", "time until a leecher had verified a piece, 95th percentile, in s"},
	{"delay-penalty", "median time of a piece, divided by the least delay over any links"},
	{"delay-penalty-95", "95th percentile of a piece's time, divided by the least delay over any links"},
	{"last-penalty", "median over pieces of the last leecher's time, divided by the largest least delay"},
	{"degree", "number of peers that a peer exchanges data with, on average"},
}

// rankAlways returns the index in measuredAlways; -1 if the figure is not there.
func rankAlways(name string) int {
	return slices.IndexFunc(measuredAlways, func(f struct{ name, meaning string }) bool { return f.name == name })
}

// Measures computes all figures of a run. It depends on the record only, so figures can be computed
// again from a run directory.
func (r *Record) Measures() map[string]float64 {
	m := r.measure(r.Scenario.Measure)
	r.addPropagation(m)
	r.addCPU(m)
	r.addSpread(m)
	return m
}

// measure computes the figures of peers, flows and paths.
func (r *Record) measure(wanted []Measure) map[string]float64 {
	m := map[string]float64{}
	put := func(name string, v float64) {
		// A download that came whole in one moment has no rates; its other figures count.
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			m[name] = v
		}
	}
	bytes, wasted := r.Payload(), 0.0
	for _, l := range r.Leechers {
		wasted += l.Wasted
	}
	if len(r.Leechers) == 0 {
		wasted = math.NaN()
	}
	took := r.End - r.began()
	put("e", efficiencyBetween(r, r.began(), r.End))
	put("e-payload", efficiencyBetween(r, 0, r.End))
	put("seconds", took)
	put("t-star", r.leastTime())
	if t, ok := m["t-star"]; ok {
		put("over-t-star", took/t)
	}
	put("wasted", wasted/bytes)
	put("mbit", bytes*8/1e6/took)
	put("gap", gap(r, Measure{}))
	changes, needless := r.changes()
	put("changes", float64(changes))
	put("needless", float64(needless)/(r.End/60))
	put("handshake-rank", r.handshakeRank())
	for _, w := range wanted {
		put(w.Name, figures[w.What].of(r, w))
	}
	return m
}

// Payload returns the useful bytes of all leechers. Without leechers it returns those of all flows.
func (r *Record) Payload() (bytes float64) {
	for _, l := range r.Leechers {
		bytes += l.Payload.before(r.End)
	}
	if len(r.Leechers) == 0 {
		for _, f := range r.Flows {
			bytes += f.Received.At(r.End)
		}
	}
	return bytes
}

func (m Measure) window(r *Record) (from, to float64) {
	from, to = m.From.D().Seconds(), r.End
	if m.To > 0 {
		to = min(to, m.To.D().Seconds())
	}
	return from, to
}

// leechers returns those that a measure is about.
func (m Measure) leechers(r *Record) []*Leecher {
	return slices.DeleteFunc(slices.Clone(r.Leechers), func(l *Leecher) bool { return m.Of != "" && l.Name != m.Of })
}

// first returns the longest time in seconds from a leecher's start to its first useful payload.
func first(r *Record, m Measure) float64 {
	longest := math.Inf(-1)
	for _, l := range m.leechers(r) {
		if at := l.firstByte(); !math.IsInf(at, 1) {
			longest = max(longest, at-l.Start)
		}
	}
	return longest
}

// gap returns the longest time in seconds in which a leecher got no useful payload.
func gap(r *Record, m Measure) float64 {
	longest := math.Inf(-1)
	from, to := m.window(r)
	for _, l := range m.leechers(r) {
		a, b := max(from, l.firstByte()), min(to, l.End)
		if a >= b {
			continue
		}
		last, have := a, l.Payload.before(a)
		for i, t := range l.Payload.T {
			if v := l.Payload.Amount[i]; t > a && t <= b && v > have {
				longest, last, have = max(longest, t-last), t, v
			}
		}
		longest = max(longest, b-last)
	}
	return longest
}

// rate returns the rate of useful payload, or of all bytes over some paths, in Mbit/s.
func rate(r *Record, m Measure) float64 {
	from, to := m.window(r)
	return m.between(r, from, to)
}

func (m Measure) between(r *Record, from, to float64) float64 {
	leechers := m.leechers(r)
	if from >= to || len(leechers) == 0 {
		return math.NaN()
	}
	var bytes float64
	for _, l := range leechers {
		if m.Over != nil {
			bytes += l.overAt(to, m.Over.Interface) - l.overAt(from, m.Over.Interface)
		} else {
			bytes += l.Payload.before(to) - l.Payload.before(from)
		}
	}
	return bytes * 8 / 1e6 / (to - from)
}

// ratio returns the rate in the window divided by the rate in the base window.
func ratio(r *Record, m Measure) float64 {
	from, to := m.window(r)
	base := m.between(r, m.Base.From.D().Seconds(), min(m.Base.To.D().Seconds(), r.End))
	return m.between(r, from, to) / base
}

// efficiency returns the payload of leechers and bulk flows, divided by the payload that the links
// could have carried. For one leecher, it counts the time from its start to its end, and compares
// with a network that the leecher has to itself.
func efficiency(r *Record, m Measure) float64 {
	from, to := m.window(r)
	if m.Of == "" || r.feed {
		return efficiencyBetween(r, from, to)
	}
	of := m.leechers(r)
	if len(of) == 0 {
		return math.NaN() // it never started
	}
	l := of[0]
	if m.From == 0 {
		from = l.Start // before the first payload of all
	}
	from, to = max(from, l.Start), min(to, l.End)
	limit := r.integrate(from, to, func(t float64) float64 { return r.carries(t, []*Leecher{l}) })
	return (l.Payload.before(to) - l.Payload.before(from)) * 8 / limit
}

// efficiencyBetween compares with the data that seeds could send, which says nothing of a swarm.
func efficiencyBetween(r *Record, from, to float64) float64 {
	if r.feed {
		return math.NaN()
	}
	var got float64
	for _, l := range r.Leechers {
		got += l.Payload.before(to) - l.Payload.before(from)
	}
	for _, f := range r.Flows {
		if f.Kind == Bulk {
			got += f.Received.At(to) - f.Received.At(from)
		}
	}
	return got * 8 / r.integrate(from, to, r.carriesAll)
}

// out returns how many seconds after From the first path over an interface was taken out.
func out(r *Record, m Measure) float64 {
	from, to := m.window(r)
	for _, l := range m.leechers(r) {
		for _, c := range l.scionChoices() {
			if c.T >= from && c.T < to && leaves(c.Event) && l.crosses(c.Path, m.Over.Interface) {
				return c.T - from
			}
		}
	}
	return math.NaN()
}

// back returns how many seconds after From data came over an interface again.
func back(r *Record, m Measure) float64 {
	from, to := m.window(r)
	first := math.Inf(1)
	for _, l := range m.leechers(r) {
		before := l.overAt(from, m.Over.Interface)
		for _, t := range l.Payload.T {
			if t > from && t < to && l.overAt(t, m.Over.Interface) > before {
				first = min(first, t-from)
				break
			}
		}
	}
	return first
}

// share returns what a competing flow got, divided by its fair share.
func share(r *Record, m Measure) float64 {
	i := slices.IndexFunc(r.Flows, func(f *Flow) bool { return f.Name == m.Of })
	if i < 0 {
		return math.NaN() // its time never came
	}
	f := r.Flows[i]
	from, to := m.window(r)
	from, to = max(from, f.Start), min(to, f.End)
	return (f.Received.At(to) - f.Received.At(from)) * 8 / r.fair(f, from, to)
}

// explains is how long, in seconds, a change of a link explains changes of the selection. It covers
// the longest time between two attempts at a path that is down, and a handshake.
const explains = 35

// lastPieces is how long before its end, in seconds, a download assigns the missing pieces to paths
// anew.
const lastPieces = 5

// changes counts how often a path-level peer left the selection or came back, and how often nothing
// explains that. The first selection, and trying a parked path for a moment, do not count.
func (r *Record) changes() (all, needless int) {
	for _, l := range r.Leechers {
		in, known := map[*Path]bool{}, map[*Path]bool{}
		for _, c := range l.scionChoices() {
			if c.T >= l.End {
				continue
			}
			now := in[c.Path]
			switch {
			case leaves(c.Event):
				now = false
			case c.Event == "selected" || c.Event == "returned":
				now = true
			}
			if now != in[c.Path] && known[c.Path] {
				all++
				if c.T < l.End-lastPieces && !r.explained(c) {
					needless++
				}
			}
			in[c.Path] = now
			known[c.Path] = known[c.Path] || now
		}
	}
	return all, needless
}

func leaves(event string) bool {
	return event == "parked" || event == "failed" || event == "closed"
}

// explained tells whether a link of the path differs from its state at the start, in any property
// and direction, has changed a short while ago, or carries datagrams at a constant rate.
func (r *Record) explained(c Choice) bool {
	shared := func(x pathsel.Interface) bool { return slices.Contains(c.Path.Interfaces, x) }
	for _, f := range r.Flows {
		flows := f.Kind == Datagrams && f.Start <= c.T && c.T < f.End+explains
		if flows && slices.ContainsFunc(f.route.Links, shared) {
			return true
		}
	}
	for i, s := range r.states {
		end := math.Inf(1)
		if i+1 < len(r.states) {
			end = r.states[i+1].t
		}
		differs := func(x pathsel.Interface) bool { return s.changed[x] }
		if s.t <= c.T && c.T < end+explains && slices.ContainsFunc(c.Path.Interfaces, differs) {
			return true
		}
	}
	return false
}

// handshakeRank tells how well handshakes predicted bandwidth. It is the rank correlation
// (Spearman) between the order of paths by handshake, shortest first, and by bytes per second of
// use, most first: 1 is a perfect prediction, -1 the opposite. Of several leechers it is the mean;
// NaN if none had two paths to compare.
func (r *Record) handshakeRank() float64 {
	var sum float64
	n := 0
	for _, l := range r.Leechers {
		if rho, ok := l.handshakeRank(); ok {
			sum += rho
			n++
		}
	}
	return sum / float64(n)
}

func (l *Leecher) handshakeRank() (rho float64, ok bool) {
	used := l.used()
	var quick, rate []float64
	for _, f := range slices.Sorted(maps.Keys(used)) {
		var handshake, bytes float64
		for _, p := range l.Paths {
			if p.Key.Path == f {
				handshake, bytes = cmp.Or(handshake, p.Handshake), bytes+p.Read.before(l.End)
			}
		}
		if handshake > 0 && used[f] > 0 {
			quick, rate = append(quick, -handshake), append(rate, bytes/used[f])
		}
	}
	return pathsel.Spearman(quick, rate)
}

// used returns how long each path could bring payload, in seconds: while it was selected or tried.
func (l *Leecher) used() map[pathsel.Fingerprint]float64 {
	used := map[pathsel.Fingerprint]float64{}
	for _, p := range l.Paths {
		stays, _ := l.Stays(p, l.End)
		for _, s := range stays {
			if s.What == InUse || s.What == Probed {
				used[p.Key.Path] += s.To - s.From
			}
		}
	}
	delete(used, "") // not a path on SCION
	return used
}
