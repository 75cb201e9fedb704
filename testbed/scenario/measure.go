package scenario

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"braid/pathsel"
)

// figure is what a Measure's What needs, and how it is found. ok is false where there is nothing to measure: the path
// has not come back, the run was over before the window.
type figure struct {
	over, maybeOver, base, flow bool
	of                          func(record, Measure) (v float64, ok bool, err error)
}

// figures by name; testbed/scenarios/README.md describes them.
var figures = map[string]figure{
	"gap":        {of: gap},
	"rate":       {maybeOver: true, of: rate},
	"ratio":      {maybeOver: true, base: true, of: ratio},
	"efficiency": {of: efficiency},
	"out":        {over: true, of: out},
	"back":       {over: true, of: back},
	"share":      {flow: true, of: share},
}

func figureNames() []string { return slices.Sorted(maps.Keys(figures)) }

// alwaysMeasured is measured in every run.
var alwaysMeasured = []string{"e", "e-payload", "seconds", "t-star", "over-t-star", "mbit", "gap", "wasted", "changes", "needless", "handshake-rank",
	"cpu", "cpu-seeders", "cpu-leechers", "cpu-routers", "cpu-control", "cpu-emulator", "late",
	"propagation", "propagation-95", "delay-penalty", "delay-penalty-95", "last-penalty", "degree"}

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
	from, to = seconds(m.From), r.end
	if m.To > 0 {
		to = min(to, seconds(m.To))
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
	base := m.between(r, seconds(m.Base.From), seconds(m.Base.To))
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
