// Package transportbench measures the CPU time and the rate of moving data: over TCP, TLS, QUIC
// over UDP, QUIC over SCION with scionproto's library and with braid's packet I/O, and as bare
// datagrams, inside one AS and through real border routers; and as whole downloads (download.go).
// All cases take turns in one run, since a machine that others use makes only figures of the same
// run comparable.
//
// Each end of a transfer is a process of its own (end.go), so that its CPU time is known.
package transportbench

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"braid/scionnet/congestion"
	"braid/testbed"
	"braid/testbed/bench"
)

// Config of a run.
type Config struct {
	// End is the command of one end of a transfer; it calls [End].
	End []string
	// Dir is for files of the run. The caller makes and removes it.
	Dir string
	// SCIONBin is the folder of the SCION programs, as for the testbed. FastRouter is the command
	// of the fast router.
	SCIONBin   string
	FastRouter []string
	// Braid is the program for whole downloads.
	Braid string
	// Congestion is the congestion controller of braid's QUIC over SCION.
	Congestion congestion.Algorithm
	// Runs of each case, and the bytes of each. TCP and downloads move four times as many: TCP is
	// that much faster, and downloads include the start and the end of processes.
	Runs  int
	Bytes int64
	// Cases are rows of [Cases], or all of them, with any number of seeds.
	Cases []Row
	// Progress is called with what happens next.
	Progress func(string)

	payload bench.Payload // of downloads
}

// CPU is in seconds for each gigabyte (10^9 bytes) of data.
type CPU struct {
	Client  float64 `json:"client"` // the receiver
	Server  float64 `json:"server"`
	Routers float64 `json:"routers"` // all together
}

func (c CPU) ends() float64 { return c.Client + c.Server }

// Row is the result of a case: medians over its runs.
type Row struct {
	Case    string  `json:"case"` // tcp, tls, quic-udp, quic-snet, quic-braid, raw, braid-scion, braid-tcp, aria2-tcp
	MTU     int     `json:"mtu"`
	Routers string  `json:"routers"` // none, stock, fast
	Paths   int     `json:"paths"`
	Seeds   int     `json:"seeds"` // processes that serve
	MbitS   float64 `json:"mbit_s"`
	// Gap is the longest time of a download without new payload, in seconds; nil if that was not
	// measured.
	Gap    *float64 `json:"gap,omitempty"`
	CPU    CPU      `json:"cpu_s_per_gb"`
	Spread Spread   `json:"spread"`
	Runs   int      `json:"runs"`
	Failed int      `json:"failed,omitempty"` // runs without a result
}

// Spread of a row: the least and the greatest value of its runs.
type Spread struct {
	MbitS [2]float64 `json:"mbit_s"`
	// CPU is of both ends together, in CPU seconds for each gigabyte.
	CPU [2]float64 `json:"cpu_s_per_gb_ends"`
}

// String describes the case.
func (r Row) String() string {
	return fmt.Sprintf("%s, MTU %d, routers %s, paths %d, seeds %d", r.Case, r.MTU, r.Routers, r.Paths, r.Seeds)
}

// WithSeeds returns the rows, with each download once for each number of seeds.
func WithSeeds(rows []Row, seeds []int) (out []Row) {
	for _, r := range rows {
		if !isDownload(r.Case) {
			out = append(out, r)
			continue
		}
		for _, r.Seeds = range seeds {
			out = append(out, r)
		}
	}
	return out
}

// sample is one run of a case.
type sample struct {
	mbit float64
	gap  *float64 // as in a Row
	cpu  CPU
	err  error // why there is no result
}

const (
	ordinaryMTU, largeMTU = 1400, 8400
	// patience bounds one transfer.
	patience = time.Minute
)

