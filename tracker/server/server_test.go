package server_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"braid/tracker/server"
	"braid/tracker/swarm"
	"braid/tracker/wire"
	"braid/units"
	"braid/units/await"
)

// running is a tracker on real sockets of loopback.
type running struct {
	*server.Server
	store *swarm.Memory
	http  string // URL without path
	stats string // the same, for operators
	udp   string
	stop  func() error
}

func start(t *testing.T, change func(*server.Config), conns int) *running {
	t.Helper()
	cfg := server.Default()
	if change != nil {
		change(&cfg)
	}
	r := &running{store: swarm.NewMemory(cfg.Limits())}
	var err error
	if r.Server, err = server.New(cfg, r.store, slog.New(slog.NewTextHandler(t.Output(), nil))); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	o, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.http, r.stats, r.udp = "http://"+l.Addr().String(), "http://"+o.Addr().String(), u.LocalAddr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 3)
	go func() { ended <- r.ServeHTTP1(ctx, l, conns) }()
	go func() { ended <- r.ServeStats(ctx, o) }()
	go func() { ended <- r.ServeUDP(ctx, u) }()
	stopped := false
	r.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return errors.Join(<-ended, <-ended, <-ended)
	}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func get(t *testing.T, url string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func announceOf(n byte) wire.Announce {
	return wire.Announce{InfoHash: wire.InfoHash{1}, PeerID: wire.PeerID{n}, Port: 1000 + uint16(n), Left: 1, NumWant: wire.NoCount, Key: fmt.Sprintf("%08X", n), Compact: true}
}

func (r *running) announce(t *testing.T, a wire.Announce) (wire.Answer, error) {
	t.Helper()
	_, body := get(t, r.http+"/announce?"+a.Query())
	return wire.ParseAnswer([]byte(body))
}

// exchange sends one packet and waits for the answer.
func exchange(t *testing.T, c net.Conn, r wire.UDPRequest) wire.UDPAnswer {
	t.Helper()
	r.Transaction = 77
	out := r.Append(nil)
	if _, err := c.Write(out); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(await.Deadline(t)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 2000)
	n, err := c.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	if n > len(out) && r.Connection == 0 {
		t.Errorf("%d bytes for %d of a stranger", n, len(out))
	}
	got, err := wire.ParseUDPAnswer(b[:n], false)
	if err != nil || got.Transaction != 77 {
		t.Fatalf("%+v, %v", got, err)
	}
	return got
}

func dial(t *testing.T, network, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestHTTPAndUDP(t *testing.T) {
	r := start(t, nil, 100)
	a, err := r.announce(t, announceOf(1))
	if err != nil || len(a.Peers) != 0 || a.Incomplete != 1 || a.External.String() != "127.0.0.1" || a.MinInterval != 15*time.Second ||
		a.Interval < 18*time.Minute || a.Interval > 22*time.Minute {
		t.Fatalf("%+v, %v", a, err)
	}
	// Who knows the tracker's ID is not told again; who knows another is.
	for say, want := range map[string]string{a.TrackerID: "", "another": a.TrackerID} {
		x := announceOf(1)
		x.TrackerID = say
		if again, err := r.announce(t, x); err != nil || a.TrackerID == "" || again.TrackerID != want {
			t.Errorf("tracker ID %q is answered by %q, want %q; %v", say, again.TrackerID, want, err)
		}
	}
	c := dial(t, "udp", r.udp)
	// A connection ID is needed; without one nothing is stored, and nothing long is said.
	if got := exchange(t, c, wire.UDPRequest{Action: wire.AnnounceUDP, Announce: announceOf(9)}); got.Failure == nil {
		t.Errorf("an announce without a connection: %+v", got)
	}
	id := exchange(t, c, wire.UDPRequest{Action: wire.Connect}).Connection
	got := exchange(t, c, wire.UDPRequest{Action: wire.AnnounceUDP, Connection: id, Announce: announceOf(2)})
	if len(got.Answer.Peers) != 1 || got.Answer.Peers[0].Addr.String() != "127.0.0.1:1001" || got.Answer.Incomplete != 2 {
		t.Errorf("%+v", got)
	}
	scrape := exchange(t, c, wire.UDPRequest{Action: wire.ScrapeUDP, Connection: id, Hashes: []wire.InfoHash{{7}, {1}}})
	if len(scrape.Counts) != 2 || scrape.Counts[0].Incomplete != 0 || scrape.Counts[1].Incomplete != 2 {
		t.Errorf("%+v", scrape)
	}
	if a, err = r.announce(t, announceOf(1)); err != nil || len(a.Peers) != 1 || a.Peers[0].Addr.Port != 1002 {
		t.Errorf("%+v, %v", a, err)
	}
	_, body := get(t, r.http+"/scrape?info_hash=%01"+strings.Repeat("%00", 19))
	if strings.Count(body, "incomplete") != 1 || !strings.Contains(body, "10:incompletei2e") {
		t.Errorf("scrape: %q", body)
	}
	for _, tt := range []struct{ query, reason string }{
		{"", "info_hash is missing"},
		{"info_hash=x", "info_hash"},
	} {
		code, body := get(t, r.http+"/announce?"+tt.query)
		if _, err := wire.ParseAnswer([]byte(body)); code != http.StatusOK || err == nil || !strings.Contains(err.Error(), tt.reason) {
			t.Errorf("%q: %d, %q", tt.query, code, body)
		}
	}
	for path, want := range map[string]int{
		"/": 404, "/nothing": 404, "/key/stats": 404, "/healthz": 200, "/stats": 404, "/metrics": 404,
	} { // all of it is for everybody, also where a proxy on this host passes it on
		if code, _ := get(t, r.http+path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
	var stats server.Stats
	if _, body := get(t, r.stats+"/stats"); json.Unmarshal([]byte(body), &stats) != nil || stats.Announces["http"] != 4 || stats.Announces["udp"] != 1 || stats.Totals.IPv4 != 2 || stats.Refusals["http"] != 2 {
		t.Errorf("%s", body)
	}
	if _, body := get(t, r.stats+"/stats", "Accept", "text/html"); !strings.Contains(body, "<td>4</td><td>1</td><td>0</td>") {
		t.Errorf("%s", body)
	}
	if _, body := get(t, r.stats+"/metrics"); !strings.Contains(body, `braid_tracker_peers{network="ipv4"} 2`) {
		t.Errorf("%s", body)
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", strings.TrimPrefix(r.http, "http://")); err == nil {
		t.Error("it listens on after its end")
	}
}

// Packets that come at once, of hosts of both IP versions to one socket, are answered each, with
// what belongs to it.
func TestManyPackets(t *testing.T) {
	cfg := server.Default()
	cfg.PerHostRate = 0
	s, err := server.New(cfg, swarm.NewMemory(cfg.Limits()), slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	u, err := net.ListenUDP("udp", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.ServeUDP(ctx, u) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	_, port, _ := net.SplitHostPort(u.LocalAddr().String())
	const swarms, each = 300, 3 // more than are fetched at once
	for k, host := range []string{"127.0.0.1", "127.0.0.1", "::1"} {
		c := dial(t, "udp", net.JoinHostPort(host, port))
		id := exchange(t, c, wire.UDPRequest{Action: wire.Connect}).Connection
		// Answers of different lengths: a swarm has up to three peers, and some announces are
		// refused.
		asked := map[uint32]wire.UDPRequest{}
		for n := range swarms {
			for p := range n % (each + 1) {
				r := wire.UDPRequest{Action: wire.AnnounceUDP, Connection: id, Transaction: uint32(n*each + p), Announce: announceOf(byte(p))}
				r.Announce.InfoHash = wire.InfoHash{byte(k), byte(n), byte(n >> 8)}
				if n%7 == 0 {
					r.Connection++
				}
				asked[r.Transaction] = r
			}
		}
		v6 := host == "::1"
		b := make([]byte, 2000)
		for end := await.Deadline(t); len(asked) > 0 && time.Now().Before(end); {
			for _, r := range asked {
				if _, err := c.Write(r.Append(nil)); err != nil {
					t.Fatal(err)
				}
			}
			for len(asked) > 0 { // what is lost is asked for again
				if err := c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
					t.Fatal(err)
				}
				n, err := c.Read(b)
				if err != nil {
					break
				}
				a, err := wire.ParseUDPAnswer(b[:n], v6)
				if err != nil {
					t.Fatal(err)
				}
				r, ok := asked[a.Transaction]
				if !ok {
					continue // the answer to one that was asked for twice
				}
				delete(asked, a.Transaction)
				switch {
				case r.Connection != id:
					if a.Failure == nil {
						t.Errorf("%s: an announce without a connection: %+v", host, a)
					}
				case a.Failure != nil:
					t.Errorf("%s: %v", host, a.Failure)
				case len(a.Answer.Peers) >= each || int(a.Answer.Incomplete) != len(a.Answer.Peers)+1:
					t.Errorf("%s: %+v", host, a)
				default:
					for _, p := range a.Answer.Peers {
						if (p.Addr.Host.Is6()) != v6 || p.Addr.Port < 1000 || p.Addr.Port >= 1000+each || p.Addr.Port == r.Announce.Port {
							t.Errorf("%s: %v is a peer of %v", host, p.Addr, r.Announce.Port)
						}
					}
				}
			}
		}
		if len(asked) > 0 {
			t.Errorf("%s: %d announces without an answer", host, len(asked))
		}
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestGate(t *testing.T) {
	hash := func(b byte) string { h := wire.InfoHash{b}; return hex.EncodeToString(h[:]) }
	allow, deny := write(t, "# ours\n"+hash(1)+" a name\n"+hash(2)+"\n"), write(t, hash(2)+"\n")
	var cfg server.Config
	r := start(t, func(c *server.Config) {
		c.Allow, c.Deny, c.Keys = allow, deny, write(t, "secret-key\tof somebody\n")
		cfg = *c
	}, 100)
	with := func(f func(*wire.Announce)) wire.Announce { a := announceOf(1); f(&a); return a }
	for _, tt := range []struct {
		name, path string
		a          wire.Announce
		ok         bool
	}{
		{"no key", "/announce", announceOf(1), false},
		{"wrong key", "/wrong-key/announce", announceOf(1), false},
		{"key in the path", "/secret-key/announce", announceOf(1), true},
		{"key in the query", "/announce", with(func(a *wire.Announce) { a.Passkey = "secret-key" }), true},
		{"denied", "/secret-key/announce", with(func(a *wire.Announce) { a.InfoHash[0] = 2 }), false},
		{"not allowed", "/secret-key/announce", with(func(a *wire.Announce) { a.InfoHash[0] = 3 }), false},
	} {
		_, body := get(t, r.http+tt.path+"?"+tt.a.Query())
		_, err := wire.ParseAnswer([]byte(body))
		var f *wire.Failure
		if (err == nil) != tt.ok || err != nil && (!errors.As(err, &f) || f.RetryIn != wire.Never) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	c := dial(t, "udp", r.udp)
	id := exchange(t, c, wire.UDPRequest{Action: wire.Connect}).Connection
	for data, ok := range map[string]bool{"": false, "/secret-key/announce": true, "/announce?passkey=secret-key": true, "/other-key/": false} {
		got := exchange(t, c, wire.UDPRequest{Action: wire.AnnounceUDP, Connection: id, Announce: announceOf(1), URLData: data})
		if (got.Failure == nil) != ok {
			t.Errorf("URL data %q: %+v", data, got)
		}
	}
	if code, _ := get(t, r.stats+"/secret-key/announce"); code != http.StatusNotFound {
		t.Errorf("an announce to operators: %d", code)
	}
	// Reload: a new list takes hold, a wrong one changes nothing.
	if err := os.WriteFile(deny, []byte(hash(1)), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.Keys = ""
	if err := r.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := r.announce(t, announceOf(1)); err == nil {
		t.Error("the list was not reloaded")
	}
	if _, err := r.announce(t, with(func(a *wire.Announce) { a.InfoHash[0] = 2 })); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(allow, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Reload(cfg); err == nil || !strings.Contains(err.Error(), ":1:") {
		t.Errorf("a wrong list: %v", err)
	}
	cfg.Allow, cfg.Keys = "", write(t, "\nsecret=key\n")
	if err := r.Reload(cfg); err == nil || !strings.Contains(err.Error(), ":2: want a key") {
		t.Errorf("a wrong key: %v", err)
	}
	if _, err := r.announce(t, with(func(a *wire.Announce) { a.InfoHash[0] = 2 })); err != nil {
		t.Error("a wrong list has changed something: ", err)
	}
}

// A reload applies the interval, but not the lifetime of peers. So it refuses an interval after which
// the peers would be forgotten, even if the configuration has a longer lifetime.
func TestReloadOfInterval(t *testing.T) {
	var cfg server.Config
	r := start(t, func(c *server.Config) { cfg = *c }, 10)
	cfg.Interval, cfg.Lifetime = units.Duration(2*swarm.DefaultLifetime), units.Duration(4*swarm.DefaultLifetime)
	if err := r.Reload(cfg); err == nil || !strings.Contains(err.Error(), "restart") {
		t.Errorf("the interval is longer than the lifetime: %v", err)
	}
	cfg.Interval = units.Duration(swarm.DefaultLifetime / 2)
	if err := r.Reload(cfg); err != nil {
		t.Error(err)
	}
}

func TestRateLimit(t *testing.T) {
	r := start(t, func(c *server.Config) { c.PerHostRate = 0.1 }, 100)
	// Also of those who guess keys, or info hashes.
	private := start(t, func(c *server.Config) { c.PerHostRate, c.Keys = 0.1, write(t, "secret-key\n") }, 100)
	for _, path := range []string{"/announce", "/scrape"} {
		limited := false
		for range 10 {
			a := announceOf(1)
			_, body := get(t, private.http+"/guessed-key"+path+"?"+a.Query())
			limited = limited || strings.Contains(body, "too many requests")
		}
		if !limited {
			t.Errorf("%s: keys can be guessed at any rate", path)
		}
	}
	// An AS as a whole has a limit too.
	s := newOnSCION(t, func(c *server.Config) { c.PerASRate = 0.1 })
	limited := 0
	for n := range 10 {
		if _, err := s.ask(1, n, nil); err != nil {
			limited++
		}
	}
	if _, err := s.ask(2, 1, nil); err != nil || limited < 5 {
		t.Errorf("%d of 10 hosts of an AS refused, and one of another: %v", limited, err)
	}
	var failures int
	for range 10 {
		if _, err := r.announce(t, announceOf(1)); err != nil {
			var f *wire.Failure
			if !errors.As(err, &f) || f.RetryIn <= 0 {
				t.Fatal(err)
			}
			failures++
		}
	}
	if failures < 5 || failures == 10 {
		t.Errorf("%d of 10 refused", failures)
	}
}

// Those who hold connections without sending anything make room for those who do.
func TestCrowd(t *testing.T) {
	const most = 20
	r := start(t, nil, most)
	addr := strings.TrimPrefix(r.http, "http://")
	for range 3 * most {
		dial(t, "tcp", addr)
	}
	for n := range 5 {
		if _, err := r.announce(t, announceOf(byte(n))); err != nil {
			t.Fatal(err)
		}
	}
}

// A client that sends half a request is cut off.
func TestHalfRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := server.Default()
		s, err := server.New(cfg, swarm.NewMemory(cfg.Limits()), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		l := listenSingle()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.ServeHTTP1(ctx, l, 10) }()
		fmt.Fprint(l.client, "GET /announce?info_hash=")
		if _, err := io.ReadAll(l.client); err != nil {
			t.Error(err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Who holds all connections, each with a request now and then, gives way to others.
func TestCrowdOfOneHost(t *testing.T) {
	const most = 20
	r := start(t, nil, most)
	addr := strings.TrimPrefix(r.http, "http://")
	for n := range most {
		c := dial(t, "tcp", addr)
		a := announceOf(byte(n))
		fmt.Fprintf(c, "GET /announce?%s HTTP/1.1\r\nHost: x\r\n\r\n", a.Query())
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	for n := range most / 4 {
		c, err := d.DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("connection %d of another host: %v", n, err)
		}
		res.Body.Close()
	}
}

func TestConfig(t *testing.T) {
	d := server.Default()
	d.Listen, d.Data = []string{"http://127.0.0.1:1"}, "x"
	var again server.Config
	if err := again.Read(strings.NewReader(d.String())); err != nil || again.String() != d.String() {
		t.Errorf("%v: %s", err, again)
	}
	d.Store = "redis://me:1/secret@host" // the slash should be %2F
	if text := d.String(); strings.Contains(text, "secret") {
		t.Errorf("a part of the password is shown: %s", text)
	}
	before := ""
	for line := range strings.Lines(d.String()) {
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(before, "#") {
			t.Errorf("no comment explains %q", line)
		}
		before = line
	}
	for _, text := range []string{"nonsense = 1", "interval = 'x'", "listen = 1", "interval = '30m'\n=", "[x]"} {
		c := server.Default()
		if err := c.Read(strings.NewReader(text)); err == nil {
			t.Errorf("%q is read", text)
		}
	}
	// No setting is left out because it stands far behind.
	long := server.Default()
	text := strings.Repeat("# a comment\n", 100_000) + "private = true\nnonsense = 1\n"
	if err := long.Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), "larger than 1048576 bytes") {
		t.Errorf("%d bytes: %v", len(text), err)
	}
	for _, change := range []func(*server.Config){
		func(c *server.Config) { c.Interval = 0 },
		func(c *server.Config) { c.MinInterval = c.Interval + 1 },
		func(c *server.Config) { c.Lifetime = c.Interval },
		func(c *server.Config) { c.MaxNumWant = 1 << 20 },
		func(c *server.Config) { c.MaxPerNet = -1 },
		func(c *server.Config) { c.Allow = "/nowhere" },
		func(c *server.Config) { c.Store = "nonsense" },
	} {
		c := server.Default()
		change(&c)
		if _, err := server.New(c, swarm.NewMemory(c.Limits()), slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

// Whatever is sent over HTTP, the answer is a bencoded one.
func FuzzRequests(f *testing.F) {
	f.Add("info_hash=aaaaaaaaaaaaaaaaaaaa&peer_id=aaaaaaaaaaaaaaaaaaaa&port=1", []byte{0, 0, 4, 23, 39, 16, 25, 128, 0, 0, 0, 0, 0, 0, 0, 1})
	c := server.Default()
	c.PerHostRate = 0
	s, err := server.New(c, swarm.NewMemory(c.Limits()), slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, query string, packet []byte) {
		body := server.Ask(s, query)
		if _, err := wire.ParseAnswer(body); err != nil {
			if g := (*wire.Failure)(nil); !errors.As(err, &g) {
				t.Fatalf("%q is answered with %q", query, body)
			}
		}
		if out := server.AskUDP(s, packet); len(out) > max(16, len(packet)) {
			t.Fatalf("%d bytes for %d of a stranger", len(out), len(packet))
		}
	})
}

// A private tracker serves over UDP those whose URL has a key of its list, wherever it stands, and
// nobody else.
func FuzzPasskeysUDP(f *testing.F) {
	list := filepath.Join(f.TempDir(), "keys")
	if err := os.WriteFile(list, []byte("secret-key\n"), 0o600); err != nil {
		f.Fatal(err)
	}
	c := server.Default()
	c.PerHostRate, c.Keys = 0, list
	s, err := server.New(c, swarm.NewMemory(c.Limits()), slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	for _, url := range []string{"", "/secret-key/announce", "/announce?a=b&passkey=secret-key", "secret-key/", "/secret-key", "?passkey=secret-key&", "/a/secret-key/announce", "/other/?passkey=secret-key"} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, data string) {
		if len(data) > 1000 { // more fits no packet
			return
		}
		got, err := wire.ParseUDPAnswer(server.Connected(s, wire.UDPRequest{Announce: announceOf(1), URLData: data}), false)
		if err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		if served := got.Failure == nil; served != (server.PasskeyOf(data) == "secret-key") || served && !strings.Contains(data, "secret-key") {
			t.Fatalf("%q has the key %q, and is answered %+v", data, server.PasskeyOf(data), got)
		}
	})
}
