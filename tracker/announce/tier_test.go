package announce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"braid/scionnet"
	"braid/tracker"
	"braid/tracker/wire"
)

// Hours of announces, in a bubble. Trackers are a function each, and what they are told is a diary.

type script func(n int, a *wire.Announce) (wire.Answer, error)

// scripted is a tracker that follows a script.
type scripted struct {
	name  string
	diary *diary
	play  script
	asked int
}

func (s *scripted) announce(ctx context.Context, a *wire.Announce, _ []wire.PathReport) (wire.Answer, error) {
	s.diary.write(s.name, a.Event)
	s.asked++
	answer, err := s.play(s.asked, a)
	if errors.Is(err, errSilent) {
		<-ctx.Done()
		return wire.Answer{}, ctx.Err()
	}
	return answer, err
}

func (s *scripted) close() {}

func (*scripted) scope() scionnet.Scope { return scionnet.ScopePublic }

var (
	errSilent = errors.New("no answer")
	errAway   = errors.New("nobody is there")
)

func answers(*testing.T) script {
	return func(int, *wire.Announce) (wire.Answer, error) {
		return wire.Answer{Interval: 30 * time.Minute, MinInterval: time.Minute}, nil
	}
}

// locked is what a test changes while trackers look at it.
type locked[T any] struct {
	mu sync.Mutex
	v  T
}

func (l *locked[T]) do(f func(*T)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.v)
}

func (l *locked[T]) get() (v T) {
	l.do(func(x *T) { v = *x })
	return v
}

type diary struct {
	mu    sync.Mutex
	began time.Time
	lines []string
	times []time.Duration
}

func (d *diary) write(who string, e wire.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := time.Since(d.began)
	d.times = append(d.times, at)
	d.lines = append(d.lines, strings.TrimSpace(fmt.Sprintf("%s %s", who, e)))
}

// expect compares what has been written since the last time, as "tracker event".
func (d *diary) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.lines, want) {
		t.Errorf("at %v:\n%q, want\n%q", d.times, d.lines, want)
	}
	d.lines, d.times = nil, nil
}

// play announces to tiers of scripted trackers, which have one letter each, in that order.
func play(t *testing.T, cfg Config, tiers ...map[string]script) (*Announcer, *diary) {
	t.Helper()
	a := &Announcer{cfg: cfg, log: cfg.Logger, key: "K"}
	if a.log == nil {
		a.log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	if a.cfg.Progress == nil {
		a.cfg.Progress = func() Progress { return Progress{Left: 1} }
	}
	if a.cfg.Found == nil {
		a.cfg.Found = func([]wire.Addr) {}
	}
	a.ctx, a.stop = context.WithCancel(context.Background())
	d := &diary{began: time.Now()}
	for _, scripts := range tiers {
		x := &tier{announcer: a, wake: make(chan struct{}, 1)}
		for name := range scripts {
			u, err := tracker.ParseURL("http://" + name + "/announce")
			if err != nil {
				t.Fatal(err)
			}
			x.trackers = append(x.trackers, &source{url: u, ask: &scripted{name: name, diary: d, play: scripts[name]}})
		}
		slices.SortFunc(x.trackers, func(a, b *source) int { return strings.Compare(a.url.String(), b.url.String()) })
		a.tiers = append(a.tiers, x)
	}
	for _, x := range a.tiers {
		a.workers.Go(x.run)
	}
	return a, d
}

// The trackers of a tier are asked in their order until one answers. That one is asked first from
// then on; if it fails the others are tried again, and at the end all that know the peer are told
// (BEP 12).
func TestTier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var up locked[string] // those that are
		up.v = "b"
		from := func(name string) script {
			return func(n int, a *wire.Announce) (wire.Answer, error) {
				if !strings.Contains(up.get(), name) {
					return wire.Answer{}, errAway
				}
				return answers(t)(n, a)
			}
		}
		a, d := play(t, Config{}, map[string]script{"a": from("a"), "b": from("b"), "c": from("c")})
		d.expect(t, "a started", "b started")
		up.do(func(x *string) { *x = "ab" })
		time.Sleep(30*time.Minute + time.Second)
		d.expect(t, "b")
		up.do(func(x *string) { *x = "a" })
		time.Sleep(30 * time.Minute)
		d.expect(t, "b", "a started")
		time.Sleep(30 * time.Minute)
		d.expect(t, "a")
		up.do(func(x *string) { *x = "c" })
		time.Sleep(30 * time.Minute)
		d.expect(t, "a", "b", "c started")
		up.do(func(x *string) { *x = "abc" })
		a.Close()
		synctest.Wait()
		slices.Sort(d.lines) // at once
		d.expect(t, "a stopped", "b stopped", "c stopped")
	})
}

