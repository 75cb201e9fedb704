package transportbench

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"braid/client"
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

// payload is what downloads move.
type payload struct {
	dir     string // of everything that they write
	torrent string
	data    string // the file
	bytes   int64
}

const (
	payloadName = "payload"
	pieceLength = 1 << 20
	aria2       = "aria2c"
)

// makePayload writes a file of random bytes and its torrent.
func makePayload(ctx context.Context, dir string, size int64) (payload, error) {
	p := payload{dir, filepath.Join(dir, "payload.torrent"), filepath.Join(dir, "seed", payloadName), size}
	if err := os.MkdirAll(filepath.Dir(p.data), 0o700); err != nil {
		return p, err
	}
	if err := testbed.RandomFile(p.data, [32]byte{1}, size); err != nil {
		return p, err
	}
	c, err := client.Create(ctx, p.data, client.CreateOptions{PieceLength: pieceLength})
	if err != nil {
		return p, err
	}
	return p, os.WriteFile(p.torrent, c.Torrent, 0o600)
}

// download runs one client to its end and compares what it has written.
func (p payload) download(ctx context.Context, cfg Config, r Row, at place) (sample, error) {
	out, err := os.MkdirTemp(p.dir, "out-")
	if err != nil {
		return sample{}, err
	}
	defer os.RemoveAll(out)
	var seeder *bench.Process
	var fetch []string
	if r.Case == caseAria2 {
		seeder, fetch, err = p.aria2(ctx, out)
	} else {
		seeder, fetch, err = p.braid(ctx, cfg, r, at, out)
	}
	if err != nil {
		return sample{}, fmt.Errorf("server: %w", err)
	}
	defer seeder.Stop()
	seeding, routing, start := seeder.Usage().CPU, at.routersCPU(ctx), time.Now()
	leecher, err := bench.Start(ctx, bench.AnyCore, nil, fetch...)
	if err != nil {
		return sample{}, err
	}
	if err := leecher.Wait(); err != nil {
		return sample{}, fmt.Errorf("client: %w", err)
	}
	cpu := CPU{leecher.Usage().CPU, seeder.Usage().CPU - seeding, at.routersCPU(ctx) - routing}
	return newSample(p.bytes, time.Since(start).Seconds(), cpu), testbed.SameFile(p.data, filepath.Join(out, payloadName))
}

// braid starts a seeder. When it serves, braid returns it with the command of a leecher.
func (p payload) braid(ctx context.Context, cfg Config, r Row, at place, out string) (*bench.Process, []string, error) {
	congestion := string(cmp.Or(cfg.Congestion, scionnet.DefaultCongestion))
	common := []string{"--json", "--no-trackers", "--congestion", congestion, "--identity"}
	listen := net.JoinHostPort(at.server.ip, "0")
	var from, to []string
	if r.Case == caseSCION {
		listen = fmt.Sprintf("%s,[%s]:0", at.server.ia, at.server.ip)
		from = []string{"--config-dir", at.server.configDir}
		to = []string{"--config-dir", at.client.configDir, "--local", at.client.ip}
		if at.network != nil {
			to = append(to, "--acl", pathsOf(r.MTU))
		}
	}
	s, err := bench.Start(ctx, bench.AnyCore, nil, slices.Concat([]string{cfg.Braid, "seed", p.torrent, "--data", filepath.Dir(p.data),
		"--listen", listen}, from, common, []string{filepath.Join(p.dir, "seeder.pem")})...)
	if err != nil {
		return nil, nil, err
	}
	addrs, err := s.Ready()
	if err != nil {
		return nil, nil, err
	}
	return s, slices.Concat([]string{cfg.Braid, "download", p.torrent, "-o", out, "--peer", addrs[0], "--path-selection", "all",
		"--max-paths", strconv.Itoa(r.Paths)}, to, common, []string{filepath.Join(p.dir, "leecher.pem")}), nil
}

// pathsOf is the access control list that allows only links of that MTU.
func pathsOf(mtu int) string {
	if mtu == ordinaryMTU {
		return "- 1-ff00:0:110#3, - 1-ff00:0:110#4, +"
	}
	return "- 1-ff00:0:110#1, - 1-ff00:0:110#2, +"
}

// aria2 does what braid does with aria2, which takes the address of a peer from a tracker only.
func (p payload) aria2(ctx context.Context, out string) (*bench.Process, []string, error) {
	command := func(dir, addr string, args ...string) []string {
		_, port, _ := net.SplitHostPort(addr)
		return append([]string{
			aria2, "--no-conf", "--dir=" + dir, "--listen-port=" + port, "--interface=127.0.0.1", "--enable-dht=false",
			"--enable-dht6=false", "--bt-enable-lpd=false", "--enable-peer-exchange=false", "--allow-overwrite=true",
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
	serve := command(filepath.Dir(p.data), addr, "--bt-seed-unverified=true", "--seed-ratio=0.0", p.torrent)
	s, err := bench.Start(ctx, bench.AnyCore, nil, serve...)
	if err != nil {
		return nil, nil, err
	}
	s.Discard()
	if err := s.Listens(ctx, addr); err != nil {
		return nil, nil, err
	}
	tcp, err := net.ResolveTCPAddr("tcp4", addr)
	if err != nil {
		return nil, nil, err
	}
	peer := string(append(tcp.IP.To4(), byte(tcp.Port>>8), byte(tcp.Port)))
	tracker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "d8:intervali60e5:peers6:"+peer+"e") // BEP 3, BEP 23
	}))
	context.AfterFunc(ctx, tracker.Close) // ctx ends with the download
	return s, command(out, own, "--seed-time=0", "--bt-tracker="+tracker.URL+"/announce", p.torrent), nil
}
