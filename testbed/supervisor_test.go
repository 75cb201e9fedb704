package testbed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"braid/units/await"
)

// superviseArg makes the test binary the supervisor that Launch starts.
const superviseArg = "supervise-for-test"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == superviseArg {
		if err := Supervise(context.Background(), os.Stdin, os.Stdout, slog.New(slog.NewTextHandler(os.Stderr, nil))); err != nil {
			slog.Error("supervisor", "err", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if ran, err := asHost(os.Args[1:]); err != nil {
		slog.Error("host", "err", err)
		os.Exit(1)
	} else if ran {
		os.Exit(0)
	}
	if _, err := findPrograms(scionBin); err != nil {
		fmt.Fprintln(os.Stderr, "these tests start SCION networks: run ./scripts/build first")
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func launch(ctx context.Context, t *testing.T, opts Options, progress func(Progress)) error {
	t.Helper()
	opts.SCIONBin, opts.Progress = scionBin, progress
	return Launch(ctx, []string{os.Args[0], superviseArg}, opts)
}

func TestSupervisor(t *testing.T) {
	t.Parallel()
	opts := Options{Topology: load(t, "two-paths"), Dir: t.TempDir(), BFD: NoBFD}
	for _, round := range []string{"first", "after the first was killed"} {
		if err := launch(t.Context(), t, opts, nil); err != nil {
			t.Fatalf("%s: %v", round, err)
		}
		state, err := StateOf(opts.Dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = signal(state.PID, os.Kill) })
		if err := launch(t.Context(), t, opts, nil); !errors.Is(err, errRunning) {
			t.Errorf("%s: launch again: error %v, want %v", round, err, errRunning)
		}
		await.True(t, "a healthy network", func() bool {
			s, err := StatusOf(t.Context(), opts.Dir, true)
			if err != nil || s.PID != state.PID {
				t.Fatalf("%s: status %+v, %v", round, s, err)
			}
			return s.Healthy()
		})
		if err := signal(state.PID, os.Kill); err != nil {
			t.Fatal(err)
		}
		gone(t, state.Processes)
		await.True(t, "the directory is free", func() bool {
			_, alive, err := locked(opts.Dir)
			return err == nil && !alive
		})
		_, err = StatusOf(t.Context(), opts.Dir, false)
		if !errors.Is(err, errNotRunning) || !strings.Contains(err.Error(), "died without cleaning up") {
			t.Errorf("%s: status of a killed one: %v", round, err)
		}
	}
}

// Ctrl-C while the network is starting.
func TestLaunchInterrupted(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	dir := t.TempDir()
	seen := false
	err := launch(ctx, t, Options{Topology: load(t, "two-paths"), Dir: dir}, func(p Progress) {
		seen = seen || p.Processes > 0
		interrupt()
	})
	if !errors.Is(err, context.Canceled) || !seen {
		t.Errorf("error %v, processes seen %v", err, seen)
	}
	if _, alive, err := locked(dir); alive || err != nil {
		t.Errorf("directory still taken: %v, %v", alive, err)
	}
	// The supervisor closes the network before it ends, and Launch waits for it.
	if _, err := os.Stat(dir + "/" + stateFile); err == nil {
		t.Error("state of a network that is not there")
	}
}

// What the supervisor has to say reaches whoever launched it.
func TestLaunchFails(t *testing.T) {
	topo := load(t, "two-paths")
	err := launch(t.Context(), t, Options{Topology: topo, Dir: t.TempDir(), BFD: 1}, nil)
	if err == nil || !strings.Contains(err.Error(), "BFD interval 1ns") {
		t.Errorf("error %v", err)
	}
	err = Launch(t.Context(), []string{"/bin/sh", "-c", "echo broken >&2; exit 4"}, Options{Topology: topo, Dir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "broken") || !strings.Contains(err.Error(), "exit status 4") {
		t.Errorf("error %v", err)
	}
}
