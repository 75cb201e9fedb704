package e2e

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"braid/pathsel"
	"braid/scionnet"
	"braid/scionnet/conformance"
	"braid/testbed"
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
	network := startNetwork(t, file, testbed.Options{})
	at := pathsel.Interface{IA: ia(t, "1-ff00:0:110"), ID: 1}
	// What a host has found out of a path it remembers, so each test has hosts of its own.
	start := func(t *testing.T) (ends, conformance.Pair) {
		n := ends{network: network, a: openHost(t, network, ia(t, "1-ff00:0:110")), b: openHost(t, network, ia(t, "1-ff00:0:111"))}
		p := n.pair(t)
		if len(p.Paths) != 1 || p.Paths[0].MTU != 8400 {
			t.Fatalf("paths %+v, want one with MTU 8400", p.Paths)
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
	// meanPacket moves data and says how large packets on the link were, of those that carried it.
	meanPacket := func(t *testing.T, from, to *scionnet.Conn) int {
		t.Helper()
		counters := func() (bytes, packets uint64) {
			l := network.Status(t.Context(), false).Links[0]
			end := l.A
			if from.LocalAddr().(scionnet.Addr).IA != l.A.Interface.IA {
				end = l.B
			}
			return end.Counters.Bytes, end.Counters.Packets
		}
		bytes, packets := counters()
		if err := transfer(from, to, size); err != nil {
			t.Fatal(err)
		}
		b, p := counters()
		return int(b-bytes) / int(p-packets)
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
		for _, way := range [][2]*scionnet.Conn{{d, a}, {a, d}} {
			// The probe's answer may still be under way for the first of them.
			eventually(t, "large packets", func() bool { return meanPacket(t, way[0], way[1]) > 4000 })
		}
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
			if got := meanPacket(t, d, a); got > 2000 {
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
			eventually(t, "large packets", func() bool { return meanPacket(t, d, a) > 4000 })
			setMTU(t, 1600) // what quic-go sends by itself still passes
			if err := transfer(d, a, size); err != nil {
				t.Fatalf("the connection did not go on with smaller packets: %v", err)
			}
			if got := meanPacket(t, d, a); got > 1600 {
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
		if err := transfer(a, d, size); !errors.Is(err, scionnet.ErrPacketSize) {
			t.Fatalf("error %v, want ErrPacketSize", err)
		}
		if _, err := a.Write([]byte("x")); !errors.Is(err, scionnet.ErrPacketSize) {
			t.Errorf("acceptor: error %v, want ErrPacketSize", err)
		}
		d, a = conformance.Connect(t, p, p.Paths[0])
		if err := errors.Join(transfer(d, a, size), transfer(a, d, size)); err != nil {
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
			if err := transfer(c, map[*scionnet.Conn]*scionnet.Conn{d: a, a: d}[c], size); !errors.Is(err, scionnet.ErrPacketSize) {
				t.Fatalf("error %v, want ErrPacketSize", err)
			}
		}
		// A router names the MTU, so that the next connection is not down to the least.
		d, a = conformance.Connect(t, p, p.Paths[0])
		if err := errors.Join(transfer(d, a, size), transfer(a, d, size)); err != nil {
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
		if err := errors.Join(transfer(d, a, size), transfer(a, d, size)); err != nil {
			t.Fatal(err)
		}
		if got := d.Stats().PacketSize; got != 1200 {
			t.Errorf("packets of %d bytes, want 1200", got)
		}
		d, a = conformance.Connect(t, p, p.Paths[0]) // at once now
		if err := transfer(a, d, size); err != nil {
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
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if _, err := p.Dialer.Dial(ctx, p.Acceptor.Addr(), p.Paths[0], nil); !errors.Is(err, scionnet.ErrSilent) {
			t.Errorf("error %v, want ErrSilent", err)
		}
	})
}

// transfer writes zeros to one end and reads them from the other.
func transfer(from, to *scionnet.Conn, size int) error {
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
