package announce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"

	"braid/scionnet"
	"braid/tracker"
	"braid/tracker/server"
	"braid/tracker/swarm"
	"braid/tracker/wire"
)

// resolveLoopback makes all names those of the loopback addresses of both families, except that
// v4.test has no address on IPv6.
func resolveLoopback(t *testing.T) {
	t.Helper()
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{PacketConn: c, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		m.RecursionAvailable = true // else an empty answer is a referral
		h := dns.RR_Header{Name: q.Question[0].Name, Rrtype: q.Question[0].Qtype, Class: dns.ClassINET}
		switch {
		case h.Rrtype == dns.TypeA:
			m.Answer = []dns.RR{&dns.A{Hdr: h, A: net.IPv4(127, 0, 0, 1)}}
		case h.Rrtype == dns.TypeAAAA && h.Name != "v4.test.":
			m.Answer = []dns.RR{&dns.AAAA{Hdr: h, AAAA: net.IPv6loopback}}
		}
		_ = w.WriteMsg(m)
	})}
	ended := make(chan error, 1)
	go func() { ended <- s.ActivateAndServe() }()
	usual := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp4", c.LocalAddr().String())
	}}
	t.Cleanup(func() {
		net.DefaultResolver = usual
		c.Close()
		<-ended
	})
}

// A tracker names the address from which it was asked, and over UDP only peers of that family. So it
// is asked in both families, and if it answers in one of them only, that is enough.
func TestFamilies(t *testing.T) {
	resolveLoopback(t)
	for _, tt := range []struct {
		families []string
		peers    int
	}{
		{[]string{"udp6", "udp4"}, 2}, {[]string{"udp4"}, 1}, {[]string{"udp6"}, 1},
		{[]string{"tcp6", "tcp4"}, 2}, {[]string{"tcp4"}, 1}, {[]string{"tcp6"}, 1},
	} {
		store := swarm.NewMemory(server.Default().Limits())
		s, err := server.New(server.Default(), store, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		scheme, port := "udp", "0"
		for _, f := range tt.families {
			at, serve := net.JoinHostPort("127.0.0.1", port), (func(context.Context) error)(nil)
			if strings.HasSuffix(f, "6") {
				at = net.JoinHostPort("::1", port)
			}
			if strings.HasPrefix(f, "udp") {
				c, err := net.ListenPacket(f, at)
				if err != nil {
					t.Skip(err) // no IPv6, or the port is taken there
				}
				at, serve = c.LocalAddr().String(), func(ctx context.Context) error { return s.ServeUDP(ctx, c.(*net.UDPConn)) }
			} else {
				l, err := net.Listen(f, at)
				if err != nil {
					t.Skip(err)
				}
				scheme = "http"
				at, serve = l.Addr().String(), func(ctx context.Context) error { return s.ServeHTTP1(ctx, l, 10) }
			}
			_, port, _ = net.SplitHostPort(at)
			ctx, stop := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- serve(ctx) }()
			defer func() { stop(); <-ended }()
		}
		u, err := tracker.ParseURL(scheme + "://tracker.test:" + port)
		if err != nil {
			t.Fatal(err)
		}
		from := func(listen ...string) asker {
			var cfg Config
			for _, at := range listen {
				cfg.Listen = append(cfg.Listen, netip.MustParseAddrPort(at))
			}
			a, err := newAsker(u.OfUser(), &cfg, scionnet.ScopeLoopback)
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		one, two := from("[::]:1001"), from("127.0.0.1:1002", "[::1]:1003")
		for _, x := range []struct {
			asker
			a                 wire.Announce
			found, registered int
		}{
			{one, wire.Announce{Compact: true, PeerID: wire.PeerID{1}, Key: "1", NumWant: 9}, 0, tt.peers},
			{two, wire.Announce{Compact: true, PeerID: wire.PeerID{2}, Key: "2", NumWant: 9}, tt.peers, 2 * tt.peers},
			{one, wire.Announce{Compact: true, PeerID: wire.PeerID{1}, Key: "1", Event: wire.Stopped}, 0, tt.peers},
		} {
			x.a.Left = 1
			answer, err := x.announce(t.Context(), &x.a, nil)
			totals, _ := store.Totals(t.Context())
			if err != nil || len(answer.Peers) != x.found || totals.Members != x.registered {
				t.Errorf("a tracker on %v: %v, %v; %+v", tt.families, answer.Peers, err, totals)
			}
		}
	}
}

// A peer that listens on IPv6 only still asks a tracker whose name has an address on IPv4 only. If
// the peer listens on both and the tracker is away, the error is not that the name is unknown.
func TestNameOfOneFamily(t *testing.T) {
	resolveLoopback(t)
	up := listening(t, "127.0.0.1", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "de") })
	ask := func(listen ...netip.AddrPort) error {
		_, port, _ := net.SplitHostPort(up.Listener.Addr().String())
		u, err := tracker.ParseURL("http://v4.test:" + port)
		if err != nil {
			t.Fatal(err)
		}
		a, err := newAsker(u, &Config{Listen: listen}, scionnet.ScopeLoopback)
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.announce(t.Context(), &wire.Announce{}, nil)
		return err
	}
	v4, v6 := netip.MustParseAddrPort("127.0.0.1:1001"), netip.MustParseAddrPort("[::1]:1001")
	if err := ask(v6); err != nil {
		t.Error(err)
	}
	up.Close()
	if err := ask(v4, v6); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
}

// A tracker that is silent in one family does not delay the peers in its answer in the other.
func TestSilentFamily(t *testing.T) {
	resolveLoopback(t)
	up := listening(t, "127.0.0.1", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "d5:peers6:\x7f\x00\x00\x01\x00\x07e")
	})
	_, port, _ := net.SplitHostPort(up.Listener.Addr().String())
	silent, err := net.Listen("tcp", net.JoinHostPort("::1", port)) // it accepts, and never answers
	if err != nil {
		t.Skip(err)
	}
	defer silent.Close()
	u, err := tracker.ParseURL("http://tracker.test:" + port)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var early []wire.Addr
	a, err := newAsker(u, &Config{
		Listen: []netip.AddrPort{netip.MustParseAddrPort("[::]:1001")},
		Found:  func(peers []wire.Addr) { early = peers; stop() },
	}, scionnet.ScopeLoopback)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := a.announce(ctx, &wire.Announce{}, nil)
	if err != nil || len(answer.Peers) != 1 || len(early) != 1 {
		t.Errorf("early %v, at the end %v, %v", early, answer.Peers, err)
	}
}
