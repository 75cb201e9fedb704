package pathsel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// path parses its links: "1-1#1 1-9#1, 1-9#2 1-5#1".
func path(name, links string) Path {
	return Path{Fingerprint: Fingerprint(name), MTU: 1400, Interfaces: ifs(strings.Fields(strings.ReplaceAll(links, ",", ""))...)}
}

// rated is an active path that has carried mbit for a minute.
func rated(p Path, mbit float64) Candidate {
	c := Candidate{Key: Key{Peer: "p", Path: p.Fingerprint}, Path: p, State: Active, Since: t0.Add(-time.Minute), RTT: 20 * time.Millisecond, Handshake: 40 * time.Millisecond}
	c.Slots = slotsOf(t0.Add(-20*time.Second), 20, mbit)
	c.BytesRead = uint64(mbit * 1e6 / 8 * 60)
	return c
}

// slotsOf are n slots with a full queue.
func slotsOf(from time.Time, n int, mbit float64) (out []Slot) {
	for i := range n {
		out = append(out, Slot{
			Start: from.Add(time.Duration(i) * time.Second), Flow: time.Second, Bytes: uint64(mbit * 1e6 / 8),
			MinRTT: 20 * time.Millisecond,
		})
	}
	return out
}

func (c Candidate) with(f func(*Candidate)) Candidate { f(&c); return c }

func idle(p Path) Candidate { return Candidate{Key: Key{Peer: "p", Path: p.Fingerprint}, Path: p} }

var (
	pathA = path("a", "1-1#1 1-2#1")
	pathB = path("b", "1-1#2 1-2#2")
	// C, D and E share their last link.
	pathC = path("c", "1-1#3 1-3#1, 1-3#9 1-2#9")
	pathD = path("d", "1-1#4 1-3#2, 1-3#9 1-2#9")
	pathE = path("e", "1-1#5 1-3#3, 1-3#9 1-2#9")
)

// path is the memory of a path, which is added if it is new.
func (m *adaptiveMemory) path(k Key) *PathMemory {
	i := slices.IndexFunc(m.Paths, func(p PathMemory) bool { return p.Key == k })
	if i < 0 {
		i = len(m.Paths)
		m.Paths = append(m.Paths, PathMemory{Key: k})
	}
	return &m.Paths[i]
}

func standing(m adaptiveMemory, f Fingerprint, why Why, next time.Duration) adaptiveMemory {
	pm := m.path(Key{Peer: "p", Path: f})
	pm.Why, pm.Next, pm.Tried = why, t0.Add(next), t0.Add(-time.Hour)
	return m
}

func decisions(p Plan) (out []string) {
	for _, d := range p.Decisions {
		out = append(out, d.Action.String()+" "+string(d.Key.Path))
	}
	return out
}

