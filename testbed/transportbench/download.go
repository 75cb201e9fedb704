package transportbench

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"braid/client"
	"braid/scionnet"
	"braid/testbed"
)

// A download case is the whole of two clients: requests, hashes and disks beside moving data. The client's CPU time is that
// of its process from start to end, the server's what it used while the client ran. Every byte of what arrives is
// compared.
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
	p := payload{dir: dir, torrent: filepath.Join(dir, "payload.torrent"), data: filepath.Join(dir, "seed", payloadName), bytes: size}
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
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := os.MkdirTemp(p.dir, "out-")
	if err != nil {
		return sample{}, err
	}
	defer os.RemoveAll(out)
	launcher := testbed.NewLauncher(false)
	defer launcher.Close()
	var s *seeder
	var fetch []string
	if r.Case == caseAria2 {
		s, fetch, err = p.aria2(launcher, out)
	} else {
		s, fetch, err = p.braid(ctx, launcher, cfg, r, at, out)
	}
	if err != nil {
		return sample{}, err
	}
	defer s.stop()
	// #nosec G204 -- the program is ours or aria2
	leecher := exec.Command(fetch[0], fetch[1:]...)
	var said strings.Builder
	leecher.Stdout, leecher.Stderr = &said, &said
	leecher.WaitDelay = time.Second
	seeding, routing, start := testbed.UsageOf(s.cmd.Process.Pid).CPU, routersCPU(ctx, at), time.Now()
	if err := launcher.Start(leecher); err != nil {
		return sample{}, fmt.Errorf("start the client: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = leecher.Process.Kill() })
	err = leecher.Wait()
	took := time.Since(start)
	stop()
	if err != nil {
		return sample{}, fmt.Errorf("download: %w, %w: %s", err, context.Cause(ctx), lastWords(said.String()))
	}
	gb := float64(p.bytes) / 1e9
	got := sample{
		mbit: float64(p.bytes) * 8 / 1e6 / took.Seconds(),
		cpu: CPU{
			Client:  (leecher.ProcessState.UserTime() + leecher.ProcessState.SystemTime()).Seconds() / gb,
			Server:  (testbed.UsageOf(s.cmd.Process.Pid).CPU - seeding) / gb,
			Routers: (routersCPU(ctx, at) - routing) / gb,
		},
	}
	return got, testbed.SameFile(p.data, filepath.Join(out, payloadName))
}

// seeder is a process that serves the payload.
type seeder struct {
	cmd     *exec.Cmd
	tracker *httptest.Server // may be nil
	out     io.ReadCloser
	said    strings.Builder // on standard error
}

func (s *seeder) stop() {
	_ = s.cmd.Process.Kill()
	_, _ = io.Copy(io.Discard, s.out)
	_ = s.cmd.Wait() // it was killed
	if s.tracker != nil {
		s.tracker.Close()
	}
}

func startSeeder(l *testbed.Launcher, command []string) (*seeder, error) {
	s := &seeder{cmd: exec.Command(command[0], command[1:]...)} // #nosec G204 -- the program is ours or aria2
	s.cmd.Stderr = &s.said
	var err error
	if s.out, err = s.cmd.StdoutPipe(); err == nil {
		err = l.Start(s.cmd)
	}
	if err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	return s, nil
}

// braid starts a seeder and returns it, when it serves, with the command of a leecher.
func (p payload) braid(ctx context.Context, l *testbed.Launcher, cfg Config, r Row, at place, out string) (*seeder, []string, error) {
	common := []string{"--json", "--no-trackers", "--congestion", string(cmp.Or(cfg.Congestion, scionnet.DefaultCongestion)), "--identity"}
	listen := net.JoinHostPort(at.serverIP, "0")
	from, to := []string{}, []string{}
	if r.Case == caseSCION {
		ia, err := localAS(at.serverDir)
		if err != nil {
			return nil, nil, err
		}
		listen = fmt.Sprintf("%s,[%s]:0", ia, at.serverIP)
		from, to = []string{"--config-dir", at.serverDir}, []string{"--config-dir", at.clientDir, "--local", at.clientIP}
		if at.network != nil {
			to = append(to, "--acl", pathsOf(r.MTU))
		}
	}
	seed := slices.Concat([]string{cfg.Braid, "seed", p.torrent, "--data", filepath.Dir(p.data), "--listen", listen}, from,
		common, []string{filepath.Join(p.dir, "seeder.pem")})
	s, err := startSeeder(l, seed)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.cmd.Process.Kill() })
	defer stop()
	var ready struct {
		Event  string   `json:"event"`
		Listen []string `json:"listen"`
	}
	lines := bufio.NewScanner(s.out)
	for lines.Scan() && ready.Event != "ready" {
		if err := json.Unmarshal(lines.Bytes(), &ready); err != nil {
			break
		}
	}
	if ready.Event != "ready" || len(ready.Listen) == 0 {
		s.stop()
		err := errors.Join(errors.New("the server has not come up: "+lastWords(s.said.String())), lines.Err(), context.Cause(ctx))
		return nil, nil, err
	}
	go func() { _, _ = io.Copy(io.Discard, s.out) }()
	return s, slices.Concat([]string{cfg.Braid, "download", p.torrent, "-o", out, "--peer", ready.Listen[0], "--path-selection", "all",
		"--max-paths", strconv.Itoa(r.Paths)}, to, common, []string{filepath.Join(p.dir, "leecher.pem")}), nil
}

