package transportbench

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"braid/scionnet"
	"braid/testbed"
	"braid/testbed/bench"
)

// A download case runs whole clients, which also request, hash and use disks. The client's CPU time
// is that of its process from start to end, the server's is what all seeds used meanwhile. Every
// byte that arrives is compared.
const (
	caseSCION = "braid-scion"
	caseTCP   = "braid-tcp"
	caseAria2 = "aria2-tcp"
)

func isDownload(name string) bool { return name == caseSCION || name == caseTCP || name == caseAria2 }

const (
	pieceLength = 1 << 20
	aria2       = "aria2c"
	// sampling is the time between two reports of braid's progress. The gap of a row is exact to
	// about this time. With longer times, gaps of 100 ms would be hard to tell from ordinary ones.
	sampling = 10 * time.Millisecond
)

// download runs one leecher to its end and compares what it has written.
func download(ctx context.Context, cfg Config, r Row, at place) (s sample, err error) {
	p := cfg.payload
	out, err := os.MkdirTemp(p.Dir, "out-")
	if err != nil {
		return s, err
	}
	defer os.RemoveAll(out)
	serve, fetchFrom := braidSeed, braidFetch
	if r.Case == caseAria2 {
		serve, fetchFrom = aria2Seed, aria2Fetch
	}
	var seeds swarm
	defer func() { seeds.stop() }()
	var addrs []string
	for i := range r.Seeds {
		seed, addr, err := serve(ctx, cfg, r, at, i)
		if err != nil {
			return s, fmt.Errorf("server: %w", err)
		}
		seeds, addrs = append(seeds, seed), append(addrs, addr)
	}
	fetch, err := fetchFrom(ctx, cfg, r, at, leech{out, addrs})
	if err != nil {
		return s, fmt.Errorf("client: %w", err)
	}
	seeding, routing, start := seeds.cpu(), at.routersCPU(), time.Now()
	leecher, err := bench.Start(ctx, bench.AnyCore, nil, fetch...)
	if err != nil {
		return s, err
	}
	defer leecher.Stop()
	var silence *float64
	if r.Case != caseAria2 {
		if silence, err = longestSilence(leecher); err != nil {
			return s, fmt.Errorf("client: %w", err)
		}
	}
	if err := leecher.Wait(); err != nil {
		return s, fmt.Errorf("client: %w", err)
	}
	cpu := CPU{leecher.Usage().CPU, seeds.cpu() - seeding, at.routersCPU() - routing}
	s = newSample(p.Bytes, time.Since(start).Seconds(), cpu)
	s.gap = silence
	return s, testbed.SameFile(p.Data, filepath.Join(out, filepath.Base(p.Data)))
}

// leech says where a leecher writes, and at which addresses it finds the seeds.
type leech struct {
	out   string
	seeds []string
}

// swarm is the seeds of a download.
type swarm []*bench.Process

// cpu is the CPU time of all seeds since they were started, in seconds.
func (s swarm) cpu() (sum float64) {
	for _, p := range s {
		sum += p.Usage().CPU
	}
	return sum
}

func (s swarm) stop() {
	for _, p := range s {
		p.Stop()
	}
}

// progress is what braid reports of a download.
type progress struct {
	Event   string
	T       float64 // seconds since the download was added
	Fetched int64   `json:"fetched_bytes"` // payload so far
}

// longestSilence reads a leecher's reports until its download is complete.
func longestSilence(leecher *bench.Process) (*float64, error) {
	var course []progress
	for {
		var e progress
		if err := leecher.Next(&e); err != nil {
			return nil, err
		}
		switch e.Event {
		case "progress":
			course = append(course, e)
		case "done":
			longest := gap(course)
			return &longest, nil
		}
	}
}

// gap returns the longest time, in seconds, between two reports of more payload than before. The
// times before the first payload and after the last do not count.
func gap(course []progress) (longest float64) {
	var last progress
	for _, e := range course {
		if e.Fetched <= last.Fetched {
			continue
		}
		if last.Fetched > 0 {
			longest = max(longest, e.T-last.T)
		}
		last = e
	}
	return longest
}

