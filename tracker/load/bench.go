package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Bench runs trackers and generators in processes of their own.
type Bench struct {
	// Braid is the program, whose command "tracker" is a tracker. Generator reads a Job and writes its Result.
	Braid     string
	Generator []string
	// Opentracker is the program to compare with; empty: none.
	Opentracker string
	// TrackerCore and GeneratorCore are where they run; -1: anywhere.
	TrackerCore, GeneratorCore int
	// Dir is for their files.
	Dir string
}

// Row is a load on one tracker.
type Row struct {
	Tracker   string `json:"tracker"` // braid or opentracker
	Transport string `json:"transport"`
	Window    int    `json:"window"`
	Result
	Rate float64 `json:"announces_s"`
	// CPU is the seconds that the tracker has computed, PerCPU the announces in a second of it.
	CPU           float64 `json:"tracker_cpu_s"`
	PerCPU        float64 `json:"announces_per_cpu_s"`
	TrackerCore   int     `json:"tracker_core"`
	GeneratorCore int     `json:"generator_core"`
}

// process is a tracker that runs.
type process struct {
	cmd  *exec.Cmd
	said *bytes.Buffer
	// Addresses by transport.
	addrs map[string]string
}

func (p *process) stop() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// Start runs braid's tracker on free ports of loopback, without limits for a host and its network, and on SCION if there is a directory for it. It
// returns when the tracker is ready.
func (b Bench) start(ctx context.Context, scion string, args ...string) (*process, error) {
	config := filepath.Join(b.Dir, "tracker.toml")
	if err := os.WriteFile(config, []byte("requests_per_host = 0\nrequests_per_as = 0\nmax_peers_per_network = 2_000_000_000\n"), 0o600); err != nil {
		return nil, err
	}
	args = append([]string{"tracker", "--json", "--config", config, "--listen", "http://127.0.0.1:0", "--listen", "udp://127.0.0.1:0", "--listen", "stats://127.0.0.1:0"}, args...)
	if scion != "" {
		args = append(args, "--config-dir", scion, "--listen", "scion://"+benchIA+",[127.0.0.1]:0")
	}
	p := &process{cmd: exec.CommandContext(ctx, b.Braid, args...), said: &bytes.Buffer{}, addrs: map[string]string{}}
	p.cmd.Stderr = p.said
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := startPinned(p.cmd, b.TrackerCore); err != nil {
		return nil, fmt.Errorf("start a tracker: %w", err)
	}
	var ready struct{ Listen []string }
	if err := json.NewDecoder(out).Decode(&ready); err != nil {
		p.stop()
		return nil, fmt.Errorf("the tracker does not start: %s", p.said)
	}
	for _, u := range ready.Listen {
		scheme, rest, _ := strings.Cut(u, "://")
		host, _, _ := strings.Cut(rest, "/")
		switch scheme {
		case "http":
			p.addrs["http"], p.addrs["http-close"] = host, host
		case "udp":
			p.addrs["udp"], p.addrs["udp-apart"] = host, host
		case "stats":
			p.addrs["stats"] = host
		case "scion":
			p.addrs["scion"] = u
		}
	}
	return p, nil
}

// startOpentracker runs the yardstick.
func (b Bench) startOpentracker(ctx context.Context) (*process, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(addr)
	// Debian's serves only torrents of a list. It reads it as another user, in the directory.
	var list bytes.Buffer
	for s := range benchSwarms {
		fmt.Fprintf(&list, "%X\n", peer(s*perSwarm).InfoHash)
	}
	const name = "whitelist"
	if err := errors.Join(os.Chmod(b.Dir, 0o755), os.WriteFile(filepath.Join(b.Dir, name), list.Bytes(), 0o644)); err != nil { //nolint:gosec // of nobody's interest
		return nil, err
	}
	p := &process{said: &bytes.Buffer{}, addrs: map[string]string{"http-close": addr, "udp": addr, "udp-apart": addr}}
	p.cmd = exec.CommandContext(ctx, b.Opentracker, "-i", "127.0.0.1", "-p", port, "-P", port, "-d", b.Dir, "-w", name)
	p.cmd.Stdout, p.cmd.Stderr = p.said, p.said
	if err := startPinned(p.cmd, b.TrackerCore); err != nil {
		return nil, fmt.Errorf("start opentracker: %w", err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return p, nil
		}
		if time.Now().After(end) {
			p.stop()
			return nil, fmt.Errorf("opentracker does not start: %s", p.said)
		}
	}
}

