package scionnet_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"braid/scionnet/conformance"
	"braid/units/await"
)

// roughWire takes the place of a host's shim dispatcher. Packets to ports that the AS does not
// reach directly cross it, and it loses, doubles, delays, cuts off or damages some of them,
// whatever they carry. It knows nothing of QUIC.
type roughWire struct {
	socket *net.UDPConn
	host   netip.Addr
	every  int
	work   sync.WaitGroup

	mu   sync.Mutex
	rand *rand.Rand
	met  [2][fates]int // packets that met each fate: single QUIC packets, and bundles
}

// The fates of a packet.
const (
	lost = iota
	doubled
	late
	cutOff
	damaged
	fates
)

// shimPort is the SCION end-host port, to which such packets go.
const shimPort = 30041

// bundle is the first byte of a bundle (package scionnet, bundle.go).
const bundle = 1

// newRoughWire runs at the host until the test ends. Each fate meets one packet in every.
func newRoughWire(t *testing.T, host netip.Addr, every int) *roughWire {
	t.Helper()
	s, err := net.ListenUDP("udp", &net.UDPAddr{IP: host.AsSlice(), Port: shimPort})
	if err != nil {
		t.Fatalf("no place for a wire at %s: %v", host, err)
	}
	if err := s.SetReadBuffer(4 << 20); err != nil {
		t.Fatal(err)
	}
	w := &roughWire{socket: s, host: host, every: every, rand: rand.New(rand.NewPCG(1, 2))}
	w.work.Go(w.run)
	t.Cleanup(func() {
		s.Close()
		w.work.Wait()
	})
	return w
}

func (w *roughWire) run() {
	b := make([]byte, 1<<16)
	for {
		n, err := w.socket.Read(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			w.pass(b[:n])
		}
	}
}

func (w *roughWire) pass(p []byte) {
	const udp, headerLen, dstPort, udpHeader = 17, 5, 2, 8
	if len(p) < 12 || p[4] != udp || len(p) <= int(p[headerLen])*4+udpHeader {
		return
	}
	l4 := p[int(p[headerLen])*4:]
	payload := l4[udpHeader:]
	to := netip.AddrPortFrom(w.host, binary.BigEndian.Uint16(l4[dstPort:]))
	kind := 0
	if payload[0] == bundle {
		kind = 1
	}
	w.mu.Lock()
	fate, at := w.rand.IntN(w.every), w.rand.IntN(len(payload))
	if fate < fates {
		w.met[kind][fate]++
	}
	w.mu.Unlock()
	send := func(p []byte) { _, _ = w.socket.WriteToUDPAddrPort(p, to) } // lost, as on a wire
	switch fate {
	case lost:
		return
	case doubled:
		send(p)
	case late:
		p := slices.Clone(p)
		w.work.Go(func() {
			time.Sleep(2 * time.Millisecond) // so that others overtake it; no result depends on the time
			send(p)
		})
		return
	case cutOff:
		p = p[:len(p)-len(payload)+at]
	case damaged:
		payload[at] ^= 0x55
	}
	send(p)
}

// done tells whether every fate has met a bundle, or a packet that is no bundle.
func (w *roughWire) done(bundles bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	kind := 0
	if bundles {
		kind = 1
	}
	return !slices.Contains(w.met[kind][:], 0)
}

func (w *roughWire) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("packets lost, doubled, late, cut off, damaged: %v; bundles: %v", w.met[0], w.met[1])
}

// exchange goes on until every fate has met the packets that the test is about.
func (w *roughWire) exchange(t *testing.T, p conformance.Pair, bundles bool) {
	d, a := conformance.Connect(t, p, p.Paths[0])
	for end := await.Deadline(t); !w.done(false) || bundles && !w.done(true); {
		if time.Now().After(end) {
			t.Fatal(w)
		}
		if err := conformance.Swap(d, a, 1, 1<<20); err != nil {
			t.Fatalf("%v (%s)", err, w)
		}
	}
	if err := conformance.Exchange(d, a, 2, 1<<20); err != nil {
		t.Fatalf("%v (%s)", err, w)
	}
	if s, r := d.Stats(), a.Stats(); s.PacketsLost == 0 || r.PacketsLost == 0 {
		t.Errorf("losses not noticed: %+v, %+v, though %s", s, r, w)
	}
	if !bundles && w.done(true) {
		t.Errorf("bundles to an endpoint that does not take them: %s", w)
	}
	t.Log(w)
}
