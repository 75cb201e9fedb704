package client

import (
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/datachannel"

	"braid/pathsel"
	"braid/scionnet/conformance"
	"braid/units/await"
)

func rtcTransport(t testing.TB) *WebRTC {
	t.Helper()
	w, err := openWebRTC(WebRTCConfig{Local: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

// accept is the answer of a complete transfer.
func accept(Peer) bool { return false }

// meetRTC makes a connection, as trackers do it.
func meetRTC(t testing.TB, offerer, answerer *WebRTC) (dialled, accepted Wire) {
	t.Helper()
	found := make(chan Peer, 1)
	o, err := offerer.Offer(t.Context(), func(p Peer) bool { found <- p; return true })
	if err != nil {
		t.Fatal(err)
	}
	answer, err := answerer.Answer(t.Context(), "the offerer", o.SDP, accept)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Answered("the answerer", answer); err != nil {
		t.Fatal(err)
	}
	p := <-found
	if !offerer.Reaches(p) || p.Dialable() || !strings.HasPrefix(p.String(), "webrtc:") {
		t.Errorf("peer %v", p)
	}
	if dialled, err = offerer.Dial(t.Context(), p, pathsel.Path{}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := offerer.Dial(t.Context(), p, pathsel.Path{}, nil); !errors.Is(err, errRTCGone) {
		t.Errorf("dialled twice: %v", err)
	}
	if accepted, err = answerer.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, w := range []Wire{dialled, accepted} {
		if err := w.SetDeadline(await.Deadline(t)); err != nil {
			t.Fatal(err)
		}
		if a := w.Peer().origin(); a.Host == "" || w.Origin().Net == pathsel.Unproven || w.Measure().Handshake <= 0 {
			t.Errorf("%v, %+v", a, w.Measure())
		}
	}
	return dialled, accepted
}

func TestWebRTC(t *testing.T) {
	for _, c := range conformance.Streams() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			d, a := meetRTC(t, rtcTransport(t), rtcTransport(t))
			c.Test(t, d, a)
		})
	}
	t.Run("LargeBothWays", func(t *testing.T) {
		t.Parallel()
		d, a := meetRTC(t, rtcTransport(t), rtcTransport(t))
		if err := conformance.Exchange(d, a, 0, 4<<20); err != nil {
			t.Fatal(err)
		}
	})
}

// What the peer has sent before it closed the connection can be read afterwards.
func TestWebRTCReadsToTheEnd(t *testing.T) {
	d, a := meetRTC(t, rtcTransport(t), rtcTransport(t))
	sent := make([]byte, 100_000)
	if _, err := d.Write(sent); err != nil {
		t.Fatal(err)
	}
	d.Close()
	<-a.(*rtcWire).closed
	if got, err := io.ReadAll(a); err != nil || len(got) != len(sent) {
		t.Errorf("%d of %d bytes, %v", len(got), len(sent), err)
	}
}

// A peer needs one connection. When it has ended, there may be another.
func TestWebRTCTwice(t *testing.T) {
	x, y := rtcTransport(t), rtcTransport(t)
	d, a := meetRTC(t, x, y)
	o, err := x.Offer(t.Context(), accept)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := y.Answer(t.Context(), "the offerer", o.SDP, accept); !errors.Is(err, errRTCTwice) {
		t.Errorf("a second connection: %v", err)
	}
	if err := o.Answered("the answerer", o.SDP); !errors.Is(err, errRTCTwice) {
		t.Errorf("a second connection: %v", err)
	}
	d.Close()
	if _, err := io.ReadAll(a); err != nil {
		t.Errorf("the end of the connection: %v", err)
	}
	a.Close()
	meetRTC(t, x, y)
}

// A peer that opens a second channel loses the connection, whoever has offered it: nobody would
// read from the channel, and its name can be long.
func TestWebRTCSecondChannel(t *testing.T) {
	for _, ofOfferer := range []bool{true, false} {
		by, to := meetRTC(t, rtcTransport(t), rtcTransport(t))
		if !ofOfferer {
			by, to = to, by
		}
		if _, err := by.(*rtcWire).pc.CreateDataChannel("second", nil); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(to); err != nil {
			t.Errorf("opened by the offerer %v: %v", ofOfferer, err)
		}
	}
}

// A connection that opens while the transport closes does not outlive it.
func TestWebRTCOpensTooLate(t *testing.T) {
	x, y := rtcTransport(t), rtcTransport(t)
	late, other := meetRTC(t, x, y)
	x.Close()
	x.deliver(late.(*rtcWire), func(Peer) bool {
		t.Error("handed out after the end")
		return true
	})
	if _, err := io.ReadAll(other); err != nil {
		t.Errorf("the end of the connection: %v", err)
	}
}

// Nobody makes us keep more than so many connections that never open.
func TestWebRTCIsBounded(t *testing.T) {
	x := rtcTransport(t)
	sdp := ""
	for i := range maxRTCPending {
		o, err := x.Offer(t.Context(), accept)
		if err != nil {
			t.Fatalf("offer %d: %v", i, err)
		}
		if sdp == "" {
			sdp = o.SDP
			o.Close()
		}
	}
	if _, err := x.Offer(t.Context(), accept); err != nil {
		t.Errorf("after one was withdrawn: %v", err)
	}
	if _, err := x.Offer(t.Context(), accept); !errors.Is(err, errRTCFull) {
		t.Errorf("too many offers: %v", err)
	}
	if _, err := x.Answer(t.Context(), "", sdp, accept); !errors.Is(err, errRTCFull) {
		t.Errorf("too many answers: %v", err)
	}
	x.Close()
	if _, err := x.Offer(t.Context(), accept); err == nil {
		t.Error("an offer of a closed transport")
	}
	if _, err := x.Accept(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept: %v", err)
	}
}

// A peer that offers connections again and again, and makes none, leaves room for others.
func TestWebRTCOffersOfOne(t *testing.T) {
	x, y := rtcTransport(t), rtcTransport(t)
	o, err := x.Offer(t.Context(), accept)
	if err != nil {
		t.Fatal(err)
	}
	for range maxRTCPending {
		if _, err := y.Answer(t.Context(), "the offerer", o.SDP, accept); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := y.Answer(t.Context(), "another", o.SDP, accept); err != nil {
		t.Errorf("another peer: %v", err)
	}
}

// Each offer has us send many packets to addresses that the peer chooses.
func TestWebRTCRepeatedOffersAreBounded(t *testing.T) {
	x, y := rtcTransport(t), rtcTransport(t)
	now := time.Now()
	y.now = func() time.Time { return now }
	o, err := x.Offer(t.Context(), accept)
	if err != nil {
		t.Fatal(err)
	}
	answer := func(name string) error {
		_, err := y.Answer(t.Context(), name, o.SDP, accept)
		return err
	}
	for range 1 + repeatsMost {
		if err := answer("one"); err != nil {
			t.Fatal(err)
		}
	}
	if err := answer("one"); !errors.Is(err, errRTCOften) {
		t.Errorf("one more offer of the same peer: %v", err)
	}
	if err := answer("another"); err != nil {
		t.Errorf("an offer of another peer: %v", err)
	}
	now = now.Add(repeatsEvery)
	if err := answer("one"); err != nil {
		t.Errorf("a while later: %v", err)
	}
}

// What is said about this host, and whom a stranger can have us contact.
func TestFilterSDP(t *testing.T) {
	const host = "a=candidate:1 1 udp 2130706431 192.168.1.7 5000 typ host"
	const loopback = "a=candidate:1 1 udp 2130706431 127.0.0.1 5000 typ host"
	const public = "a=candidate:2 1 udp 2130706431 93.184.216.34 5000 typ host"
	const mapped = "a=candidate:3 1 UDP 1694498815 93.184.216.34 6000 typ srflx raddr 192.168.1.7 rport 5000"
	const hidden = "a=candidate:3 1 UDP 1694498815 93.184.216.34 6000 typ srflx raddr 0.0.0.0 rport 0"
	const mdns = "a=candidate:4 1 udp 2130706431 2b1a.local 5000 typ host"
	const tcp = "a=candidate:5 1 tcp 2130706431 93.184.216.34 9 typ host tcptype active"
	const ends = "a=end-of-candidates"
	all := strings.Join([]string{"v=0", "m=application 9 UDP/DTLS/SCTP webrtc-datachannel", host, loopback, public, mapped, mdns, tcp, ends, ""}, "\r\n")
	for _, c := range []struct {
		local bool
		want  []string
	}{
		{false, []string{public, hidden}},
		{true, []string{host, loopback, public, mapped}},
	} {
		got, err := filterSDP(all, c.local)
		want := strings.Join(slices.Concat([]string{"v=0", "m=application 9 UDP/DTLS/SCTP webrtc-datachannel"}, c.want, []string{ends, ""}), "\r\n")
		if err != nil || got != want {
			t.Errorf("local %v: %q, %v; want %q", c.local, got, err, want)
		}
	}
	// The parser of the library skips such characters at the beginning of a line.
	if got, err := filterSDP(all+"\r"+loopback, false); err != nil || strings.Contains(got, loopback) {
		t.Errorf("a stranger leads to this machine: %q, %v", got, err)
	}
	for _, bad := range []string{"", "v=0", "m=video 9 x", all + "m=audio 9 x", all + "\rm=audio 9 x", strings.Repeat("a=x\n", maxSDPLines+1)} {
		if got, err := filterSDP(bad, true); err == nil {
			t.Errorf("%.50q became %q", bad, got)
		}
	}
	// What we offer by default has no address of a local network.
	x, err := openWebRTC(WebRTCConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	o, err := x.Offer(t.Context(), accept)
	if err != nil {
		t.Fatal(err)
	}
	for _, local := range []string{"127.0.0.1", "192.168.", "172.1", " 10.", "fe80", ".local"} {
		if strings.Contains(strings.Join(linesWith(o.SDP, "candidate"), "\n"), local) {
			t.Errorf("revealed %s:\n%s", local, o.SDP)
		}
	}
}

func linesWith(s, what string) (out []string) {
	for line := range strings.Lines(s) {
		if strings.Contains(line, what) {
			out = append(out, line)
		}
	}
	return out
}

func FuzzFilterSDP(f *testing.F) {
	f.Add("v=0\r\nm=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\na=candidate:3 1 UDP 1694498815 93.184.216.34 6000 typ srflx raddr 192.168.1.7 rport 5000\r\n")
	f.Fuzz(func(t *testing.T, sdp string) {
		once, err := filterSDP(sdp, false)
		if err != nil {
			return
		}
		if twice, err := filterSDP(once, false); err != nil || twice != once {
			t.Fatalf("%q became %q and then %q, %v", sdp, once, twice, err)
		}
	})
}

func TestParseICE(t *testing.T) {
	for text, ok := range map[string]bool{
		"stun:stun.example.org:3478": true, "stun:[2001:db8::1]:3478": true, "turn:user:secret@turn.example.org:3478?transport=udp": true,
		"": false, "stun:": false, "http://x": false, "turn:turn.example.org": false, "stun:user@x": false, "stun:a b:1": false,
	} {
		s, err := ParseICE(text)
		if (err == nil) != ok || ok && (len(s.URLs) != 1 || strings.Contains(s.URLs[0], "secret")) {
			t.Errorf("%q: %+v, %v", text, s, err)
		}
	}
}

// idleChannel is a data channel on which nothing happens.
type idleChannel struct{ datachannel.ReadWriteCloser }

func (idleChannel) SetReadDeadline(time.Time) error { return nil }

// Connections that no transfer dials make room for others, and so does one whose peer has another
// connection from the same address.
func TestWebRTCReadyIsBounded(t *testing.T) {
	x := rtcTransport(t)
	var all []*rtcWire
	deliver := func(port int) *rtcWire {
		w := &rtcWire{
			remote: remote{peer: Peer{host: "192.0.2.1", port: uint16(port), rtc: true}},
			raw:    idleChannel{}, closed: make(chan struct{}), gone: func(func()) {},
		}
		all = append(all, w)
		x.deliver(w, func(Peer) bool { return true })
		return w
	}
	for port := range maxRTCReady + 2 {
		deliver(port)
	}
	last := deliver(maxRTCReady + 1)
	for i, w := range all {
		open := i >= 2 && i != maxRTCReady+1
		select {
		case <-w.closed:
			if open {
				t.Errorf("connection %d was ended", i)
			}
		default:
			if !open {
				t.Errorf("connection %d is still open", i)
			}
		}
	}
	if w, err := x.Dial(t.Context(), last.peer, pathsel.Path{}, nil); w != last {
		t.Errorf("dialled %v, %v", w, err)
	}
}

// A connection may be measured while the transport closes.
func TestWebRTCMeasureDuringClose(t *testing.T) {
	x, y := rtcTransport(t), rtcTransport(t)
	w, _ := meetRTC(t, x, y)
	r := w.(*rtcWire)
	begun, closed := make(chan struct{}), make(chan struct{})
	var both sync.WaitGroup
	both.Go(func() {
		close(begun)
		for {
			select {
			case <-closed:
				return
			default:
			}
			r.Measure()
			runtime.Gosched()
		}
	})
	<-begun
	x.Close()
	close(closed)
	both.Wait()
	r.Close()
}

// Nobody can dial a peer over WebRTC again. When its connection is gone, a download does not try it
// for ever.
func TestGonePeerOfWebRTCIsForgotten(t *testing.T) {
	s, err := newSession(Config{}, testLog(t), []Transport{rtcTransport(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var failed atomic.Int64
	tr, err := s.Add(smallTorrent(t), openStore(t, t.TempDir()), Options{Decided: func(e PathEvent) {
		if e.Name == "path-failed" {
			failed.Add(1)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	gone := Peer{host: "10.0.0.1", port: 7, rtc: true}
	tr.Found(FromTracker, gone)
	until(t, tr, "forgotten", func(p Progress) (forgotten bool) {
		tr.do(func() { forgotten = !tr.peers.knows(gone) })
		return forgotten && failed.Load() == 1 && len(p.Paths) == 0
	})
}