func TestAdaptiveRules(t *testing.T) {
	parked := func(p Path, mbit float64) Candidate {
		return rated(p, mbit).with(func(c *Candidate) { c.State, c.Since = Parked, t0.Add(-30*time.Second) })
	}
	since := func(c Candidate, mbitNow float64) Candidate { // a rate that changed ten seconds ago
		c.Slots = append(slices.Clone(c.Slots[:10]), slotsOf(t0.Add(-10*time.Second), 10, mbitNow)...)
		return c
	}
	otherPeer := func(p Path) Candidate { // it began a second ago
		return rated(p, 10).with(func(c *Candidate) { c.Key.Peer, c.Since = "q", t0.Add(-time.Second) })
	}
	grouped := func(rest Fingerprint, before float64, group ...Fingerprint) (m adaptiveMemory) {
		g := &Group{Rest: []Key{{Peer: "p", Path: rest}}, Before: Estimate{Rate: before * 1e6 / 8, Err: 0.01 * before * 1e6 / 8, Slots: 6}, Began: t0.Add(-10 * time.Second)}
		for _, f := range group {
			g.Keys = append(g.Keys, Key{Peer: "p", Path: f})
		}
		m.Peers = []PeerMemory{{Peer: "p", Group: g}}
		return m
	}
	probing := func(p Path, mbit float64, slots int) Candidate {
		return rated(p, mbit).with(func(c *Candidate) {
			c.State, c.Since = Probing, t0.Add(-10*time.Second)
			c.Slots = slotsOf(t0.Add(-10*time.Second), slots, mbit)
		})
	}
	for _, tt := range []struct {
		name string
		view View
		want []string
		says string // must be in the first reason
		// parked is why the first path is set aside afterwards
		parked Why
	}{
		{name: "everything is opened when there is room",
			view: View{MaxPaths: 8, Candidates: []Candidate{idle(pathA), idle(pathB)}}, want: []string{"open a", "open b"}, says: "never tried"},
		{name: "disjoint paths first",
			view: View{MaxPaths: 2, Candidates: []Candidate{rated(pathC, 10), idle(pathD), idle(pathB)}, Seed: 3}, want: []string{"open b"}, says: "disjoint"},
		{name: "nothing to do", view: View{MaxPaths: 8, Candidates: []Candidate{rated(pathA, 20), rated(pathB, 20)}}},
		{name: "a slow disjoint path stays", view: View{MaxPaths: 8, Candidates: []Candidate{rated(pathA, 30), rated(pathB, 3)}}},
		{name: "next to nothing is parked", view: View{MaxPaths: 8, Candidates: []Candidate{rated(pathA, 30), rated(pathB, 0.3)}},
			want: []string{"park b"}, says: "less than 2%"},
		{name: "but not the only one", view: View{MaxPaths: 8, Candidates: []Candidate{rated(pathA, 0)}}},
		{name: "not judged before four slots", view: View{MaxPaths: 8, Candidates: []Candidate{rated(pathA, 30),
			rated(pathB, 0).with(func(c *Candidate) { c.Since = t0.Add(-3 * time.Second) })}}},
		{name: "waste is parked", view: View{MaxPaths: 8, Candidates: []Candidate{rated(pathA, 30), rated(pathB, 10).with(func(c *Candidate) {
			c.Slots = slices.Clone(c.Slots)
			for i := range c.Slots {
				c.Slots[i].Wasted = c.Slots[i].Bytes / 3
			}
		})}}, want: []string{"park b"}, says: "is wasted"},
		{name: "loss is waste", view: View{MaxPaths: 8, Candidates: []Candidate{rated(pathA, 30), rated(pathB, 10).with(func(c *Candidate) {
			c.Slots = slices.Clone(c.Slots)
			for i := range c.Slots {
				c.Slots[i].Sent, c.Slots[i].Lost = 100, 40
			}
		})}}, want: []string{"park b"}, says: "is wasted"},
		{name: "silence takes out at once", view: View{MaxPaths: 8, Candidates: []Candidate{rated(pathA, 30).with(func(c *Candidate) { c.Silent = true }), rated(pathB, 30)}},
			want: []string{"fail a"}, says: "silent"},
		{name: "so does a revocation", view: View{MaxPaths: 8, Candidates: []Candidate{rated(pathA, 30).with(func(c *Candidate) { c.RevokedAt, c.Quiet = t0, true }), rated(pathB, 30)}},
			want: []string{"fail a"}, says: "revoked"},
		{name: "but not while packets arrive", view: View{MaxPaths: 8, Candidates: []Candidate{rated(pathA, 30).with(func(c *Candidate) { c.RevokedAt = t0 }), rated(pathB, 30)}}},
		{name: "nor an old one", view: View{MaxPaths: 8, Candidates: []Candidate{rated(pathA, 30).with(func(c *Candidate) { c.RevokedAt, c.Quiet = t0.Add(-time.Hour), true }), rated(pathB, 30)}}},
		{name: "the last one left is returned whatever it is", view: View{MaxPaths: 8,
			Candidates: []Candidate{rated(pathA, 10).with(func(c *Candidate) { c.Silent = true }), parked(pathB, 0.1)}, Memory: Memory{value: standing(adaptiveMemory{}, "b", Weak, time.Hour)}},
			want: []string{"fail a", "return b"}},
		{name: "retry when due", view: View{MaxPaths: 8, Candidates: []Candidate{rated(pathA, 10), {Key: Key{Peer: "p", Path: "b"}, Path: pathB, State: Failed, Failures: 2, RetryAt: t0}}},
			want: []string{"open b"}, says: "retry"},
		{name: "not before", view: View{MaxPaths: 8, Candidates: []Candidate{rated(pathA, 10), {Key: Key{Peer: "p", Path: "b"}, Path: pathB, State: Failed, Failures: 2, RetryAt: t0.Add(1)}}}},
		{name: "an expired path waits for the lookup", view: View{MaxPaths: 8, Candidates: []Candidate{rated(pathA, 10), idle(pathB).with(func(c *Candidate) { c.Path.Expiry = t0 })}}},

		{name: "paths that share links are probed together", view: View{MaxPaths: 8, Candidates: []Candidate{rated(pathA, 10), rated(pathC, 10), idle(pathD), idle(pathE)}},
			want: []string{"probe d", "probe e"}, says: "does it add to the 10.00 Mbit/s of 1 connection on the same links?"},
		{name: "not before the rate of the others is known", view: View{MaxPaths: 8, Candidates: []Candidate{
			rated(pathC, 10).with(func(c *Candidate) { c.Since = t0.Add(-3 * time.Second) }), idle(pathD)}}},
		{name: "nor while others change on the same link", view: View{MaxPaths: 8, Candidates: []Candidate{
			rated(pathC, 10).with(func(c *Candidate) { c.Since = t0.Add(-10 * time.Second) }), idle(pathD), otherPeer(pathE)}}},
		{name: "the others lost all: they stay parked", view: View{MaxPaths: 8, Candidates: []Candidate{since(rated(pathC, 20), 10), probing(pathD, 5, 8), probing(pathE, 5, 8)},
			Memory: Memory{value: grouped("c", 20, "d", "e")}}, want: []string{"park d", "park e"}, says: "adds nothing: of the 10.00 Mbit/s of 2 paths 100%", parked: Shared},
		{name: "a foreign flow lost half: they stay parked too", view: View{MaxPaths: 8, Candidates: []Candidate{since(rated(pathC, 10), 5), probing(pathD, 5, 8), probing(pathE, 5, 8)},
			Memory: Memory{value: grouped("c", 10, "d", "e")}}, want: []string{"park d", "park e"}, says: "50% was taken", parked: Shared},
		{name: "the others lost nothing: they are used", view: View{MaxPaths: 8, Candidates: []Candidate{since(rated(pathC, 20), 20), probing(pathD, 5, 8), probing(pathE, 5, 8)},
			Memory: Memory{value: grouped("c", 20, "d", "e")}}, want: []string{"return d", "return e"}, says: "2 paths that share links add 10.00 Mbit/s"},
		{name: "the same with one path", view: View{MaxPaths: 8, Candidates: []Candidate{since(rated(pathC, 20), 22), probing(pathD, 5, 8)},
			Memory: Memory{value: grouped("c", 20, "d")}}, want: []string{"return d"}, says: "it adds 5.00 Mbit/s, of which others lost 0%"},
		{name: "one path, and the others lost all", view: View{MaxPaths: 8, Candidates: []Candidate{since(rated(pathC, 20), 15), probing(pathD, 5, 8)},
			Memory: Memory{value: grouped("c", 20, "d")}}, want: []string{"park d"}, says: "adds nothing: of the 5.00 Mbit/s of 1 path 100%", parked: Shared},
		{name: "a crowded link, and the first lost a sixth: they are parked", view: View{MaxPaths: 8, Candidates: []Candidate{since(rated(pathC, 20), 16.5), probing(pathD, 10, 8), probing(pathE, 5, 8)},
			Memory: Memory{value: grouped("c", 20, "d", "e")}}, want: []string{"park d", "park e"}, says: "a link is shared with others", parked: Shared},
		{name: "the same on a link that is full: they are used", view: View{MaxPaths: 8, Candidates: []Candidate{since(rated(pathC, 20), 16.5).with(func(c *Candidate) { c.Path.Bandwidth = 25e6 }), probing(pathD, 10, 8), probing(pathE, 5, 8)},
			Memory: Memory{value: grouped("c", 20, "d", "e")}}, want: []string{"return d", "return e"}, says: "others lost 23%"},
		{name: "one of the others broke: no verdict", view: View{MaxPaths: 8, Candidates: []Candidate{rated(pathC, 20).with(func(c *Candidate) { c.Silent = true }), probing(pathD, 5, 8), probing(pathE, 5, 8)},
			Memory: Memory{value: grouped("c", 20, "d", "e")}}, want: []string{"fail c", "return d", "return e"}},
		{name: "no answer yet", view: View{MaxPaths: 8, Candidates: []Candidate{since(rated(pathC, 20), 10), probing(pathD, 5, 2), probing(pathE, 5, 8)}, Memory: Memory{value: grouped("c", 20, "d", "e")}}},
		{name: "the group is probed again when one is due", view: View{MaxPaths: 8, Candidates: []Candidate{rated(pathC, 20), parked(pathD, 5), parked(pathE, 5)},
			Memory: Memory{value: standing(standing(adaptiveMemory{}, "d", Shared, 0), "e", Shared, time.Hour)}}, want: []string{"probe d", "probe e"}},
		{name: "but not before", view: View{MaxPaths: 8, Candidates: []Candidate{rated(pathC, 20), parked(pathD, 5)}, Memory: Memory{value: standing(adaptiveMemory{}, "d", Shared, time.Second)}}},
		{name: "unless the others carry less than half", view: View{MaxPaths: 8, Candidates: []Candidate{rated(pathC, 20), parked(pathD, 5)}, Memory: Memory{value: func() adaptiveMemory {
			m := standing(adaptiveMemory{}, "d", Shared, time.Hour)
			m.path(Key{Peer: "p", Path: "d"}).Level = 42e6 / 8
			return m
		}()}}, want: []string{"probe d"}},
		{name: "the group's best member steps in", view: View{MaxPaths: 8, Candidates: []Candidate{rated(pathA, 10), rated(pathC, 30).with(func(c *Candidate) { c.Silent = true }), parked(pathD, 9), parked(pathE, 12)},
			Memory: Memory{value: standing(standing(adaptiveMemory{}, "d", Shared, time.Hour), "e", Shared, time.Hour)}}, want: []string{"fail c", "return e"}},

		{name: "a parked one is probed when due", view: View{MaxPaths: 8, Candidates: []Candidate{rated(pathC, 20), parked(pathD, 10)}, Memory: Memory{value: standing(adaptiveMemory{}, "d", Weak, 0)}},
			want: []string{"probe d"}, says: "what does it carry now"},
		{name: "not before", view: View{MaxPaths: 8, Candidates: []Candidate{rated(pathC, 20), parked(pathD, 10)}, Memory: Memory{value: standing(adaptiveMemory{}, "d", Weak, time.Second)}}},
		{name: "nor at the end of the download", view: View{MaxPaths: 8, Remaining: 20e6 / 8 * 19, Candidates: []Candidate{rated(pathC, 20), parked(pathD, 10)}, Memory: Memory{value: standing(adaptiveMemory{}, "d", Weak, 0)}}},
		{name: "a probe goes on until it has four slots", view: View{MaxPaths: 8, Candidates: []Candidate{rated(pathA, 20), probing(pathB, 10, 3)}, Memory: Memory{value: standing(adaptiveMemory{}, "b", Weak, 0)}}},
		{name: "a probe that shows enough returns", view: View{MaxPaths: 8, Candidates: []Candidate{rated(pathA, 20), probing(pathB, 10, 6)}, Memory: Memory{value: standing(adaptiveMemory{}, "b", Weak, 0)}},
			want: []string{"return b"}, says: "it carries 10.00 Mbit/s now"},
		{name: "a weak one must show more than it went for", view: View{MaxPaths: 8, Candidates: []Candidate{rated(pathA, 20), probing(pathB, 0.5, 6)}, Memory: Memory{value: standing(adaptiveMemory{}, "b", Weak, 0)}},
			want: []string{"park b"}, says: "less than 3%", parked: Weak},
		{name: "one that wastes now is parked for that", view: View{MaxPaths: 8, Candidates: []Candidate{rated(pathA, 20), probing(pathB, 10, 6).with(func(c *Candidate) {
			for i := range c.Slots {
				c.Slots[i].Wasted = c.Slots[i].Bytes / 3
			}
		})}, Memory: Memory{value: standing(adaptiveMemory{}, "b", Weak, 0)}}, want: []string{"park b"}, says: "is wasted", parked: Waste},
		{name: "a probe without data ends", view: View{MaxPaths: 8, Candidates: []Candidate{rated(pathA, 20), probing(pathB, 10, 0).with(func(c *Candidate) { c.Since = t0.Add(-20 * time.Second) })},
			Memory: Memory{value: standing(adaptiveMemory{}, "b", Weak, 0)}}, want: []string{"park b"}, says: "too little time", parked: Weak},

		{name: "the weakest place goes to one never tried", view: View{MaxPaths: 2, Candidates: []Candidate{rated(pathA, 10), rated(pathB, 5), idle(pathC)}},
			want: []string{"close b", "open c"}, says: "weakest of 2 places"},
		{name: "or to one that had clearly more", view: View{MaxPaths: 2, Candidates: []Candidate{rated(pathA, 10), rated(pathB, 5),
			rated(pathC, 7).with(func(c *Candidate) { c.State = Idle })}, Memory: Memory{value: standing(adaptiveMemory{}, "c", Rotated, 0)}}, want: []string{"close b", "open c"}},
		{name: "not for a little more", view: View{MaxPaths: 2, Candidates: []Candidate{rated(pathA, 10), rated(pathB, 5),
			rated(pathC, 5.5).with(func(c *Candidate) { c.State = Idle })}, Memory: Memory{value: func() adaptiveMemory {
			m := standing(adaptiveMemory{}, "c", Rotated, 0)
			m.Quiet = t0.Add(time.Minute)
			return m
		}()}}},
		{name: "a parked one leaves its place to others", view: View{MaxPaths: 2, Candidates: []Candidate{rated(pathC, 10), parked(pathD, 5), idle(pathA)}, Memory: Memory{value: standing(adaptiveMemory{}, "d", Weak, time.Hour)}},
			want: []string{"close d"}},
		{name: "a weak path that left its place is tried again", view: View{MaxPaths: 2, Candidates: []Candidate{rated(pathA, 10), rated(pathB, 5),
			rated(pathC, 0.01).with(func(c *Candidate) { c.State = Idle })}, Memory: Memory{value: func() adaptiveMemory {
			m := standing(adaptiveMemory{}, "c", Weak, 0)
			m.Peers = []PeerMemory{{Peer: "p", Started: true, Explored: true}}
			return m
		}()}}, want: []string{"close b", "open c"}, says: "weakest of 2 places"},
		{name: "also if a parked path has the place", view: View{MaxPaths: 2, Candidates: []Candidate{rated(pathA, 10), parked(pathB, 0.01),
			rated(pathC, 0.01).with(func(c *Candidate) { c.State = Idle })}, Memory: Memory{value: func() adaptiveMemory {
			m := standing(standing(adaptiveMemory{}, "c", Weak, 0), "b", Weak, time.Hour)
			m.Peers = []PeerMemory{{Peer: "p", Started: true, Explored: true}}
			return m
		}()}}, want: []string{"close b"}, says: "needs its place"},

		{name: "the tail: what the others take from a queue is no reason", view: View{MaxPaths: 8, Remaining: 40e6 / 8 * 4, Candidates: []Candidate{
			rated(pathA, 40), rated(pathB, 1).with(func(c *Candidate) { c.Outstanding = 100 })}}},
		{name: "the tail: last blocks that would take too long go elsewhere", view: View{MaxPaths: 8, Remaining: 10e6 / 8 * 6 / 10, Candidates: []Candidate{
			rated(pathA, 10), rated(pathB, 0.3).with(func(c *Candidate) { c.Outstanding = 100 })}},
			want: []string{"park b"}, says: "last of its 100 requests need"},
		{name: "endgame: every live path", view: View{MaxPaths: 8, Remaining: 40e6 / 8, Candidates: []Candidate{rated(pathC, 40), parked(pathD, 10), parked(pathB, 10)},
			Memory: Memory{value: standing(standing(adaptiveMemory{}, "d", Weak, time.Hour), "b", Weak, time.Hour)}}, want: []string{"return d", "return b"}, says: "last pieces"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.view.Now = t0
			plan := adaptive{}.Decide(tt.view)
			if got := decisions(plan); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(tt.want))) {
				t.Fatalf("%v, want %v\n%+v", got, tt.want, plan.Decisions)
			}
			if len(tt.want) > 0 && !strings.Contains(plan.Decisions[0].Reason, tt.says) {
				t.Errorf("reason %q, want %q in it", plan.Decisions[0].Reason, tt.says)
			}
			if m := recall[adaptiveMemory](plan.Memory); tt.parked != "" && m.path(plan.Decisions[0].Key).Why != tt.parked {
				t.Errorf("set aside because it is %q, want %q", m.path(plan.Decisions[0].Key).Why, tt.parked)
			}
		})
	}
}

