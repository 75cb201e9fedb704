package scenario

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"braid/pathsel"
)

// figure is what a Measure's What needs, and how it is found. ok is false where there is nothing to measure: the path
// has not come back, the run was over before the window.
type figure struct {
	over, maybeOver, base, flow bool
	meaning                     string // with its unit; OVER is the interface, OF the flow
	of                          func(record, Measure) (v float64, ok bool, err error)
}

// figures by name; testbed/scenarios/README.md describes them.
var figures = map[string]figure{
	"gap":        {of: gap, meaning: "longest time without payload, in s"},
	"rate":       {maybeOver: true, of: rate, meaning: "rate over OVER, in Mbit/s"},
	"ratio":      {maybeOver: true, base: true, of: ratio, meaning: "rate over OVER in parts of that in another window"},
	"efficiency": {of: efficiency, meaning: "payload in parts of the computed limit"},
	"out":        {over: true, of: out, meaning: "time until the first path over OVER was taken out, in s"},
	"back":       {over: true, of: back, meaning: "time until something came over OVER again, in s"},
	"share":      {flow: true, of: share, meaning: "payload of the flow OF in parts of its fair share"},
}

// Meaning says what a figure of the scenario is, in what unit; "" if it has no such figure.
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

// String says what is measured, in what unit.
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

func figureNames() []string { return slices.Sorted(maps.Keys(figures)) }

// measuredAlways are the figures of every run, in the order in which they are shown, and what they mean.
var measuredAlways = []struct{ name, meaning string }{
	{"e", "part of the computed limit that was reached, handshakes included (efficiency); 1 is the limit"},
	{"e-payload", "part of the computed limit that was reached from the first payload byte on"},
	{"seconds", "time until the last leecher was done, in s"},
	{"t-star", "T*, the least time in which the links could have carried the payload, in s"},
	{"over-t-star", "time in parts of T*; 1 is the limit"},
	{"mbit", "payload of all leechers, in Mbit/s"},
	{"gap", "longest time in which a leecher got no payload, in s"},
	{"wasted", "payload that came twice or for nothing, in parts of what was of use"},
	{"changes", "how often a path left the selection or came back into it"},
	{"needless", "changes of the selection that nothing explains, each minute"},
	{"handshake-rank", "rank correlation of the paths' order by handshake and by rate; 1 is a perfect prediction"},
	{"cpu", "part of all processors in use, by anybody"},
	{"cpu-seeders", "processor time of seeders, in s for each GB of payload"},
	{"cpu-leechers", "processor time of leechers, in s for each GB of payload"},
	{"cpu-routers", "processor time of routers, in s for each GB of payload"},
	{"cpu-control", "processor time of control services and trackers, in s for each GB of payload"},
	{"cpu-emulator", "processor time of the runner (links, competing traffic), in s for each GB of payload"},
	{"late", "part of the worst link's packets that left the emulator more than 2 ms late"},
	{"propagation", "time until a leecher had verified a piece, median, in s"},
	{"propagation-95", "time until a leecher had verified a piece, 95th percentile, in s"},
	{"delay-penalty", "median time of a piece in parts of the least delay over any links"},
	{"delay-penalty-95", "95th percentile of a piece's time in parts of the least delay over any links"},
	{"last-penalty", "median over pieces of the last leecher's time in parts of the largest least delay"},
	{"degree", "with how many others a peer exchanges data, on average"},
}

// rankAlways is the place of a figure among those that every run has; -1 if it is not one of them.
func rankAlways(name string) int {
	return slices.IndexFunc(measuredAlways, func(f struct{ name, meaning string }) bool { return f.name == name })
}

