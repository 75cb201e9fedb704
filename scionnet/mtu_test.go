package scionnet

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scionproto/scion/pkg/snet"

	"braid/scionnet/congestion"
	"braid/scionnet/quic"
)

// TestPacketTooBig has routers, and forgers, report that packets are too large for a path.
func TestPacketTooBig(t *testing.T) {
	try := func(name string, mtu uint16, change func(testing.TB, *scmpCase), want int) {
		t.Run(name, func(t *testing.T) {
			var cp controlPlane
			h, _, f := hostWithPath(t, &cp)
			if _, err := h.lookup.paths(t.Context(), peerIA); err != nil {
				t.Fatal(err)
			}
			w := newSCMPCase(t, h, f, func(q []byte) snet.Payload { return snet.SCMPPacketTooBig{MTU: mtu, Payload: q} })
			w.r.large.limit.Store(1300)
			change(t, w)
			h.scmp(&w.message, w.us, w.from)
			if got := h.withKnownMTU(f.path, w.peer, f.trail).MTU; got != want {
				t.Errorf("MTU %d, want %d", got, want)
			}
			if got := h.mtuTo(w.r); want < 1400 && got > want {
				t.Errorf("to the route: MTU %d, want %d", got, want)
			}
			header := f.way.headerLen(w.us, w.peer)
			if limit := int(w.r.large.limit.Load()); want < 1400 && limit > max(want-header, 1) {
				t.Errorf("bundles of up to %d bytes on a path of MTU %d", limit, want)
			}
		})
	}
	none := func(testing.TB, *scmpCase) {}
	least := leastPacket + 12 + 16 + 4 + 4 + (4 + 8 + 3*12) + 8
	try("too small for QUIC", uint16(least-1), none, 1400)
	try("just enough for QUIC", uint16(least), none, least)
	try("nothing left", 0, none, 1400)
	try("one byte", 1, none, 1400)
	try("nothing new", 1400, none, 1400)
	try("larger than the packet", 9000, none, 1400)
	for name, change := range honest {
		try(name, 1320, change, 1320)
	}
	for name, change := range forgeries {
		try(name, 1320, change, 1400)
	}
}

// TestNarrowEndsConnections learns that a path is too narrow for the packets of a live connection.
func TestNarrowEndsConnections(t *testing.T) {
	h := oneAS(t)
	a, b := listen(t, h, ListenConfig{}), listen(t, h, ListenConfig{})
	d, c := pair(t, a, b)
	ping(t, d, c)
	k := hostPath{h.ia, b.addr.Host, ""}
	header := (&way{}).headerLen(a.addr, b.addr)
	h.lowerMTU(k, leastPacket+header+10, "test")
	for name, conn := range map[string]*Conn{"dialler": d, "acceptor": c} {
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, ErrPacketSize) {
			t.Errorf("%s: error %v, want ErrPacketSize", name, err)
		}
	}
	d, c = pair(t, a, b)
	ping(t, d, c)
	// Both ends are on one host here, which learns of it twice: from the test, and from the peer,
	// who does not know the size.
	if got := d.Stats().PacketSize; got != leastPacket && got != leastPacket+10 {
		t.Errorf("packets of %d bytes", got)
	}
	h.lowerMTU(k, leastPacket+header-1, "test")
	if _, err := d.Read(make([]byte, 1)); !errors.Is(err, ErrPacketSize) {
		t.Errorf("error %v, want ErrPacketSize", err)
	}
	if _, err := a.Dial(t.Context(), b.addr, h.localPath(), nil); err == nil {
		t.Error("QUIC over a path that is too narrow for it")
	}
}

func TestMTUsAreForgotten(t *testing.T) {
	var m memory
	now := time.Now()
	k := hostPath{ia: 1}
	if !m.lowerMTU(k, 1300, now) || m.lowerMTU(k, 1350, now) || !m.lowerMTU(k, 1280, now) {
		t.Error("only less is news")
	}
	if got, ok := m.mtu(k, now.Add(mtuHolds-1)); got != 1280 || !ok {
		t.Errorf("%d, %v", got, ok)
	}
	if _, ok := m.mtu(k, now.Add(mtuHolds)); ok {
		t.Error("believed for ever")
	}
	for i := range 2 * maxRemembered {
		m.lowerMTU(hostPath{ia: peerIA, trail: trail([]byte{byte(i), byte(i >> 8)})}, 1300, now)
		if len(m.of) > maxRemembered {
			t.Fatal("the table grows without bound")
		}
	}
}