// A download begins with the largest number of disjoint paths, whichever path is drawn first. The
// paths are those between the leaves of the topology diamond. In the second network the number is
// always two, and the set with the wide path is the best.
func TestFirstPathsAreNotInTheWay(t *testing.T) {
	var all []Candidate
	for _, p := range []Path{
		path("peering", "1-111#3 2-212#3, 2-212#2 2-211#3"),
		path("over 110", "1-111#1 1-110#3, 1-110#2 2-210#1, 2-210#2 2-211#1"),
		path("over 120", "1-111#2 1-120#3, 1-120#2 2-220#1, 2-220#2 2-211#2"),
		path("110 to 120", "1-111#1 1-110#3, 1-110#1 1-120#1, 1-120#2 2-220#1, 2-220#2 2-211#2"),
		path("120 to 110", "1-111#2 1-120#3, 1-120#1 1-110#1, 1-110#2 2-210#1, 2-210#2 2-211#1"),
		path("110 to 212", "1-111#1 1-110#3, 1-110#2 2-210#1, 2-210#3 2-212#1, 2-212#2 2-211#3"),
		path("120 to 212", "1-111#2 1-120#3, 1-120#1 1-110#1, 1-110#2 2-210#1, 2-210#3 2-212#1, 2-212#2 2-211#3"),
	} {
		all = append(all, idle(p))
	}
	for seed := range uint64(1000) {
		plan := adaptive{}.Decide(View{Now: t0, MaxPaths: 8, Candidates: all, Seed: seed})
		if got := decisions(plan); len(got) != 3 || !slices.Contains(got, "open peering") {
			t.Fatalf("with seed %d: %v", seed, got)
		}
		wide := []Candidate{idle(pathC), idle(pathD), idle(path("wide", "1-1#4 1-5#1, 1-5#2 1-2#3")), idle(path("narrow", "1-1#5 1-5#3, 1-5#2 1-2#3"))}
		for i, mbit := range []uint64{3, 4, 6, 4} {
			wide[i].Path.Bandwidth = mbit * 1e6
		}
		plan = adaptive{}.Decide(View{Now: t0, MaxPaths: 8, Candidates: wide, Seed: seed})
		if got := decisions(plan); !slices.Contains(got, "open wide") || len(got) != 2 {
			t.Fatalf("two of the paths are wide, with seed %d: %v", seed, got)
		}
		// Alone, none is in the way.
		plan = adaptive{}.Decide(View{Now: t0, MaxPaths: 1, Candidates: all[3:4], Seed: seed})
		if got := decisions(plan); !slices.Equal(got, []string{"open 110 to 120"}) {
			t.Fatalf("one path alone, with seed %d: %v", seed, got)
		}
	}
}

