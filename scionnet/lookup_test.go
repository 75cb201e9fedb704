package scionnet

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scionproto/scion/pkg/snet"

	"braid/pathsel"
)

// controlPlane answers lookups in a test. Its answer can be changed at any time.
type controlPlane struct {
	mu      sync.Mutex
	paths   []found
	err     error
	delay   time.Duration
	asked   int
	forced  int
	applied int
	inUse   bool
}

func (c *controlPlane) query(ctx context.Context, _ pathsel.IA, refresh bool) ([]found, error) {
	c.mu.Lock()
	c.asked++
	if refresh {
		c.forced++
	}
	delay := c.delay
	c.mu.Unlock()
	// Go 1.26 sometimes crashes in a select on a timer that has run out, in a bubble under the race
	// detector.
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.paths), c.err
}

func (c *controlPlane) say(err error, paths ...found) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paths, c.err = paths, err
}

func (c *controlPlane) asks() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.asked
	c.asked = 0
	return n
}

func (c *controlPlane) start(t *testing.T) *lookup {
	l := newLookup(c.query,
		func(pathsel.IA, []found) { c.mu.Lock(); c.applied++; c.mu.Unlock() },
		func(pathsel.IA) bool { c.mu.Lock(); defer c.mu.Unlock(); return c.inUse },
		slog.New(slog.DiscardHandler))
	t.Cleanup(l.close)
	return l
}

// to is a path to dst over one link, with that interface ID at both ends. It expires after life.
func to(dst pathsel.IA, id uint64, life time.Duration) found {
	p := pathsel.Path{Src: 1, Dst: dst, MTU: 1400, Interfaces: []pathsel.Interface{{IA: 1, ID: id}, {IA: dst, ID: id}}, Expiry: time.Now().Add(life)}
	p.Fingerprint = pathsel.FingerprintOf(p.Interfaces)
	return found{path: p, trail: trailOf(p.Interfaces), way: &way{raw: []byte{byte(id)}, expiry: p.Expiry}}
}

const dst = pathsel.IA(7)

func (l *lookup) mustHave(t *testing.T, want ...found) {
	t.Helper()
	got, err := l.paths(t.Context(), dst)
	if len(want) == 0 {
		if !errors.Is(err, ErrNoPath) {
			t.Fatalf("%d paths, error %v, want ErrNoPath", len(got), err)
		}
		return
	}
	if err != nil || !samePaths(got, want) {
		t.Fatalf("%v, %v, want %v", got, err, want)
	}
}

func TestLookupAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controlPlane{paths: []found{to(dst, 1, time.Hour)}, delay: time.Second}
		l := c.start(t)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { l.mustHave(t, c.paths...) })
		}
		wg.Wait()
		l.mustHave(t, c.paths...)
		if n := c.asks(); n != 1 {
			t.Errorf("asked %d times, want once", n)
		}
	})
}

func TestLookupOfSomebodyWhoGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controlPlane{paths: []found{to(dst, 1, time.Hour)}, delay: 2 * time.Second}
		l := c.start(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := l.paths(ctx, dst); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v, want that of the context", err)
			}
		})
		synctest.Wait()
		l.mustHave(t, c.paths...) // gets the answer to that question
		wg.Wait()
	})
}

// An answer of which all paths have expired, such as on a host whose clock is wrong, is one without
// a path: nobody asks again and again.
func TestLookupOfExpiredPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controlPlane{paths: []found{to(dst, 1, -time.Second)}, delay: time.Millisecond}
		l := c.start(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.paths(ctx, dst); !errors.Is(err, ErrNoPath) {
			t.Errorf("error %v", err)
		}
		if n := c.asks(); n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}

