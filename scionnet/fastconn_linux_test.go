package scionnet

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/scionproto/scion/pkg/snet"
	snetpath "github.com/scionproto/scion/pkg/snet/path"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"braid/scionnet/udpbatch"
)

// batch is control data with which quic-go announces packets of that size.
func batch(size uint16) []byte {
	b := make([]byte, unix.CmsgSpace(2))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = unix.SOL_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(b[unix.CmsgLen(0):], size)
	return b
}

func messages(n int) []ipv4.Message {
	ms := make([]ipv4.Message, n)
	for i := range ms {
		ms[i].Buffers = [][]byte{make([]byte, mostPacket)}
	}
	return ms
}

// fastPair is two packet connections, and the route from the first to the second.
func fastPair(t testing.TB) (a, b *fastConn, toB *route) {
	t.Helper()
	h := oneAS(t)
	open := func() *fastConn {
		p, err := openFast(t.Context(), h, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		p.(*fastConn).takeAllFrames()
		return p.(*fastConn)
	}
	a, b = open(), open()
	return a, b, h.routes.dial(b.local, "", &way{nextHop: netip.AddrPortFrom(b.local.Host, b.local.Port)})
}

// readAll reads payloads from c until it has that many bytes.
func readAll(t testing.TB, c *fastConn, bytes int) (packets [][]byte, from net.Addr) {
	t.Helper()
	ms := messages(8)
	for total := 0; total < bytes; {
		n, err := c.ReadBatch(ms, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range ms[:n] {
			packets = append(packets, append([]byte(nil), m.Buffers[0][:m.N]...))
			total += m.N
			from = m.Addr
		}
	}
	return packets, from
}

func TestBatch(t *testing.T) {
	a, b, to := fastPair(t)
	for _, off := range []bool{false, true} {
		if off {
			if err := a.batches.Control(a.batches.Plain); err != nil {
				t.Fatal(err)
			}
		}
		for _, limit := range []int{0, 8000} {
			to.large.limit.Store(int32(limit))
			var run []byte
			for i := range 14 {
				run = append(run, quicLike(1400, byte(i))...)
			}
			run = append(run, quicLike(33, 99)...)
			if _, _, err := a.WriteMsgUDP(run, batch(1400), to.pseudo); err != nil {
				t.Fatal(err)
			}
			packets, from := readAll(t, b, len(run))
			if got := bytes.Join(packets, nil); !bytes.Equal(got, run) || len(packets) != 15 {
				t.Fatalf("limit %d, offload off %v: %d packets of %d bytes, want 15 of %d", limit, off, len(packets), len(got), len(run))
			}
			// The answer finds its way back.
			if _, err := b.WriteTo(quicLike(50, 1), from); err != nil {
				t.Fatal(err)
			}
			if p, _ := readAll(t, a, 50); !bytes.Equal(p[0], quicLike(50, 1)) {
				t.Fatalf("answer %x", p[0])
			}
		}
	}
}

// TestBundlesNeedAConnection sends frames without a connection, and small packets over a
// connection.
func TestBundlesNeedAConnection(t *testing.T) {
	a, b, to := fastPair(t)
	a.allFrames, b.allFrames = false, false
	bundle := func(size int) []byte {
		f := append(make([]byte, frameHeader), bytes.Repeat([]byte{0x40}, 3600)...)
		putFrame(f, kindBundle, size)
		return f
	}
	probe := make([]byte, leastBundle)
	putFrame(probe, kindProbe, len(probe))
	good := quicLike(100, 7)
	arrives := func(f []byte) (packets int) {
		t.Helper()
		for _, p := range [][]byte{f, good} {
			if err := a.send(to, p, 0); err != nil {
				t.Fatal(err)
			}
		}
		for {
			got, _ := readAll(t, b, 1)
			for _, p := range got {
				if bytes.Equal(p, good) {
					return packets
				}
				packets++
			}
		}
	}
	back := b.host.routes.mustArrive(t, a.local, nil, netip.AddrPortFrom(a.local.Host, a.local.Port))
	for _, offered := range []bool{false, true} {
		back.large.offered.Store(offered)
		for size, want := range map[int]int{1: 0, leastPacket - 1: 0, leastPacket: 3, 3600: 1} {
			if !offered {
				want = 0
			}
			if got := arrives(bundle(size)); got != want {
				t.Errorf("with a connection: %t, a bundle of %d bytes each: %d packets, want %d", offered, size, got, want)
			}
		}
		if got := arrives(probe); got != 0 {
			t.Errorf("a probe goes up")
		}
		if got := back.large.target > 0; got != offered {
			t.Errorf("with a connection: %t, a probe counts: %t", offered, got)
		}
	}
}

// BenchmarkForeignDatagram measures the cost of a datagram from a remote without a connection: an
// ordinary one, and a bundle of packets of one byte.
func BenchmarkForeignDatagram(b *testing.B) {
	ordinary := append([]byte{0x40}, make([]byte, 1399)...)
	bomb := append(make([]byte, frameHeader), bytes.Repeat([]byte{0x40}, 1396)...)
	putFrame(bomb, kindBundle, 1)
	for name, payload := range map[string][]byte{"ordinary": ordinary, "bomb": bomb} {
		b.Run(name, func(b *testing.B) {
			from, _, _ := fastPair(b)
			e := listen(b, from.host, ListenConfig{})
			to := from.host.routes.dial(e.addr, "", &way{nextHop: netip.AddrPortFrom(e.addr.Host, e.addr.Port)})
			var before, after unix.Rusage
			_ = unix.Getrusage(unix.RUSAGE_SELF, &before)
			for b.Loop() {
				if err := from.send(to, payload, 0); err != nil {
					b.Fatal(err)
				}
				time.Sleep(20 * time.Microsecond) // so that the socket drops none
			}
			_ = unix.Getrusage(unix.RUSAGE_SELF, &after)
			spent := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
			b.ReportMetric(float64(spent.Microseconds())/float64(b.N), "cpu-us/op")
		})
	}
}

// TestYield has other goroutines that run for long: the reader yields to them once, and then
// empties the socket first.
func TestYield(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	c := &fastConn{in: &batchReceiver{many: true}}
	for range 1000 { // the scheduler may run the reader first
		var others sync.WaitGroup
		for range 4 {
			others.Go(func() {
				for start := time.Now(); time.Since(start) <= longTurn; {
				}
			})
		}
		if c.yield(); c.slowYield {
			break
		}
		others.Wait()
	}
	if !c.slowYield {
		t.Fatal("the reader waits for all others whenever there is much to read")
	}
	if c.yield(); !c.slowYield {
		t.Error("not to the end of what is in the socket")
	}
	c.in.many = false
	if c.yield(); c.slowYield {
		t.Error("for ever")
	}
}

// TestHeader compares headers with those of snet, and parses them with snet.
func TestHeader(t *testing.T) {
	from4, to4 := mustAddr(t, "1-ff00:0:110,[10.0.0.1]:4000"), mustAddr(t, "2-ff00:0:210,[10.0.0.2]:5000")
	from6, to6 := mustAddr(t, "1-ff00:0:110,[fd00::1]:4000"), mustAddr(t, "2-ff00:0:210,[fd00::2]:5000")
	raw := rawPath(t, true, up, core)
	for _, tt := range []struct {
		from, to Addr
		raw      []byte
	}{{from4, to4, nil}, {from6, to6, nil}, {from4, to6, raw}, {from6, to4, raw}} {
		tmpl, err := newTemplate(tt.from, tt.to, &way{raw: tt.raw})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{0, 1, 2, 7, 8, 31, 32, 33, 1200, 1401, 9000} {
			payload := quicLike(n+1, byte(n))[:n]
			var path snet.DataplanePath = snetpath.Empty{}
			if tt.raw != nil {
				path = snetpath.SCION{Raw: bytes.Clone(tt.raw)}
			}
			want := packet(t, tt.from, tt.to, path, payload)
			got := make([]byte, len(tmpl.header))
			tmpl.write(got, tt.from.Port, nil, payload)
			if !bytes.Equal(got, want[:len(got)]) {
				t.Fatalf("%s to %s, %d bytes:\n%x\n%x, want", tt.from, tt.to, n, got, want[:len(got)])
			}
			tmpl.write(got, tt.from.Port, payload[:n/2&^1], payload[n/2&^1:])
			if !bytes.Equal(got, want[:len(got)]) {
				t.Fatalf("with a prefix: %x, want %x", got, want[:len(got)])
			}
			header, rest, ok := splitHeader(want)
			if !ok || !bytes.Equal(rest, payload) || !sameHeader(header, string(headerKey(nil, header))) {
				t.Fatalf("split: %v, %d bytes", ok, len(rest))
			}
		}
	}
}

// TestNewWay renews the hop fields of a route: the next packet must have them.
func TestNewWay(t *testing.T) {
	local, remote := mustAddr(t, "1-ff00:0:110,[10.0.0.1]:4000"), mustAddr(t, "2-ff00:0:210,[10.0.0.2]:5000")
	r := &route{remote: remote}
	for _, raw := range [][]byte{rawPath(t, false, up, core), rawPath(t, false, up)} {
		w := &way{raw: raw}
		r.way.Store(w)
		for range 2 {
			tmpl, err := r.templateFor(local, w)
			if err != nil || tmpl.way != w || !bytes.Contains(tmpl.header, raw) {
				t.Fatalf("template %+v, %v", tmpl, err)
			}
		}
	}
}

// FuzzFastReceive compares the fast parser with the slow one.
func FuzzFastReceive(f *testing.F) {
	us, peer := mustAddr(f, "1-1,[10.0.0.1]:1000"), mustAddr(f, "1-3,[10.0.0.3]:2000")
	near := mustAddr(f, "1-1,[10.0.0.3]:2000")
	for _, good := range [][]byte{
		packet(f, near, us, snetpath.Empty{}, quicLike(40, 1)),
		packet(f, peer, us, snetpath.SCION{Raw: rawPath(f, true, up, core)}, quicLike(40, 1)),
		packet(f, peer, us, epicWay(f).dataplane(rawPath(f, true, up, core)), quicLike(40, 1)),
	} {
		f.Add(good, good)
		other := bytes.Clone(good)
		other[len(other)-41] ^= 1
		f.Add(good, other)
		f.Add(good, good[:len(good)-1])
	}
	bundle := make([]byte, frameHeader+30)
	putFrame(bundle, kindBundle, 20)
	f.Add(packet(f, near, us, snetpath.Empty{}, bundle), packet(f, near, us, snetpath.Empty{}, bundle[:5]))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var cp controlPlane
		h, _, _ := hostWithPath(t, &cp)
		fast := &fastConn{rawConn: &rawConn{host: h, local: us}, headers: map[string]*parsedHeader{}}
		fast.in = &batchReceiver{Reader: udpbatch.NewReader(1)}
		for _, p := range [][]byte{first, second, first} {
			got, r := fast.parse(bytes.Clone(p))
			slow := plainConn{raw: &rawConn{host: h, local: us}}
			slow.in.Bytes = bytes.Clone(p)
			slow.from = fast.in.From()
			if slow.in.Decode() != nil {
				if r != nil {
					t.Fatalf("the slow path does not take %x", p)
				}
				continue
			}
			if _, scmp := slow.in.Payload.(snet.SCMPPayload); scmp {
				continue
			}
			want, w := slow.parse()
			if (r == nil) != (w == nil) || r != nil && (r.remote != w.remote || r.trail != w.trail || !bytes.Equal(got, want)) {
				t.Fatalf("fast %x from %+v, slow %x from %+v", got, r, want, w)
			}
		}
	})
}

