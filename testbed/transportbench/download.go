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

// A download case runs two whole clients, which also request, hash and use disks. The client's CPU
// time is that of its process from start to end, the server's is what it used meanwhile. Every byte
// that arrives is compared.
const (
	caseSCION = "braid-scion"
	caseTCP   = "braid-tcp"
	caseAria2 = "aria2-tcp"
)

func isDownload(name string) bool { return name == caseSCION || name == caseTCP || name == caseAria2 }

const (
	pieceLength = 1 << 20
	aria2       = "aria2c"
)

// download runs one client to its end and compares what it has written.
func download(ctx context.Context, cfg Config, r Row, at place) (sample, error) {
	p := cfg.payload
	out, err := os.MkdirTemp(p.Dir, "out-")
	if err != nil {
		return sample{}, err
	}
	defer os.RemoveAll(out)
	var seeder *bench.Process
	var fetch []string
	if r.Case == caseAria2 {
		seeder, fetch, err = withAria2(ctx, p, out)
	} else {
		seeder, fetch, err = withBraid(ctx, cfg, r, at, out)
	}
	if err != nil {
		return sample{}, fmt.Errorf("server: %w", err)
	}
	defer seeder.Stop()
	seeding, routing, start := seeder.Usage().CPU, at.routersCPU(), time.Now()
	leecher, err := bench.Start(ctx, bench.AnyCore, nil, fetch...)
	if err != nil {
		return sample{}, err
	}
	if err := leecher.Wait(); err != nil {
		return sample{}, fmt.Errorf("client: %w", err)
	}
	cpu := CPU{leecher.Usage().CPU, seeder.Usage().CPU - seeding, at.routersCPU() - routing}
	s := newSample(p.Bytes, time.Since(start).Seconds(), cpu)
	return s, testbed.SameFile(p.Data, filepath.Join(out, filepath.Base(p.Data)))
}

// withBraid starts a seeder. When it serves, withBraid returns it with the command of a leecher.
func withBraid(
	ctx context.Context, cfg Config, r Row, at place, out string,
) (*bench.Process, []string, error) {
	listen, seed := net.JoinHostPort(at.server.ip, "0"), []string{}
	fetch := []string{
		cfg.Braid, "download", cfg.payload.Torrent, "-o", out, "--path-selection", "all",
		"--max-paths", strconv.Itoa(r.Paths), "--json", "--no-trackers",
		"--identity", filepath.Join(cfg.payload.Dir, "leecher.pem"),
	}
	if r.Case == caseSCION {
		listen = fmt.Sprintf("%s,[%s]:0", at.server.ia, at.server.ip)
		seed = append(seed, "--config-dir", at.server.configDir)
		fetch = append(fetch, "--config-dir", at.client.configDir, "--local", at.client.ip)
		if at.network != nil {
			fetch = append(fetch, "--acl", pathsOf(r.MTU))
		}
	}
	congestion := string(cmp.Or(cfg.Congestion, scionnet.DefaultCongestion))
	seed = append(seed, "--listen", listen, "--congestion", congestion)
	s, addr, err := cfg.payload.Seed(ctx, cfg.Braid, seed...)
	return s, append(fetch, "--congestion", congestion, "--peer", addr), err
}

// pathsOf is the access control list that allows only links of that MTU.
func pathsOf(mtu int) string {
	if mtu == ordinaryMTU {
		return "- 1-ff00:0:110#3, - 1-ff00:0:110#4, +"
	}
	return "- 1-ff00:0:110#1, - 1-ff00:0:110#2, +"
}

// withAria2 does the same with aria2, which takes the address of a peer from a tracker only.
func withAria2(ctx context.Context, p bench.Payload, out string) (*bench.Process, []string, error) {
	command := func(dir string, at netip.AddrPort, args ...string) []string {
		return append([]string{
			aria2, "--no-conf", "--dir=" + dir, fmt.Sprint("--listen-port=", at.Port()),
			"--interface=127.0.0.1", "--enable-dht=false", "--enable-dht6=false",
			"--bt-enable-lpd=false", "--enable-peer-exchange=false", "--allow-overwrite=true",
			"--file-allocation=none", "--summary-interval=0", "--console-log-level=error",
		}, args...)
	}
	addr, err := bench.FreeAddr()
	if err != nil {
		return nil, nil, err
	}
	own, err := bench.FreeAddr()
	if err != nil {
		return nil, nil, err
	}
	serve := command(p.Dir, addr, "--bt-seed-unverified=true", "--seed-ratio=0.0", p.Torrent)
	s, err := bench.Start(ctx, bench.AnyCore, nil, serve...)
	if err != nil {
		return nil, nil, err
	}
	if err := s.Listens(ctx, addr); err != nil {
		return nil, nil, err
	}
	peer := string(binary.BigEndian.AppendUint16(addr.Addr().AsSlice(), addr.Port()))
	tracker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "d8:intervali60e5:peers6:"+peer+"e") // BEP 3, BEP 23
	}))
	context.AfterFunc(ctx, tracker.Close) // ctx ends with the download
	return s, command(out, own, "--seed-time=0", "--bt-tracker="+tracker.URL+"/announce", p.Torrent), nil
}