// After a laptop has slept, its known paths have expired, but its timers have not fired. A caller gets
// new paths at once, without waiting for the timer.
func TestLookupAfterSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := to(dst, 1, 6*time.Hour)
		c := controlPlane{paths: []found{old}}
		l := c.start(t)
		h := &Host{ia: 1, lookup: l}
		sleep := func() {
			l.mustHave(t, c.paths...)
			// A second more, so that no refresh is under way: its answer would still be the old one.
			time.Sleep(unsettledFor + time.Minute + time.Second)
			l.mu.Lock()
			for i := range l.destinations[dst].paths {
				l.destinations[dst].paths[i].path.Expiry = time.Now()
			}
			l.mu.Unlock()
		}
		sleep()
		renewed := to(dst, 1, 6*time.Hour)
		c.say(nil, renewed)
		if f, err := h.resolvePath(t.Context(), Addr{IA: dst}, old.path); err != nil || f.way != renewed.way {
			t.Errorf("%+v, %v, want new hop fields", f, err)
		}
		sleep()
		c.say(nil, to(dst, 2, 6*time.Hour))
		l.mustHave(t, c.paths...)

		sleep()
		c.say(errors.New("the network is not up yet"))
		c.asks()
		l.mustHave(t)
		l.mustHave(t)
		if n := c.asks(); n != 1 {
			t.Errorf("asked %d times while there is no answer", n)
		}
	})
}

func TestLookupKeepsFreshAndForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controlPlane{paths: []found{to(dst, 1, 6*time.Hour)}}
		l := c.start(t)
		l.mustHave(t, c.paths...)
		time.Sleep(unsettledFor + refreshEvery)
		c.asks()
		time.Sleep(5 * time.Minute)
		if n := c.asks(); n != 10 {
			t.Errorf("asked %d times in 5 minutes, want every 30 s", n)
		}
		time.Sleep(forgetAfter)
		c.asks()
		time.Sleep(forgetAfter)
		l.mu.Lock()
		left := len(l.destinations)
		l.mu.Unlock()
		if n := c.asks(); n != 0 || left != 0 {
			t.Errorf("asked %d times for a destination that nobody wants", n)
		}

		l.mustHave(t, c.paths...)
		c.mu.Lock()
		c.inUse = true // by a connection
		c.mu.Unlock()
		time.Sleep(3 * forgetAfter)
		if n := c.asks(); n < 50 {
			t.Errorf("asked only %d times while a connection was there", n)
		}
	})
}

// A destination of single messages costs a lookup every few minutes while it is used, and none at
// other times. Somebody who connects to it gets fresh paths.
func TestLookupForMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controlPlane{paths: []found{to(dst, 1, 6*time.Hour)}}
		l := c.start(t)
		h := &Host{ia: 1, lookup: l}
		must := func() {
			t.Helper()
			if got, err := h.PathsOnce(t.Context(), dst); err != nil || len(got) != 1 {
				t.Fatalf("%v, %v", got, err)
			}
		}
		if _, ok := h.KnownPaths(dst); ok {
			t.Error("paths are known before a lookup")
		}
		for range 60 {
			must()
			time.Sleep(10 * time.Second)
		}
		if n := c.asks(); n != 2 {
			t.Errorf("asked %d times in 10 minutes, want 2", n)
		}
		c.say(nil, to(dst, 2, 6*time.Hour))
		time.Sleep(glanceAge)
		l.mustHave(t, c.paths...)
		c.asks()
		time.Sleep(unsettledFor + time.Minute)
		if n := c.asks(); n < 3 {
			t.Errorf("asked %d times in 3 minutes for somebody who wants fresh paths", n)
		}
		time.Sleep(forgetAfter)
		must()
		c.asks()
		time.Sleep(3 * forgetAfter)
		l.mu.Lock()
		defer l.mu.Unlock()
		if n := c.asks(); n > 0 || len(l.destinations)+len(l.glanced) > 0 {
			t.Errorf("asked %d times for a destination that nobody uses", n)
		}
	})
}

// Strangers can make a host look up any AS. They push out one another, and nobody else.
func TestMessagesLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controlPlane{paths: []found{to(dst, 1, time.Hour)}}
		l := c.start(t)
		l.mustHave(t, c.paths...)
		h := &Host{ia: 1, lookup: l}
		for i := range maxDestinations + 1 {
			if _, err := h.PathsOnce(t.Context(), pathsel.IA(i+100)); err != nil {
				t.Fatal(err)
			}
		}
		l.mu.Lock()
		n := len(l.destinations) + len(l.glanced)
		l.mu.Unlock()
		if n != maxGlanced+1 {
			t.Errorf("%d destinations are kept, want %d", n, maxGlanced+1)
		}
		if _, ok := h.KnownPaths(dst); !ok {
			t.Error("the destination that somebody wants has gone")
		}
	})
}

