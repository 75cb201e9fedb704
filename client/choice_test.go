package client

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"braid/pathsel"
	"braid/scionnet"
	"braid/storage"
)

// script is a selector whose decisions the test makes. It opens every path that is there at the
// start.
type script struct {
	mu   sync.Mutex
	last pathsel.View
	next []pathsel.Decision
}

func (s *script) Name() string { return "script" }

func (s *script) Paths(budget int) int { return budget }

func (s *script) Decide(v pathsel.View) pathsel.Plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = v
	p := pathsel.Plan{Decisions: s.next}
	s.next = nil
	for _, c := range v.Candidates {
		if c.State == pathsel.Idle && c.Since.IsZero() {
			p.Decisions = append(p.Decisions, pathsel.Decision{Key: c.Key, Action: pathsel.Open, Reason: "the first time"})
		}
	}
	return p
}

func (s *script) do(k pathsel.Key, a pathsel.Action, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = append(s.next, pathsel.Decision{Key: k, Action: a, Reason: reason})
}

func (s *script) view() pathsel.View {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// at is the candidate with that key, as the selector last saw it.
func (s *script) at(k pathsel.Key) pathsel.Candidate {
	for _, c := range s.view().Candidates {
		if c.Key == k {
			return c
		}
	}
	return pathsel.Candidate{}
}

// limitedSeed serves a new file of that size over TCP, at a rate that can be changed, over all
// connections together.
func limitedSeed(t *testing.T, size int, bytesPerSecond int) (src Source, peers []Peer, dir string, limit *rate.Limiter) {
	t.Helper()
	tcp, err := openTCP([]Peer{mustPeer(t, "127.0.0.1:0")}, "", nil, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	return limitedSeedOver(t, tcp, Config{}, size, bytesPerSecond)
}

func limitedSeedOver(t *testing.T, x Transport, cfg Config, size int, bytesPerSecond int) (src Source, peers []Peer, dir string, limit *rate.Limiter) {
	t.Helper()
	dir = t.TempDir()
	writeRandom(t, filepath.Join(dir, "file"), size)
	src = makeTorrent(t, filepath.Join(dir, "file"), CreateOptions{PieceLength: 64 << 10}).Source
	limit = rate.NewLimiter(rate.Limit(bytesPerSecond), 32<<10)
	s := sessionOver(t, cfg, slow{x, limit})
	if _, err := s.Add(src, storage.OpenVerified(dir, testLog(t)), Options{}); err != nil {
		t.Fatal(err)
	}
	return src, s.Listening(), dir, limit
}

// Every action does what its word says, and is told in order.
func TestDecisionsAreCarriedOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var net pipes
		src, peers, dir, limit := limitedSeedOver(t, net.host(), Config{}, 24<<20, 1<<20)
		sel := &script{}
		var told struct {
			sync.Mutex
			names []string
		}
		out := t.TempDir()
		store := openStore(t, out)
		leecher := sessionOver(t, Config{Selector: sel, MaxPaths: 4}, fan{net.host(), 2})
		fan := func(i int) pathsel.Key {
			return pathsel.Key{Peer: peers[0].ID(), Path: pathsel.Fingerprint(strings.Repeat("0", 63) + string(rune('0'+i)))}
		}
		tr, err := leecher.Add(src, store, Options{Peers: peers, Decided: func(e PathEvent) {
			if e.Key.Path == fan(1).Path {
				told.Lock()
				told.names = append(told.names, e.Name)
				told.Unlock()
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		see := func(_ string, wanted func() bool) {
			t.Helper()
			simulateUntil(t, tr, func(Progress) bool { return wanted() })
		}
		working := func(k pathsel.Key, state pathsel.State, from uint64) func() bool {
			return func() bool {
				c := sel.at(k)
				return c.State == state && c.Outstanding > 0 && c.BytesRead > from+64<<10
			}
		}
		see("both at work", func() bool { return working(fan(0), pathsel.Active, 0)() && working(fan(1), pathsel.Active, 0)() })
		if v := sel.view(); v.Remaining == 0 || v.Remaining > 24<<20 || v.Seed == 0 || v.MaxPaths != 4 {
			t.Errorf("view: %d remaining, seed %d, at most %d", v.Remaining, v.Seed, v.MaxPaths)
		}

		sel.do(fan(1), pathsel.Park, "test")
		// What was on its way comes; then nothing does, and the requests are the other's.
		see("parked", func() bool { return sel.at(fan(1)).State == pathsel.Parked && sel.at(fan(1)).Outstanding == 0 })
		see("the tail", working(fan(0), pathsel.Active, sel.at(fan(0)).BytesRead))
		parked := sel.at(fan(1))
		see("the other going on", working(fan(0), pathsel.Active, sel.at(fan(0)).BytesRead))
		if c := sel.at(fan(1)); c.BytesRead > parked.BytesRead+1000 || c.State != pathsel.Parked || c.Outstanding != 0 {
			t.Errorf("while parked it went from %d to %d bytes, is %v, has %d requests", parked.BytesRead, c.BytesRead, c.State, c.Outstanding)
		}
		if n := tr.Progress().Wasted; n != 0 {
			t.Errorf("parking has wasted %d bytes", n)
		}

		sel.do(fan(1), pathsel.Probe, "test")
		see("probing", working(fan(1), pathsel.Probing, parked.BytesRead))
		sel.do(fan(1), pathsel.Return, "test")
		see("active", working(fan(1), pathsel.Active, parked.BytesRead))
		sel.do(fan(1), pathsel.Park, "test")
		see("parked again", func() bool { return sel.at(fan(1)).State == pathsel.Parked })
		before := sel.at(fan(1)).BytesRead
		sel.do(fan(1), pathsel.Return, "test")
		see("returned at once", working(fan(1), pathsel.Active, before))

		sel.do(fan(1), pathsel.Close, "test")
		see("closed", func() bool { return sel.at(fan(1)).State == pathsel.Idle })
		before = sel.at(fan(1)).BytesRead
		sel.do(fan(1), pathsel.Open, "test")
		see("open again", working(fan(1), pathsel.Active, before))

		sel.do(fan(1), pathsel.Fail, "test")
		see("failed", func() bool { return sel.at(fan(1)).State == pathsel.Failed })
		if c := sel.at(fan(1)); c.Failures != 1 || c.RetryAt.IsZero() || c.Outstanding != 0 {
			t.Errorf("failed: %+v", c)
		}
		before = sel.at(fan(1)).BytesRead
		sel.do(fan(1), pathsel.Open, "test")
		see("back", func() bool { return working(fan(1), pathsel.Active, before)() && sel.at(fan(1)).Failures == 0 })

		limit.SetLimit(rate.Inf)
		simulateWait(t, tr)
		tr.Close()
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		sameFiles(t, src, dir, out)
		want := []string{
			"path-selected", "path-opened", "path-parked", "path-probed", "path-returned", "path-parked", "path-returned",
			"path-closed", "path-selected", "path-opened",
			"path-failed", "path-selected", "path-opened",
		}
		if len(told.names) < len(want) || !slices.Equal(told.names[:len(want)], want) {
			t.Errorf("told %q, want %q", told.names, want)
		}
	})
}

// hole is a fan one of whose paths can be made to swallow everything. As QUIC does, it counts
// packets, some of which come also when there is nothing to read.
type hole struct {
	fan
	down *atomic.Bool
	path pathsel.Fingerprint
}

func (h hole) Dial(ctx context.Context, p Peer, path pathsel.Path, want *scionnet.PeerKey) (Wire, error) {
	if path.Fingerprint == h.path && h.down.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	w, err := h.fan.Dial(ctx, p, path, want)
	if err != nil || path.Fingerprint != h.path {
		return w, err
	}
	return &holeWire{Wire: w, down: h.down, closed: make(chan struct{})}, nil
}

type holeWire struct {
	Wire
	down    *atomic.Bool
	packets atomic.Uint64
	once    sync.Once
	closed  chan struct{}
}

func (w *holeWire) Read(b []byte) (int, error) {
	n, err := w.Wire.Read(b)
	if w.down.Load() {
		<-w.closed
	}
	return n, err
}

func (w *holeWire) Close() error {
	w.once.Do(func() { close(w.closed) })
	return w.Wire.Close()
}

func (w *holeWire) Measure() Measurement {
	m := w.Wire.Measure()
	if !w.down.Load() {
		w.packets.Add(1)
	}
	m.PacketsReceived = w.packets.Load()
	return m
}

// A path that drops everything without a word is taken out, and what it owed comes over the others.
func TestSilentPath(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"all", "adaptive"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var net pipes
				src, peers, dir, limit := limitedSeedOver(t, net.host(), Config{}, 16<<20, 1<<20)
				sel, err := pathsel.New(name)
				if err != nil {
					t.Fatal(err)
				}
				bad := pathsel.Fingerprint(strings.Repeat("0", 63) + "1")
				var down atomic.Bool
				leecher := sessionOver(t, Config{Selector: sel}, hole{fan{net.host(), 2}, &down, bad})
				out := t.TempDir()
				store := openStore(t, out)
				silent := make(chan struct{}, 100)
				var trace bytes.Buffer
				tr, err := leecher.Add(src, store, Options{Peers: peers, Trace: &trace, Decided: func(e PathEvent) {
					if e.Name == "path-failed" && e.Key.Path == bad && strings.Contains(e.Reason, "silent") {
						silent <- struct{}{}
					}
				}})
				if err != nil {
					t.Fatal(err)
				}
				simulateUntil(t, tr, func(p Progress) bool {
					used := 0
					for _, x := range p.Paths {
						if x.BytesRead > 128<<10 {
							used++
						}
					}
					return used == 2
				})
				down.Store(true)
				simulateUntil(t, tr, func(Progress) bool { return len(silent) > 0 })
				limit.SetLimit(rate.Inf)
				simulateWait(t, tr)
				tr.Close()
				if err := store.Close(); err != nil {
					t.Fatal(err)
				}
				sameFiles(t, src, dir, out)
				replays(t, sel, &trace)
			})
		})
	}
}