// Each tier is asked, whatever becomes of the others.
func TestTiers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := func(int, *wire.Announce) (wire.Answer, error) { return wire.Answer{}, errSilent }
		a, d := play(t, Config{}, map[string]script{"a": silent}, map[string]script{"b": answers(t)})
		synctest.Wait()
		slices.Sort(d.lines)
		d.expect(t, "a started", "b started")
		began := time.Now()
		a.Close() // "a" may have heard of the peer
		if took := time.Since(began); took > goodbyeTimeout {
			t.Errorf("the goodbye takes %v", took)
		}
		slices.Sort(d.lines)
		d.expect(t, "a stopped", "b stopped")
	})
}

// The time between announces to a tracker does not include the wait for others of its tier before.
func TestLeastTimeAfterSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := func(int, *wire.Announce) (wire.Answer, error) { return wire.Answer{}, errSilent }
		a, d := play(t, Config{}, map[string]script{"a": silent, "b": answers(t)})
		a.Hungry(true)
		time.Sleep(announceTimeout + time.Minute - time.Second)
		d.expect(t, "a started", "b started")
		time.Sleep(2 * time.Second)
		d.expect(t, "b")
		a.Close()
	})
}

// A tracker that is away is tried at times that are further and further apart, and at the usual
// ones when it is back. What it says of that counts.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const failures = 14
		a, d := play(t, Config{}, map[string]script{"a": func(n int, _ *wire.Announce) (wire.Answer, error) {
			switch {
			case n <= failures:
				return wire.Answer{}, errAway
			case n == failures+2:
				return wire.Answer{}, &wire.Failure{Reason: "later", RetryIn: 3 * time.Hour}
			case n == failures+5:
				return wire.Answer{}, &wire.Failure{Reason: "no", RetryIn: wire.Never}
			}
			return wire.Answer{Interval: time.Hour}, nil
		}})
		defer a.Close()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		want := firstRetry
		var gaps []time.Duration
		for i := 1; i < len(d.times); i++ {
			gaps = append(gaps, d.times[i]-d.times[i-1])
		}
		if len(gaps) != failures+4 {
			t.Fatalf("asked at %v", d.times)
		}
		spread := map[time.Duration]bool{}
		for i, gap := range gaps[:failures] {
			if gap < want*3/4 || gap > want*5/4 {
				t.Errorf("after failure %d it is asked again after %v, want about %v", i+1, gap, want)
			}
			spread[gap] = true
			want = min(2*want, lastRetry)
		}
		if len(spread) < failures {
			t.Errorf("peers would come back in step: %v", gaps)
		}
		if rest := gaps[failures:]; !slices.Equal(rest, []time.Duration{time.Hour, 3 * time.Hour, time.Hour, time.Hour}) {
			t.Errorf("when it is back: %v", rest)
		}
	})
}

