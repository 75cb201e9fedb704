package wire

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"braid/pathsel"
)

// crowd is a share in simulated time with connections that claim as told, and what each was
// granted.
type crowd struct {
	*share
	now    time.Time
	flows  []*flow
	asks   []func(now time.Duration) int // how much to claim when idle; 0: nothing now
	had    map[*flow]int
	grants []grant
	start  time.Time
	step   bool // look every millisecond, for those who do not always claim
}

type grant struct {
	at time.Duration
	n  int
}

func newCrowd(rate int64) *crowd {
	start := time.Unix(1e9, 0)
	return &crowd{share: newShare(rate), now: start, start: start, had: map[*flow]int{}}
}

func (c *crowd) add(net string, ask func(time.Duration) int) *flow {
	return c.addFrom(pathsel.Origin{Net: net, Host: net}, ask)
}

func (c *crowd) addFrom(o pathsel.Origin, ask func(time.Duration) int) *flow {
	f := c.join(o)
	c.flows, c.asks = append(c.flows, f), append(c.asks, ask)
	return f
}

func always(n int) func(time.Duration) int { return func(time.Duration) int { return n } }

// run lets time pass: claims are made again as soon as they were granted, and the alarm is late by
// up to late.
func (c *crowd) run(d, late time.Duration, r *rand.Rand) {
	for end := c.now.Add(d); c.now.Before(end); {
		for i, f := range c.flows {
			if f.want == 0 && f.above != nil {
				if n := c.asks[i](c.now.Sub(c.start)); n > 0 {
					c.claim(f, n)
				}
			}
		}
		want := map[*flow]int{}
		for _, f := range c.flows {
			want[f] = f.want
		}
		granted, next := c.serve(c.now)
		for _, f := range granted {
			c.had[f] += want[f]
			c.grants = append(c.grants, grant{c.now.Sub(c.start), want[f]})
		}
		if len(granted) > 0 && late == 0 {
			continue // they claim again at once; else only when the alarm goes next
		}
		if next == 0 || c.step && next > time.Millisecond {
			next = time.Millisecond
		}
		if late > 0 {
			next += time.Duration(r.Int64N(int64(late)))
		}
		c.now = c.now.Add(next)
	}
}

func (c *crowd) total(flows ...*flow) (n int) {
	for _, f := range flows {
		n += c.had[f]
	}
	return n
}

// In no interval whatever does more go than rate x time + burst.
func (c *crowd) checkRate(t *testing.T) {
	t.Helper()
	// The most by which the grants were ever ahead of the rate since some earlier moment.
	ahead := 0.0
	last := time.Duration(0)
	for _, g := range c.grants {
		ahead = max(0, ahead-c.rate*(g.at-last).Seconds()) + float64(g.n)
		last = g.at
		if ahead > c.burst+1 {
			t.Fatalf("at %v: %.0f bytes ahead of the rate, burst %.0f", g.at, ahead, c.burst)
		}
	}
}

func TestShareProperties(t *testing.T) {
	for seed := range uint64(15) {
		r := rand.New(rand.NewPCG(seed, 1))
		rate := []int64{MinRate, 100e3, 3e6, 50e6, 1e9}[r.IntN(5)]
		c := newCrowd(rate)
		peers := 1 + r.IntN(6)
		byPeer := make([][]*flow, peers)
		for p := range peers {
			for range 1 + r.IntN(9) {
				size := 1 + r.IntN(c.chunk)
				byPeer[p] = append(byPeer[p], c.add(fmt.Sprint(p), always(size)))
			}
		}
		seconds := max(0.5, 10*8*float64(c.chunk*len(c.flows))/float64(rate)) // many rounds
		d := time.Duration(min(seconds, 3000) * float64(time.Second))
		c.run(d, 0, r)
		c.checkRate(t)
		name := fmt.Sprintf("seed %d: %d bit/s, %d peers with %d connections", seed, rate, peers, len(c.flows))
		all := c.total(c.flows...)
		elapsed := c.now.Sub(c.start).Seconds()
		if least := c.rate*elapsed - float64(c.chunk); float64(all) < least {
			t.Errorf("%s: %d bytes in %.1f s, want at least %.0f: the rate was not used", name, all, elapsed, least)
		}
		for p, flows := range byPeer {
			if n, fair := float64(c.total(flows...)), float64(all)/float64(peers); n < fair-2*float64(c.chunk) || n > fair+2*float64(c.chunk) {
				t.Errorf("%s: peer %d with %d connections had %.0f bytes, fair is %.0f", name, p, len(flows), n, fair)
			}
			for _, f := range flows {
				if n, fair := float64(c.had[f]), float64(c.total(flows...))/float64(len(flows)); n < fair-2*float64(c.chunk) || n > fair+2*float64(c.chunk) {
					t.Errorf("%s: a connection of peer %d had %.0f bytes, fair is %.0f", name, p, n, fair)
				}
			}
		}
	}
}

// Whoever wants less than his part gets what he wants, and the rest is divided among the others.
func TestShareModestPeer(t *testing.T) {
	c := newCrowd(8e6) // a million bytes a second
	c.step = true
	last := -time.Second
	modest := c.add("modest", func(now time.Duration) int {
		if now-last < 10*time.Millisecond {
			return 0
		}
		last = now
		return 1000
	})
	a, b1, b2 := c.add("a", always(4000)), c.add("b", always(4000)), c.add("b", always(4000))
	c.run(10*time.Second, 0, nil)
	c.checkRate(t)
	if n := c.had[modest]; n < 900_000 {
		t.Errorf("the modest peer had %d bytes of the million that it asked for", n)
	}
	if x, y := c.had[a], c.total(b1, b2); x < y-10_000 || x > y+10_000 {
		t.Errorf("the others had %d and %d bytes", x, y)
	}
}