func TestWaitingSaysSo(t *testing.T) {
	failed := Candidate{Key: Key{Peer: "p", Path: "a"}, Path: pathA, State: Failed, Failures: 3, RetryAt: t0.Add(4 * time.Second)}
	for _, name := range []string{"first", "all", "adaptive"} {
		s, err := New(name)
		if err != nil {
			t.Fatal(err)
		}
		if w := s.Decide(View{Now: t0, MaxPaths: 2, Candidates: []Candidate{failed}}).Waiting; !strings.Contains(w, "next attempt is in 4s") {
			t.Errorf("%s: %q", name, w)
		}
		again := failed
		again.State, again.RetryAt = Opening, time.Time{}
		if w := s.Decide(View{Now: t0, MaxPaths: 2, Candidates: []Candidate{again}}).Waiting; !strings.Contains(w, "trying 1 of them again") {
			t.Errorf("%s: waiting %q while it tries again", name, w)
		}
		if w := s.Decide(View{Now: t0, MaxPaths: 2}).Waiting; w == "" {
			t.Errorf("%s: nothing to connect to, and not waiting", name)
		}
		if w := s.Decide(View{Now: t0, MaxPaths: 2, Candidates: []Candidate{rated(pathA, 1), failed}}).Waiting; w != "" {
			t.Errorf("%s waits with a path open: %q", name, w)
		}
	}
}

