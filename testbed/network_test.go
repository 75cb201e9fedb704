package testbed

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/daemon"
	daemontypes "github.com/scionproto/scion/pkg/daemon/types"
	"github.com/scionproto/scion/pkg/snet"

	"braid/pathsel"
	"braid/testbed/linkemu"
	"braid/units/await"
)

func start(t *testing.T, opts Options) *Network {
	t.Helper()
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	opts.SCIONBin = scionBin
	n, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

// signal sends a signal to the process with that ID.
func signal(pid int, s os.Signal) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Signal(s)
}

// gone waits until the processes are no more.
func gone(t *testing.T, ps []ProcessRef) {
	t.Helper()
	if len(ps) == 0 {
		t.Fatal("no processes to look at")
	}
	for _, p := range ps {
		await.True(t, p.Name+" is gone", func() bool { return errors.Is(signal(p.PID, syscall.Signal(0)), os.ErrProcessDone) })
	}
}

// Once all paths are found, the control services start again, and find everything in their files. The
// links are so long that these services would give up if they had to find each other over them.
func TestAtRest(t *testing.T) {
	t.Parallel()
	var last Progress
	topology := load(t, "tiny4")
	for i := range topology.Links {
		topology.Links[i].Config.Delay = 300 * time.Millisecond
	}
	n := start(t, Options{Topology: topology, Progress: func(p Progress) { last = p }})
	if last.Paths == 0 || last.Paths != last.ImpliedPaths || last.Segments != last.ImpliedSegments {
		t.Errorf("progress ended with %+v", last)
	}
	var s Status
	await.True(t, "every path works", func() bool { // a busy router or control service may not answer in time
		s = n.Status(t.Context(), true)
		return s.Healthy()
	})
	if len(s.Processes) != last.Processes || s.Links[0].B.Config != topology.Links[0].Config {
		t.Errorf("%+v", s)
	}
	for _, p := range s.Processes {
		if strings.HasPrefix(p.Name, "cs") {
			if b, err := os.ReadFile(filepath.Join(n.ConfigDir(p.IA), p.Name+".toml")); err != nil || !strings.Contains(string(b), "60s") {
				t.Errorf("%s: %v\n%s", p.IA, err, b)
			}
		}
	}
	state, err := StateOf(n.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range state.Processes {
		if err := signal(p.PID, syscall.Signal(0)); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}

func TestTwoPaths(t *testing.T) {
	t.Parallel()
	topo := load(t, "two-paths")
	// Long enough for names of sockets to be a problem.
	dir := filepath.Join(t.TempDir(), strings.Repeat("long-", 30))
	var last Progress
	n := start(t, Options{Topology: topo, Dir: dir, Progress: func(p Progress) { last = p }})
	if want := (Progress{Processes: 6, Links: 2, ImpliedLinks: 2, Segments: 4, ImpliedSegments: 4, Paths: 4, ImpliedPaths: 4}); last != want {
		t.Errorf("progress ended with %+v, want %+v", last, want)
	}
	a, b := topo.ASes[0].IA, topo.ASes[1].IA
	one := pathsel.Interface{IA: a, ID: 1}

	t.Run("paths as a host sees them", func(t *testing.T) {
		for _, p := range hostPaths(t, n, a, b) {
			m := p.Metadata()
			if len(m.Latency) != 1 || m.Latency[0] != 10*time.Millisecond {
				t.Errorf("announced latency %v, want 10ms for the one link", m.Latency)
			}
			if len(m.Bandwidth) != 1 || m.Bandwidth[0] != 20_000 {
				t.Errorf("announced bandwidth %v kbit/s, want 20000", m.Bandwidth)
			}
			if m.MTU != 1472 {
				t.Errorf("MTU %d, want 1472", m.MTU)
			}
		}
	})

	t.Run("a second one in the same directory", func(t *testing.T) {
		_, err := Start(t.Context(), Options{Topology: topo, Dir: dir, SCIONBin: scionBin})
		if !errors.Is(err, errRunning) {
			t.Errorf("error %v, want %v", err, errRunning)
		}
		await.True(t, "the first one to be as before", func() bool { return n.Status(t.Context(), false).Healthy() })
	})

	t.Run("another one beside it, with one of its addresses", func(t *testing.T) {
		_, err := Start(t.Context(), Options{Topology: topo, Dir: t.TempDir(), SCIONBin: scionBin, Subnet: n.plan.subnet})
		if err == nil || !strings.Contains(err.Error(), "used by another testbed") {
			t.Errorf("error %v", err)
		}
	})

	t.Run("link down and up", func(t *testing.T) {
		// Over the control socket, as the command does.
		yes, no := true, false
		if err := ChangeLink(t.Context(), dir, LinkChange{Interface: one, Down: &yes}); err != nil {
			t.Fatal(err)
		}
		state := func() Status {
			s, err := StatusOf(t.Context(), dir, true)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		await.True(t, "routers and paths show that the link is down", func() bool {
			s := state()
			l := s.Links[0]
			return l.A.State == "down" && l.B.State == "down" && l.A.Counters.DroppedDown > 0 && s.Pairs[0].Up == 1 && s.Pairs[1].Up == 1 &&
				!s.Healthy() && s.Links[1].A.State == "up" && l.A.BFDTransitions >= 2 && l.A.Properties == "rate 20mbit delay 10ms down"
		})
		if err := ChangeLink(t.Context(), dir, LinkChange{Interface: one, Down: &no}); err != nil {
			t.Fatal(err)
		}
		await.True(t, "the link and its path are back", func() bool {
			s := state()
			return s.Links[0].A.State == "up" && s.Healthy()
		})
	})

	t.Run("one direction of a link", func(t *testing.T) {
		rate, delay, wait := int64(5_000_000), 40*time.Millisecond, 20*time.Millisecond
		change := LinkChange{Interface: pathsel.Interface{IA: b, ID: 2}, Direction: "out", Rate: &rate, Delay: &delay, QueueTime: &wait}
		if err := n.Change(change); err != nil {
			t.Fatal(err)
		}
		l := n.Status(t.Context(), false).Links[1]
		before := topo.Links[1].Config
		if want := (linkemu.Config{Rate: rate, Delay: delay, QueueTime: wait}); l.B.Config != want || l.A.Config != before {
			t.Errorf("configured %v and %v, want %v and %v", l.A.Config, l.B.Config, before, want)
		}
		bad := -1.0
		for _, c := range []LinkChange{
			{Interface: pathsel.Interface{IA: b, ID: 9}}, {Interface: one, Direction: "up"}, {Interface: one, Loss: &bad},
		} {
			if err := ChangeLink(t.Context(), dir, c); err == nil {
				t.Errorf("%+v was accepted", c)
			}
		}
	})

	t.Run("a killed router", func(t *testing.T) {
		victim := n.all()[0]
		if err := victim.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		var s Status
		await.True(t, "status shows it", func() bool {
			s = n.Status(t.Context(), false)
			return slices.ContainsFunc(s.Processes, func(p ProcessStatus) bool { return !p.Running })
		})
		for _, p := range s.Processes {
			if dead := p.PID == victim.cmd.Process.Pid; p.Running == dead || dead != strings.Contains(p.Reason, "killed") {
				t.Errorf("process %+v", p)
			}
		}
		if s.Links[0].A.State != "unknown" {
			t.Errorf("interface of a dead router is %s", s.Links[0].A.State)
		}
	})

	t.Run("down", func(t *testing.T) {
		processes := n.State().Processes
		if err := Down(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		<-n.Done()
		gone(t, processes)
		if _, err := StatusOf(t.Context(), dir, false); !errors.Is(err, errNotRunning) {
			t.Errorf("status: error %v, want %v", err, errNotRunning)
		}
		if err := Down(t.Context(), dir); !errors.Is(err, errNotRunning) {
			t.Errorf("down again: error %v, want %v", err, errNotRunning)
		}
		if err := n.plan.probe(); err != nil {
			t.Errorf("an address is still in use: %v", err)
		}
	})
}

var registering sync.Mutex // guards prometheus.DefaultRegisterer

// hostPaths asks as a SCION host does, with the directory that the testbed gives to hosts.
func hostPaths(t *testing.T, n *Network, src, dst pathsel.IA) []snet.Path {
	t.Helper()
	// The connector registers metrics globally, and panics at the second time.
	registering.Lock()
	prometheus.DefaultRegisterer = prometheus.NewRegistry()
	c, err := daemon.NewAutoConnector(t.Context(), daemon.WithConfigDir(n.ConfigDir(src)))
	registering.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	var paths []snet.Path
	want := n.implied[Pair{src, dst}]
	await.True(t, "the host finds all paths", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), lookupTimeout)
		defer cancel()
		paths, err = c.Paths(ctx, addr.IA(dst), addr.IA(src), daemontypes.PathReqFlags{})
		return err == nil && len(paths) == want
	})
	return paths
}

func TestSideBySide(t *testing.T) {
	// Leaves, a peering link and several routers in an AS; one of them with an AS on IPv6.
	sixth := load(t, "shared-bottleneck")
	sixth.ASes[2].IPv6 = true
	sixth.Links[1].IPv6 = true
	for _, topo := range []Topology{load(t, "tiny4"), sixth} {
		t.Run(topo.Name, func(t *testing.T) {
			t.Parallel()
			opts := Options{Topology: topo, PathLifetime: 12 * time.Minute}
			if topo.Name == "tiny4" {
				opts.BFD = NoBFD
			}
			n := start(t, opts)
			leaf, other := topo.ASes[1].IA, topo.ASes[2].IA
			for _, p := range hostPaths(t, n, leaf, other) {
				if left := time.Until(p.Metadata().Expiry); left > 2*expirationUnit {
					t.Errorf("a path lives for another %v, want at most %v", left, 2*expirationUnit)
				}
			}
		})
	}
}

func TestStartRefuses(t *testing.T) {
	topo := load(t, "two-paths")
	for _, tt := range []struct {
		name string
		opts Options
		want string
	}{
		{"no programs", Options{Topology: topo, SCIONBin: t.TempDir()}, "run ./scripts/build"},
		{"no ASes", Options{}, "without ASes"},
		{"BFD", Options{Topology: topo, BFD: time.Microsecond}, "BFD interval"},
		{"lifetime", Options{Topology: topo, PathLifetime: time.Minute}, "path lifetime 1m0s: must be from 5m37.5s to 24h"},
	} {
		if tt.opts.SCIONBin == "" {
			tt.opts.SCIONBin = scionBin
		}
		tt.opts.Dir = t.TempDir()
		if n, err := Start(t.Context(), tt.opts); err == nil {
			n.Close()
			t.Errorf("%s: started", tt.name)
		} else if !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
}

// A program that ends at once is reported with its last words, and nothing is left.
func TestProcessEndsAtStart(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	for name, script := range map[string]string{"router": "echo no such cable; exit 3", "control": "exec sleep 600", "scion-pki": ""} {
		if name == "scion-pki" {
			pki, err := filepath.Abs(filepath.Join(scionBin, name))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(pki, filepath.Join(bin, name)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	_, err := Start(t.Context(), Options{Topology: load(t, "two-paths"), Dir: dir, SCIONBin: bin})
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no such cable") {
		t.Errorf("error %v", err)
	}
	if _, alive, err := locked(dir); alive || err != nil {
		t.Errorf("directory still taken: %v, %v", alive, err)
	}
}
