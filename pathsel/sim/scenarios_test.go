package sim

import (
	"slices"
	"testing"
	"time"

	"braid/pathsel"
)

func ia(n int) pathsel.IA { return pathsel.IA(1<<48 | 0xff0000000100 + uint64(n)) }

const ms = time.Millisecond

// direct returns n parallel links between two ASes, each of them a path. Rates are in Mbit/s,
// one-way delays in ms.
func direct(rateDelay ...float64) (links []Link, paths []pathsel.Path) {
	for i := 0; i < len(rateDelay); i += 2 {
		l := NewLink(ia(1), ia(2), uint64(i/2+1), rateDelay[i], time.Duration(rateDelay[i+1])*ms)
		links = append(links, l)
		paths = append(paths, PathOver(l))
	}
	return links, paths
}

// sharedBottleneck is four paths of which three share their last link.
func sharedBottleneck(shared, alone float64) (links []Link, paths []pathsel.Path) {
	last := NewLink(ia(2), ia(9), 1, shared, 5*ms)
	links = append(links, last)
	for i := range 3 {
		l := NewLink(ia(1), ia(2), uint64(10+i), 100, time.Duration(5+2*i)*ms)
		links = append(links, l)
		paths = append(paths, PathOver(l, last))
	}
	l := NewLink(ia(1), ia(9), 20, alone, 10*ms)
	return append(links, l), append(paths, PathOver(l))
}

func one(selector string, paths []pathsel.Path, maxPaths int) Client {
	s, err := pathsel.New(selector)
	if err != nil {
		panic(err)
	}
	return Client{Selector: s, MaxPaths: maxPaths, Peers: [][]pathsel.Path{paths}, Seed: 7}
}

// recorder keeps every view that a selector sees.
type recorder struct {
	pathsel.Selector
	views []pathsel.View
}

func (r *recorder) Decide(v pathsel.View) pathsel.Plan {
	r.views = append(r.views, v)
	return r.Selector.Decide(v)
}

// carried returns the mean rate of a link for all clients in bits per second of packets.
func carried(out []ClientResult, l Link, d time.Duration) (rate float64) {
	for _, r := range out {
		for _, c := range r.Last.Candidates {
			if slices.Contains(c.Path.Interfaces, l.A) {
				rate += float64(c.BytesRead) / PayloadShare * 8 / d.Seconds()
			}
		}
	}
	return rate
}

// limit is what the links carry of payload together, in bits per second.
func limit(mbits ...float64) (sum float64) {
	for _, m := range mbits {
		sum += m * 1e6 * PayloadShare
	}
	return sum
}

func story(t *testing.T, r ClientResult) {
	t.Helper()
	for _, e := range r.Events[:min(60, len(r.Events))] {
		t.Logf("%8.2fs %-7v %v: %s", e.At.Seconds(), e.Action, e.Key, e.Reason)
	}
}

// play runs one client with that selector.
func play(selector string, links []Link, paths []pathsel.Path, maxPaths int, d time.Duration) ClientResult {
	return Run(Scenario{Links: links, Clients: []Client{one(selector, paths, maxPaths)}, Duration: d, Seed: 1})[0]
}

// during gives a link another condition for a while.
func during(l *Link, from, to time.Duration, c Condition) {
	l.Changes = append(l.Changes, Change{from, c}, Change{to, l.Condition})
}

const (
	steady = time.Minute
	end    = 10 * time.Minute
)

// changes counts decisions of these kinds between two times.
func changes(r ClientResult, from, to time.Duration, actions ...pathsel.Action) (n int) {
	for _, e := range r.Events {
		if slices.Contains(actions, e.Action) && e.At >= from && e.At < to {
			n++
		}
	}
	return n
}

// changing are the actions that change which paths carry the download.
var changing = []pathsel.Action{pathsel.Open, pathsel.Close, pathsel.Park, pathsel.Return, pathsel.Probe, pathsel.Fail}

// needless counts changes per minute under constant conditions. Each probe, experiment or swap is
// undone later, so two decisions count as one change.
func needless(r ClientResult, from, to time.Duration) float64 {
	return float64(changes(r, from, to, changing...)) / 2 / (to - from).Minutes()
}

func atLeast(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !(got >= want) {
		t.Errorf("%s: %.3f, want at least %.3f", what, got, want)
	} else {
		t.Logf("%s: %.3f (at least %.3f)", what, got, want)
	}
}

