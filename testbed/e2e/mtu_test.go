package e2e

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"braid/pathsel"
	"braid/scionnet"
	"braid/scionnet/conformance"
	"braid/testbed"
	"braid/units/await"
)

const largeLink = `
defaults: {mtu: 8400}
ASes:
  "1-ff00:0:110": {core: true, voting: true, authoritative: true, issuing: true}
  "1-ff00:0:111": {core: true, cert_issuer: 1-ff00:0:110}
links:
  - {a: "1-ff00:0:110#1", b: "1-ff00:0:111#1", linkAtoB: CORE, delay: 2ms, rate: 200mbit}
`

// TestMTU moves data over a path that promises large packets, and then takes the promise back bit
// by bit.
func TestMTU(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "large.topo")
	if err := os.WriteFile(file, []byte(largeLink), 0o600); err != nil {
		t.Fatal(err)
	}
	network := startNetwork(t, file, testbed.Options{BFD: patientBFD})
	at := pathsel.Interface{IA: ia(t, "1-ff00:0:110"), ID: 1}
	var said record
	// What a host has found out of a path it remembers, so each test has hosts of its own.
	start := func(t *testing.T) (ends, conformance.Pair) {
		said.reset()
		open := func(as string) *scionnet.Host { return openHostWith(t, network, ia(t, as), said.logger()) }
		n := ends{network: network, a: open("1-ff00:0:110"), b: open("1-ff00:0:111"), between: 1}
		p := n.pair(t)
		if p.Paths[0].MTU != 8400 {
			t.Fatalf("path %+v, want MTU 8400", p.Paths[0])
		}
		return n, p
	}
	setMTU := func(t *testing.T, mtu int) {
		t.Helper()
		if err := network.Change(testbed.LinkChange{Interface: at, MTU: &mtu}); err != nil {
			t.Fatal(err)
		}
	}
	setDelay := func(t *testing.T, delay time.Duration) {
		t.Helper()
		if err := network.Change(testbed.LinkChange{Interface: at, Delay: &delay}); err != nil {
			t.Fatal(err)
		}
	}
	const size = 2 << 20
	// move moves data. It returns the packets on the link meanwhile, their mean size, and the QUIC
	// packets that have arrived.
	move := func(t *testing.T, from, to *scionnet.Conn) (packets, mean, arrived uint64) {
		t.Helper()
		counters := func() (bytes, packets, arrived uint64) {
			l := network.Status(t.Context(), false).Links[0]
			end := l.A
			if from.LocalAddr().(scionnet.Addr).IA != l.A.Interface.IA {
				end = l.B
			}
			return end.Counters.Bytes, end.Counters.Packets, to.Stats().PacketsReceived
		}
		bytes, packets, arrived := counters()
		if err := transfer(t, from, to, size); err != nil {
			t.Fatal(err)
		}
		b, p, q := counters()
		return p - packets, (b - bytes) / (p - packets), q - arrived
	}
	// bundled waits until clearly more QUIC packets arrive than the link has carried, others'
	// packets included. How many fit into one is in the hosts' logs. How many are sent in one
	// depends on the rate: a busy machine takes the path for a slow one.
	bundled := func(t *testing.T, from, to *scionnet.Conn) {
		t.Helper()
		await.True(t, "several QUIC packets in one", func() bool {
			packets, _, arrived := move(t, from, to)
			return 4*arrived > 5*packets
		})
	}
	greet := func(t *testing.T, d, a *scionnet.Conn) {
		t.Helper()
		echo(t, d, a)
		echo(t, a, d)
	}

	t.Run("LargePackets", func(t *testing.T) {
		_, p := start(t)
		d, a := conformance.Connect(t, p, p.Paths[0])
		greet(t, d, a)
		// What the MTU leaves room for, or a little less if two probes were lost.
		for _, to := range []string{"1-ff00:0:110", "1-ff00:0:111"} {
			arrive := regexp.MustCompile(`"large packets arrive" to=` + to + `,.* payload_bytes=8\d{3}\n`)
			await.True(t, "large packets to "+to, func() bool { return arrive.MatchString(said.String()) })
		}
		bundled(t, d, a)
		bundled(t, a, d)
	})
	t.Run("PeerWithoutThem", func(t *testing.T) {
		n, p := start(t)
		plain, err := n.b.Listen(t.Context(), scionnet.ListenConfig{PlainPackets: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { plain.Close() })
		p.Acceptor = plain
		d, a := conformance.Connect(t, p, p.Paths[0])
		greet(t, d, a)
		for range 3 {
			if _, got, _ := move(t, d, a); got > 2000 {
				t.Fatalf("packets of %d bytes for a peer that knows no frames", got)
			}
		}
	})
	// Over the long path, losses show so late that the last ones are of packets from before.
	for name, delay := range map[string]time.Duration{"LargeVanish": 2 * time.Millisecond, "LargeVanishLongPath": 300 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			defer setMTU(t, 0)
			defer setDelay(t, 2*time.Millisecond)
			setDelay(t, delay)
			_, p := start(t)
			d, a := conformance.Connect(t, p, p.Paths[0])
			greet(t, d, a)
			bundled(t, d, a)
			setMTU(t, 1600) // what quic-go sends by itself still passes
			if err := transfer(t, d, a, size); err != nil {
				t.Fatalf("the connection did not go on with smaller packets: %v", err)
			}
			if _, got, _ := move(t, d, a); got > 1600 {
				t.Errorf("packets of %d bytes", got)
			}
		})
	}
	t.Run("FullVanish", func(t *testing.T) {
		defer setMTU(t, 0)
		_, p := start(t)
		d, a := conformance.Connect(t, p, p.Paths[0])
		greet(t, d, a)
		setMTU(t, 1350)
		if err := transfer(t, a, d, size); !errors.Is(err, scionnet.ErrPacketSize) {
			t.Fatalf("error %v, want ErrPacketSize", err)
		}
		if _, err := a.Write([]byte("x")); !errors.Is(err, scionnet.ErrPacketSize) {
			t.Errorf("acceptor: error %v, want ErrPacketSize", err)
		}
		d, a = conformance.Connect(t, p, p.Paths[0])
		if err := errors.Join(transfer(t, d, a, size), transfer(t, a, d, size)); err != nil {
			t.Fatalf("the next connection: %v", err)
		}
	})
	t.Run("Answered", func(t *testing.T) {
		defer setMTU(t, 0)
		answer := true
		if err := network.Change(testbed.LinkChange{Interface: at, TooBig: &answer}); err != nil {
			t.Fatal(err)
		}
		defer func() {
			answer = false
			if err := network.Change(testbed.LinkChange{Interface: at, TooBig: &answer}); err != nil {
				t.Error(err)
			}
		}()
		_, p := start(t)
		d, a := conformance.Connect(t, p, p.Paths[0])
		greet(t, d, a)
		const mtu = 1380
		setMTU(t, mtu)
		for _, c := range []*scionnet.Conn{d, a} { // each is told on its own
			if err := transfer(t, c, map[*scionnet.Conn]*scionnet.Conn{d: a, a: d}[c], size); !errors.Is(err, scionnet.ErrPacketSize) {
				t.Fatalf("error %v, want ErrPacketSize", err)
			}
		}
		// A router names the MTU, so that the next connection is not down to the least.
		d, a = conformance.Connect(t, p, p.Paths[0])
		if err := errors.Join(transfer(t, d, a, size), transfer(t, a, d, size)); err != nil {
			t.Fatalf("the next connection: %v", err)
		}
		if got := d.Stats().PacketSize; got <= 1200 || got >= mtu {
			t.Errorf("packets of %d bytes, want what an MTU of %d leaves room for", got, mtu)
		}
	})
	t.Run("HandshakeVanishes", func(t *testing.T) {
		defer setMTU(t, 0)
		_, p := start(t)
		setMTU(t, 1350)
		d, a := conformance.Connect(t, p, p.Paths[0])
		if err := errors.Join(transfer(t, d, a, size), transfer(t, a, d, size)); err != nil {
			t.Fatal(err)
		}
		if got := d.Stats().PacketSize; got != 1200 {
			t.Errorf("packets of %d bytes, want 1200", got)
		}
		d, a = conformance.Connect(t, p, p.Paths[0]) // at once now
		if err := transfer(t, a, d, size); err != nil {
			t.Fatal(err)
		}
		if d, a := d.Stats(), a.Stats(); d.PacketSize != 1200 || a.PacketSize != 1200 {
			t.Errorf("then packets of %d and %d bytes, want 1200", d.PacketSize, a.PacketSize)
		}
	})
	t.Run("TooNarrowForQUIC", func(t *testing.T) {
		defer setMTU(t, 0)
		_, p := start(t)
		setMTU(t, 1000)
		ctx, cancel := context.WithDeadline(t.Context(), await.Deadline(t))
		defer cancel()
		if _, err := p.Dialer.Dial(ctx, p.Acceptor.Addr(), p.Paths[0], nil); !errors.Is(err, scionnet.ErrSilent) {
			t.Errorf("error %v, want ErrSilent", err)
		}
	})
}

// transfer writes zeros to one end and reads them from the other. Each transfer has its own
// deadline, so that only one that stands still meets it.
func transfer(t *testing.T, from, to *scionnet.Conn, size int) error {
	for _, c := range []*scionnet.Conn{from, to} {
		if err := c.SetDeadline(await.Deadline(t)); err != nil {
			return err
		}
	}
	sent := make(chan error, 1)
	go func() {
		_, err := from.Write(make([]byte, size))
		sent <- err
	}()
	if _, err := io.CopyN(io.Discard, to, int64(size)); err != nil {
		return err
	}
	return <-sent
}

// record is what hosts have logged.
type record struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

func (r *record) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text.Reset()
}

func (r *record) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
