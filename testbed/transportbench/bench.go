// Package transportbench measures what moving data costs: CPU time and rate of TCP, TLS, QUIC over UDP, QUIC over SCION
// with scionproto's library and with braid's packet I/O, and of bare datagrams, inside one AS and through real border
// routers; and beside it whole downloads (download.go). All cases take turns in one run, since only ratios inside one
// run mean anything on a shared machine.
//
// Each end of a transfer is a process of its own (end.go), so that its CPU time is known.
package transportbench

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"braid/pathsel"
	"braid/scionnet/congestion"
	"braid/testbed"
)

// Config of a run.
type Config struct {
	// End is the command of one end of a transfer; it calls [End].
	End []string
	// Dir is for files of the run. It is made and removed by the caller.
	Dir string
	// SCIONBin is the folder of the SCION programs, as for the testbed. FastRouter is the command of the fast
	// router; if it is empty its cases are left out.
	SCIONBin   string
	FastRouter []string
	// Braid is the program for whole downloads; if it is empty they are left out.
	Braid string
	// Congestion is the congestion controller of braid's QUIC, over SCION.
	Congestion congestion.Algorithm
	// Runs of each case, and the bytes of each; TCP, being so much faster, and downloads, for which processes start and
	// end, move four times as many.
	Runs  int
	Bytes int64
	// Only, Routers and MTUs, if not empty, are the cases to run.
	Only    []string
	Routers []string
	MTUs    []int
	// Progress is told what is going on; may be nil.
	Progress func(string)
}

// CPU seconds for each gigabyte (10^9 bytes) of data.
type CPU struct {
	Client  float64 `json:"client"` // the receiver
	Server  float64 `json:"server"`
	Routers float64 `json:"routers"` // all together
}

// Row is the result of a case: medians over its runs.
type Row struct {
	Case    string  `json:"case"` // tcp, tls, quic-udp, quic-snet, quic-braid, raw, braid-scion, braid-tcp, aria2-tcp
	MTU     int     `json:"mtu"`
	Routers string  `json:"routers"` // none, stock, fast
	Paths   int     `json:"paths"`
	MbitS   float64 `json:"mbit_s"`
	CPU     CPU     `json:"cpu_s_per_gb"`
	// Spread is the least and the most that were seen.
	Spread Spread `json:"spread"`
	Runs   int    `json:"runs"`
	Failed int    `json:"failed,omitempty"` // runs without a result
}

// Spread of a row: the least and the most.
type Spread struct {
	MbitS [2]float64 `json:"mbit_s"`
	// CPU is of both ends together, in CPU seconds for each gigabyte.
	CPU [2]float64 `json:"cpu_s_per_gb_ends"`
}

type sample struct {
	mbit float64
	cpu  CPU
}

const (
	ordinaryMTU, largeMTU = 1400, 8400
	// patience bounds one transfer.
	patience = time.Minute
)

// cases lists the rows in the order of the table.
func cases(fast bool) []Row {
	rows := []Row{
		{Case: "tcp", MTU: ordinaryMTU, Routers: "none", Paths: 1},
		{Case: "tls", MTU: ordinaryMTU, Routers: "none", Paths: 1},
		{Case: "quic-udp", MTU: ordinaryMTU, Routers: "none", Paths: 1},
	}
	routers := []string{"none", "stock"}
	if fast {
		routers = append(routers, "fast")
	}
	for _, r := range routers {
		for _, mtu := range []int{ordinaryMTU, largeMTU} {
			if mtu == ordinaryMTU { // snet is not measured with large packets: quic-go makes none over it
				rows = append(rows, Row{Case: "quic-snet", MTU: mtu, Routers: r, Paths: 1})
			}
			rows = append(rows, Row{Case: "quic-braid", MTU: mtu, Routers: r, Paths: 1})
			if r != "none" {
				rows = append(rows, Row{Case: "quic-braid", MTU: mtu, Routers: r, Paths: 2})
			}
			rows = append(rows, Row{Case: "raw", MTU: mtu, Routers: r, Paths: 1})
		}
	}
	rows = append(rows, Row{Case: caseAria2, MTU: ordinaryMTU, Routers: "none", Paths: 1}, Row{Case: caseTCP, MTU: ordinaryMTU, Routers: "none", Paths: 1})
	for _, r := range routers {
		paths := 2
		if r == "none" {
			paths = 1
		}
		for _, mtu := range []int{ordinaryMTU, largeMTU} {
			rows = append(rows, Row{Case: caseSCION, MTU: mtu, Routers: r, Paths: paths})
		}
	}
	return rows
}