func atMost(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !(got <= want) {
		t.Errorf("%s: %.3f, want at most %.3f", what, got, want)
	} else {
		t.Logf("%s: %.3f (at most %.3f)", what, got, want)
	}
}

func TestDisjointPathsAddUp(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		rateDelay  []float64
		queue      float64 // bytes
		loss, want float64
	}{
		{"equal", []float64{20, 10, 20, 10}, 0, 0, 0.95},
		{"equal, short queues", []float64{20, 10, 20, 10}, 50e3, 0, 0.95},
		{"equal, loss", []float64{20, 10, 20, 10}, 0, 0.0001, 0.95},
		{"unequal", []float64{30, 15, 15, 45}, 0, 0, 0.88},
		{"10:1 rates, 10:1 delays", []float64{30, 5, 3, 50}, 0, 0, 0.90},
		{"10:1 rates, 1:10 delays", []float64{30, 50, 3, 5}, 0, 0, 0.90},
		{"10:1, short queues", []float64{30, 5, 3, 50}, 30e3, 0, 0.90},
		{"30:1", []float64{60, 5, 2, 80}, 0, 0, 0.95},
		{"eight", []float64{10, 5, 10, 10, 10, 15, 10, 20, 5, 25, 5, 30, 5, 35, 5, 40}, 0, 0, 0.95},
	} {
		t.Run(tt.name, func(t *testing.T) {
			links, paths := direct(tt.rateDelay...)
			var sum float64
			for i := range links {
				links[i].Queue, links[i].Loss = tt.queue, tt.loss
				sum += links[i].Rate / 1e6
			}
			r := play("adaptive", links, paths, 8, end)
			single := play("first", links, paths, 8, end)
			atLeast(t, "first minute, of the limit", r.Rate(0, steady)/limit(sum), tt.want-0.05)
			atLeast(t, "then", r.Rate(steady, end)/limit(sum), tt.want)
			for at := 5 * time.Second; at < end; at += 5 * time.Second {
				if got, want := r.Rate(at, at+5*time.Second), single.Rate(at, at+5*time.Second); got < 0.98*want {
					t.Errorf("at %v: %.1f Mbit/s, the best path alone has %.1f", at, got/1e6, want/1e6)
				}
			}
			atMost(t, "needless changes a minute", needless(r, 0, end), 1)
			if t.Failed() {
				story(t, r)
			}
		})
	}
}

func TestSharedBottleneck(t *testing.T) {
	t.Parallel()
	links, paths := sharedBottleneck(30, 15)
	r := play("adaptive", links, paths, 8, end)
	atLeast(t, "of the limit", r.Rate(0, end)/limit(45), 0.95)
	atMost(t, "needless changes a minute", needless(r, steady, end), 1)

	for _, queue := range []float64{0, 50e3, 100e3, 1e6} {
		links[0].Queue = queue
		rival := one("first", paths[2:3], 1)
		all := Run(Scenario{Links: links, Clients: []Client{one("all", paths, 8), rival}, Duration: end, Seed: 1})
		t.Logf("queue %.0f: with all, the rival has %.2f of its fair share", queue, all[1].Rate(steady, end)/limit(15))

		var fair []float64 // of the rival, for the median of five runs
		crowds := 0.0
		for seed := uint64(1); seed <= 5; seed++ {
			us := one("adaptive", paths, 8)
			us.Seed = seed
			out := Run(Scenario{Links: links, Clients: []Client{us, rival}, Duration: end, Seed: seed})
			ours, theirs := out[0], out[1]
			fair = append(fair, theirs.Rate(steady, end)/limit(15))
			atLeast(t, "both together, of the shared link", carried(out, links[0], end)/30e6, 0.95)
			atLeast(t, "the path of its own", carried(out, links[4], end)/15e6, 0.95)
			atLeast(t, "ours, of our fair share", (ours.Rate(steady, end)-limit(15))/limit(15), 0.8)
			atMost(t, "needless changes a minute", needless(ours, steady, end), 1)
			atMost(t, "connections carrying on the shared link at the end", float64(carrying(ours.Last)-1), 2)
			if active(ours.Last) > 2 { // one on the shared link, and the path of its own
				crowds++
			}
			if t.Failed() {
				story(t, ours)
			}
		}
		slices.Sort(fair)
		atLeast(t, "the rival, of its fair share, median of five", fair[2], 0.8)
		atMost(t, "of five runs, those with several connections on the shared link at the end", crowds, 1)
	}
}

