package server

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"braid/pathsel"
	"braid/scionnet"
	"braid/tracker/swarm"
	"braid/tracker/wire"
)

func TestRelayIsBounded(t *testing.T) {
	now := time.Now()
	r := newRelay()
	peer := func(net, host string) *socket {
		return &socket{origin: pathsel.Origin{Net: net, Host: host}, seats: map[wire.InfoHash]wire.PeerID{}, out: make(chan []byte, 1)}
	}
	cfg := Default()
	cfg.MaxPerHost, cfg.MaxPerNet, cfg.MaxPeers = 2, 3, 4
	enter := func(k *socket, hash, id byte, left int64) error {
		return r.enter(k, &wire.Signal{InfoHash: wire.InfoHash{hash}, PeerID: wire.PeerID{id}, Left: left}, &cfg, now)
	}
	a, b, c := peer("1", "a"), peer("1", "b"), peer("2", "c")
	for i, step := range []struct {
		k        *socket
		hash, id byte
		want     error
	}{
		{a, 1, 1, nil},
		{peer("1", "a"), 1, 2, nil},
		{peer("1", "a"), 1, 3, errHostSeats},
		{c, 1, 1, errTakenID}, // of another host
		{b, 1, 4, nil},
		{b, 1, 4, nil}, // again
		{b, 2, 4, errNetSeats},
		{c, 1, 5, nil},
		{c, 2, 5, errFullRelay},
	} {
		if err := enter(step.k, step.hash, step.id, 1); err != step.want { //nolint:errorlint // not wrapped
			t.Errorf("step %d: %v, want %v", i, err, step.want)
		}
	}
	// A queue that is full loses messages, which costs nothing, and no other connection waits for
	// it.
	for range 3 {
		r.offer(c, &wire.Signal{InfoHash: wire.InfoHash{1}, PeerID: wire.PeerID{5}, Offers: make([]wire.Offer, 2)})
	}
	r.sweep(now.Add(time.Hour), 2*time.Hour)
	if err := enter(a, 1, 1, 0); err != nil || r.swarms[wire.InfoHash{1}].seeds != 1 {
		t.Errorf("a download is complete: %v", err)
	}
	r.leaveAll(c)
	if r.seats != 3 || r.networks["2"] != 0 {
		t.Errorf("%d seats, %v", r.seats, r.networks)
	}
	r.sweep(now.Add(time.Hour), time.Minute)
	if r.seats != 0 || len(r.swarms) != 0 || len(r.networks) != 0 || len(a.seats) != 0 {
		t.Errorf("after all have gone: %+v", r)
	}
}

// A connection that is slow to read, or announces many torrents at once, still gets an answer to
// each announce. Without it the client takes the tracker for broken.
func TestAnswersAreNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Default()
		s, err := New(cfg, swarm.NewMemory(cfg.Limits()), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		k := &socket{seats: map[wire.InfoHash]wire.PeerID{}, out: make(chan []byte, 1)}
		from := request{transport: overWebSocket, from: scionnet.IPAddr(netip.MustParseAddrPort("10.0.0.1:1")), at: time.Now()}
		const torrents = 3
		go func() {
			for n := range torrents {
				m := wire.Signal{InfoHash: wire.InfoHash{1, byte(n)}, PeerID: wire.PeerID{1}, Left: 1}
				if err := s.signalled(t.Context(), k, from, &m, ""); err != nil {
					t.Error(err)
				}
			}
		}()
		for n := range torrents {
			synctest.Wait() // until the queue is full
			if m, err := wire.ParseSignal(<-k.out); err != nil || m.InfoHash != (wire.InfoHash{1, byte(n)}) {
				t.Errorf("announce %d: %+v, %v", n, m, err)
			}
		}
	})
}

// No relayed message is longer than what a peer takes, even if JSON needs more bytes for it than
// its sender did.
func TestRelayedMessagesFit(t *testing.T) {
	cfg := Default()
	r := newRelay()
	peer := func(id byte) *socket {
		k := &socket{seats: map[wire.InfoHash]wire.PeerID{}, out: make(chan []byte, 4)}
		err := r.enter(k, &wire.Signal{InfoHash: wire.InfoHash{1}, PeerID: wire.PeerID{id}, Left: 1}, &cfg, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	a, b := peer(1), peer(2)
	for _, c := range []struct {
		sdp  string
		want int // messages
	}{
		{strings.Repeat("v", 16<<10), 1},
		{strings.Repeat("<", 16<<10), 0},
		{strings.Repeat("<", 8<<10), 1},
	} {
		x := wire.Offer{ID: "1", SDP: c.sdp}
		r.offer(a, &wire.Signal{InfoHash: wire.InfoHash{1}, PeerID: wire.PeerID{1}, Offers: []wire.Offer{x}})
		if n := len(b.out); n != c.want {
			t.Errorf("%d offers of %d bytes %q, want %d", n, len(c.sdp), c.sdp[:1], c.want)
		}
		err := r.answer(b, &wire.Signal{InfoHash: wire.InfoHash{1}, PeerID: wire.PeerID{2}, ToPeer: wire.PeerID{1}, Answer: x})
		if n := len(a.out); err != nil || n != c.want {
			t.Errorf("%d answers of %d bytes %q, want %d: %v", n, len(c.sdp), c.sdp[:1], c.want, err)
		}
		for _, k := range []*socket{a, b} {
			for len(k.out) > 0 {
				if m := <-k.out; len(m) > wire.MaxSignal {
					t.Errorf("a message of %d bytes", len(m))
				}
			}
		}
	}
}

// If a client reads nothing, its queue takes little memory, even if other peers send it long
// messages.
func TestQueueIsSmall(t *testing.T) {
	k := &socket{out: make(chan []byte, maxQueue)}
	long := &wire.Signal{Offer: wire.Offer{ID: "1", SDP: strings.Repeat("v", 16<<10)}}
	for range 2 * maxQueue {
		k.tell(long)
	}
	bytes := 0
	for len(k.out) > 0 {
		bytes += len(<-k.out)
	}
	if bytes < maxQueued || bytes > maxQueued+wire.MaxSignal {
		t.Errorf("%d bytes wait", bytes)
	}
	usual := &wire.Signal{Offer: wire.Offer{ID: "1", SDP: strings.Repeat("v", 2<<10)}}
	k = &socket{out: make(chan []byte, maxQueue)}
	for range maxQueue {
		if !k.tell(usual) {
			t.Fatal("a usual message is lost")
		}
	}
}
