package trackerbench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"braid/scionnet"
	"braid/testbed/bench"
	"braid/tracker/server"
	"braid/tracker/swarm"
	"braid/tracker/wire"
)

// Every load announces each peer once, and the tracker then knows all.
func TestJobs(t *testing.T) {
	as := t.TempDir()
	if err := bench.OneAS(as, 1400); err != nil {
		t.Fatal(err)
	}
	h, err := scionnet.Open(t.Context(), scionnet.Config{ConfigDir: as, LocalIP: netip.MustParseAddr("127.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, transport := range []string{"http", "http-close", "udp", "udp-apart", "scion"} {
		t.Run(transport, func(t *testing.T) {
			cfg := server.Default()
			cfg.PerHostRate, cfg.PerASRate = 0, 0
			store := swarm.NewMemory(cfg.Limits())
			s, err := server.New(cfg, store, slog.New(slog.DiscardHandler))
			if err != nil {
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
			p, err := h.OpenHTTP(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 3)
			go func() { ended <- s.ServeHTTP1(ctx, l, 100) }()
			go func() { ended <- s.ServeUDP(ctx, u) }()
			go func() { ended <- s.ServeSCION(ctx, p) }()
			defer func() {
				cancel()
				if err := errors.Join(<-ended, <-ended, <-ended); err != nil {
					t.Error(err)
				}
			}()
			addr := map[string]string{"udp": u.LocalAddr().String(), "udp-apart": u.LocalAddr().String(), "scion": "scion://" + p.Addr().String()}[transport]
			if addr == "" {
				addr = l.Addr().String()
			}
			const swarms = 40
			job := Job{Transport: transport, Addr: addr, ConfigDir: as, Swarms: swarms, Once: true, Window: 20}
			// As in a process of its own.
			in, err := json.Marshal(job)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := bench.Work(t.Context(), bytes.NewReader(in), &out, Generate); err != nil {
				t.Fatal(err)
			}
			var r Result
			if err := json.Unmarshal(out.Bytes(), &r); err != nil || r.Announces != swarms*perSwarm || r.P50 <= 0 || r.P99 < r.P50 {
				t.Errorf("%+v, %v", r, err)
			}
			if n, err := store.Totals(t.Context()); err != nil || n.Members != swarms*perSwarm || n.Swarms != swarms {
				t.Errorf("%+v, %v", n, err)
			}
			if transport == "http" {
				halves := Job{Transport: "half", Addr: addr, Swarms: 1, Window: 5, Time: 50 * time.Millisecond}
				if r, err := halves.Run(t.Context()); err != nil || r.Announces != 0 || r.Lost < 5 {
					t.Errorf("%+v, %v", r, err)
				}
			}
			job.Once, job.Time = false, 20*time.Millisecond
			if r, err := job.Run(t.Context()); err != nil || r.Announces == 0 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	if _, err := (Job{Transport: "smoke", Swarms: 1, Window: 1}).Run(t.Context()); err == nil {
		t.Error("a transport that does not exist")
	}
}

// Ctrl-C kills the tracker, too. That is no error of the tracker.
func TestPaceInterrupted(t *testing.T) {
	tracker, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		b := make([]byte, wire.MaxUDP)
		_, from, _ := tracker.ReadFrom(b)
		connected := slices.Concat(make([]byte, 4), b[12:16], make([]byte, 8))
		_, _ = tracker.WriteTo(connected, from)
		_, _, _ = tracker.ReadFrom(b)
		interrupt()
		tracker.Close()
	}()
	if _, err := pace(ctx, tracker.LocalAddr().String(), 0, 1000, time.Minute); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestTally(t *testing.T) {
	var a tally
	for n := range 1000 {
		a.answered(time.Duration(n) * time.Millisecond)
	}
	a.answered(-time.Second)
	a.answered(time.Hour * 1000)
	if m := a.within(0.5); m < 499 || m > 501 {
		t.Errorf("median of 0 to 999 ms: %v", m)
	}
	if m := a.within(0.99); m < 989 || m > 991 {
		t.Errorf("p99 of 0 to 999 ms: %v", m)
	}
	var none tally
	if none.within(0.5) != 0 {
		t.Error("a median of nothing")
	}
}