// pathsOf is the list of what links of the network a path may use: those of that MTU.
func pathsOf(mtu int) string {
	if mtu == ordinaryMTU {
		return "- 1-ff00:0:110#3, - 1-ff00:0:110#4, +"
	}
	return "- 1-ff00:0:110#1, - 1-ff00:0:110#2, +"
}

// localAS reads from the configuration in which AS a host is.
func localAS(dir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, "topology.json"))
	if err != nil {
		return "", err
	}
	var t struct {
		IA string `json:"isd_as"`
	}
	return t.IA, json.Unmarshal(b, &t)
}

// aria2 does the same with aria2, which takes a peer's address from a tracker only.
func (p payload) aria2(l *testbed.Launcher, out string) (*seeder, []string, error) {
	port, err := freePort()
	if err != nil {
		return nil, nil, err
	}
	common := func(dir string, port int) []string {
		return []string{
			aria2, "--no-conf", "--dir=" + dir, "--listen-port=" + strconv.Itoa(port), "--interface=127.0.0.1", "--enable-dht=false",
			"--enable-dht6=false", "--bt-enable-lpd=false", "--enable-peer-exchange=false", "--allow-overwrite=true",
			"--file-allocation=none", "--summary-interval=0", "--console-log-level=error",
		}
	}
	s, err := startSeeder(l, append(common(filepath.Dir(p.data), port), "--bt-seed-unverified=true", "--seed-ratio=0.0", p.torrent))
	if err != nil {
		return nil, nil, err
	}
	go func() { _, _ = io.Copy(io.Discard, s.out) }()
	if err := answers(port); err != nil {
		s.stop()
		return nil, nil, err
	}
	peer := string([]byte{127, 0, 0, 1, byte(port >> 8), byte(port)})
	s.tracker = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "d8:intervali60e5:peers6:"+peer+"e") // BEP 3, BEP 23
	}))
	own, err := freePort()
	if err != nil {
		s.stop()
		return nil, nil, err
	}
	return s, append(common(out, own), "--seed-time=0", "--bt-tracker="+s.tracker.URL+"/announce", p.torrent), nil
}

// answers waits until somebody listens.
func answers(port int) error {
	var err error
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		var c net.Conn
		if c, err = net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return c.Close()
		}
	}
	return fmt.Errorf("the server does not listen: %w", err)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

func lastWords(s string) string {
	const most = 1000
	return strings.TrimSpace(s[max(0, len(s)-most):])
}
