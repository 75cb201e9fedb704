package scionnet

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/daemon"
	"github.com/scionproto/scion/pkg/private/ctrl/path_mgmt"
	"github.com/scionproto/scion/pkg/snet"
	snetpath "github.com/scionproto/scion/pkg/snet/path"

	"braid/pathsel"
)

// revocations is a control plane that only listens to revocations.
type revocations struct {
	daemon.Connector
	mu   sync.Mutex
	told []pathsel.Interface
}

func (r *revocations) RevNotification(_ context.Context, rev *path_mgmt.RevInfo) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, pathsel.Interface{IA: pathsel.IA(rev.RawIsdas), ID: uint64(rev.IfID)})
	return nil
}

const (
	usIA, otherIA, peerIA = 1<<48 | 1, 1<<48 | 2, 1<<48 | 3
)

// hostWithPath is a host in usIA that knows one path to peerIA: us#41 - 51#other#61 - 81#peer.
func hostWithPath(t testing.TB, c *controlPlane) (*Host, *revocations, found) {
	t.Helper()
	p := pathsel.Path{Src: usIA, Dst: peerIA, MTU: 1400, Expiry: time.Now().Add(time.Hour), Interfaces: []pathsel.Interface{
		{IA: usIA, ID: 41}, {IA: otherIA, ID: 51}, {IA: otherIA, ID: 61}, {IA: peerIA, ID: 81},
	}}
	raw := rawPath(t, false, segment{true, false, 1000, [][2]uint16{{0, 41}, {51, 61}, {81, 0}}})
	f := found{path: p, trail: trailOf(p.Interfaces), way: way{raw: raw, expiry: p.Expiry}}
	c.paths = []found{f}
	told := &revocations{}
	h := &Host{ia: usIA, localIP: netip.MustParseAddr("10.0.0.1"), log: slog.New(slog.DiscardHandler), connector: told}
	h.routes = testRoutes()
	h.lookup = newLookup(c.query, h.applied, h.routes.inUse, h.log)
	h.claims = h.newClaims()
	t.Cleanup(h.lookup.close)
	return h, told, f
}

func TestInterfaceDown(t *testing.T) {
	us := Addr{usIA, netip.MustParseAddr("10.0.0.1"), 1000}
	peer := Addr{peerIA, netip.MustParseAddr("10.0.0.3"), 2000}
	for _, tt := range []struct {
		name   string
		from   Addr // of the quoted packet
		to     Addr
		cutOff bool
		down   snet.Payload
		heard  bool
	}{
		{"external", us, peer, false, snet.SCMPExternalInterfaceDown{IA: otherIA, Interface: 61}, true},
		{"internal", us, peer, false, snet.SCMPInternalConnectivityDown{IA: otherIA, Ingress: 51, Egress: 61}, true},
		{"somebody else's packet", Addr{usIA, netip.MustParseAddr("10.0.0.2"), 1000}, peer, false, snet.SCMPExternalInterfaceDown{IA: otherIA, Interface: 61}, false},
		{"another AS's packet", Addr{otherIA, us.Host, 1000}, peer, false, snet.SCMPExternalInterfaceDown{IA: otherIA, Interface: 61}, false},
		{"interface off the path", us, peer, false, snet.SCMPExternalInterfaceDown{IA: otherIA, Interface: 62}, false},
		{"interface of another AS", us, peer, false, snet.SCMPExternalInterfaceDown{IA: otherIA + 5, Interface: 61}, false},
		{"path to somewhere else", us, Addr{otherIA, peer.Host, 2000}, false, snet.SCMPExternalInterfaceDown{IA: otherIA, Interface: 61}, false},
		{"quote cut off", us, peer, true, snet.SCMPExternalInterfaceDown{IA: otherIA, Interface: 61}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var c controlPlane
				h, told, f := hostWithPath(t, &c)
				changes, cancel := h.Subscribe(peerIA)
				defer cancel()
				<-changes // the path is known
				quote := packet(t, tt.from, tt.to, snetpath.SCION{Raw: f.way.raw}, []byte("x"))
				if tt.cutOff {
					quote = quote[:30]
				}
				c.asks()
				if err := h.scmpHandler().Handle(&snet.Packet{PacketInfo: snet.PacketInfo{Payload: withQuote(tt.down, quote)}}); err != nil {
					t.Errorf("the handler returns %v, which would end every connection", err)
				}
				synctest.Wait()
				r, revoked := h.Revoked(f.path)
				if revoked != tt.heard {
					t.Fatalf("revoked: %t, want %t", revoked, tt.heard)
				}
				want := pathsel.Interface{IA: otherIA, ID: 61}
				if !tt.heard {
					if len(told.told) != 0 {
						t.Errorf("the daemon was told of %v", told.told)
					}
					return
				}
				<-changes
				if r.Interface != want || len(told.told) != 1 || told.told[0] != want {
					t.Errorf("revoked %v, the daemon was told of %v, want %v", r.Interface, told.told, want)
				}
				if c.asks() != 1 {
					t.Error("the destination was not looked up again at once")
				}
				time.Sleep(revokedFor + time.Second)
				if c.asks() == 0 {
					t.Error("the destination was not looked up again after the revocation")
				}
			})
		})
	}
}

