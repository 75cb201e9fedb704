//go:build !race

package server

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"braid/tracker/swarm"
	"braid/tracker/wire"
)

// A tracker that is asked much has no garbage to collect. The race detector allocates, so this is
// not for it.
func TestAllocsOfAnnounce(t *testing.T) {
	cfg := Default()
	cfg.PerHostRate = 0
	s, err := New(cfg, swarm.NewMemory(cfg.Limits()), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	u, err := newUDP(s)
	if err != nil {
		t.Fatal(err)
	}
	now, from := time.Now(), netip.MustParseAddrPort("10.0.0.1:1")
	announce := func(n int) []byte {
		r := wire.UDPRequest{
			Action: wire.AnnounceUDP, Connection: u.connectionID(from.Addr(), epochOf(now)),
			Announce: wire.Announce{PeerID: wire.PeerID{byte(n)}, Port: uint16(1 + n), Left: 1, NumWant: wire.NoCount},
		}
		return r.Append(nil)
	}
	out := make([]byte, 0, wire.MaxUDP)
	for n := range 20 {
		u.answer(context.Background(), out, announce(n), from, now)
	}
	again := announce(0)
	allocs := testing.AllocsPerRun(100, func() {
		if b := u.answer(context.Background(), out, again, from, now); len(b) != 20+19*6 {
			t.Fatalf("an answer of %d bytes", len(b))
		}
	})
	if allocs > 1 { // the key's eight digits
		t.Errorf("%v allocations for an announce", allocs)
	}
}

// A queue that is full loses messages, which costs nothing.
func TestAllocsOfLostMessage(t *testing.T) {
	full := &socket{out: make(chan []byte)}
	lost := &wire.Signal{Failure: "reason"}
	if n := testing.AllocsPerRun(10, func() { full.tell(lost) }); n > 0 {
		t.Errorf("a message that is lost takes %v allocations", n)
	}
}