// replays compares what was decided with what the selector makes of the recorded views.
func replays(t *testing.T, sel pathsel.Selector, trace *bytes.Buffer) {
	t.Helper()
	text := func(d []pathsel.Decision) string {
		b, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	decide := pathsel.Replay(sel)
	decisions, steps := 0, 0
	for step, err := range pathsel.Steps(trace) {
		if err != nil {
			t.Fatal(err)
		}
		recorded, replayed := step.Plan.Decisions, decide(step.View).Decisions
		if len(replayed)+len(recorded) > 0 && text(replayed) != text(recorded) {
			t.Fatalf("step %d: replayed %s, recorded %s", steps, text(replayed), text(recorded))
		}
		decisions += len(replayed)
		steps++
	}
	if decisions < 3 {
		t.Errorf("%d decisions in %d steps", decisions, steps)
	}
}

// The adaptive selector sees more paths than it may open, so that it can try them in turn; the
// others see what they open.
func TestMapping(t *testing.T) {
	data := t.TempDir()
	randomFiles(t, data, "set", 4<<20)
	src := makeTorrent(t, filepath.Join(data, "set"), CreateOptions{}).Source
	seeder := openFan(t, Config{}, "127.0.0.1", 1)
	if _, err := seeder.Add(src, storage.OpenVerified(data, testLog(t)), Options{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		selector               string
		paths, max, seen, open int
	}{{"adaptive", 12, 3, 12, 3}, {"adaptive", 100, 3, 64, 3}, {"all", 12, 3, 3, 3}, {"slots", 12, 3, 3, 3}, {"first", 12, 3, 3, 1}} {
		sel, err := pathsel.New(c.selector)
		if err != nil {
			t.Fatal(err)
		}
		var trace bytes.Buffer
		store := openStore(t, t.TempDir())
		tr, err := openFan(t, Config{Selector: sel, MaxPaths: c.max}, "127.0.0.1", c.paths).Add(src, store, Options{Peers: seeder.Listening(), Trace: &trace})
		if err != nil {
			t.Fatal(err)
		}
		wait(t, tr)
		tr.Close()
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		seen, open := 0, 0
		for s, err := range pathsel.Steps(&trace) {
			if err != nil {
				t.Fatal(err)
			}
			seen = max(seen, len(s.View.Candidates))
			n := 0
			for _, x := range s.View.Candidates {
				if x.State.Open() {
					n++
				}
			}
			open = max(open, n)
		}
		if seen != c.seen || open != c.open {
			t.Errorf("%s with %d paths: %d seen, %d open at a time, want %d and %d", c.selector, c.paths, seen, open, c.seen, c.open)
		}
	}
}

// told is a fan of which the network says that a path is down.
type told struct {
	fan
	at  *atomic.Int64 // Unix ns; 0: not yet
	bad pathsel.Fingerprint
}

func (f told) Revoked(p pathsel.Path) time.Time {
	if p.Fingerprint != f.bad {
		return time.Time{}
	}
	return unixTime(f.at.Load())
}

// A path that the network says is down is left at once, and taken again: the word of then says
// nothing of a connection that could be opened since.
func TestRevokedPath(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var net pipes
		src, peers, _, limit := limitedSeedOver(t, net.host(), Config{}, 16<<20, 1<<20)
		bad := pathsel.Fingerprint(strings.Repeat("0", 63) + "1")
		var at atomic.Int64
		leecher := sessionOver(t, Config{}, told{fan{net.host(), 2}, &at, bad})
		events := make(chan PathEvent, 100)
		store := openStore(t, t.TempDir())
		tr, err := leecher.Add(src, store, Options{Peers: peers, Decided: func(e PathEvent) { events <- e }})
		if err != nil {
			t.Fatal(err)
		}
		see := func(name string) PathEvent {
			t.Helper()
			for {
				e := <-events
				if e.Key.Path != bad {
					if e.Name == "path-failed" {
						t.Errorf("%s %s: %s", e.Name, e.Key, e.Reason)
					}
				} else if e.Name == name {
					return e
				}
			}
		}
		see("path-opened")
		at.Store(time.Now().UnixNano())
		if e := see("path-failed"); !strings.Contains(e.Reason, "revoked") {
			t.Errorf("failed: %s", e.Reason)
		}
		see("path-opened")
		limit.SetLimit(rate.Inf)
		simulateWait(t, tr)
		tr.Close()
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		for len(events) > 0 {
			if e := <-events; e.Name == "path-failed" {
				t.Errorf("it failed again: %s", e.Reason)
			}
		}
	})
}
