package scionnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/snet"
	snetpath "github.com/scionproto/scion/pkg/snet/path"

	"braid/pathsel"
	"braid/scionnet/congestion"
	"braid/units/await"
)

// pair connects two endpoints. Both connections are aborted at the end of the test.
func pair(t *testing.T, from, to *Endpoint) (dialled, accepted *Conn) {
	t.Helper()
	dialled, err := from.Dial(t.Context(), to.Addr(), from.host.localPath(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dialled.Abort)
	if accepted, err = to.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(accepted.Abort)
	return dialled, accepted
}

func ping(t *testing.T, from, to *Conn) {
	t.Helper()
	if _, err := from.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(to, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
}

func TestLimits(t *testing.T) {
	h := oneAS(t)
	for _, tt := range []struct {
		name string
		cfg  ListenConfig
	}{
		{"in all", ListenConfig{limits: limits{2, 2, 512, 1}}},
		{"from one host", ListenConfig{limits: limits{2048, 1536, 2, 256}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := listen(t, h, tt.cfg)
			a := listen(t, h, ListenConfig{})
			d1, a1 := pair(t, a, b)
			pair(t, a, b)
			if _, err := a.Dial(t.Context(), b.Addr(), h.localPath(), nil); !errors.Is(err, ErrRefused) {
				t.Fatalf("third of two: error %v, want ErrRefused", err)
			}
			d1.Close()
			if _, err := a1.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			a1.Close()
			<-a1.quic.Context().Done()
			// The place becomes free shortly after the connection's end.
			await.Success(t, "the place of a connection that has ended", func() error {
				c, err := a.Dial(t.Context(), b.Addr(), h.localPath(), nil)
				if err == nil {
					c.Abort()
				}
				return err
			})
		})
	}
}

func TestNothingIsLeftBehind(t *testing.T) {
	h := oneAS(t)
	a, b := listen(t, h, ListenConfig{}), listen(t, h, ListenConfig{})
	for range 20 {
		d, c := pair(t, a, b)
		ping(t, d, c)
		d.Close()
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		c.Close()
		<-d.quic.Context().Done()
		<-c.quic.Context().Done()
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	if b.places.held != 0 || len(b.places.of) != 0 || len(b.conns) != 0 || len(a.conns) != 0 || b.handshakes.Load() != 0 {
		t.Errorf("left: %d accepted, %d hosts, %d and %d connections, %d handshakes", b.places.held, len(b.places.of), len(a.conns), len(b.conns), b.handshakes.Load())
	}
	for _, r := range h.routes.byKey {
		if r.pins != 0 {
			t.Errorf("route to %s has %d pins", r.remote, r.pins)
		}
	}
}

func TestOtherProtocolsAreRefused(t *testing.T) {
	h := oneAS(t)
	a, b := listen(t, h, ListenConfig{}), listen(t, h, ListenConfig{})
	w := way{nextHop: netip.AddrPortFrom(b.addr.Host, b.addr.Port)}
	r := h.routes.dial(b.addr, "", &w)
	defer h.routes.unpin(r)
	_, err := a.quic.Dial(t.Context(), r.pseudo, a.identity.TLS("braid/999", nil), quicConfig(leastPacket))
	if err == nil || !strings.Contains(err.Error(), "no application protocol") {
		t.Errorf("error %v, want one about the protocol", err)
	}
	pair(t, a, b)
}

// TestDiallerWhoNeverSpeaks opens connections without a stream: they must end by themselves.
func TestDiallerWhoNeverSpeaks(t *testing.T) {
	t.Parallel()
	h := oneAS(t)
	a, b := listen(t, h, ListenConfig{}), listen(t, h, ListenConfig{})
	r := h.routes.dial(b.addr, "", &way{nextHop: netip.AddrPortFrom(b.addr.Host, b.addr.Port)})
	defer h.routes.unpin(r)
	qc, err := a.quic.Dial(t.Context(), r.pseudo, a.identity.TLS(ALPN, nil), quicConfig(leastPacket))
	if err != nil {
		t.Fatal(err)
	}
	<-qc.Context().Done()
	if err := plainError(context.Cause(qc.Context())); !errors.Is(err, ErrRefused) {
		t.Errorf("error %v, want ErrRefused", err)
	}
}

func TestSecondStreamIsNotForTheTaking(t *testing.T) {
	h := oneAS(t)
	d, _ := pair(t, listen(t, h, ListenConfig{}), listen(t, h, ListenConfig{}))
	if _, err := d.quic.OpenStream(); err == nil {
		t.Error("a second stream can be opened")
	}
	if _, err := d.quic.OpenUniStream(); err == nil {
		t.Error("a one-way stream can be opened")
	}
}

func TestDialErrors(t *testing.T) {
	h := oneAS(t)
	a := listen(t, h, ListenConfig{})
	small := h.localPath()
	remote := mustAddr(t, "1-ff00:0:110,[127.0.0.1]:1024")
	elsewhere := small
	elsewhere.Dst = 5
	for _, tt := range []struct {
		name   string
		remote Addr
		path   pathsel.Path
		part   string
	}{
		{"no port", Addr{remote.IA, remote.Host, 0}, small, "not complete"},
		{"path to another AS", remote, elsewhere, "leads to 0-5"},
	} {
		_, err := a.Dial(t.Context(), tt.remote, tt.path, nil)
		if err == nil || !strings.Contains(err.Error(), tt.part) || !strings.Contains(err.Error(), tt.remote.String()) {
			t.Errorf("%s: error %v, want one about %q with the address", tt.name, err, tt.part)
		}
	}
	a.Close()
	if _, err := a.Dial(t.Context(), remote, small, nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: error %v, want net.ErrClosed", err)
	}
}

func TestPacketSize(t *testing.T) {
	v4, v6 := mustAddr(t, "1-1,[10.0.0.1]:1"), mustAddr(t, "1-1,[fd00::1]:1")
	// The header has 48 bytes, 8 for each segment, 12 for each hop field, and 24 more for IPv6
	// hosts.
	three := rawPath(t, false, up, core)
	if got, want := (&way{raw: three}).headerLen(v4, v4), 48+2*8+5*12; got != want {
		t.Errorf("IPv4: header of %d bytes, want %d", got, want)
	}
	if got, want := (&way{raw: three}).headerLen(v6, v6), 48+24+2*8+5*12; got != want {
		t.Errorf("IPv6: header of %d bytes, want %d", got, want)
	}
	for _, tt := range []struct{ mtu, header, want int }{
		{1400, 124, 1276}, {1472, 72, 1400}, {9000, 72, 1452}, {1272, 72, 1200}, {1271, 72, 0}, {0, 72, 0},
	} {
		got, err := packetSize(pathsel.Path{MTU: tt.mtu}, tt.header)
		if got != tt.want || (err != nil) != (tt.want == 0) {
			t.Errorf("MTU %d, header %d: %d, %v, want %d", tt.mtu, tt.header, got, err, tt.want)
		}
	}
}

// TestForeignPackets sends packets that belong to no connection while a connection is in use.
func TestForeignPackets(t *testing.T) {
	for name, cfg := range packetConns {
		t.Run(name, func(t *testing.T) { foreignPackets(t, cfg) })
	}
}

// scmpPackets is one SCMP message of each type about a packet from us to the peer.
func scmpPackets(t *testing.T, us, peer Addr) (packets [][]byte) {
	quote := packet(t, us, peer, snetpath.Empty{}, make([]byte, 100))
	for _, m := range []snet.Payload{
		snet.SCMPDestinationUnreachable{Payload: quote}, snet.SCMPParameterProblem{Payload: quote},
		snet.SCMPPacketTooBig{MTU: 90, Payload: quote}, snet.SCMPPacketTooBig{MTU: 1280, Payload: quote[:20]},
		snet.SCMPExternalInterfaceDown{IA: otherIA, Interface: 61, Payload: quote},
		snet.SCMPInternalConnectivityDown{IA: otherIA, Ingress: 51, Egress: 61, Payload: quote},
		snet.SCMPEchoRequest{Payload: quote}, snet.SCMPEchoReply{Payload: quote},
		snet.SCMPTracerouteRequest{}, snet.SCMPTracerouteReply{IA: otherIA, Interface: 5},
	} {
		p := snet.Packet{PacketInfo: snet.PacketInfo{
			Source:      snet.SCIONAddress{IA: addr.IA(peer.IA), Host: addr.HostIP(peer.Host)},
			Destination: snet.SCIONAddress{IA: addr.IA(us.IA), Host: addr.HostIP(us.Host)},
			Path:        snetpath.Empty{}, Payload: m,
		}}
		if err := p.Serialize(); err != nil {
			t.Fatal(err)
		}
		packets = append(packets, bytes.Clone(p.Bytes))
	}
	return packets
}

func foreignPackets(t *testing.T, cfg ListenConfig) {
	h := oneAS(t)
	a, b := listen(t, h, cfg), listen(t, h, cfg)
	d, c := pair(t, a, b)
	raw, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(b.addr.Host, b.addr.Port)))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	good := packet(t, a.addr, b.addr, snetpath.Empty{}, []byte("not QUIC"))
	otherHost, otherPort, otherAS := b.addr, b.addr, b.addr
	otherHost.Host, otherPort.Port, otherAS.IA = netip.MustParseAddr("127.0.0.2"), 1, 5
	packets := [][]byte{
		{}, {0}, []byte("hello"), make([]byte, 1500), good, good[:len(good)-4], good[:30],
		packet(t, a.addr, b.addr, snetpath.SCION{Raw: rawPath(t, false, up, core)}, []byte("still on its way")),
		packet(t, a.addr, b.addr, snetpath.SCION{Raw: rawPath(t, true, up, core)}, []byte("from nowhere")),
		packet(t, a.addr, otherHost, snetpath.Empty{}, []byte("x")),
		packet(t, a.addr, otherPort, snetpath.Empty{}, []byte("x")),
		packet(t, a.addr, otherAS, snetpath.Empty{}, []byte("x")),
	}
	packets = append(packets, scmpPackets(t, b.addr, a.addr)...)
	for _, f := range []string{"\x01", "\x01\x00\x00\x03abcdefg", "\x02\x00\x00\x1012345678abcd", "\x03\x00\x20\x0012345678", "\x3fx"} {
		packets = append(packets, packet(t, a.addr, b.addr, snetpath.Empty{}, []byte(f)))
	}
	for i := range good { // changes every byte of the header
		bad := bytes.Clone(good)
		bad[i] ^= 0xff
		packets = append(packets, bad)
	}
	for _, p := range packets {
		if _, err := raw.Write(p); err != nil {
			t.Fatal(err)
		}
		ping(t, d, c)
		ping(t, c, d)
	}
}

// packet serialises a SCION/UDP packet.
func packet(t testing.TB, from, to Addr, path snet.DataplanePath, payload []byte) []byte {
	t.Helper()
	p := snet.Packet{PacketInfo: snet.PacketInfo{
		Source:      snet.SCIONAddress{IA: addr.IA(from.IA), Host: addr.HostIP(from.Host)},
		Destination: snet.SCIONAddress{IA: addr.IA(to.IA), Host: addr.HostIP(to.Host)},
		Path:        path,
		Payload:     snet.UDPPayload{SrcPort: from.Port, DstPort: to.Port, Payload: payload},
	}}
	if err := p.Serialize(); err != nil {
		t.Fatal(err)
	}
	return p.Bytes
}

// roughConn loses, doubles and swaps packets that it sends, and can fall silent.
type roughConn struct {
	packetConn
	every  int // each fate meets one packet in so many; 0: none
	silent *atomic.Bool

	mu   sync.Mutex
	rand *rand.Rand
	held []byte // a packet that the next one overtakes
	to   net.Addr
}

func roughPlainIO(every int, silent *atomic.Bool) packetIO {
	return func(ctx context.Context, h *Host, port uint16) (packetConn, error) {
		p, err := openPlain(ctx, h, port)
		if err != nil {
			return nil, err
		}
		return &roughConn{packetConn: p, every: every, silent: silent, rand: rand.New(rand.NewPCG(1, uint64(port)))}, nil
	}
}

func (c *roughConn) WriteTo(b []byte, to net.Addr) (int, error) {
	if c.silent.Load() {
		return len(b), nil
	}
	if c.every == 0 {
		return c.packetConn.WriteTo(b, to)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.rand.IntN(c.every) {
	case 0: // lost
		return len(b), nil
	case 1: // doubled
		if _, err := c.packetConn.WriteTo(b, to); err != nil {
			return 0, err
		}
	case 2: // overtaken
		if c.held == nil {
			c.held, c.to = bytes.Clone(b), to
			return len(b), nil
		}
	case 3: // cut off
		if _, err := c.packetConn.WriteTo(b[:len(b)/2], to); err != nil {
			return 0, err
		}
		return len(b), nil
	}
	n, err := c.packetConn.WriteTo(b, to)
	if c.held != nil && err == nil {
		_, err = c.packetConn.WriteTo(c.held, c.to)
		c.held = nil
	}
	return n, err
}

func TestRoughPath(t *testing.T) {
	for name, open := range roughIO {
		for _, a := range []congestion.Algorithm{congestion.BBR, congestion.NewReno} {
			t.Run(name+"/"+string(a), func(t *testing.T) {
				roughPath(t, ListenConfig{packetIO: open(50, new(atomic.Bool)), Congestion: a})
			})
		}
	}
}

func roughPath(t *testing.T, cfg ListenConfig) {
	h := oneAS(t)
	a, b := listen(t, h, cfg), listen(t, h, cfg)
	d, c := pair(t, a, b)
	data := make([]byte, 2<<20)
	rand.NewChaCha8([32]byte{1}).Read(data)
	for _, way := range []struct{ from, to *Conn }{{d, c}, {c, d}} {
		sent := make(chan error, 1)
		go func() {
			_, err := way.from.Write(data)
			sent <- err
		}()
		got := make([]byte, len(data))
		if _, err := io.ReadFull(way.to, got); err != nil {
			t.Fatal(err)
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, data) {
			t.Fatal("the data are not those that were sent")
		}
	}
	for _, conn := range []*Conn{d, c} {
		s := conn.Stats()
		if q := statsOf(conn.quic, conn.control.Snapshot()); s.PacketsLost == 0 || q.BytesLost == 0 {
			t.Errorf("no loss noticed: %+v, %d bytes lost", s, q.BytesLost)
		}
		if s.State == "" || s.DeliveryRate <= 0 || s.PacingRate <= 0 || s.Window < leastPacket {
			t.Errorf("congestion: %+v", s.Congestion)
		}
	}
}

// TestSilenceIsNoEOF stalls a connection during a transfer, for longer than its idle timeout.
func TestSilenceIsNoEOF(t *testing.T) {
	t.Parallel()
	for name, open := range roughIO {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			silenceIsNoEOF(t, open)
		})
	}
}