// measure makes all figures of a run but those of the machine.
func measure(r record, wanted []Measure) (map[string]float64, error) {
	m := map[string]float64{}
	first := math.Inf(1)
	var bytes int64
	for _, l := range r.leechers {
		first = min(first, l.start)
		bytes += l.bytesAt(r.end)
	}
	if len(r.leechers) == 0 {
		first = 0
		for _, f := range r.flows {
			bytes += int64(f.receivedAt(r.end))
		}
	}
	whole, ok, err := efficiencyBetween(r, first, r.end)
	if err != nil {
		return nil, err
	}
	if ok {
		m["e"] = whole
	}
	if v, ok, err := efficiencyBetween(r, 0, r.end); err == nil && ok {
		m["e-payload"] = v
	}
	m["seconds"] = r.end - first
	if least, ok, err := r.leastTime(); err == nil && ok {
		m["t-star"], m["over-t-star"] = least, m["seconds"]/least
	}
	if bytes > 0 && len(r.leechers) > 0 {
		var wasted int64
		for _, l := range r.leechers {
			wasted += l.wasted
		}
		m["wasted"] = float64(wasted) / float64(bytes)
	}
	m["mbit"] = float64(bytes) * 8 / 1e6 / (r.end - first)
	if v, ok, _ := gap(r, Measure{}); ok {
		m["gap"] = v
	}
	changes, needless := r.changes()
	m["changes"] = float64(changes)
	m["needless"] = float64(needless) / (r.end / 60)
	if rho, ok := r.handshakeRank(); ok {
		m["handshake-rank"] = rho
	}
	for _, w := range wanted {
		v, ok, err := figures[w.What].of(r, w)
		if err != nil {
			return nil, fmt.Errorf("measure %s: %w", w.Name, err)
		}
		if ok {
			m[w.Name] = v
		}
	}
	// Of a download that came whole in one moment there are no rates, which is no reason to lose the rest.
	maps.DeleteFunc(m, func(_ string, v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
	return m, nil
}

func (m Measure) window(r record) (from, to float64, ok bool) {
	from, to = seconds(m.From.D()), r.end
	if m.To > 0 {
		to = min(to, seconds(m.To.D()))
	}
	return from, to, from < to
}

// of are the leechers that a measure is about.
func (m Measure) leechers(r record) []leecherRecord {
	if m.Of == "" {
		return r.leechers
	}
	i := slices.IndexFunc(r.leechers, func(l leecherRecord) bool { return l.name == m.Of })
	return r.leechers[i : i+1]
}

// gap is the longest time in seconds in which a leecher that was there got no useful payload.
func gap(r record, m Measure) (longest float64, ok bool, err error) {
	from, to, _ := m.window(r)
	for _, l := range m.leechers(r) {
		a, b := max(from, l.firstByte()), min(to, l.end)
		if a >= b {
			continue
		}
		ok = true
		last, have := a, l.bytesAt(a)
		for _, s := range l.samples {
			if s.t > a && s.t <= b && s.bytes > have {
				longest, last, have = max(longest, s.t-last), s.t, s.bytes
			}
		}
		longest = max(longest, b-last)
	}
	return longest, ok, nil
}

func (l leecherRecord) firstByte() float64 {
	for _, s := range l.samples {
		if s.bytes > 0 {
			return s.t
		}
	}
	return math.Inf(1)
}

// rate is in Mbit/s: useful payload, or all that came over some paths.
func rate(r record, m Measure) (float64, bool, error) {
	from, to, ok := m.window(r)
	return m.between(r, from, to), ok, nil
}

func (m Measure) between(r record, from, to float64) float64 {
	var bytes float64
	for _, l := range m.leechers(r) {
		if m.Over != nil {
			bytes += float64(l.overAt(to, m.Over.Interface) - l.overAt(from, m.Over.Interface))
		} else {
			bytes += float64(l.bytesAt(to) - l.bytesAt(from))
		}
	}
	return bytes * 8 / 1e6 / (to - from)
}

// ratio is the rate in the window in parts of that in the base window.
func ratio(r record, m Measure) (float64, bool, error) {
	from, to, ok := m.window(r)
	base := m.between(r, seconds(m.Base.From.D()), seconds(m.Base.To.D()))
	return m.between(r, from, to) / base, ok && base > 0, nil
}

// efficiency is the payload of leechers and competing flows in parts of what the links could have carried.
func efficiency(r record, m Measure) (float64, bool, error) {
	from, to, ok := m.window(r)
	if !ok {
		return 0, false, nil
	}
	return efficiencyBetween(r, from, to)
}

func efficiencyBetween(r record, from, to float64) (float64, bool, error) {
	limit, err := r.allowed(from, to)
	var got float64
	for _, l := range r.leechers {
		got += float64(l.bytesAt(to) - l.bytesAt(from))
	}
	for _, f := range r.flows {
		if f.Kind == Bulk {
			got += f.receivedAt(to) - f.receivedAt(from)
		}
	}
	return got * 8 / limit, limit > 0, err
}

// out is how many seconds after From the first path over an interface was taken out.
func out(r record, m Measure) (float64, bool, error) {
	from, to, _ := m.window(r)
	for _, l := range m.leechers(r) {
		for _, c := range l.choices {
			if c.t >= from && c.t < to && leaves(c.name) && l.crosses(c.key, m.Over.Interface) {
				return c.t - from, true, nil
			}
		}
	}
	return 0, false, nil
}

func (l leecherRecord) crosses(k pathsel.Key, at pathsel.Interface) bool {
	return slices.ContainsFunc(l.routes, func(r route) bool { return r.fingerprint == k.Path && r.crosses(at) })
}

// back is how many seconds after From data came over an interface again.
func back(r record, m Measure) (float64, bool, error) {
	from, to, _ := m.window(r)
	first := math.Inf(1)
	for _, l := range m.leechers(r) {
		before := l.overAt(from, m.Over.Interface)
		for _, s := range l.samples {
			if s.t > from && s.t < to && l.overAt(s.t, m.Over.Interface) > before {
				first = min(first, s.t-from)
				break
			}
		}
	}
	return first, !math.IsInf(first, 1), nil
}

// share is what a competing flow got in parts of its fair share.
func share(r record, m Measure) (float64, bool, error) {
	f := r.flows[slices.IndexFunc(r.flows, func(f flowRecord) bool { return f.Name == m.Of })]
	from, to, _ := m.window(r)
	from, to = max(from, f.start), min(to, f.end)
	if from >= to {
		return 0, false, nil
	}
	fair, err := r.fair(f, from, to)
	return (f.receivedAt(to) - f.receivedAt(from)) * 8 / fair, fair > 0, err
}

// explains is how long, in seconds, a change of a link explains changes of the selection: the longest time between
// two attempts at a path that is down, and a handshake.
const explains = 35

// lastPieces is how long before its end, in seconds, a download spreads what is missing over the paths anew.
const lastPieces = 5

// changes counts how often a path-level peer left the selection or came back into it, after it was in it for the first
// time, and how often nothing had happened to its path. Trying a parked path for a moment is no change.
func (r record) changes() (all, needless int) {
	for _, l := range r.leechers {
		in, known := map[pathsel.Key]bool{}, map[pathsel.Key]bool{}
		for _, c := range l.choices {
			if c.t >= l.end {
				continue
			}
			now := in[c.key]
			switch {
			case leaves(c.name):
				now = false
			case c.name == "path-selected" || c.name == "path-returned":
				now = true
			}
			if now != in[c.key] && known[c.key] {
				all++
				if c.t < l.end-lastPieces && !r.explained(l, c) {
					needless++
				}
			}
			in[c.key] = now
			known[c.key] = known[c.key] || now
		}
	}
	return all, needless
}

func leaves(event string) bool {
	return event == "path-parked" || event == "path-failed" || event == "path-closed"
}

// explained tells whether a link of the path is not what it was at the beginning, or has changed a short while ago, or
// datagrams at a constant rate have a part of it.
func (r record) explained(l leecherRecord, c choice) bool {
	i := slices.IndexFunc(l.routes, func(x route) bool { return x.fingerprint == c.key.Path })
	if i < 0 {
		return false
	}
	for _, f := range r.flows {
		if f.Kind == Datagrams && f.start <= c.t && c.t < f.end+explains && slices.ContainsFunc(f.route.links, func(x pathsel.Interface) bool { return slices.Contains(l.routes[i].links, x) }) {
			return true
		}
	}
	for _, link := range l.routes[i].links {
		for j, s := range r.states {
			end := math.Inf(1)
			if j+1 < len(r.states) {
				end = r.states[j+1].t
			}
			if j > 0 && s.t <= c.t && c.t < end+explains && s.capacity[link] != r.states[0].capacity[link] {
				return true
			}
		}
	}
	return false
}
