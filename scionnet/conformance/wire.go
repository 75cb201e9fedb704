package conformance

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
)

// Wire is a rough wire, in the place of a host's shim dispatcher: packets between ports of the host that its AS does not
// reach directly cross it, and some are lost, doubled, delayed past others, cut off or damaged, whatever they carry. It
// knows nothing of QUIC.
type Wire struct {
	socket *net.UDPConn
	host   netip.Addr
	every  int
	work   sync.WaitGroup

	mu   sync.Mutex
	rand *rand.Rand
	met  [2][fates]int // packets that met with a fate: bundles of QUIC packets second
}

// What happens to a packet.
const (
	lost = iota
	doubled
	late
	cutOff
	damaged
	fates
)

// shimPort is where packets to such ports go (the SCION end-host port).
const shimPort = 30041

// bundle is the first byte of several QUIC packets in one datagram (package scionnet, bundle.go).
const bundle = 1

// NewWire stands at the host until the test ends. Each fate meets one packet in every.
func NewWire(t *testing.T, host netip.Addr, every int) *Wire {
	t.Helper()
	s, err := net.ListenUDP("udp", &net.UDPAddr{IP: host.AsSlice(), Port: shimPort})
	if err != nil {
		t.Fatalf("no place for a wire at %s: %v", host, err)
	}
	if err := s.SetReadBuffer(4 << 20); err != nil {
		t.Fatal(err)
	}
	w := &Wire{socket: s, host: host, every: every, rand: rand.New(rand.NewPCG(1, 2))}
	w.work.Go(w.run)
	t.Cleanup(func() {
		s.Close()
		w.work.Wait()
	})
	return w
}

func (w *Wire) run() {
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

func (w *Wire) pass(p []byte) {
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
			time.Sleep(2 * time.Millisecond) // so that others overtake it; decides nothing
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

// Rough tells whether packets have met with every fate: bundles, or packets that are none.
func (w *Wire) Rough(bundles bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	kind := 0
	if bundles {
		kind = 1
	}
	return !slices.Contains(w.met[kind][:], 0)
}

func (w *Wire) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("packets lost, doubled, late, cut off, damaged: %v; bundles: %v", w.met[0], w.met[1])
}

// RunRough runs the tests whose outcome a rough wire must not change, over one. bundles says that both endpoints put several
// QUIC packets into one datagram, and that the path has room for it.
func RunRough(t *testing.T, w *Wire, bundles bool, start func(t *testing.T) Pair) {
	t.Run("Exchange", func(t *testing.T) { roughExchange(t, start(t), w, bundles) })
	t.Run("CloseDelivers", func(t *testing.T) {
		p := start(t)
		d, a := Connect(t, p, p.Paths[0])
		closeDelivers(t, d, a)
	})
	t.Run("CloseWhileSending", func(t *testing.T) { closeWhileSending(t, start(t)) })
	t.Run("SeveralAtOnce", func(t *testing.T) {
		p := start(t)
		p.Paths = slices.Repeat(p.Paths, 4)
		everyPathAtOnce(t, p)
	})
}

// roughExchange goes on until every fate has met what it is about.
func roughExchange(t *testing.T, p Pair, w *Wire, bundles bool) {
	d, a := Connect(t, p, p.Paths[0])
	for end := time.Now().Add(patience); !w.Rough(false) || bundles && !w.Rough(true); {
		if time.Now().After(end) {
			t.Fatal(w)
		}
		if err := swap(d, a, 1, 1<<20); err != nil {
			t.Fatalf("%v (%s)", err, w)
		}
	}
	if err := Exchange(d, a, 2, 1<<20); err != nil {
		t.Fatalf("%v (%s)", err, w)
	}
	if s, r := d.Stats(), a.Stats(); s.PacketsLost == 0 || r.PacketsLost == 0 {
		t.Errorf("losses not noticed: %+v, %+v, though %s", s, r, w)
	}
	if !bundles && w.Rough(true) {
		t.Errorf("bundles to an endpoint that does not take them: %s", w)
	}
	t.Log(w)
}