// active counts the connections that carry pieces and are not probed.
func active(v pathsel.View) (n int) {
	for _, c := range v.Candidates {
		if c.State == pathsel.Active {
			n++
		}
	}
	return n
}

func carrying(v pathsel.View) (n int) {
	for _, c := range v.Candidates {
		if c.State.Carries() {
			n++
		}
	}
	return n
}

// Paths that share a fast link but are limited elsewhere are examined, and kept.
func TestSharedLinkThatIsNoBottleneck(t *testing.T) {
	t.Parallel()
	access := NewLink(ia(1), ia(2), 1, 200, 2*ms)
	links := []Link{access}
	var paths []pathsel.Path
	for i := range 4 {
		l := NewLink(ia(2), ia(9), uint64(10+i), 10+10*float64(i), time.Duration(5+10*i)*ms)
		links = append(links, l)
		paths = append(paths, PathOver(access, l))
	}
	r := play("adaptive", links, paths, 8, end)
	atLeast(t, "of the limit", r.Rate(0, end)/limit(100), 0.95)
	atLeast(t, "at the end", r.Rate(end-steady, end)/limit(100), 0.95)
	atMost(t, "needless changes a minute", needless(r, 2*steady, end), 1)
	if n := carrying(r.Last); n < 3 {
		t.Errorf("%d paths carry at the end", n)
	}
	if t.Failed() {
		story(t, r)
	}
}

func TestCongestion(t *testing.T) {
	t.Parallel()
	const from, to = 60 * time.Second, 70 * time.Second
	for _, tt := range []struct {
		name string
		both bool
		part float64 // of the link's rate that cross traffic takes
	}{
		{"one path, half", false, 0.5}, {"one path, nearly all", false, 0.95}, {"one path, all", false, 1.2},
		{"both, half", true, 0.5}, {"both, nearly all", true, 0.9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			links, paths := direct(20, 10, 20, 10)
			rest := max(0, 1-tt.part)
			left := 20 + 20*rest
			for i := range links {
				if i == 0 || tt.both {
					c := links[i].Condition
					c.Cross = tt.part * c.Rate
					during(&links[i], from, to, c)
				}
			}
			if tt.both {
				left = 40 * rest
			}
			r := play("adaptive", links, paths, 8, end)
			atLeast(t, "while congested, of what is left", r.Rate(from, to)/limit(left), 0.9)
			atLeast(t, "ten seconds after", r.Rate(to, to+10*time.Second)/limit(40), 0.9)
			atLeast(t, "then", r.Rate(to+10*time.Second, end)/limit(40), 0.95)
			if t.Failed() {
				story(t, r)
			}
		})
	}
}

func TestOutages(t *testing.T) {
	t.Parallel()
	const cut, back = 60 * time.Second, 75 * time.Second
	for _, tt := range []struct {
		name string
		how  Condition
		gone time.Duration // until the path's work is with the other
	}{
		{"cut, with SCMP", Condition{Down: true}, time.Second},
		{"silent black hole", Condition{Silent: true}, 1500 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			links, paths := direct(20, 10, 20, 10)
			during(&links[0], cut, back, tt.how)
			r := play("adaptive", links, paths, 8, 3*time.Minute)
			for at := cut; at < back; at += time.Second {
				if got := r.Rate(at, at+time.Second); got < 0.95*limit(20) {
					t.Errorf("at %v the other path has %.1f Mbit/s", at, got/1e6)
				}
			}
			var failed time.Duration
			for _, e := range r.Events {
				if e.Action == pathsel.Fail && failed == 0 {
					failed = e.At
				}
			}
			atMost(t, "seconds until it is out", (failed - cut).Seconds(), tt.gone.Seconds())
			atLeast(t, "20 s after the repair", r.Rate(back+20*time.Second, 3*time.Minute)/limit(40), 0.95)
			if t.Failed() {
				story(t, r)
			}
		})
	}
}