func TestLargeLoss(t *testing.T) {
	type step struct {
		sent, bytes, lost, lostBytes, received uint64
		rtt                                    time.Duration // change of the last round trip
	}
	for _, tt := range []struct {
		name string
		step step // in each second
		want bool
	}{
		{"nothing to send", step{sent: 2, bytes: 80, received: 2}, false},
		{"large packets vanish", step{sent: 6, bytes: 4*1400 + 80, lost: 4, lostBytes: 4 * 1400, received: 3, rtt: 1}, true},
		{"all vanish", step{sent: 6, bytes: 6 * 1400, lost: 4, lostBytes: 4 * 1400}, false},
		{"half of many vanish", step{sent: 100, bytes: 140000, lost: 50, lostBytes: 70000, received: 50, rtt: 1}, false},
		{"few large ones, one of five arrives", step{sent: 25, bytes: 25 * 1400, lost: 20, lostBytes: 20 * 1400, received: 9, rtt: 1}, false},
		{"small ones vanish", step{sent: 10, bytes: 700, lost: 5, lostBytes: 350, received: 4}, false},
		{"once in a while", step{sent: 3, bytes: 100, received: 2}, false},
		{"a rush of acknowledgements", step{sent: 1000, bytes: 40000, received: 3000}, false},
		{"only repetitions, which nobody acknowledges", step{sent: 3, bytes: 2*1400 + 40, received: 2}, true},
		{"repetitions that are acknowledged", step{sent: 3, bytes: 2*1400 + 40, received: 2, rtt: 1}, false},
	} {
		var o largeLoss
		var s quic.ConnectionStats
		got := false
		s.LatestRTT = time.Millisecond
		for range 2 * watchFor {
			s.PacketsSent += tt.step.sent
			s.BytesSent += tt.step.bytes
			s.PacketsLost += tt.step.lost
			s.BytesLost += tt.step.lostBytes
			s.PacketsReceived += tt.step.received
			s.LatestRTT += tt.step.rtt
			got = o.observe(s, 1400)
		}
		if got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestBundlesGoFirst loses full packets for as long as they travel in bundles, which a probe ends
// or the losses themselves, and in the second case also afterwards.
func TestBundlesGoFirst(t *testing.T) {
	for _, tt := range []struct {
		name          string
		bundles, lose int // for so many checks
		want          map[int]judgement
	}{
		{"a probe ends them", watchFor, watchFor + 1, nil},
		{"losses end them", watchFor + 1, watchFor + 1, map[int]judgement{watchFor: bundlesVanish}},
		{"losses go on", watchFor + 1, 2*watchFor + 1, map[int]judgement{watchFor: bundlesVanish, 2 * watchFor: packetsVanish}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var o largeLoss
			var s quic.ConnectionStats
			for i := range 2*watchFor + 1 {
				s.PacketsSent += 6
				s.BytesSent += 4*1400 + 80
				s.PacketsReceived += 3
				s.LatestRTT++
				if i < tt.lose {
					s.PacketsLost += 4
					s.BytesLost += 4 * 1400
				}
				if got := o.judge(s, 1400, i < tt.bundles); got != tt.want[i] {
					t.Errorf("check %d: %d, want %d", i, got, tt.want[i])
				}
			}
		})
	}
}

// TestStallIsNoLargeLoss has a path that carries nothing for two seconds. Then, before any
// retransmission, the peer's keep-alives arrive.
func TestStallIsNoLargeLoss(t *testing.T) {
	type look struct{ packets, bytes, received uint64 }
	flowing, repeated, last, alive := look{50, 70000, 25}, look{2, 2800, 0}, look{2, 2800, 1}, look{1, 40, 1}
	course := []look{flowing, flowing, flowing, repeated, repeated, {}, repeated, last, alive, alive, alive, alive, alive, alive}
	var o largeLoss
	var s quic.ConnectionStats
	for i, l := range course {
		if l == flowing {
			s.LatestRTT++
		}
		s.PacketsSent += l.packets
		s.BytesSent += l.bytes
		s.PacketsReceived += l.received
		if o.observe(s, 1400) {
			t.Fatalf("look %d: large packets are said to vanish", i)
		}
	}
}

// When a silence ends, all that was sent into it is reported lost at once. The looks are those of a
// real connection.
func TestEndOfStallIsNoLargeLoss(t *testing.T) {
	var o largeLoss
	for i, l := range [watchFor + 1][5]uint64{
		{840, 1129692, 0, 0, 50}, {843, 1132434, 0, 0, 50}, {843, 1132434, 0, 0, 50}, {848, 1135242, 0, 0, 54},
		{849, 1135276, 0, 0, 55}, {850, 1135310, 0, 0, 56}, {932, 1243854, 267, 360726, 65},
	} {
		var s quic.ConnectionStats
		s.PacketsSent, s.BytesSent, s.PacketsLost, s.BytesLost, s.PacketsReceived = l[0], l[1], l[2], l[3], l[4]
		s.LatestRTT = time.Duration(220 + i/watchFor)
		if o.observe(s, 1400) {
			t.Fatalf("look %d: large packets are said to vanish", i)
		}
	}
}

// narrowConn can lose all packets that are larger than QUIC's least.
type narrowConn struct {
	packetConn
	on *atomic.Bool
}

func (c narrowConn) WriteTo(b []byte, to net.Addr) (int, error) {
	if c.on.Load() && len(b) > leastPacket {
		return len(b), nil
	}
	return c.packetConn.WriteTo(b, to)
}

// TestSlowHandshakes loses all but small packets. That must count as a narrow path, unless a
// handshake with full packets has just succeeded, or a connection to that host has just sent some.
func TestSlowHandshakes(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"never passed", "just passed", "passed to another port", "pass on a connection"} {
		t.Run(name, func(t *testing.T) {
			proven := name != "never passed"
			t.Parallel()
			h := oneAS(t)
			var narrow atomic.Bool
			cfg := ListenConfig{packetIO: func(ctx context.Context, h *Host, port uint16) (packetConn, error) {
				p, err := openPlain(ctx, h, port)
				return narrowConn{p, &narrow}, err
			}}
			a, b := listen(t, h, cfg), listen(t, h, cfg)
			k := hostPath{h.ia, b.addr.Host, ""}
			var d, c *Conn
			if proven {
				d, c = pair(t, a, b)
			}
			switch name {
			case "passed to another port":
				b = listen(t, h, cfg)
			case "pass on a connection":
				h.memory.fullPass(k, time.Time{}) // the handshake was long ago
				go func() { _, _ = io.Copy(io.Discard, c) }()
				for !h.memory.passesFull(k, time.Now()) {
					if _, err := d.Write(make([]byte, 64<<10)); err != nil {
						t.Fatal(err)
					}
				}
				d, c = c, d
			}
			narrow.Store(true)
			s, _ := pair(t, a, b)
			if got := s.Stats().PacketSize; got != leastPacket {
				t.Errorf("packets of %d bytes, want %d", got, leastPacket)
			}
			if _, known := h.memory.mtu(k, time.Now()); known == proven {
				t.Errorf("taken for a narrow path: %t", known)
			}
			if proven {
				ping(t, d, c)
			}
		})
	}
}

