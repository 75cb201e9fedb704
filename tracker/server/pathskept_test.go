package server_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"braid/tracker/server"
	"braid/tracker/swarm"
	"braid/tracker/swarm/valkeytest"
	"braid/tracker/wire"
	"braid/units"
	"braid/units/await"
)

func (s onSCION) teach(t *testing.T) {
	t.Helper()
	for n := 1; n <= 2; n++ {
		if _, err := s.ask(n, n, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.ask(1, 1, nil, wire.PathReport{Interfaces: over(1, 1, 2), RTT: time.Millisecond, Rate: 1e6}); err != nil {
		t.Fatal(err)
	}
}

// knows tells how many paths between the two ASes a peer is told of.
func (s onSCION) knows(t *testing.T) int {
	t.Helper()
	a, err := s.ask(1, 20, guided(wire.Mixed))
	if err != nil {
		t.Fatal(err)
	}
	return len(a.Hints[as(2)])
}

// What was reported is known after a restart, and after a crash if it came a minute before; but not
// if the operator does not want it, and not for longer than without a restart.
func TestPathKnowledgeRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		cfg := server.Default()
		cfg.Lifetime = units.Duration(12 * time.Hour) // peers are to be met at once, whatever the time
		// with runs a tracker on the directory while f does something, and stops it.
		with := func(dir string, cfg server.Config, f func(onSCION)) {
			t.Helper()
			store, err := swarm.OpenDurable(dir, cfg.Limits(), time.Second, slog.New(slog.NewTextHandler(t.Output(), nil)))
			if err != nil {
				t.Fatal(err)
			}
			s, err := server.New(cfg, store, slog.New(slog.NewTextHandler(t.Output(), nil)))
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); s.Run(ctx) }()
			f(onSCION{s, t})
			stop()
			<-ended
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(dir string, cfg server.Config, want int) {
			t.Helper()
			with(dir, cfg, func(s onSCION) {
				if n := s.knows(t); n != want {
					t.Errorf("%d paths are known, want %d", n, want)
				}
			})
		}
		crashed := t.TempDir()
		with(dir, cfg, func(s onSCION) {
			s.teach(t)
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if err := os.CopyFS(crashed, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
		})
		expect(crashed, cfg, 1)
		expect(dir, cfg, 1)
		off := cfg
		off.Paths = false
		expect(dir, off, 0)
		expect(dir, cfg, 1)
		time.Sleep(3 * time.Hour)
		expect(dir, cfg, 0)
	})
}

// patient asks again while its server is away, which one on a busy machine seems to be.
type patient struct {
	*swarm.Shared
	t *testing.T
}

func (p patient) Announce(ctx context.Context, v swarm.Visit) (view swarm.View, err error) {
	await.Success(p.t, "the store", func() (err error) {
		view, err = p.Shared.Announce(ctx, v)
		return err
	})
	return view, nil
}

// What one tracker was told another on the same store knows, also one that starts when the first
// has gone.
func TestPathKnowledgeShared(t *testing.T) {
	v := valkeytest.Start(t)
	start := func() (onSCION, *swarm.Shared) {
		store, err := swarm.OpenShared(t.Context(), "redis://"+v.Addr, "", swarm.Limits{}, slog.New(slog.NewTextHandler(t.Output(), nil)))
		if err != nil {
			t.Fatal(err)
		}
		s, err := server.New(server.Default(), patient{store, t}, slog.New(slog.NewTextHandler(t.Output(), nil)))
		if err != nil {
			t.Fatal(err)
		}
		return onSCION{s, t}, store
	}
	one, first := start()
	two, second := start()
	defer second.Close()
	one.teach(t)
	if n := two.knows(t); n != 0 {
		t.Errorf("%d paths are known before anything was said", n)
	}
	server.ExchangePaths(one.Server)
	server.ExchangePaths(two.Server)
	if n := two.knows(t); n != 1 {
		t.Errorf("another tracker knows %d paths", n)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	three, third := start()
	defer third.Close()
	if n := three.knows(t); n != 1 {
		t.Errorf("a new tracker knows %d paths", n)
	}
}