func silenceIsNoEOF(t *testing.T, open func(int, *atomic.Bool) packetIO) {
	h := oneAS(t)
	var silent atomic.Bool
	cfg := ListenConfig{packetIO: open(0, &silent)}
	a, b := listen(t, h, cfg), listen(t, h, cfg)
	d, c := pair(t, a, b)
	ping(t, d, c)
	silent.Store(true)
	if _, err := d.Write([]byte("never arrives")); err != nil {
		t.Fatal(err)
	}
	for name, conn := range map[string]*Conn{"dialler": d, "acceptor": c} {
		_, err := conn.Read(make([]byte, 100))
		if !errors.Is(err, ErrSilent) {
			t.Errorf("%s: error %v, want ErrSilent", name, err)
		}
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("%s: %v looks like a deadline after which one may go on", name, err)
		}
	}
}

// TestLateToAccept lets more connections wait than the queue holds: the rest must be refused.
func TestLateToAccept(t *testing.T) {
	t.Parallel()
	h := oneAS(t)
	a, b := listen(t, h, ListenConfig{}), listen(t, h, ListenConfig{})
	const more = 5
	var conns []*Conn
	for range acceptQueue + more {
		c, err := a.Dial(t.Context(), b.Addr(), h.localPath(), nil)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	refused := make(chan error, len(conns))
	for _, c := range conns {
		go func() {
			<-c.quic.Context().Done()
			refused <- plainError(context.Cause(c.quic.Context()))
		}()
	}
	for range more {
		if err := <-refused; !errors.Is(err, ErrRefused) {
			t.Errorf("error %v, want ErrRefused", err)
		}
	}
	for range acceptQueue {
		c, err := b.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c.Abort()
	}
}

func TestCloseWaitsForDelivery(t *testing.T) {
	h := oneAS(t)
	a, b := listen(t, h, ListenConfig{}), listen(t, h, ListenConfig{})
	d, c := pair(t, a, b)
	d.lingers = time.Hour
	data := make([]byte, 100<<10)
	if _, err := d.Write(data); err != nil {
		t.Fatal(err)
	}
	got := make(chan int64, 1)
	go func() {
		n, err := io.Copy(io.Discard, c)
		if err != nil {
			t.Error(err)
		}
		c.Close()
		got <- n
	}()
	d.Close()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if n := <-got; n != int64(len(data)) {
		t.Errorf("%d bytes arrived of %d", n, len(data))
	}
}

// TestDeadlineAfterClose closes connections while one goroutine writes to a peer that does not
// read, and another one removes the deadline. The writer must not wait for the peer.
func TestDeadlineAfterClose(t *testing.T) {
	h := oneAS(t)
	a, b := listen(t, h, ListenConfig{}), listen(t, h, ListenConfig{})
	for range 20 {
		d, _ := pair(t, a, b)
		begun, written, removed := make(chan struct{}), make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := d.Write(make([]byte, 1<<20))
			for close(begun); err == nil; {
				_, err = d.Write(make([]byte, 1<<20))
			}
			written <- err
		}()
		<-begun
		go func() {
			err := d.SetWriteDeadline(time.Time{})
			for end := await.Deadline(t); err == nil && time.Now().Before(end); {
				err = d.SetDeadline(time.Time{})
			}
			removed <- err
		}()
		d.Close()
		if err := <-removed; !errors.Is(err, net.ErrClosed) {
			t.Fatalf("deadline removed after Close: error %v", err)
		}
		if err := <-written; !errors.Is(err, net.ErrClosed) {
			t.Fatalf("Write: error %v", err)
		}
	}
}

func TestKeepAliveAmong(t *testing.T) {
	for _, tt := range []struct {
		conns int
		want  time.Duration
	}{
		{0, keepAlive}, {8, keepAlive}, {500, keepAlive}, {1000, time.Second}, {2000, 2 * time.Second}, {1 << 20, idleTimeout / 2},
	} {
		if got := keepAliveAmong(tt.conns); got != tt.want {
			t.Errorf("%d connections: %v, want %v", tt.conns, got, tt.want)
		}
	}
}