func TestSlotsToTheLetter(t *testing.T) {
	s, err := Config{}.New("slots")
	if err != nil {
		t.Fatal(err)
	}
	names := []Fingerprint{"a", "b", "c", "d"}
	at := func(v View, d time.Duration, plan Plan) View { v.Now, v.Memory = t0.Add(d), plan.Memory; return v }
	var v View
	v.MaxPaths = 4
	for _, n := range names {
		v.Candidates = append(v.Candidates, idle(Path{Fingerprint: n}))
	}
	plan := s.Decide(at(v, 0, Plan{}))
	if got := decisions(plan); !slices.Equal(got, []string{"open a", "open b", "open c", "open d"}) {
		t.Fatal(got)
	}
	for i, ms := range []time.Duration{20, 40, 81, 0} { // d does not answer; c weighs just less than a quarter
		v.Candidates[i].State, v.Candidates[i].Handshake = Active, ms*time.Millisecond
	}
	v.Candidates[3].State = Opening
	plan = s.Decide(at(v, 1900*time.Millisecond, plan))
	if got := decisions(plan); len(got) > 0 {
		t.Fatalf("before the deadline: %v", got)
	}
	plan = s.Decide(at(v, 2*time.Second, plan))
	if got := decisions(plan); !slices.Equal(got, []string{"close c", "close d"}) {
		t.Fatalf("initial selection: %v", got)
	}
	v.Candidates[2].State, v.Candidates[3].State = Idle, Idle
	v.Candidates[0].BytesRead, v.Candidates[1].BytesRead = 1000, 250
	plan = s.Decide(at(v, 3*time.Second, plan))
	if got := decisions(plan); len(got) > 0 {
		t.Fatalf("a quarter of the best stays, and what is closed stays closed: %v", got)
	}
	v.Candidates[0].BytesRead, v.Candidates[1].BytesRead = 2000, 499
	if got := decisions(s.Decide(at(v, 3900*time.Millisecond, plan))); len(got) > 0 {
		t.Fatalf("before the slot's end: %v", got)
	}
	plan = s.Decide(at(v, 4*time.Second, plan))
	if got := decisions(plan); !slices.Equal(got, []string{"close b"}) {
		t.Fatalf("periodic selection: %v", got)
	}
	for _, c := range []Config{{MinWeight: 101}, {Slot: -1}, {MinWeight: -1}} {
		if _, err := c.New("slots"); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}

// A path that is down vanishes from the view, and is in it again later, with the bytes of before.
func TestSlotsOfAPathThatWasAway(t *testing.T) {
	s, err := Config{}.New("slots")
	if err != nil {
		t.Fatal(err)
	}
	steady, away := idle(Path{Fingerprint: "a"}), idle(Path{Fingerprint: "b"})
	second, memory := 0, Memory{}
	decide := func(candidates ...Candidate) []string {
		t.Helper()
		plan := s.Decide(View{Now: t0.Add(time.Duration(second) * time.Second), MaxPaths: 4, Memory: memory, Candidates: candidates})
		second, memory = second+1, plan.Memory
		return decisions(plan)
	}
	steady.State, away.State = Active, Active
	steady.Handshake, away.Handshake = 20*time.Millisecond, 20*time.Millisecond
	if got := decide(steady, away); len(got) > 0 {
		t.Fatalf("initial selection: %v", got)
	}
	steady.BytesRead, away.BytesRead = 1000, 5000
	if got := decide(steady, away); !slices.Equal(got, []string{"close a"}) {
		t.Fatalf("periodic selection: %v", got)
	}
	steady.State = Idle
	if got := decide(steady, away); len(got) > 0 {
		t.Fatalf("a closed path: %v", got)
	}
	if got := decide(away); len(got) > 0 {
		t.Fatalf("without the closed path: %v", got)
	}
	if got := decide(steady, away); len(got) > 0 {
		t.Fatalf("the closed path is back: %v", got)
	}

	// A path that was never closed is opened again. Its former bytes are not those of the slot.
	memory, second = Memory{}, 10
	steady.State, steady.BytesRead = Active, 100
	decide(steady)
	away.State = Idle
	if got := decide(steady, away); !slices.Equal(got, []string{"open b"}) {
		t.Fatalf("a path with bytes of before: %v", got)
	}
	away.State = Active
	steady.BytesRead, away.BytesRead = steady.BytesRead+1000, away.BytesRead+1000
	if got := decide(steady, away); len(got) > 0 {
		t.Fatalf("the slot after: %v", got)
	}
}

// The memory of peers that come and go has a limit.
func TestSlotsForgets(t *testing.T) {
	m := slotsMemory{}
	for n := range 3 * mostGone {
		m = m.next(View{Candidates: []Candidate{{Key: Key{Peer: PeerID(strconv.Itoa(n)), Path: "a"}}}})
		m.Paths[0].Closed = n%2 == 0
	}
	if got := len(m.Paths); got != 1+mostGone {
		t.Errorf("%d paths are remembered, want %d", got, 1+mostGone)
	}
	if last := m.Paths[1].Key.Peer; last != PeerID(strconv.Itoa(3*mostGone-2)) {
		t.Errorf("the path that was last in the view, of %s, is not the first", last)
	}
}

// randomView is a random view, including states that no client should report.
func randomView(r *rand.Rand, memory Memory) View {
	v := View{Now: t0.Add(time.Duration(r.IntN(1000)) * time.Second), MaxPaths: 1 + r.IntN(5), Seed: r.Uint64N(5), Memory: memory}
	if r.IntN(3) == 0 {
		v.Remaining = r.Uint64N(1e9)
	}
	all := []Path{pathA, pathB, pathC, pathD, pathE}
	for peer := range 1 + r.IntN(3) {
		open := 0
		for _, p := range all[:1+r.IntN(len(all))] {
			c := rated(p, r.Float64()*50)
			c.Key.Peer = PeerID(rune('p' + peer))
			if c.State = State(r.IntN(len(stateNames))); c.State.Open() {
				if open++; open > v.MaxPaths {
					c.State = Idle
				}
			}
			c.Since = v.Now.Add(-time.Duration(r.IntN(100)) * time.Second)
			c.Slots = slotsOf(v.Now.Add(-time.Duration(r.IntN(30))*time.Second), r.IntN(maxSlots), r.Float64()*50)
			c.Silent, c.Quiet, c.Outstanding = r.IntN(9) == 0, r.IntN(4) == 0, r.IntN(200)
			if r.IntN(9) == 0 {
				c.RevokedAt = v.Now.Add(-time.Duration(r.IntN(50)) * time.Second)
			}
			c.RetryAt = v.Now.Add(time.Duration(r.IntN(20)-15) * time.Second)
			c.Hint = max(0, r.IntN(8)-4)
			v.Candidates = append(v.Candidates, c)
		}
	}
	return v
}

func TestPropertiesOfEverySelector(t *testing.T) {
	for _, name := range []string{"first", "all", "slots", "adaptive"} {
		s, err := New(name)
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(1, 2))
		var memory Memory
		for n := range 600 {
			if n%7 == 0 {
				memory = Memory{}
			}
			v := randomView(r, memory)
			before, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			plan := s.Decide(v)
			if after, _ := json.Marshal(v); !bytes.Equal(before, after) {
				t.Fatalf("%s changed the view\n%s\n%s", name, before, after)
			}
			var again View
			if err := json.Unmarshal(before, &again); err != nil {
				t.Fatal(err)
			}
			if second := s.Decide(again); !reflect.DeepEqual(asJSON(t, plan), asJSON(t, second)) {
				t.Fatalf("%s: the same view, recorded and read back, gave another plan\n%s\n%s", name, asJSON(t, plan), asJSON(t, second))
			}
			checkPlan(t, name, v, plan)
			memory = plan.Memory
		}
	}
}

