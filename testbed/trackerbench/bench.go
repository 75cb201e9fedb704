package trackerbench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"braid/testbed/bench"
)

// Bench runs trackers and generators in processes of their own.
type Bench struct {
	// Braid is the program whose command "tracker" is a tracker. Generator is the command of a
	// generator; it calls [Generate].
	Braid     string
	Generator []string
	// Opentracker is the program to compare with; empty: none.
	Opentracker string
	// TrackerCore and GeneratorCore are where they run, or bench.AnyCore.
	TrackerCore, GeneratorCore int
	// Dir is for their files.
	Dir string
}

// Row is the result of a load on one tracker.
type Row struct {
	Case
	Result
	Rate float64 `json:"announces_s"`
	// CPU is the tracker's CPU time in seconds, PerCPU the announces for each of them.
	CPU           float64 `json:"tracker_cpu_s"`
	PerCPU        float64 `json:"announces_per_cpu_s"`
	TrackerCore   int     `json:"tracker_core"`
	GeneratorCore int     `json:"generator_core"`
}

// running is a tracker that runs.
type running struct {
	*bench.Process
	addrs map[string]string // by transport
}

// start runs braid's tracker on free ports of loopback, without limits for a host and its network.
// scion is the configuration of its AS; empty: it is on IP only. start returns when the tracker is
// ready.
func (b Bench) start(ctx context.Context, scion string, args ...string) (*running, error) {
	config := filepath.Join(b.Dir, "tracker.toml")
	const noLimits = "requests_per_host = 0\nrequests_per_as = 0\nmax_peers_per_network = 2_000_000_000\n"
	if err := os.WriteFile(config, []byte(noLimits), 0o600); err != nil {
		return nil, err
	}
	command := append([]string{b.Braid, "tracker", "--json", "--config", config}, args...)
	listen := []string{"http://127.0.0.1:0", "udp://127.0.0.1:0"}
	if scion != "" {
		command, listen = append(command, "--config-dir", scion), append(listen, "scion://"+bench.IA+",[127.0.0.1]:0")
	}
	for _, l := range listen {
		command = append(command, "--listen", l)
	}
	p, err := bench.Start(ctx, b.TrackerCore, nil, command...)
	if err != nil {
		return nil, err
	}
	urls, err := p.Ready()
	if err != nil {
		return nil, err
	}
	t := &running{p, map[string]string{}}
	for _, u := range urls {
		scheme, rest, _ := strings.Cut(u, "://")
		t.addrs[scheme], _, _ = strings.Cut(rest, "/")
		if scheme == "scion" {
			t.addrs[scheme] = u
		}
	}
	t.addrs["http-close"], t.addrs["udp-apart"] = t.addrs["http"], t.addrs["udp"]
	return t, nil
}

// startOpentracker runs the tracker to compare with.
func (b Bench) startOpentracker(ctx context.Context) (*running, error) {
	addr, err := bench.FreeAddr()
	if err != nil {
		return nil, err
	}
	at, port := addr.String(), strconv.Itoa(int(addr.Port()))
	// Debian's opentracker serves only the torrents of a list. It reads the list from its
	// directory, as another user.
	var list bytes.Buffer
	for s := range benchSwarms {
		fmt.Fprintf(&list, "%X\n", peer(s*perSwarm).InfoHash)
	}
	const name = "whitelist"
	if err := errors.Join(
		os.Chmod(b.Dir, 0o755), //nolint:gosec // nothing secret
		os.WriteFile(filepath.Join(b.Dir, name), list.Bytes(), 0o644), //nolint:gosec // nothing secret
	); err != nil {
		return nil, err
	}
	p, err := bench.Start(ctx, b.TrackerCore, nil,
		b.Opentracker, "-i", "127.0.0.1", "-p", port, "-P", port, "-d", b.Dir, "-w", name)
	if err != nil {
		return nil, err
	}
	addrs := map[string]string{"http-close": at, "udp": at, "udp-apart": at}
	return &running{p, addrs}, p.Listens(ctx, addr)
}

// generate runs the job in a process of its own.
func (b Bench) generate(ctx context.Context, j Job) (r Result, err error) {
	return r, bench.Call(ctx, b.GeneratorCore, j, &r, b.Generator...)
}

// fill announces every peer of so many swarms once.
func (b Bench) fill(ctx context.Context, t *running, swarms int) error {
	_, err := b.generate(ctx, Job{Transport: "udp", Addr: t.addrs["udp"], Swarms: swarms, Once: true, Window: 64})
	return err
}

// Case is a load that is measured.
type Case struct {
	Tracker   string `json:"tracker"` // braid or opentracker
	Transport string `json:"transport"`
	Window    int    `json:"window"`
}

// Cases are the loads in the order of a run. Each has enough requests under way to keep a tracker
// busy; over http-close each of them has a connection of its own.
func Cases(opentracker bool) []Case {
	all := []Case{
		{"braid", "http", 64}, {"braid", "http-close", 64},
		{"braid", "udp", 256}, {"braid", "udp-apart", 256}, {"braid", "scion", 32},
		{"opentracker", "http-close", 64}, {"opentracker", "udp", 256}, {"opentracker", "udp-apart", 256},
	}
	if !opentracker {
		all = slices.DeleteFunc(all, func(c Case) bool { return c.Tracker == "opentracker" })
	}
	return all
}

// benchSwarms is how many swarms of ten peers the tracker has before the measurement.
const benchSwarms = 10_000

// Measure puts a load on a tracker of its own, whose swarms are there before.
func (b Bench) Measure(ctx context.Context, c Case, d time.Duration) (Row, error) {
	as := filepath.Join(b.Dir, "as")
	var t *running
	err := bench.OneAS(as, 1400)
	if err == nil && c.Tracker == "braid" {
		t, err = b.start(ctx, as)
	} else if err == nil {
		t, err = b.startOpentracker(ctx)
	}
	if err != nil {
		return Row{}, err
	}
	defer t.Stop()
	if err := b.fill(ctx, t, benchSwarms); err != nil {
		return Row{}, err
	}
	before := t.Usage().CPU
	j := Job{
		Transport: c.Transport, Addr: t.addrs[c.Transport], ConfigDir: as,
		Swarms: benchSwarms, Time: d, Window: c.Window,
	}
	r, err := b.generate(ctx, j)
	if err != nil {
		return Row{}, fmt.Errorf("load on %s: %w", c.Tracker, err)
	}
	cpu := t.Usage().CPU - before
	return Row{
		Case: c, Result: r, Rate: float64(r.Announces) / r.Seconds,
		CPU: cpu, PerCPU: float64(r.Announces) / max(cpu, 0.01),
		TrackerCore: b.TrackerCore, GeneratorCore: b.GeneratorCore,
	}, nil
}