func TestFlappingPath(t *testing.T) {
	t.Parallel()
	for _, how := range []Condition{{Down: true}, {Silent: true}} {
		links, paths := direct(20, 10, 20, 10)
		for at := 30 * time.Second; at < 150*time.Second; at += 6 * time.Second {
			during(&links[0], at, at+3*time.Second, how)
		}
		r := play("adaptive", links, paths, 8, 4*time.Minute)
		for at := 30 * time.Second; at < 150*time.Second; at += time.Second {
			if got := r.Rate(at, at+time.Second); got < 0.95*limit(20) {
				t.Errorf("at %v: %.1f Mbit/s", at, got/1e6)
			}
		}
		atMost(t, "decisions in two minutes of flapping", float64(changes(r, 30*time.Second, 150*time.Second, changing...)), 24)
		atLeast(t, "35 s after it ended", r.Rate(185*time.Second, 4*time.Minute)/limit(40), 0.95)
		if t.Failed() {
			story(t, r)
		}
	}
}

func TestAllDown(t *testing.T) {
	t.Parallel()
	const from, to = 60 * time.Second, 90 * time.Second
	for _, how := range []Condition{{Down: true}, {Silent: true}} {
		links, paths := direct(20, 10, 20, 10)
		for i := range links {
			during(&links[i], from, to, how)
		}
		r := play("adaptive", links, paths, 8, 4*time.Minute)
		atLeast(t, "seconds of saying that it waits", r.Waited.Seconds(), 5)
		atLeast(t, "20 s after the repair", r.Rate(to+20*time.Second, 4*time.Minute)/limit(40), 0.95)
		if t.Failed() {
			story(t, r)
		}
	}
}

// A path that was parked because of a shared bottleneck replaces the other when that one's own link
// breaks.
func TestStepIn(t *testing.T) {
	t.Parallel()
	links, paths := sharedBottleneck(30, 15)
	base := play("adaptive", links, paths, 8, 2*time.Minute)
	for _, c := range base.Last.Candidates[:3] {
		if c.State != pathsel.Active {
			continue // a probe is no member
		}
		for i := range links {
			if links[i].A == c.Path.Interfaces[0] {
				during(&links[i], 2*time.Minute, 3*time.Minute, Condition{Down: true})
			}
		}
	}
	r := play("adaptive", links, paths, 8, 4*time.Minute)
	atLeast(t, "the worst second while a member is cut", minRate(r, 2*time.Minute+3*time.Second, 3*time.Minute)/limit(45), 0.9)
	if t.Failed() {
		story(t, r)
	}
}

func minRate(r ClientResult, from, to time.Duration) float64 {
	least := r.Rate(from, from+time.Second)
	for at := from; at < to; at += time.Second {
		least = min(least, r.Rate(at, at+time.Second))
	}
	return least
}

// The bottleneck moves from the shared link to the paths' own links: parked paths return.
func TestBottleneckMoves(t *testing.T) {
	t.Parallel()
	links, paths := sharedBottleneck(30, 15)
	const moves = 3 * time.Minute
	wide := links[0].Condition
	wide.Rate = 200e6
	links[0].Changes = []Change{{moves, wide}}
	for i := range 3 {
		narrow := links[1+i].Condition
		narrow.Rate = 12e6
		links[1+i].Changes = []Change{{moves, narrow}}
	}
	r := play("adaptive", links, paths, 8, end)
	if n := changes(r, moves, moves+90*time.Second, pathsel.Return); n < 2 {
		t.Errorf("%d paths returned within 90 s", n)
	}
	atLeast(t, "from 90 s after, of the limit", r.Rate(moves+90*time.Second, end)/limit(3*12+15), 0.95)
	if t.Failed() {
		story(t, r)
	}
}

// Probes carry only a small part of all bytes.
func TestProbesCarryLittle(t *testing.T) {
	t.Parallel()
	links, paths := sharedBottleneck(30, 15)
	c := one("adaptive", paths, 8)
	selector := &recorder{Selector: c.Selector}
	c.Selector = selector
	r := Run(Scenario{Links: links, Clients: []Client{c}, Duration: end, Seed: 1})[0]
	var all, probes uint64
	before := map[pathsel.Key]uint64{}
	for _, v := range selector.views {
		for _, c := range v.Candidates {
			read := c.BytesRead - before[c.Key]
			before[c.Key] = c.BytesRead
			if all += read; c.State == pathsel.Probing {
				probes += read
			}
		}
	}
	atMost(t, "of all bytes, by probes", float64(probes)/float64(all), 0.05)
	atLeast(t, "probes", float64(changes(r, 0, end, pathsel.Probe)), 3)
}