// A peer without others asks again as soon as it may, less and less often while it is told of
// nobody new, and as usual when it has enough of them.
func TestPeersRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addr := func(n int) wire.Peer {
			return wire.Peer{Addr: scionnet.IPAddr(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), 1))}
		}
		a, d := play(t, Config{}, map[string]script{"a": func(n int, _ *wire.Announce) (wire.Answer, error) {
			answer := wire.Answer{Interval: 30 * time.Minute, MinInterval: time.Minute}
			if n >= 5 {
				answer.Peers = []wire.Peer{addr(min(n, 6))}
			}
			return answer, nil
		}})
		defer a.Close()
		synctest.Wait()
		a.Hungry(true)
		time.Sleep(40 * time.Minute)
		synctest.Wait()
		var at []time.Duration
		for _, x := range d.times {
			at = append(at, x.Round(time.Second)/time.Minute)
		}
		// Somebody new comes with the fifth and the sixth answer.
		if want := []time.Duration{0, 1, 2, 4, 8, 9, 10, 11, 13, 17, 25}; !slices.Equal(at, want) {
			t.Errorf("asked after %d minutes, want %d", at, want)
		}
		a.Hungry(false)
		d.expect(t, slices.Concat([]string{"a started"}, slices.Repeat([]string{"a"}, 10))...)
		time.Sleep(14 * time.Minute)
		d.expect(t)
		time.Sleep(2 * time.Minute)
		d.expect(t, "a")
		// Peers run out between two announces: it is asked at once if that is late enough.
		time.Sleep(20 * time.Minute)
		a.Hungry(true)
		d.expect(t, "a")
	})
}

// The end of a download is told at once, once to each tracker; one of which some files are not
// wanted is never complete, and says so each time (BEP 21).
func TestEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		end  Progress
		want [4][]string // at the end, an interval later, to a tracker that comes up then, at the goodbye
	}{
		"complete": {Progress{}, [4][]string{{"a completed"}, {"a"}, {"a", "b started", "b completed"}, {"a stopped", "b stopped"}}},
		"partial":  {Progress{Left: 5, Partial: true}, [4][]string{{"a paused"}, {"a paused"}, {"a paused", "b paused"}, {"a stopped", "b stopped"}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				type state struct {
					now  Progress
					away bool
					left []int64 // what "a" was told
				}
				s := &locked[state]{v: state{now: Progress{Left: 9}}}
				a, d := play(t, Config{Progress: func() Progress { return s.get().now }}, map[string]script{
					"a": func(n int, x *wire.Announce) (wire.Answer, error) {
						s.do(func(s *state) { s.left = append(s.left, x.Left) })
						if s.get().away {
							return wire.Answer{}, errAway
						}
						return answers(t)(n, x)
					},
					"b": answers(t),
				})
				d.expect(t, "a started")
				time.Sleep(time.Minute)
				s.do(func(s *state) { s.now = tt.end })
				a.Completed()
				a.Completed()
				d.expect(t, tt.want[0]...)
				time.Sleep(31 * time.Minute)
				d.expect(t, tt.want[1]...)
				s.do(func(s *state) { s.away = true })
				time.Sleep(31 * time.Minute)
				d.expect(t, tt.want[2]...)
				s.do(func(s *state) { s.away = false })
				a.Close()
				slices.Sort(d.lines)
				d.expect(t, tt.want[3]...)
				left := s.get().left
				if want := []int64{9, tt.end.Left, tt.end.Left, tt.end.Left, tt.end.Left}; !slices.Equal(left, want) {
					t.Errorf("left %v, want %v", left, want)
				}
			})
		})
	}
}

// A download that ends with the session is told as complete before the goodbye.
func TestEndWithSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, d := play(t, Config{}, map[string]script{"a": func(n int, x *wire.Announce) (wire.Answer, error) {
			if x.Event == wire.Started {
				time.Sleep(time.Second)
			}
			return answers(t)(n, x)
		}})
		d.expect(t, "a started")
		a.stop()
		a.completed.Store(true)
		a.Close()
		d.expect(t, "a completed", "a stopped")
	})
}

// Who ends while the first tracker is asked has not been refused by anybody.
func TestEndIsNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		a, d := play(t, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, map[string]script{
			"a": func(int, *wire.Announce) (wire.Answer, error) { return wire.Answer{}, errSilent },
		})
		d.expect(t, "a started")
		a.Close()
		if log.Len() > 0 {
			t.Errorf("a normal end is logged as %s", &log)
		}
	})
}