// FuzzReceive sends payloads to the route of a connection, among them large ones and frames, and
// reads them.
func FuzzReceive(f *testing.F) {
	a, b, to := fastPair(f)
	a.allFrames, b.allFrames = false, false
	back := b.host.routes.mustArrive(f, a.local, nil, netip.AddrPortFrom(a.local.Host, a.local.Port))
	mark := quicLike(77, 7)
	frame := func(kind byte, size int, body []byte) []byte {
		p := append(make([]byte, frameHeader), body...)
		putFrame(p, kind, size)
		return p
	}
	receive := func(t testing.TB, p []byte) (packets int) {
		back.large.reset()
		back.large.offered.Store(true)
		back.large.allow(8000)
		back.large.sent = map[int][tokenLen]byte{8000: [tokenLen]byte([]byte("12345678"))}
		if len(p) > 60_000 {
			return 0
		}
		for _, p := range [][]byte{p, mark} {
			if err := a.send(to, p, 0); err != nil {
				t.Fatal(err)
			}
		}
		ms := messages(8)
		for {
			n, err := b.ReadBatch(ms, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range ms[:n] {
				got := m.Buffers[0][:m.N]
				if bytes.Equal(got, mark) {
					if most := max(1, 1+len(p)/leastPacket); packets > most {
						t.Errorf("%d packets of %d bytes, want at most %d", packets, len(p), most)
					}
					if limit := back.large.limit.Load(); limit != 0 && limit != 8000 {
						t.Errorf("bundles of up to %d bytes, of which nobody asked", limit)
					}
					return packets
				}
				if m.Addr.String() != back.pseudo.String() {
					t.Fatalf("from %s, want %s", m.Addr, back.pseudo)
				}
				if packets++; len(got) > mostPacket || packets > 1 && !bytes.Contains(p, got) {
					t.Errorf("packet %d is not one of those sent", packets)
				}
			}
		}
	}
	for _, s := range []struct {
		payload []byte
		want    int
	}{
		{quicLike(1400, 1), 1},
		{quicLike(9000, 1), 0},
		{frame(kindBundle, 1200, bytes.Repeat(quicLike(1200, 2), 5)), 5},
		{frame(kindBundle, 1452, quicLike(8000, 2)), 6},
		{frame(kindBundle, 1, quicLike(8000, 2)), 0},
		{frame(kindProbe, leastBundle, make([]byte, leastBundle-frameHeader)), 0},
		{frame(kindAnswer, 8000, []byte("12345678")), 0},
		{nil, 0},
	} {
		if got := receive(f, s.payload); got != s.want {
			f.Errorf("%d bytes, %x...: %d packets, want %d", len(s.payload), s.payload[:min(4, len(s.payload))], got, s.want)
		}
		f.Add(s.payload)
	}
	receive(f, frame(kindAnswer, 8000, []byte("12345678")))
	if back.large.limit.Load() != 8000 {
		f.Error("a good answer is not taken")
	}
	f.Fuzz(func(t *testing.T, p []byte) { receive(t, p) })
}

// BenchmarkBatch sends batches of 14 packets as quic-go does, and receives them.
func BenchmarkBatch(b *testing.B) {
	for name, limit := range map[string]int32{"single": 0, "bundles": 8000} {
		b.Run(name, func(b *testing.B) {
			from, at, to := fastPair(b)
			to.large.limit.Store(limit)
			run := bytes.Repeat(quicLike(1400, 1), 14)
			oob := batch(1400)
			ms := messages(8)
			b.SetBytes(int64(len(run)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := from.WriteMsgUDP(run, oob, to.pseudo); err != nil {
					b.Fatal(err)
				}
				for got := 0; got < len(run); {
					n, err := at.ReadBatch(ms, 0)
					if err != nil {
						b.Fatal(err)
					}
					for _, m := range ms[:n] {
						got += m.N
					}
				}
			}
		})
	}
}

// BenchmarkConn measures a whole connection, over both packet connections.
func BenchmarkConn(b *testing.B) {
	for name, cfg := range map[string]ListenConfig{"fast": {}, "plain": {PlainPackets: true}} {
		b.Run(name, func(b *testing.B) {
			h := oneAS(b)
			from, to := listen(b, h, cfg), listen(b, h, cfg)
			d, err := from.Dial(b.Context(), to.Addr(), h.localPath(), nil)
			if err != nil {
				b.Fatal(err)
			}
			defer d.Abort()
			c, err := to.Accept(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			defer c.Abort()
			const size = 1 << 20
			b.SetBytes(size)
			data, got := make([]byte, size), make([]byte, size)
			go func() {
				for {
					if _, err := d.Write(data); err != nil {
						return
					}
				}
			}()
			for b.Loop() {
				if _, err := io.ReadFull(c, got); err != nil {
					b.Fatal(err)
				}
			}
			s := d.Stats()
			b.ReportMetric(float64(s.PacketsLost)/float64(s.PacketsSent)*100, "lost_%")
		})
	}
}