// wants tells whether the run has the row.
func (cfg Config) wants(r Row) bool {
	return (len(cfg.Only) == 0 || slices.Contains(cfg.Only, r.Case)) &&
		(len(cfg.Routers) == 0 || slices.Contains(cfg.Routers, r.Routers)) &&
		(len(cfg.MTUs) == 0 || slices.Contains(cfg.MTUs, r.MTU)) &&
		(cfg.Braid != "" || !isDownload(r.Case))
}

// network has two ASes, and two links of each MTU between them.
const network = `
defaults: {mtu: 8400}
ASes:
  "1-ff00:0:110": {core: true, voting: true, authoritative: true, issuing: true}
  "1-ff00:0:111": {core: true, cert_issuer: 1-ff00:0:110}
links:
  - {a: "1-ff00:0:110-A#1", b: "1-ff00:0:111-A#1", linkAtoB: CORE, mtu: 1400}
  - {a: "1-ff00:0:110-A#2", b: "1-ff00:0:111-A#2", linkAtoB: CORE, mtu: 1400}
  - {a: "1-ff00:0:110-A#3", b: "1-ff00:0:111-A#3", linkAtoB: CORE}
  - {a: "1-ff00:0:110-A#4", b: "1-ff00:0:111-A#4", linkAtoB: CORE}
`

// place is where a case runs.
type place struct {
	clientDir, clientIP string
	serverDir, serverIP string
	network             *testbed.Network // nil inside one AS
}

// Run measures all cases and calls emit with each row at the end, in order.
func Run(ctx context.Context, cfg Config, emit func(Row)) error {
	say := cfg.Progress
	if say == nil {
		say = func(string) {}
	}
	rows := slices.DeleteFunc(cases(len(cfg.FastRouter) > 0), func(r Row) bool { return !cfg.wants(r) })
	if len(rows) == 0 {
		return errors.New("no case is like that")
	}
	if _, err := exec.LookPath(aria2); err != nil {
		rows = slices.DeleteFunc(rows, func(r Row) bool { return r.Case == caseAria2 })
		say("without " + caseAria2 + ": " + err.Error())
	}
	var files payload
	if slices.ContainsFunc(rows, func(r Row) bool { return isDownload(r.Case) }) {
		var err error
		if files, err = makePayload(ctx, cfg.Dir, 4*cfg.Bytes); err != nil {
			return err
		}
	}
	places := map[string]place{}
	defer func() {
		for _, p := range places {
			if p.network != nil {
				p.network.Close()
			}
		}
	}()
	for _, r := range rows {
		key := r.key()
		if _, ok := places[key]; ok {
			continue
		}
		say("starting: " + key)
		p, err := openPlace(ctx, cfg, r)
		if err != nil {
			return err
		}
		places[key] = p
	}
	samples := make([][]sample, len(rows))
	var failed []error
	for run := range cfg.Runs {
		for i, r := range rows {
			say(fmt.Sprintf("run %d of %d: %s, MTU %d, routers %s, %d paths", run+1, cfg.Runs, r.Case, r.MTU, r.Routers, r.Paths))
			var s sample
			var err error
			if isDownload(r.Case) {
				s, err = files.download(ctx, cfg, r, places[r.key()])
			} else {
				s, err = measure(ctx, cfg, r, places[r.key()])
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				rows[i].Failed++
				failed = append(failed, fmt.Errorf("%s, MTU %d, routers %s, %d paths: %w", r.Case, r.MTU, r.Routers, r.Paths, err))
				continue
			}
			samples[i] = append(samples[i], s)
		}
	}
	for i, r := range rows {
		emit(summary(r, samples[i]))
	}
	return errors.Join(failed...)
}

// key tells the places apart: inside one AS the MTU is the AS's.
func (r Row) key() string {
	if r.Routers == "none" {
		return fmt.Sprintf("one AS of MTU %d", r.MTU)
	}
	return r.Routers + " routers"
}

func openPlace(ctx context.Context, cfg Config, r Row) (place, error) {
	dir := filepath.Join(cfg.Dir, strings.ReplaceAll(r.key(), " ", "-"))
	if r.Routers == "none" {
		return place{dir, "127.0.0.1", dir, "127.0.0.1", nil}, writeAS(dir, r.MTU)
	}
	topology, err := testbed.ParseTopology("transport.topo", strings.NewReader(network))
	if err != nil {
		return place{}, err
	}
	// BFD would take links down when the CPU is busy, which is what this is about.
	opts := testbed.Options{Topology: topology, Dir: dir, SCIONBin: cfg.SCIONBin, NoBFD: true}
	if r.Routers == "fast" {
		opts.RouterCommand = cfg.FastRouter
	}
	n, err := testbed.Start(ctx, opts)
	if err != nil {
		return place{}, err
	}
	client, server := topology.ASes[0].IA, topology.ASes[1].IA
	return place{n.ConfigDir(client), n.HostIP(client).String(), n.ConfigDir(server), n.HostIP(server).String(), n}, nil
}