// Within a tier the order is drawn (BEP 12), so that the first tracker of a list does not get
// everybody.
func TestOrderIsDrawn(t *testing.T) {
	var one []tracker.URL
	for n := range 20 {
		u, err := tracker.ParseURL(fmt.Sprintf("http://127.0.0.1:1/%d", n))
		if err != nil {
			t.Fatal(err)
		}
		one = append(one, u)
	}
	a, err := Start(Config{Tiers: [][]tracker.URL{one}, Progress: func() Progress { return Progress{} }, Found: func([]wire.Addr) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	same := 0
	for i, s := range a.tiers[0].trackers {
		if s.url == one[i] {
			same++
		}
	}
	if len(a.tiers[0].trackers) != len(one) || same == len(one) {
		t.Error("trackers are asked in the order of the torrent")
	}
}

// The user can have trackers asked at once, as far as they allow it: after their least interval,
// after a failure, but not before the time that a tracker has named.
func TestAnnounceNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, d := play(t, Config{}, map[string]script{"a": answers(t)}, map[string]script{"b": func(n int, _ *wire.Announce) (wire.Answer, error) {
			if n == 3 {
				return wire.Answer{}, &wire.Failure{Reason: "later", RetryIn: time.Hour}
			}
			return wire.Answer{}, errAway
		}})
		synctest.Wait()
		d.lines = nil
		time.Sleep(time.Second)
		a.Announce()
		d.expect(t, "b started")
		time.Sleep(50 * time.Second)
		d.mu.Lock()
		d.lines = slices.DeleteFunc(d.lines, func(s string) bool { return strings.HasPrefix(s, "b") })
		d.mu.Unlock()
		d.expect(t)
		time.Sleep(10 * time.Second)
		d.mu.Lock()
		d.lines = slices.DeleteFunc(d.lines, func(s string) bool { return strings.HasPrefix(s, "b") })
		d.mu.Unlock()
		d.expect(t, "a")
		time.Sleep(2 * time.Minute)
		a.Announce()
		time.Sleep(time.Second)
		d.expect(t, "a")
		a.Close()
	})
}

// The user can have a tracker asked that has refused for good, once each time.
func TestAnnounceAfterRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, d := play(t, Config{}, map[string]script{"a": func(n int, x *wire.Announce) (wire.Answer, error) {
			if n <= 2 {
				return wire.Answer{}, &wire.Failure{Reason: "not in my list", RetryIn: wire.Never}
			}
			return answers(t)(n, x)
		}})
		for range 2 {
			time.Sleep(24 * time.Hour)
			a.Hungry(true)
			a.Hungry(false)
			d.expect(t, "a started")
			a.Announce()
		}
		d.expect(t, "a started")
		time.Sleep(31 * time.Minute)
		d.expect(t, "a")
		a.Close()
		d.expect(t, "a stopped")
	})
}

// The time of the next announce is reported; there is none to a tracker that has refused for good.
func TestNextAnnounce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var next locked[time.Time]
		cfg := Config{Asked: func(x Asked) { next.do(func(at *time.Time) { *at = x.Next }) }}
		a, _ := play(t, cfg, map[string]script{"a": func(n int, w *wire.Announce) (wire.Answer, error) {
			if n == 2 {
				return wire.Answer{}, &wire.Failure{Reason: "no", RetryIn: wire.Never}
			}
			return answers(t)(n, w)
		}})
		defer a.Close()
		synctest.Wait()
		if at := time.Until(next.get()); at != 30*time.Minute {
			t.Errorf("after an answer the next announce is in %v", at)
		}
		time.Sleep(31 * time.Minute)
		if at := next.get(); !at.IsZero() {
			t.Errorf("after a refusal the next announce is %v ago", time.Since(at))
		}
	})
}

// A tracker that does not know the event of a partial seed hears of an ordinary download.
func TestUnknownEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		partial := func() Progress { return Progress{Left: 5, Partial: true} }
		a, d := play(t, Config{Progress: partial}, map[string]script{"a": func(n int, x *wire.Announce) (wire.Answer, error) {
			if x.Event == wire.Paused {
				return wire.Answer{}, &wire.Failure{Reason: "unknown event"}
			}
			return answers(t)(n, x)
		}})
		a.Completed()
		time.Sleep(20 * time.Second)
		d.expect(t, "a paused", "a started", "a")
		time.Sleep(30 * time.Minute)
		d.expect(t, "a")
		a.Close()
		d.expect(t, "a stopped")
	})
}