// Cases lists all cases in the order of the table, as rows without results.
func Cases() []Row {
	var rows []Row
	for _, c := range []string{"tcp", "tls", "quic-udp"} {
		rows = append(rows, Row{Case: c, MTU: ordinaryMTU, Routers: "none", Paths: 1, Seeds: 1})
	}
	downloads := []Row{
		{Case: caseAria2, MTU: ordinaryMTU, Routers: "none", Paths: 1, Seeds: 1},
		{Case: caseTCP, MTU: ordinaryMTU, Routers: "none", Paths: 1, Seeds: 1},
	}
	for _, r := range []string{"none", "stock", "fast"} {
		paths := 2
		if r == "none" {
			paths = 1
		}
		for _, mtu := range []int{ordinaryMTU, largeMTU} {
			if mtu == ordinaryMTU { // quic-go sends no large packets over snet
				rows = append(rows, Row{Case: "quic-snet", MTU: mtu, Routers: r, Paths: 1, Seeds: 1})
			}
			for n := range paths {
				rows = append(rows, Row{Case: "quic-braid", MTU: mtu, Routers: r, Paths: n + 1, Seeds: 1})
				downloads = append(downloads, Row{Case: caseSCION, MTU: mtu, Routers: r, Paths: n + 1, Seeds: 1})
			}
			rows = append(rows, Row{Case: "raw", MTU: mtu, Routers: r, Paths: 1, Seeds: 1})
		}
	}
	return append(rows, downloads...)
}

//go:embed network.topo
var network string

// place is where a case runs: the hosts of both ends.
type place struct {
	client, server host
	network        *testbed.Network // nil inside one AS
}

type host struct{ ia, configDir, ip string }

// Run measures all cases and calls emit with each row at the end, in order. If ctx ends before, emit
// gets the rows that have results, and the error says what ended the run and which cases failed.
func Run(ctx context.Context, cfg Config, emit func(Row)) error {
	rows := cfg.rows()
	var err error
	if slices.ContainsFunc(rows, func(r Row) bool { return isDownload(r.Case) }) {
		if cfg.payload, err = bench.MakePayload(ctx, cfg.Dir, 4*cfg.Bytes, pieceLength); err != nil {
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
		key := r.place()
		if _, ok := places[key]; ok {
			continue
		}
		cfg.Progress("starting: " + key)
		if places[key], err = openPlace(ctx, cfg, r); err != nil {
			return err
		}
	}
	var failed []error
	err = bench.Turns(ctx, cfg.Runs, len(rows), func(run, i int) (s sample, _ error) {
		cfg.Progress(fmt.Sprintf("run %d of %d: %s", run+1, cfg.Runs, rows[i]))
		s, s.err = transfer(ctx, cfg, rows[i], places[rows[i].place()])
		return s, nil
	}, func(i int, samples []sample) {
		r := rows[i]
		samples = slices.DeleteFunc(samples, func(s sample) bool {
			if s.err != nil {
				r.Failed++
				failed = append(failed, fmt.Errorf("%s: %w", r, s.err))
			}
			return s.err != nil
		})
		emit(summary(r, samples))
	})
	return errors.Join(append([]error{err}, failed...)...)
}

// transfer makes one run of a case.
func transfer(ctx context.Context, cfg Config, r Row, at place) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	move := measure
	if isDownload(r.Case) {
		move = download
	}
	s, err := move(ctx, cfg, r, at)
	if err != nil && ctx.Err() != nil { // the processes were killed
		err = fmt.Errorf("not done after %v", patience)
	}
	return s, err
}

// rows returns the cases of the run. Without aria2 its case is left out.
func (cfg Config) rows() []Row {
	isAria2 := func(r Row) bool { return r.Case == caseAria2 }
	if _, err := exec.LookPath(aria2); err != nil && slices.ContainsFunc(cfg.Cases, isAria2) {
		cfg.Progress("without " + caseAria2 + ": " + err.Error())
		return slices.DeleteFunc(slices.Clone(cfg.Cases), isAria2)
	}
	return cfg.Cases
}

// place names where a case runs: inside one AS, whose MTU counts, or through routers, with links of
// both MTUs.
func (r Row) place() string {
	if r.Routers == "none" {
		return fmt.Sprintf("one AS of MTU %d", r.MTU)
	}
	return r.Routers + " routers"
}