func asJSON(t *testing.T, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// oneOfMany matches a plural of one.
var oneOfMany = regexp.MustCompile(`\b1 (hops|paths|open paths|connections|failures)\b`)

// checkPlan applies a plan and checks it against the state machine and the budget.
func checkPlan(t *testing.T, name string, v View, plan Plan) {
	t.Helper()
	state, open := map[Key]State{}, map[PeerID]int{}
	paths := map[Key]bool{}
	for _, c := range v.Candidates {
		state[c.Key] = c.State
		paths[Key{Peer: c.Key.Peer, Path: c.Key.Path}] = true
		if c.State.Open() {
			open[c.Key.Peer]++
		}
	}
	if m := oneOfMany.FindString(plan.Waiting); m != "" {
		t.Fatalf("%s: %q says %q", name, plan.Waiting, m)
	}
	seen := map[Key]bool{}
	for _, d := range plan.Decisions {
		if d.Reason == "" || seen[d.Key] || !paths[Key{Peer: d.Key.Peer, Path: d.Key.Path}] {
			t.Fatalf("%s: %+v: no reason, twice, or for an unknown path", name, d)
		}
		if m := oneOfMany.FindString(d.Reason); m != "" {
			t.Fatalf("%s: the reason %q says %q", name, d.Reason, m)
		}
		seen[d.Key] = true
		from := state[d.Key]
		var ok bool
		switch d.Action {
		case Open:
			ok = !from.Open()
			open[d.Key.Peer]++
		case Close, Fail:
			ok = from.Open()
			open[d.Key.Peer]--
		case Park:
			ok = from.Carries()
		case Probe:
			ok = from == Parked || !from.Open()
			if from != Parked {
				open[d.Key.Peer]++
			}
		case Return:
			ok = from == Parked || from == Probing
		}
		if !ok {
			t.Fatalf("%s: %v from %v: %s", name, d.Action, from, d.Reason)
		}
		if (d.Action == Open || d.Action == Probe) && open[d.Key.Peer] > v.MaxPaths {
			t.Fatalf("%s: over the budget of %d with %+v", name, v.MaxPaths, d)
		}
	}
}

func TestTraceReplays(t *testing.T) {
	s := adaptive{}
	r := rand.New(rand.NewPCG(3, 4))
	var trace bytes.Buffer
	var memory Memory
	var want []string
	for range 50 {
		v := randomView(r, memory)
		plan := s.Decide(v)
		if err := WriteStep(&trace, Step{Selector: s.Name(), View: v, Plan: plan}); err != nil {
			t.Fatal(err)
		}
		memory = plan.Memory
		want = append(want, asJSON(t, plan))
	}
	if !strings.Contains(trace.String(), `{"key":{"peer":"p","path":"a"},"path":{"fingerprint":"a"`) {
		t.Errorf("the keys of a trace changed: %.300s", trace.String())
	}
	decide, n := Replay(s), 0
	for step, err := range Steps(&trace) {
		if err != nil {
			t.Fatal(err)
		}
		if plan := decide(step.View); asJSON(t, plan) != want[n] {
			t.Fatalf("step %d was replayed differently\n%s\n%s", n, asJSON(t, plan), want[n])
		}
		n++
	}
	if n != len(want) {
		t.Fatalf("%d steps, want %d", n, len(want))
	}
	wrong := func(trace string) error {
		for _, err := range Steps(strings.NewReader(trace)) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := wrong(`{"view":{"candidates":[{"state":"asleep"}]}}`); err == nil {
		t.Error("an unknown state was read")
	}
	// braid 0.2 recorded further connections on a path, and a trial in the memory.
	old := `{"view":{"max_paths":2,"memory":{"peers":[{"peer":"p","trial":{"key":{"peer":"p","path":"a"}}}]},"candidates":[{"key":{"peer":"p","path":"a"}}%s]}}`
	if err := wrong(fmt.Sprintf(old, "")); err != nil {
		t.Errorf("a trace of braid 0.2: %v", err)
	}
	further := fmt.Sprintf(old, `,{"key":{"peer":"p","path":"a","conn":1}}`)
	if err := wrong(further); err == nil || !strings.Contains(err.Error(), "further connection") {
		t.Errorf("a further connection: %v", err)
	}
}

// A link on which other peers' connections come and go all the time keeps no path unused.
func TestGroupIsNotPostponedForever(t *testing.T) {
	v := View{Now: t0, MaxPaths: 8, Candidates: []Candidate{rated(pathC, 10), idle(pathD), rated(pathE, 10)}}
	v.Candidates[2].Key.Peer, v.Candidates[2].Since = "q", t0.Add(-time.Second)
	v.Memory = adaptive{}.Decide(v).Memory
	if got := decisions(adaptive{}.Decide(v)); !slices.Equal(got, []string{"open d"}) {
		t.Errorf("%v after a minute, want open d", got)
	}
}

// The user's preference decides what is tried first; among equal paths, the random draw does.
func TestAdaptivePreference(t *testing.T) {
	quick, slow := pathB, pathA
	quick.Latency, quick.LatencyKnown, quick.Bandwidth = 10*time.Millisecond, true, 1e6
	slow.Latency, slow.LatencyKnown, slow.Bandwidth = 50*time.Millisecond, true, 1e9
	s, err := New("adaptive")
	if err != nil {
		t.Fatal(err)
	}
	for preference, want := range map[Criterion]Fingerprint{ByLatency: "b", ByBandwidth: "a"} {
		for seed := range uint64(50) {
			v := View{Now: t0, MaxPaths: 1, Seed: seed, Candidates: []Candidate{idle(slow), idle(quick)}, Preference: Preference{preference, ByMTU}}
			if d := s.Decide(v).Decisions; len(d) != 1 || d[0].Action != Open || d[0].Key.Path != want {
				t.Fatalf("%s, seed %d: %v, want %s opened", preference, seed, d, want)
			}
		}
	}
	drawn := map[Fingerprint]bool{}
	for seed := range uint64(50) {
		v := View{Now: t0, MaxPaths: 1, Seed: seed, Candidates: []Candidate{idle(pathA), idle(pathB), idle(pathC)}, Preference: Preference{ByHops}}
		drawn[s.Decide(v).Decisions[0].Key.Path] = true
	}
	if !reflect.DeepEqual(drawn, map[Fingerprint]bool{"a": true, "b": true}) {
		t.Errorf("drawn: %v, want both of one hop", drawn)
	}
}
