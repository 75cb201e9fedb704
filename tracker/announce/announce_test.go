package announce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"braid/scionnet"
	"braid/tracker"
	"braid/tracker/server"
	"braid/tracker/swarm"
	"braid/tracker/wire"
	"braid/units"
	"braid/units/await"
)

// oneAS is a host in an AS of its own, which needs no process.
func oneAS(t *testing.T) *scionnet.Host {
	t.Helper()
	dir := t.TempDir()
	topo := `{"isd_as":"1-ff00:0:110","mtu":1400,"dispatched_ports":"1024-65535","attributes":["core"],
		"control_service":{"cs1":{"addr":"127.0.0.1:30252"}},"discovery_service":{"cs1":{"addr":"127.0.0.1:30252"}}}`
	if err := os.WriteFile(filepath.Join(dir, "topology.json"), []byte(topo), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "hosts"), []byte("1-ff00:0:110,[127.0.0.1] tracker.test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "certs"), 0o700); err != nil {
		t.Fatal(err)
	}
	h, err := scionnet.Open(t.Context(), scionnet.Config{ConfigDir: dir, LocalIP: netip.MustParseAddr("127.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func openHTTP(t *testing.T, h *scionnet.Host) *scionnet.HTTP {
	t.Helper()
	p, err := h.OpenHTTP(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// tracking is a real tracker on all transports.
type tracking struct {
	server           *server.Server
	store            *swarm.Memory
	http, udp, scion string
}

func track(t *testing.T, h *scionnet.Host) tracking {
	t.Helper()
	cfg := server.Default()
	cfg.MinInterval = units.Duration(time.Second)
	out := tracking{store: swarm.NewMemory(cfg.Limits())}
	s, err := server.New(cfg, out.store, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	out.server = s
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	p := openHTTP(t, h)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 3)
	go func() { ended <- s.ServeHTTP1(ctx, l, 100) }()
	go func() { ended <- s.ServeUDP(ctx, u) }()
	go func() { ended <- s.ServeSCION(ctx, p) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, <-ended, <-ended); err != nil {
			t.Error(err)
		}
	})
	out.http, out.udp, out.scion = "http://"+l.Addr().String()+"/announce", "udp://"+u.LocalAddr().String(), "scion://"+p.Addr().String()+"/announce"
	return out
}

// peer is an announcer and what it was told.
type peer struct {
	*Announcer
	found chan []wire.Addr
}

func join(t *testing.T, n byte, change func(*Config), urls ...string) peer {
	t.Helper()
	p := peer{found: make(chan []wire.Addr, 100)}
	cfg := Config{
		InfoHash: wire.InfoHash{1}, PeerID: wire.PeerID{n}, Listen: []netip.AddrPort{netip.AddrPortFrom(netip.IPv6Unspecified(), 1000+uint16(n))}, SCIONPort: 2000 + uint16(n),
		Progress: func() Progress { return Progress{Left: 5} },
		Found:    func(a []wire.Addr) { p.found <- a },
		Logger:   slog.New(slog.NewTextHandler(t.Output(), nil)).With("peer", n),
		goodbye:  time.Until(await.Deadline(t)),
	}
	for _, u := range urls {
		parsed, err := tracker.ParseURL(u)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Tiers = append(cfg.Tiers, []tracker.URL{parsed.OfUser()})
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if p.Announcer, err = Start(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// finds waits until the peer has been told of the address.
func (p peer) finds(t *testing.T, addr string) {
	t.Helper()
	for {
		got := await.Value(t, addr, p.found)
		if slices.ContainsFunc(got, func(a wire.Addr) bool { return a.String() == addr }) {
			return
		}
		t.Logf("told of %v", got)
	}
}

// counts waits until the swarm is so.
func (tr tracking) counts(t *testing.T, complete, incomplete, downloaded int64) {
	t.Helper()
	await.Success(t, "the swarm", func() error {
		all, err := tr.store.Scrape(t.Context(), []wire.InfoHash{{1}})
		if c := all[0]; err == nil && (c.Complete != complete || c.Incomplete != incomplete || c.Downloaded != downloaded) {
			err = fmt.Errorf("it is %+v; want %d complete, %d incomplete, %d downloaded", c, complete, incomplete, downloaded)
		}
		return err
	})
}

// One after the other comes over each transport, and finds those that came before it where it can
// reach them.
func TestTransports(t *testing.T) {
	h := oneAS(t)
	tr := track(t, h)
	onSCION := func(c *Config) { c.SCION = openHTTP(t, h) }
	one := join(t, 1, nil, tr.http)
	tr.counts(t, 0, 1, 0)
	two := join(t, 2, nil, tr.udp)
	two.finds(t, "127.0.0.1:1001")
	three := join(t, 3, onSCION, tr.scion)
	three.finds(t, "127.0.0.1:1001")
	tr.counts(t, 0, 3, 0)
	// Each host of a SCION network announces from its own: the tracker cannot be told otherwise.
	four := join(t, 4, onSCION, tr.scion)
	four.finds(t, "1-ff00:0:110,[127.0.0.1]:2003")
	// One on IP that understands SCION is told of it; both networks under one key are one peer.
	five := join(t, 5, onSCION, tr.http, tr.scion, tr.udp)
	five.finds(t, "1-ff00:0:110,[127.0.0.1]:2003")
	tr.counts(t, 0, 5, 0)
	await.True(t, "the fifth peer on SCION", func() bool {
		n, _ := tr.store.Totals(t.Context())
		return n.SCION == 3
	})
	// The tracker by its name.
	named := strings.Replace(tr.scion, "1-ff00:0:110,[127.0.0.1]", "tracker.test", 1)
	six := join(t, 6, onSCION, named)
	six.finds(t, "1-ff00:0:110,[127.0.0.1]:2005")
	six.Close()
	// Complete, and gone.
	one.Completed()
	tr.counts(t, 0, 5, 0)
	for _, p := range []peer{one, two, three, four, five} {
		p.Close()
	}
	tr.counts(t, 0, 0, 0)
}

func TestCompleted(t *testing.T) {
	tr := track(t, oneAS(t))
	left := make(chan int64, 1)
	left <- 7
	p := join(t, 1, func(c *Config) {
		c.Progress = func() Progress { n := <-left; left <- n; return Progress{Left: n} }
	}, tr.http)
	tr.counts(t, 0, 1, 0)
	<-left
	left <- 0
	p.Completed()
	p.Completed()
	tr.counts(t, 1, 0, 1)
}

// A tracker on SCION has 256 places for connections of one host. A host may announce more torrents
// together, since an announce leaves no connection behind.
func TestManyTorrents(t *testing.T) {
	h := oneAS(t)
	u, err := tracker.ParseURL(track(t, h).scion)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{SCION: openHTTP(t, h)}
	for n := range 260 {
		a, err := newAsker(u, &cfg, scionnet.ScopeLoopback)
		if err != nil {
			t.Fatal(err)
		}
		defer a.close()
		torrent := wire.Announce{InfoHash: wire.InfoHash{byte(n), byte(n >> 8)}, Port: 2001, Left: 1}
		if _, err := a.announce(t.Context(), &torrent, nil); err != nil {
			t.Fatalf("torrent %d: %v", n, err)
		}
	}
}

// A tracker that is away, one that answers nonsense and one that refuses: the tier goes on to the
// one that works.
func TestFailover(t *testing.T) {
	tr := track(t, oneAS(t))
	bad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/refuse":
			fmt.Fprint(w, "d14:failure reason2:no8:retry in5:nevere")
		case "/large":
			fmt.Fprint(w, strings.Repeat("x", wire.MaxAnswer+2))
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		default:
			fmt.Fprint(w, "<html>")
		}
	}))
	defer bad.Close()
	all := []string{"http://127.0.0.1:1/announce", bad.URL + "/html", bad.URL + "/refuse", bad.URL + "/large", bad.URL + "/loop", "scion://1-ff00:0:111,[127.0.0.1]:80", tr.http}
	p := join(t, 1, func(c *Config) {
		var one []tracker.URL
		for _, tier := range c.Tiers {
			one = append(one, tier...)
		}
		c.Tiers = [][]tracker.URL{one}
	}, all...)
	tr.counts(t, 0, 1, 0)
	p.Close()
	tr.counts(t, 0, 0, 0)
	if _, err := Start(Config{}); !errors.Is(err, ErrNoTracker) {
		t.Error(err)
	}
}

func TestSchedule(t *testing.T) {
	minute := time.Minute
	for _, tt := range []struct {
		a              wire.Answer
		fruitless      int
		regular, early time.Duration
	}{
		{wire.Answer{}, 0, 30 * minute, minute},
		{wire.Answer{MinInterval: time.Hour}, 0, time.Hour, time.Hour},
		{wire.Answer{Interval: time.Second}, 0, 30 * time.Second, 30 * time.Second},
		{wire.Answer{Interval: 30 * minute, MinInterval: 5 * minute}, 0, 30 * minute, 5 * minute},
		{wire.Answer{Interval: 30 * minute, MinInterval: 5 * minute}, 2, 30 * minute, 10 * minute},
		{wire.Answer{Interval: 30 * minute, MinInterval: 5 * minute}, 60, 30 * minute, 30 * minute},
		{wire.Answer{Interval: 30 * minute, MinInterval: time.Nanosecond}, 0, 30 * minute, leastHungry},
	} {
		if r, e := regular(tt.a), early(tt.a, tt.fruitless); r != tt.regular || e != tt.early {
			t.Errorf("%+v, %d: %v and %v, want %v and %v", tt.a, tt.fruitless, r, e, tt.regular, tt.early)
		}
	}
	for _, tt := range []struct {
		err      error
		failures int
		from, to time.Duration
		ever     bool
	}{
		{errors.New("x"), 1, firstRetry * 3 / 4, firstRetry * 5 / 4, true},
		{errors.New("x"), 3, firstRetry * 3, firstRetry * 5, true},
		{errors.New("x"), 1000, lastRetry * 3 / 4, lastRetry * 5 / 4, true},
		{&wire.Failure{RetryIn: time.Hour}, 1, time.Hour, time.Hour, true},
		{&wire.Failure{RetryIn: wire.Never}, 1, 0, 0, false},
		{fmt.Errorf("wrapped: %w", &wire.Failure{}), 1, firstRetry * 3 / 4, firstRetry * 5 / 4, true},
	} {
		for _, spread := range []float64{0, 0.5, 1} {
			if d, ever := retry(tt.err, tt.failures, spread); d < tt.from || d > tt.to || ever != tt.ever {
				t.Errorf("%v, %d failures: %v, %v", tt.err, tt.failures, d, ever)
			}
		}
	}
}

// While it is unknown what is left, trackers hear of a number above 0: many read no other.
func TestUnknownLeft(t *testing.T) {
	left := make(chan string, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		left <- r.URL.Query().Get("left")
		_, _ = w.Write([]byte("de"))
	}))
	defer s.Close()
	u, err := tracker.ParseURL(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Ask(t.Context(), u.OfUser(), nil, &wire.Announce{Left: wire.NoCount}); err != nil {
		t.Fatal(err)
	}
	got := <-left
	if n, err := strconv.ParseUint(got, 10, 63); err != nil || n == 0 {
		t.Errorf("left is %q", got)
	}
}

// Some trackers refuse a peer that listens nowhere. They hear of a port at which nobody answers, as
// behind a NAT.
func TestPortRefused(t *testing.T) {
	var ports []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ports = append(ports, r.URL.Query().Get("port")); ports[len(ports)-1] == "0" {
			_, _ = w.Write([]byte("d14:failure reason12:invalid porte"))
			return
		}
		_, _ = w.Write([]byte("de"))
	}))
	defer s.Close()
	u, err := tracker.ParseURL(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	a, err := newAsker(u.OfUser(), &Config{}, scionnet.ScopeLoopback)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := a.announce(t.Context(), &wire.Announce{}, nil); err != nil {
			t.Error(err)
		}
	}
	if want := []string{"0", "1", "1"}; !slices.Equal(ports, want) {
		t.Errorf("asked with the ports %v, want %v", ports, want)
	}
}