// If a first answer lacks a path, or a path is left out for a while, it is found within seconds,
// before the next regular refresh. An AS whose paths stay the same is asked only a few times.
func TestLookupSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := to(dst, 1, 6*time.Hour), to(dst, 2, 6*time.Hour)
		c := controlPlane{paths: []found{one}}
		l := c.start(t)
		for _, known := range [][]found{{one}, {one, two}, {two}, {one, two}} {
			c.say(nil, known...)
			time.Sleep(5 * time.Second)
			l.mustHave(t, known...)
		}
		c.asks()
		time.Sleep(unsettledFor)
		if n := c.asks(); n > 12 {
			t.Errorf("asked %d times in two minutes", n)
		}
	})
}

// A control service under load may leave out paths without an error. A path goes only if two
// answers in a row lack it, the second of which comes a second later. One that is known to be down,
// or has expired, goes at once.
func TestLookupOfAnAnswerThatLacksPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := to(dst, 1, 6*time.Hour), to(dst, 2, 6*time.Hour)
		c := controlPlane{paths: []found{one, two}}
		l := c.start(t)
		changes, cancel := (&Host{ia: 1, lookup: l, log: l.log}).Subscribe(dst)
		defer cancel()
		time.Sleep(2 * unsettledFor) // from now on it is asked every 30 s
		<-changes
		for range 10 {
			c.say(nil, two)
			for c.asks(); c.asks() == 0; {
				time.Sleep(100 * time.Millisecond)
			}
			l.mustHave(t, one, two)
			c.say(nil, one, two)
			time.Sleep(refreshEvery)
			l.mustHave(t, one, two)
		}
		if len(changes) > 0 {
			t.Error("paths have changed")
		}

		c.say(nil, two)
		time.Sleep(refreshEvery + 3*time.Second)
		l.mustHave(t, two)

		c.say(nil, one, two)
		time.Sleep(refreshEvery)
		l.mustHave(t, one, two)
		c.say(nil, two)
		l.revoke(one.path.Interfaces[0], time.Now())
		if err := l.lookUp(t.Context(), dst, false); err != nil {
			t.Fatal(err)
		}
		l.mustHave(t, two)
	})
}

func TestLookupFailureChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := to(dst, 1, 10*time.Minute)
		c := controlPlane{paths: []found{p}}
		l := c.start(t)
		l.mustHave(t, p)
		down := errors.New("control service down")
		c.say(down)
		time.Sleep(3 * time.Minute)
		l.mustHave(t, p)
		c.say(nil) // no path, and no error either
		time.Sleep(3 * time.Minute)
		l.mustHave(t, p)
		c.say(down)
		time.Sleep(5 * time.Minute)
		l.mustHave(t) // the path has expired
		if _, err := l.paths(t.Context(), dst); !errors.Is(err, down) {
			t.Errorf("error %v does not say why", err)
		}
		again := to(dst, 1, time.Hour)
		c.say(nil, again)
		time.Sleep(retryMost + time.Second)
		l.mustHave(t, again)
	})
}

func TestLookupOfNoPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c controlPlane
		l := c.start(t)
		l.mustHave(t)
		c.asks()
		time.Sleep(16 * time.Second)
		if n := c.asks(); n != 4 {
			t.Errorf("asked %d times in 16 s, want after 1, 2, 4 and 8", n)
		}
		time.Sleep(time.Minute)
		if n := c.asks(); n != 6 {
			t.Errorf("asked %d times in a minute, want every 10 s", n)
		}
	})
}

func TestSubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := to(dst, 1, time.Hour), to(dst, 2, time.Hour)
		c := controlPlane{paths: []found{one}}
		l := c.start(t)
		h := &Host{ia: 1, lookup: l}
		changes, cancel := h.Subscribe(dst)
		noted := func() bool {
			select {
			case <-changes:
				return true
			default:
				return false
			}
		}
		synctest.Wait()
		if !noted() {
			t.Error("no note of the first paths")
		}
		time.Sleep(time.Minute)
		if noted() {
			t.Error("a note although nothing has changed")
		}
		renewed := to(dst, 1, 2*time.Hour)
		c.say(nil, renewed)
		time.Sleep(time.Minute)
		if noted() {
			t.Error("a note of new hop fields")
		}
		c.say(nil, renewed, two)
		time.Sleep(time.Minute)
		if !noted() {
			t.Error("no note of a second path")
		}
		l.revoke(pathsel.Interface{IA: dst, ID: 2}, time.Now())
		if !noted() {
			t.Error("no note of a revocation")
		}
		if _, revoked := h.Revoked(one.path); revoked {
			t.Error("the other path is revoked")
		}
		if r, revoked := h.Revoked(two.path); !revoked || r.Interface != two.path.Interfaces[1] || time.Until(r.Until) != revokedFor {
			t.Errorf("%+v, %t, want the interface for %v", r, revoked, revokedFor)
		}
		if l.revoke(pathsel.Interface{IA: dst, ID: 2}, time.Now()) {
			t.Error("the same revocation again is news")
		}
		time.Sleep(revokedFor)
		if _, revoked := h.Revoked(two.path); revoked {
			t.Error("revoked for longer than it holds")
		}
		cancel()
		c.say(nil, one)
		time.Sleep(time.Minute)
		if noted() {
			t.Error("a note after cancel")
		}
	})
}

// A path is renewed every minute. A watcher hears of that before the path that it knows expires, and
// of another announced MTU.
func TestWatchersKnowRenewedPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c controlPlane
		l := c.start(t)
		changes, cancel := (&Host{ia: 1, lookup: l}).Subscribe(dst)
		defer cancel()
		var known []found
		notes := 0
		step := func(mtu int) {
			f := to(dst, 1, time.Hour)
			f.path.MTU = mtu
			c.say(nil, f)
			time.Sleep(time.Minute)
			select {
			case <-changes:
				notes++
				known, _ = l.paths(t.Context(), dst)
			default:
			}
		}
		for range 5 * 60 {
			if step(1400); len(unexpired(known, time.Now())) != 1 {
				t.Fatalf("a watcher knows %v", known)
			}
		}
		if notes > 7 {
			t.Errorf("%d notes in five hours", notes)
		}
		if step(1300); known[0].path.MTU != 1300 {
			t.Error("no note of another MTU")
		}
	})
}

// TestProvenDuringLookup has a peer prove its AS while the first lookup for a watcher is open. The
// answer to the lookup is no news then.
func TestProvenDuringLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := to(dst, 1, time.Hour)
		c := controlPlane{paths: []found{one}, delay: time.Second}
		l := c.start(t)
		changes, cancel := (&Host{ia: 1, lookup: l}).Subscribe(dst)
		defer cancel()
		time.Sleep(c.delay / 2)
		l.add(dst, []found{one})
		time.Sleep(c.delay)
		select {
		case <-changes:
		default:
			t.Error("no note of the first paths")
		}
	})
}

// TestRefreshDuringLookup refreshes while an answer from the cache is under way.
func TestRefreshDuringLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := to(dst, 1, time.Hour), to(dst, 2, time.Hour)
		c := controlPlane{paths: []found{one}, delay: time.Second}
		l := c.start(t)
		go func() { _, _ = l.paths(t.Context(), dst) }()
		synctest.Wait()
		time.AfterFunc(c.delay+c.delay/2, func() { c.say(nil, two) })
		if err := (&Host{ia: 1, lookup: l}).Refresh(t.Context(), dst); err != nil {
			t.Fatal(err)
		}
		l.mustHave(t, two)
		if c.forced != 1 {
			t.Errorf("forced %d times, want once", c.forced)
		}
	})
}

func TestRefreshGoesPastTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := to(dst, 1, time.Hour), to(dst, 2, time.Hour)
		c := controlPlane{paths: []found{one}}
		l := c.start(t)
		h := &Host{ia: 1, lookup: l}
		l.mustHave(t, one)
		c.say(nil, two)
		if err := h.Refresh(t.Context(), dst); err != nil {
			t.Fatal(err)
		}
		l.mustHave(t, two)
		if c.forced != 1 {
			t.Errorf("forced %d times, want once", c.forced)
		}
		c.say(errors.New("down"))
		if err := h.Refresh(t.Context(), dst); !errors.Is(err, c.err) {
			t.Errorf("error %v, want that of the lookup", err)
		}
		l.mustHave(t, two)
	})
}

func TestDueAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for _, tt := range []struct {
			name     string
			lives    []time.Duration
			failures int
			want     time.Duration
		}{
			{"no path", nil, 1, time.Second},
			{"no path again", nil, 3, 4 * time.Second},
			{"no path for long", nil, 1000, 10 * time.Second},
			{"long lives", []time.Duration{6 * time.Hour, time.Hour}, 0, 30 * time.Second},
			{"ends soon", []time.Duration{6 * time.Hour, 2*time.Minute + 20*time.Second}, 0, 20 * time.Second},
			{"about to end", []time.Duration{time.Minute}, 0, 10 * time.Second},
		} {
			var paths []found
			for i, l := range tt.lives {
				paths = append(paths, to(dst, uint64(i), l))
			}
			if got := dueAfter(now, paths, tt.failures).Sub(now); got != tt.want {
				t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
			}
		}
	})
}

func TestMerge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		a, longA, shortA, b := to(dst, 1, 2*time.Hour), to(dst, 1, 3*time.Hour), to(dst, 1, time.Hour), to(dst, 2, time.Hour)
		over, down := to(dst, 3, -time.Second), to(dst, 4, time.Hour)
		lacking := a
		lacking.lacking = true
		isDown := func(f found) bool { return f.trail == down.trail }
		for _, tt := range []struct {
			name                  string
			before, answer, after []found
		}{
			{"lacks one", []found{a, b}, []found{b}, []found{a, b}},
			{"lacks one again", []found{lacking, b}, []found{b}, []found{b}},
			{"lacks one that has ended", []found{over, b}, []found{b}, []found{b}},
			{"lacks one that is down", []found{down, b}, []found{b}, []found{b}},
			{"has one again", []found{lacking, b}, []found{a, b}, []found{a, b}},
			{"has one again, shorter", []found{lacking, b}, []found{shortA, b}, []found{a, b}},
			{"first", nil, []found{a, b}, []found{a, b}},
			{"part", []found{shortA, b, over}, []found{a}, []found{a, b}},
			{"other part", []found{a}, []found{b}, []found{a, b}},
			{"none", []found{a, b}, nil, []found{a, b}},
			{"none and ended", []found{a, over}, nil, []found{a}},
			{"longer", []found{a}, []found{longA}, []found{longA}},
			{"shorter", []found{a}, []found{shortA, b}, []found{a, b}},
			{"twice", nil, []found{a, a}, []found{a}},
		} {
			got := merge(tt.before, tt.answer, !strings.HasSuffix(tt.name, "part"), now, isDown)
			same := slices.EqualFunc(got, tt.after, func(x, y found) bool { return x.trail == y.trail && x.way.expiry.Equal(y.way.expiry) })
			if !same || strings.HasPrefix(tt.name, "has") && got[0].lacking {
				t.Errorf("%s: %v, want %v", tt.name, got, tt.after)
			}
		}
	})
}

func TestLookupTableIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controlPlane{paths: []found{to(dst, 1, time.Hour)}}
		l := c.start(t)
		var err error
		for i := range maxDestinations + 1 {
			if _, _, err = l.ensure(pathsel.IA(i + 100)); err != nil {
				break
			}
		}
		if err == nil {
			t.Errorf("%d destinations taken", len(l.destinations))
		}
	})
}

func TestAnnouncedBandwidth(t *testing.T) {
	three := make([]snet.PathInterface, 4) // ends of two links, with an AS between them
	for name, c := range map[string]struct {
		kbit  []uint64
		least uint64
		all   bool
	}{
		"all links":      {[]uint64{40_000, 0, 20_000}, 20_000_000, true},
		"the AS as well": {[]uint64{40_000, 10_000, 20_000}, 10_000_000, true},
		"one link":       {[]uint64{40_000, 0, 0}, 40_000_000, false},
		"the AS only":    {[]uint64{0, 10_000, 0}, 10_000_000, false},
		"nothing":        {nil, 0, false},
	} {
		least, all := bandwidth(&snet.PathMetadata{Interfaces: three, Bandwidth: c.kbit})
		if least != c.least || all != c.all {
			t.Errorf("%s: %d bit/s, all %v", name, least, all)
		}
	}
}