// With timers as late as on a loaded machine the rate holds, and a peer with one connection keeps
// up with one that has eight.
func TestShareLateTimers(t *testing.T) {
	for _, rate := range []int64{1e6, 20e6, 100e6} {
		r := rand.New(rand.NewPCG(1, uint64(rate)))
		c := newCrowd(rate)
		one := c.add("one", always(c.chunk))
		var many []*flow
		for range 8 {
			many = append(many, c.add("many", always(c.chunk)))
		}
		c.run(20*time.Second, 3*time.Millisecond, r)
		c.checkRate(t)
		if x, y := float64(c.had[one]), float64(c.total(many...)); x < 0.8*y || x > 1.25*y {
			t.Errorf("%d bit/s: one connection had %.0f bytes, eight had %.0f", rate, x, y)
		}
		if all, want := float64(c.total(c.flows...)), c.rate*20; all < 0.98*want {
			t.Errorf("%d bit/s: %.0f bytes of %.0f", rate, all, want)
		}
	}
}

// A pause is not saved up: who comes back has a burst at most before the others have their turn.
func TestSharePause(t *testing.T) {
	c := newCrowd(8e6)
	here := c.add("here", always(4000))
	away := c.add("away", func(now time.Duration) int {
		if now > time.Second && now < 10*time.Second {
			return 0
		}
		return 4000
	})
	c.run(10*time.Second, 0, nil)
	x, y := c.had[here], c.had[away]
	c.run(time.Second, 0, nil)
	x, y = c.had[here]-x, c.had[away]-y
	if lead := float64(y - x); lead < 0 || lead > c.credit+2*float64(c.chunk) {
		t.Errorf("in the second after the pause %d and %d bytes", x, y)
	}
}

// Connections come and go with their claims, and nothing is left of them.
func TestShareLeave(t *testing.T) {
	c := newCrowd(1e6)
	now := c.now
	a, b := c.join(fromIP("10.0.0.1")), c.join(fromIP("10.0.0.2"))
	c.claim(a, c.chunk)
	c.serve(now) // uses up a part of the burst
	for range 3 {
		c.claim(a, c.chunk)
		c.claim(b, c.chunk)
		c.serve(now)
	}
	if a.want == 0 && b.want == 0 {
		t.Fatal("nobody waits: the burst has no end")
	}
	c.leave(a)
	c.leave(a)
	c.leave(b)
	c.claim(b, 1)
	if granted, next := c.serve(now.Add(time.Hour)); len(granted) != 0 || next != 0 || len(c.root.below) != 0 {
		t.Errorf("%d granted, next in %v, %d networks", len(granted), next, len(c.root.below))
	}
	f := c.join(fromIP("10.0.0.1"))
	c.claim(f, 1)
	if granted, _ := c.serve(now.Add(time.Hour)); len(granted) != 1 || granted[0] != f || c.root.wait != 0 {
		t.Error("a peer that has left cannot come back")
	}
}

// Whoever makes up keys and hosts divides what his network has. In a network each host has as much,
// on a host each key.
func TestShareByOrigin(t *testing.T) {
	c := newCrowd(8e6)
	key := func(ip, k string) *flow {
		return c.addFrom(pathsel.OriginIP(netip.MustParseAddr(ip), k), always(4000))
	}
	flood := map[string][]*flow{}
	for i := range 128 {
		flood["one host"] = append(flood["one host"], key("10.1.0.1", fmt.Sprint(i)))
		flood["one network"] = append(flood["one network"], key(fmt.Sprintf("10.2.0.%d", i), ""))
		f := c.addFrom(pathsel.OriginUnproven(fmt.Sprint(i)), always(4000))
		flood["unproven"] = append(flood["unproven"], f)
	}
	one := key("10.3.0.1", "")
	hosts := []*flow{key("10.4.0.1", ""), key("10.4.0.2", "a"), key("10.4.0.2", "b")}
	c.run(10*time.Second, 0, nil)
	c.checkRate(t)
	part := c.rate * 10 / 5
	near := func(what string, n int, want float64) {
		if d := float64(n) - want; d > 0.02*part || d < -0.02*part {
			t.Errorf("%s: %d bytes, want %.0f", what, n, want)
		}
	}
	for what, flows := range flood {
		near(what, c.total(flows...), part)
	}
	near("a lone peer", c.had[one], part)
	near("a host of two", c.had[hosts[0]], part/2)
	near("a key of two on the other", c.had[hosts[1]], part/4)
}

// A connection whose ISD-AS is proven leaves the unproven, with its claim.
func TestShareMove(t *testing.T) {
	c := newCrowd(8e6)
	var f *flow
	for i := range 4 {
		f = c.addFrom(pathsel.OriginUnproven(fmt.Sprint(i)), always(4000))
	}
	one := c.add("other", always(4000))
	c.run(4*time.Second, 0, nil)
	had, other := c.had[f], c.had[one]
	if had < 450_000 || had > 550_000 {
		t.Errorf("unproven: %d bytes, %d of the other", had, other)
	}
	c.claim(f, 4000)
	c.move(f, pathsel.OriginSCION(1<<48|1, netip.MustParseAddr("10.0.0.1"), "x"))
	c.run(3*time.Second, 0, nil)
	if n := c.had[f] - had; n < 950_000 || n > 1_050_000 {
		t.Errorf("proven: %d bytes of 3000000", n)
	}
}

func fromIP(s string) pathsel.Origin { return pathsel.OriginIP(netip.MustParseAddr(s), "") }
