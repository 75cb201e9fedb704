package announce

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"braid/scionnet"
	"braid/tracker"
	"braid/tracker/server"
	"braid/tracker/swarm"
	"braid/tracker/wire"
)

// resolveLoopback makes all names those of the loopback addresses of both families.
func resolveLoopback(t *testing.T) {
	t.Helper()
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{PacketConn: c, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		h := dns.RR_Header{Name: q.Question[0].Name, Rrtype: q.Question[0].Qtype, Class: dns.ClassINET}
		switch h.Rrtype {
		case dns.TypeA:
			m.Answer = []dns.RR{&dns.A{Hdr: h, A: net.IPv4(127, 0, 0, 1)}}
		case dns.TypeAAAA:
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

// A UDP tracker names only peers of the family in which it is asked. So it is asked in both, and if
// it answers in one of them only, that is enough.
func TestUDPFamilies(t *testing.T) {
	resolveLoopback(t)
	for _, tt := range []struct {
		families []string
		peers    int
	}{{[]string{"udp6", "udp4"}, 2}, {[]string{"udp4"}, 1}, {[]string{"udp6"}, 1}} {
		store := swarm.NewMemory(server.Default().Limits())
		s, err := server.New(server.Default(), store, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		port := 0
		for _, f := range tt.families {
			at := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}
			if f == "udp6" {
				at.IP = net.IPv6loopback
			}
			c, err := net.ListenUDP(f, at)
			if err != nil {
				t.Skip(err) // no IPv6, or the port is taken there
			}
			port = c.LocalAddr().(*net.UDPAddr).Port
			ctx, stop := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- s.ServeUDP(ctx, c) }()
			defer func() { stop(); <-ended }()
		}
		u, err := tracker.ParseURL(fmt.Sprintf("udp://tracker.test:%d", port))
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
			{one, wire.Announce{PeerID: wire.PeerID{1}, Key: "1", NumWant: 9}, 0, tt.peers},
			{two, wire.Announce{PeerID: wire.PeerID{2}, Key: "2", NumWant: 9}, tt.peers, 2 * tt.peers},
			{one, wire.Announce{PeerID: wire.PeerID{1}, Key: "1", Event: wire.Stopped}, 0, tt.peers},
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
