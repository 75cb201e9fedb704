package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"braid/testbed"
	"braid/testbed/linkemu"
	"braid/units"
)

// span is a time in which something was different; a moment if it has no end of its own.
type span struct {
	from, to float64 // to: +Inf until the end, from: a moment
	text     string
}

func (s span) moment() bool { return s.from == s.to }

// spansOf are the scenario's doings, in the order of time.
func spansOf(events []event, t testbed.Topology, n names) []span {
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
	for _, e := range events {
		switch e.what {
		case "link":
			if e.change == nil {
				continue
			}
			key := "link " + e.at
			end(key, e.t)
			if !undoes(*e.change, t) {
				begin(key, e.t, n.written(e.at)+" "+describe(*e.change))
			}
		case "pause":
			begin("pause "+e.at, e.t, "router of "+n.written(e.at)+" stopped")
		case "resume":
			end("pause "+e.at, e.t)
		case "traffic":
			begin("traffic "+e.at, e.t, e.at)
		case "traffic-end":
			end("traffic "+e.at, e.t)
		case "crash":
			out = append(out, span{e.t, e.t, e.at + " killed"})
		case "stop":
			out = append(out, span{e.t, e.t, e.at + " leaves"})
		case "start":
			if e.t > 0 {
				out = append(out, span{e.t, e.t, e.at + " starts"})
			}
		}
	}
	return out
}

// undoes tells whether a change makes the link what it was at the start.
func undoes(c testbed.LinkChange, t testbed.Topology) bool {
	i := slices.IndexFunc(t.Links, func(l testbed.Link) bool { return l.A.Interface == c.Interface || l.B.Interface == c.Interface })
	if i < 0 {
		return false
	}
	now := t.Links[i].Config
	c.Apply(&now)
	return now == t.Links[i].Config
}

// describe says in a few words what a link becomes.
func describe(c testbed.LinkChange) string {
	var s []string
	if c.Down != nil && *c.Down {
		s = append(s, "down")
	}
	if c.Rate != nil {
		s = append(s, units.FormatRate(*c.Rate))
	}
	if c.Delay != nil {
		s = append(s, c.Delay.String())
	}
	if c.Jitter != nil {
		s = append(s, "jitter "+c.Jitter.String())
	}
	if c.Loss != nil {
		s = append(s, linkemu.FormatLoss(*c.Loss)+" lost")
	}
	if c.QueueBytes != nil || c.QueueTime != nil {
		s = append(s, "queue "+linkemu.FormatQueue(deref(c.QueueBytes), deref(c.QueueTime)))
	}
	if c.Police != nil && *c.Police {
		s = append(s, "policed")
	}
	if d := c.Direction; d == "in" || d == "out" {
		s = append(s, "("+d+")")
	}
	return strings.Join(s, " ")
}

func deref[T int | time.Duration](p *T) T {
	if p == nil {
		return 0
	}
	return *p
}

// span says when, for people.
func (s span) String() string {
	switch {
	case s.moment():
		return fmt.Sprintf("%.1f s: %s", s.from, s.text)
	case math.IsInf(s.to, 1):
		return fmt.Sprintf("from %.1f s on: %s", s.from, s.text)
	}
	return fmt.Sprintf("%.1f to %.1f s: %s", s.from, s.to, s.text)
}

// state is what a path-level peer was doing for a while.
type state int

const (
	connecting state = iota // selected, no connection yet
	inUse
	parked
	probed // a parked one that is tried for a moment
)

func (s state) String() string { return [...]string{"connecting", "in use", "parked", "tried"}[s] }

// stay is a path-level peer in one state, and why.
type stay struct {
	state    state
	from, to float64
	reason   string
}

// exit is the end of a connection.
type exit struct {
	t      float64
	failed bool // else closed
	reason string
}

// staysOf is the life of one path, until a time.
func staysOf(choices []choice, p *path, end float64) (stays []stay, exits []exit) {
	in := false
	for _, c := range choices {
		if c.path != p || c.t > end {
			continue
		}
		if in {
			stays[len(stays)-1].to = c.t
		}
		in = true
		s := stay{from: c.t, to: end, reason: c.reason}
		switch c.event {
		case "selected":
			s.state = connecting
		case "opened", "returned":
			s.state = inUse
		case "parked":
			s.state = parked
		case "probed":
			s.state = probed
		default:
			exits = append(exits, exit{c.t, c.event == "failed", c.reason})
			in = false
			continue
		}
		stays = append(stays, s)
	}
	return stays, exits
}