// generate runs the job in a process of its own.
func (b Bench) generate(ctx context.Context, j Job) (Result, error) {
	in, err := json.Marshal(j)
	if err != nil {
		return Result{}, err
	}
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, b.Generator[0], b.Generator[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &said
	if err := startPinned(cmd, b.GeneratorCore); err != nil {
		return Result{}, fmt.Errorf("start a generator: %w", err)
	}
	if err := cmd.Wait(); err != nil {
		return Result{}, fmt.Errorf("generator: %w: %s", err, said.String())
	}
	var r Result
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		return Result{}, fmt.Errorf("generator: %w: %s", err, out.String())
	}
	return r, nil
}

// Case is a load that is measured.
type Case struct {
	Tracker, Transport string
	Window             int
}

// Cases are the loads, in the order in which they follow each other in each run. Requests under way are as many as keep a tracker
// busy, and one for each client over HTTP that closes.
func Cases(opentracker bool) []Case {
	all := []Case{{"braid", "http", 64}, {"braid", "http-close", 64}, {"braid", "udp", 256}, {"braid", "udp-apart", 256}, {"braid", "scion", 32}}
	if opentracker {
		all = append(all, Case{"opentracker", "http-close", 64}, Case{"opentracker", "udp", 256}, Case{"opentracker", "udp-apart", 256})
	}
	return all
}

const (
	// benchSwarms of ten peers each are there before the measurement.
	benchSwarms = 10_000
	benchIA     = "1-ff00:0:110"
)

// Measure is one load on a tracker of its own, which has its swarms before.
func (b Bench) Measure(ctx context.Context, c Case, d time.Duration) (Row, error) {
	var p *process
	var err error
	scion := ""
	if c.Tracker == "braid" {
		if scion, err = b.oneAS(); err != nil {
			return Row{}, err
		}
		p, err = b.start(ctx, scion)
	} else {
		p, err = b.startOpentracker(ctx)
	}
	if err != nil {
		return Row{}, err
	}
	defer p.stop()
	j := Job{Transport: "udp", Addr: p.addrs["udp"], Swarms: benchSwarms, Once: true, Window: 64}
	if _, err := b.generate(ctx, j); err != nil {
		return Row{}, err
	}
	before, err := cpuSeconds(p.cmd.Process.Pid)
	if err != nil {
		return Row{}, err
	}
	j = Job{Transport: c.Transport, Addr: p.addrs[c.Transport], ConfigDir: scion, Swarms: benchSwarms, Time: d, Window: c.Window}
	r, err := b.generate(ctx, j)
	if err != nil {
		return Row{}, fmt.Errorf("%s: %w: %s", c.Tracker, err, p.said)
	}
	after, err := cpuSeconds(p.cmd.Process.Pid)
	if err != nil {
		return Row{}, err
	}
	row := Row{
		Tracker: c.Tracker, Transport: c.Transport, Window: c.Window, Result: r, Rate: float64(r.Announces) / r.Seconds, CPU: after - before,
		TrackerCore: b.TrackerCore, GeneratorCore: b.GeneratorCore,
	}
	row.PerCPU = float64(r.Announces) / max(row.CPU, 0.01)
	return row, nil
}

// oneAS writes the topology of an AS that needs no process: all its hosts are on this machine.
func (b Bench) oneAS() (string, error) {
	dir := filepath.Join(b.Dir, "as")
	topology := `{"isd_as":"` + benchIA + `","mtu":1400,"dispatched_ports":"1024-65535","attributes":["core"],
		"control_service":{"cs1":{"addr":"127.0.0.1:30252"}},"discovery_service":{"cs1":{"addr":"127.0.0.1:30252"}}}`
	return dir, errors.Join(os.MkdirAll(filepath.Join(dir, "certs"), 0o700), os.WriteFile(filepath.Join(dir, "topology.json"), []byte(topology), 0o600))
}

// cpuSeconds is what the process has computed, in user and in system mode.
func cpuSeconds(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read what a tracker has computed: %w", err)
	}
	_, rest, _ := bytes.Cut(b, []byte(") "))
	fields := strings.Fields(string(rest))
	const utime, stime, ticks = 11, 12, 100 // proc(5); a hundred a second on all Linux systems in use
	if len(fields) <= stime {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, b)
	}
	user, err := strconv.ParseFloat(fields[utime], 64)
	system, err2 := strconv.ParseFloat(fields[stime], 64)
	return (user + system) / ticks, errors.Join(err, err2)
}

// resident is the memory of the process in bytes.
func resident(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of a tracker: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no VmRSS", pid)
}

// stats asks braid's tracker.
func (p *process) stats(ctx context.Context, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addrs["stats"]+"/stats", nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return json.NewDecoder(res.Body).Decode(into)
}

// kill ends the tracker as the system does when memory is short.
func (p *process) kill() error {
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	_ = p.cmd.Wait() // killed, as it says
	return nil
}
