package gateway

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"braid/client"
	"braid/pathsel"
	"braid/units/await"
)

// Bytes count once and on their side of the gateway, also when peers are forgotten.
func TestTally(t *testing.T) {
	over := func(peer string, scion bool, read, written uint64) client.PathProgress {
		p := client.PathProgress{Peer: peer, Transport: "tcp", BytesRead: read, BytesWritten: written}
		if scion {
			p.Transport, p.Path = "scion", pathsel.Path{Src: 1, Fingerprint: pathsel.Fingerprint("1")}
		}
		return p
	}
	web := over("web", true, 0, 0) // a web seed on SCION
	web.Transport, web.BytesRead = "http", 1000
	var scion, ip traffic
	var last map[pathsel.Key]traffic
	for _, now := range [][]client.PathProgress{
		{over("a", true, 10, 1), over("b", false, 5, 7)},
		{over("a", true, 30, 2), over("b", false, 5, 9), web},
		{over("b", false, 6, 9)},
		{over("a", true, 4, 0), over("b", false, 6, 9)}, // a was forgotten
	} {
		last = tally(last, now, &scion, &ip)
	}
	if want := (traffic{1034, 2}); scion != want {
		t.Errorf("scion: %v, want %v", scion, want)
	}
	if want := (traffic{6, 9}); ip != want {
		t.Errorf("ip: %v, want %v", ip, want)
	}
}

// The figures tell the first request from the one for complete data, and count what was carried.
// Prometheus accepts them.
func TestFigures(t *testing.T) {
	t.Parallel()
	src, seed := seeded(t, t.TempDir(), "file", 300_000)
	g, s, _ := opened(t, Config{Dir: t.TempDir(), Size: 1 << 20, Idle: time.Hour}, src)
	running(t, g)
	if _, err := asks(t, s, src, seed, true); err != nil {
		t.Fatal(err)
	}
	await.True(t, "all data", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.torrents[[20]byte(src.InfoHash)].complete
	})
	if _, err := asks(t, s, src, clientAt(1), false); err != nil {
		t.Fatal(err)
	}
	e := g.Figures()
	if e.Hits != 1 || e.Misses != 1 || e.HitRate != 0.5 || e.Allowed != 1 || e.Joined != 1 || e.Cached != 300_000 {
		t.Errorf("%+v", e)
	}
	if e.FromIP < 300_000 || e.FromSCION != 0 || e.ToSCION != 0 || e.ToIP == 0 || e.ToIP > 100_000 {
		t.Errorf("%+v", e)
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(g.Collector())
	if f, err := r.Gather(); err != nil || len(f) != 6 {
		t.Errorf("%v, %v", f, err)
	}
}