// braidSeed starts one of the seeders of a download. When it serves, braidSeed returns its address.
func braidSeed(
	ctx context.Context, cfg Config, r Row, at place, number int,
) (*bench.Process, string, error) {
	flags := []string{
		"--congestion", cfg.congestion(),
		// Seeds of one identity would be one peer.
		"--identity", filepath.Join(cfg.payload.Dir, fmt.Sprintf("seeder-%d.pem", number+1)),
	}
	if r.Case == caseTCP {
		flags = append(flags, "--listen", net.JoinHostPort(at.server.ip, "0"))
	} else {
		flags = append(flags, "--listen", fmt.Sprintf("%s,[%s]:0", at.server.ia, at.server.ip),
			"--config-dir", at.server.configDir)
	}
	return cfg.payload.Seed(ctx, cfg.Braid, flags...)
}

// braidFetch returns the command of a leecher that uses exactly the paths of the case.
func braidFetch(_ context.Context, cfg Config, r Row, at place, l leech) ([]string, error) {
	selection := "all"
	if r.Paths == 1 {
		selection = "first"
	}
	fetch := []string{
		cfg.Braid, "download", cfg.payload.Torrent, "-o", l.out, "--path-selection", selection,
		"--max-paths", strconv.Itoa(r.Paths), "--json", "--sample", sampling.String(),
		"--no-trackers", "--congestion", cfg.congestion(),
		"--identity", filepath.Join(cfg.payload.Dir, "leecher.pem"),
	}
	if r.Case == caseSCION {
		fetch = append(fetch, "--config-dir", at.client.configDir, "--local", at.client.ip)
		if at.network != nil {
			fetch = append(fetch, "--acl", pathsOf(r.MTU))
		}
	}
	for _, addr := range l.seeds {
		fetch = append(fetch, "--peer", addr)
	}
	return fetch, nil
}

func (cfg Config) congestion() string {
	return string(cmp.Or(cfg.Congestion, scionnet.DefaultCongestion))
}

// pathsOf is the access control list that allows only links of that MTU.
func pathsOf(mtu int) string {
	if mtu == ordinaryMTU {
		return "- 1-ff00:0:110#3, - 1-ff00:0:110#4, +"
	}
	return "- 1-ff00:0:110#1, - 1-ff00:0:110#2, +"
}

// aria2Command returns the command of an aria2 that uses loopback only.
func aria2Command(dir string, at netip.AddrPort, args ...string) []string {
	return append([]string{
		aria2, "--no-conf", "--dir=" + dir, fmt.Sprint("--listen-port=", at.Port()),
		"--interface=127.0.0.1", "--enable-dht=false", "--enable-dht6=false",
		"--bt-enable-lpd=false", "--enable-peer-exchange=false", "--allow-overwrite=true",
		"--file-allocation=none", "--summary-interval=0", "--console-log-level=error",
	}, args...)
}

// aria2Seed does the same as braidSeed with aria2.
func aria2Seed(
	ctx context.Context, cfg Config, _ Row, _ place, _ int,
) (*bench.Process, string, error) {
	p := cfg.payload
	addr, err := bench.FreeAddr()
	if err != nil {
		return nil, "", err
	}
	serve := aria2Command(p.Dir, addr, "--bt-seed-unverified=true", "--seed-ratio=0.0", p.Torrent)
	s, err := bench.Start(ctx, bench.AnyCore, nil, serve...)
	if err != nil {
		return nil, "", err
	}
	return s, addr.String(), s.Listens(ctx, addr)
}

// aria2Fetch does the same as braidFetch with aria2, which takes the addresses of peers from a
// tracker only.
func aria2Fetch(ctx context.Context, cfg Config, _ Row, _ place, l leech) ([]string, error) {
	own, err := bench.FreeAddr()
	if err != nil {
		return nil, err
	}
	var peers []byte // 6 bytes each (BEP 23)
	for _, s := range l.seeds {
		addr, err := netip.ParseAddrPort(s)
		if err != nil {
			return nil, err
		}
		peers = append(peers, addr.Addr().AsSlice()...)
		peers = binary.BigEndian.AppendUint16(peers, addr.Port())
	}
	tracker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "d8:intervali60e5:peers%d:%se", len(peers), peers) // BEP 3
	}))
	context.AfterFunc(ctx, tracker.Close) // ctx ends with the download
	return aria2Command(l.out, own, "--seed-time=0", "--bt-tracker="+tracker.URL+"/announce",
		cfg.payload.Torrent), nil
}
