package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"braid/pathsel"
)

// Scenario is a network and its clients.
type Scenario struct {
	Links    []Link
	Clients  []Client
	Duration time.Duration
	Seed     uint64
	// Tick is the time between two views of a client; 0 means 250 ms.
	Tick time.Duration
}

// usualTick is the default of Scenario.Tick.
const usualTick = 250 * time.Millisecond

type simulation struct {
	byEnd map[pathsel.Interface]*link
	tick  time.Duration
}

// route returns the links of a path, in the order in which data reaches the client.
func (s *simulation) route(p pathsel.Path) []*link {
	var out []*link
	for i := 0; i+1 < len(p.Interfaces); i += 2 {
		l := s.byEnd[p.Interfaces[i]]
		if l == nil || l.A != p.Interfaces[i+1] && l.B != p.Interfaces[i+1] {
			panic(fmt.Sprintf("no link between %v and %v", p.Interfaces[i], p.Interfaces[i+1]))
		}
		out = append(out, l)
	}
	slices.Reverse(out)
	return out
}

// Run simulates the scenario, and returns the result of each client. It panics if a path uses an
// unknown link.
func Run(sc Scenario) []ClientResult {
	s := &simulation{byEnd: map[pathsel.Interface]*link{}, tick: cmp.Or(sc.Tick, usualTick)}
	var links []*link
	for _, l := range sc.Links {
		if l.Queue == 0 {
			l.Queue = max(64*packet, l.Rate/8*0.1)
		}
		x := &link{Link: l, now: l.Condition}
		links = append(links, x)
		s.byEnd[l.A], s.byEnd[l.B] = x, x
	}
	var clients []*client
	for _, c := range sc.Clients {
		clients = append(clients, &client{Client: c})
	}
	random := rand.New(rand.NewPCG(sc.Seed, 1))
	step := stepFor(sc)
	dt := step.Seconds()
	for at := time.Duration(0); at < sc.Duration; at += step {
		for _, l := range links {
			l.advance(at)
		}
		if at%s.tick == 0 {
			for _, cl := range clients {
				cl.tick(s, at)
			}
		}
		if at%time.Second == 0 && at > 0 {
			for _, cl := range clients {
				cl.perSecond()
			}
		}
		for _, cl := range clients {
			for _, c := range cl.conns {
				if c.flow != nil {
					c.flow.send(at, dt)
				}
			}
		}
		for _, l := range links {
			l.admit(dt)
		}
		for _, cl := range clients {
			for _, c := range cl.conns {
				if c.flow != nil {
					c.flow.move(at, random)
				}
			}
			cl.reached(at + step)
		}
	}
	var out []ClientResult
	for _, cl := range clients {
		cl.perSecond()
		out = append(out, cl.result)
	}
	return out
}

func (cl *client) perSecond() {
	read := cl.read()
	cl.result.PerSecond = append(cl.result.PerSecond, (read-cl.second)*8)
	cl.second = read
}

// stepFor returns the time step: a quarter of the shortest round trip, from 1 to 10 ms, so that
// windows change smoothly. It divides the tick.
func stepFor(sc Scenario) time.Duration {
	shortest := 40 * time.Millisecond
	for _, l := range sc.Links {
		if l.Delay > 0 {
			shortest = min(shortest, 2*l.Delay)
		}
	}
	for _, step := range []time.Duration{10, 5, 2} {
		if step*time.Millisecond <= shortest/4 {
			return step * time.Millisecond
		}
	}
	return time.Millisecond
}