func openPlace(ctx context.Context, cfg Config, r Row) (place, error) {
	dir := filepath.Join(cfg.Dir, strings.ReplaceAll(r.place(), " ", "-"))
	if r.Routers == "none" {
		h := host{bench.IA, dir, "127.0.0.1"}
		return place{client: h, server: h}, bench.OneAS(dir, r.MTU)
	}
	topology, err := testbed.ParseTopology("transport.topo", strings.NewReader(network))
	if err != nil {
		return place{}, err
	}
	// BFD would take links down while the CPU is busy, and this benchmark keeps it busy.
	opts := testbed.Options{Topology: topology, Dir: dir, SCIONBin: cfg.SCIONBin, BFD: testbed.NoBFD}
	if r.Routers == "fast" {
		opts.RouterCommand = cfg.FastRouter
	}
	n, err := testbed.Start(ctx, opts)
	if err != nil {
		return place{}, err
	}
	p := place{network: n}
	for i, h := range []*host{&p.client, &p.server} {
		ia := topology.ASes[i].IA
		*h = host{ia.String(), n.ConfigDir(ia), n.HostIP(ia).String()}
	}
	return p, nil
}

func measure(ctx context.Context, cfg Config, r Row, p place) (sample, error) {
	j := job{Case: r.Case, MTU: r.MTU, Paths: r.Paths, Bytes: cfg.Bytes, Timeout: patience, Congestion: cfg.Congestion}
	if r.Case == "tcp" || r.Case == "tls" {
		j.Bytes *= 4
	}
	j.ConfigDir, j.Local = p.server.configDir, p.server.ip
	s, err := bench.Start(ctx, bench.AnyCore, j, cfg.End...)
	if err != nil {
		return sample{}, err
	}
	defer s.Stop()
	var ready, got, sent report
	if err := s.Next(&ready); err != nil {
		return sample{}, fmt.Errorf("server: %w", err)
	}
	j.ConfigDir, j.Local, j.Dial = p.client.configDir, p.client.ip, ready.Ready
	before := p.routersCPU()
	if err := bench.Call(ctx, bench.AnyCore, j, &got, cfg.End...); err != nil {
		return sample{}, fmt.Errorf("client: %w", err)
	}
	if err := s.Next(&sent); err != nil {
		return sample{}, fmt.Errorf("server: %w", err)
	}
	return newSample(j.Bytes, got.Seconds, CPU{got.CPU, sent.CPU, p.routersCPU() - before}), nil
}

// newSample makes a sample of CPU seconds in all.
func newSample(bytes int64, seconds float64, cpu CPU) sample {
	gb := float64(bytes) / 1e9
	return sample{
		mbit: gb * 8e3 / seconds, cpu: CPU{cpu.Client / gb, cpu.Server / gb, cpu.Routers / gb},
	}
}

// routersCPU is the CPU time of all routers since they were started, in seconds.
func (p place) routersCPU() (sum float64) {
	if p.network == nil {
		return 0
	}
	for _, x := range p.network.Glance().Processes {
		if strings.HasPrefix(x.Name, "br-") {
			sum += x.CPU
		}
	}
	return sum
}

// summary takes the medians.
func summary(r Row, samples []sample) Row {
	r.Runs = len(samples)
	if r.Runs == 0 {
		return r
	}
	mbit, ends := func(s sample) float64 { return s.mbit }, func(s sample) float64 { return s.cpu.ends() }
	r.MbitS, r.Spread = bench.Median(samples, mbit), Spread{bench.Range(samples, mbit), bench.Range(samples, ends)}
	if gaps := slices.DeleteFunc(slices.Clone(samples), func(s sample) bool { return s.gap == nil }); len(gaps) > 0 {
		median := bench.Median(gaps, func(s sample) float64 { return *s.gap })
		r.Gap = &median
	}
	r.CPU = CPU{
		Client:  bench.Median(samples, func(s sample) float64 { return s.cpu.Client }),
		Server:  bench.Median(samples, func(s sample) float64 { return s.cpu.Server }),
		Routers: bench.Median(samples, func(s sample) float64 { return s.cpu.Routers }),
	}
	return r
}