// doubtfulConn answers a dialler who begins a handshake with the smallest packets meanwhile.
type doubtfulConn struct {
	packetConn
	host *Host
}

func (c doubtfulConn) WriteTo(b []byte, to net.Addr) (int, error) {
	c.host.routes.forAddr(to).initial.Store(leastPacket)
	return c.packetConn.WriteTo(b, to)
}

// Both ends agree on the packet size, also if the dialler has tried another one.
func TestSizeOfFirstHandshake(t *testing.T) {
	h := oneAS(t)
	a, b := listen(t, h, ListenConfig{}), listen(t, h, ListenConfig{
		packetIO: func(ctx context.Context, h *Host, port uint16) (packetConn, error) {
			p, err := openPlain(ctx, h, port)
			return doubtfulConn{p, h}, err
		}})
	d, c := pair(t, a, b)
	if got, want := c.Stats().PacketSize, d.Stats().PacketSize; got != want || want == leastPacket {
		t.Errorf("the acceptor's packets have %d bytes, the dialler's %d", got, want)
	}
}

// A check that comes at once after another one, with the acknowledgements of a stall, shows no
// rate.
func TestTally(t *testing.T) {
	var y tally
	now := time.Unix(1e9, 0)
	for _, c := range []struct {
		after  time.Duration
		acked  uint64 // in all
		rate   float64
		counts bool
	}{
		{0, 1000, 0, false},
		{watchEvery, 2000, 2000, true},
		{2 * watchEvery, 2000, 0, true},
		{time.Millisecond, 4000, 0, false},
		{watchEvery - time.Millisecond, 4000, 4000, true},
	} {
		now = now.Add(c.after)
		d, ok := y.add(congestion.Snapshot{BytesAcked: c.acked}, now)
		if ok != c.counts || ok && d.rate != c.rate {
			t.Errorf("%d bytes after %v: %v, %v; want %v, %v", c.acked, c.after, d.rate, ok, c.rate, c.counts)
		}
	}
}