func withQuote(p snet.Payload, quote []byte) snet.Payload {
	switch m := p.(type) {
	case snet.SCMPExternalInterfaceDown:
		m.Payload = quote
		return m
	case snet.SCMPInternalConnectivityDown:
		m.Payload = quote
		return m
	}
	return p
}

// FuzzPacket takes in what arrives at the socket: it must be a payload with a route, or nothing.
func FuzzPacket(f *testing.F) {
	us := Addr{usIA, netip.MustParseAddr("10.0.0.1"), 1000}
	peer := Addr{peerIA, netip.MustParseAddr("10.0.0.3"), 2000}
	f.Add(packet(f, peer, us, snetpath.Empty{}, []byte("hello")))
	f.Add(packet(f, peer, us, snetpath.SCION{Raw: rawPath(f, true, up, core)}, []byte("hello")))
	quote := packet(f, us, peer, snetpath.SCION{Raw: rawPath(f, false, segment{true, false, 1000, [][2]uint16{{0, 41}, {51, 61}, {81, 0}}})}, nil)
	for _, m := range []snet.Payload{
		snet.SCMPExternalInterfaceDown{IA: otherIA, Interface: 61, Payload: quote},
		snet.SCMPInternalConnectivityDown{IA: otherIA, Ingress: 51, Egress: 61, Payload: quote},
		snet.SCMPPacketTooBig{MTU: 1200, Payload: quote},
		snet.SCMPEchoRequest{Identifier: 1, SeqNumber: 2, Payload: []byte("x")},
		snet.SCMPTracerouteReply{Identifier: 1, Sequence: 2, IA: otherIA, Interface: 5},
	} {
		p := snet.Packet{PacketInfo: snet.PacketInfo{
			Source:      snet.SCIONAddress{IA: addr.IA(peer.IA), Host: addr.HostIP(peer.Host)},
			Destination: snet.SCIONAddress{IA: addr.IA(us.IA), Host: addr.HostIP(us.Host)},
			Path:        snetpath.Empty{}, Payload: m,
		}}
		if err := p.Serialize(); err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(p.Bytes))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var cp controlPlane
		h, told, _ := hostWithPath(t, &cp)
		c := &plainConn{host: h, local: us, log: h.log}
		c.in.Bytes = b
		if err := c.in.Decode(); err != nil {
			return
		}
		if _, scmp := c.in.Payload.(snet.SCMPPayload); scmp {
			if err := h.scmpHandler().Handle(&c.in); err != nil {
				t.Errorf("SCMP goes up: %v", err)
			}
			if h.lookup.close(); len(told.told) > 0 {
				t.Errorf("revoked %v for a path that was never looked up", told.told)
			}
			return
		}
		payload, r := c.accept()
		if r == nil {
			return
		}
		if len(payload) > len(b) || h.routes.at(r.pseudo) != r || !r.remote.Host.IsValid() {
			t.Errorf("%d bytes of payload in %d, route %+v", len(payload), len(b), r)
		}
	})
}