// writeAS makes the files of an AS in which there is nothing but hosts: that needs no process.
func writeAS(dir string, mtu int) error {
	if err := os.MkdirAll(filepath.Join(dir, "certs"), 0o700); err != nil {
		return err
	}
	service := map[string]any{"cs1": map[string]any{"addr": netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 30252).String()}}
	b, err := json.Marshal(map[string]any{
		"isd_as": pathsel.IA(1<<48 | 0xff00_0000_0110).String(), "mtu": mtu, "dispatched_ports": "1024-65535",
		"attributes": []string{"core"}, "control_service": service, "discovery_service": service,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "topology.json"), b, 0o600)
}

func measure(ctx context.Context, cfg Config, r Row, p place) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	j := job{Case: r.Case, MTU: r.MTU, Paths: r.Paths, Bytes: cfg.Bytes, Timeout: patience, Congestion: cfg.Congestion}
	if r.Case == "tcp" || r.Case == "tls" {
		j.Bytes *= 4
	}
	server, client := j, j
	server.ConfigDir, server.Local = p.serverDir, p.serverIP
	s, err := startEnd(ctx, cfg.End, server)
	if err != nil {
		return sample{}, err
	}
	defer s.stop()
	ready, err := s.next()
	if err != nil {
		return sample{}, fmt.Errorf("server: %w", err)
	}
	client.ConfigDir, client.Local, client.Dial = p.clientDir, p.clientIP, ready.Ready
	before := routersCPU(ctx, p)
	c, err := startEnd(ctx, cfg.End, client)
	if err != nil {
		return sample{}, err
	}
	defer c.stop()
	got, err := c.next()
	if err != nil {
		return sample{}, fmt.Errorf("client: %w", err)
	}
	sent, err := s.next()
	if err != nil {
		return sample{}, fmt.Errorf("server: %w", err)
	}
	gb := float64(j.Bytes) / 1e9
	return sample{
		mbit: float64(j.Bytes) * 8 / 1e6 / got.Seconds,
		cpu:  CPU{Client: got.CPU / gb, Server: sent.CPU / gb, Routers: (routersCPU(ctx, p) - before) / gb},
	}, nil
}

// routersCPU is what the routers have used since they were started, in CPU seconds.
func routersCPU(ctx context.Context, p place) (sum float64) {
	if p.network == nil {
		return 0
	}
	for _, x := range p.network.Status(ctx, false).Processes {
		if strings.HasPrefix(x.Name, "br-") {
			sum += x.CPU
		}
	}
	return sum
}

// end is a process of a transfer.
type end struct {
	cmd    *exec.Cmd
	in     interface{ Close() error }
	out    *bufio.Scanner
	errors strings.Builder
}

func startEnd(ctx context.Context, command []string, j job) (*end, error) {
	e := &end{cmd: exec.CommandContext(ctx, command[0], command[1:]...)}
	in, err := e.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := e.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	e.in, e.out, e.cmd.Stderr = in, bufio.NewScanner(out), &e.errors
	if err := e.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start one end of a transfer: %w", err)
	}
	if err := json.NewEncoder(in).Encode(j); err != nil {
		e.stop()
		return nil, fmt.Errorf("tell one end of a transfer what to do: %w", err)
	}
	return e, nil
}

func (e *end) next() (report, error) {
	r, err := readReport(e.out)
	if err != nil {
		e.stop()
		return r, fmt.Errorf("%w: %s", err, strings.TrimSpace(e.errors.String()))
	}
	return r, nil
}

// stop lets the process end, and waits for it.
func (e *end) stop() {
	e.in.Close()
	_ = e.cmd.Wait() // what it had to say has been read
}

// summary takes the medians.
func summary(r Row, samples []sample) Row {
	r.Runs = len(samples)
	if r.Runs == 0 {
		return r
	}
	of := func(f func(sample) float64) (median float64, spread [2]float64) {
		v := make([]float64, len(samples))
		for i, s := range samples {
			v[i] = f(s)
		}
		slices.SortFunc(v, cmp.Compare)
		return (v[(len(v)-1)/2] + v[len(v)/2]) / 2, [2]float64{v[0], v[len(v)-1]}
	}
	r.MbitS, r.Spread.MbitS = of(func(s sample) float64 { return s.mbit })
	r.CPU.Client, _ = of(func(s sample) float64 { return s.cpu.Client })
	r.CPU.Server, _ = of(func(s sample) float64 { return s.cpu.Server })
	r.CPU.Routers, _ = of(func(s sample) float64 { return s.cpu.Routers })
	_, r.Spread.CPU = of(func(s sample) float64 { return s.cpu.Client + s.cpu.Server })
	return r
}
