package scionnet

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/daemon"
	"github.com/scionproto/scion/pkg/daemon/types"
	"github.com/scionproto/scion/pkg/snet"

	"braid/pathsel"
)

// growingAS is the daemon of an AS that gets more interfaces.
type growingAS struct {
	daemon.Connector
	mu         sync.Mutex
	interfaces map[uint16]netip.AddrPort
}

func (*growingAS) LocalIA(context.Context) (addr.IA, error)          { return usIA, nil }
func (*growingAS) PortRange(context.Context) (uint16, uint16, error) { return 1024, 65535, nil }
func (*growingAS) ASInfo(context.Context, addr.IA) (types.ASInfo, error) {
	return types.ASInfo{MTU: 1400}, nil
}
func (*growingAS) Close() error { return nil }
func (*growingAS) Paths(context.Context, addr.IA, addr.IA, types.PathReqFlags) ([]snet.Path, error) {
	return nil, nil
}
func (a *growingAS) Interfaces(context.Context) (map[uint16]netip.AddrPort, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.interfaces, nil
}

// A host learns of an interface that its AS gets later. Else peers whose packets come through it
// would never be proven.
func TestInterfacesAreReloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		as := &growingAS{}
		h := newHost(Config{LocalIP: netip.MustParseAddr("10.0.0.1")})
		h.connector = as
		if err := h.start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		as.mu.Lock()
		as.interfaces = map[uint16]netip.AddrPort{41: router}
		as.mu.Unlock()
		time.Sleep(2 * reloadEvery)
		raw := rawPath(t, true, segment{true, false, 1000, [][2]uint16{{0, 81}, {61, 51}, {41, 0}}})
		r := h.routes.mustArrive(t, Addr{peerIA, netip.MustParseAddr("10.0.0.3"), 2000}, raw, router)
		if !h.remoteAS(r).reached {
			t.Error("a peer behind a new interface counts as not reached")
		}
	})
}

// If a router gets another address, packets along known paths go there: to peers that were dialled,
// to peers that have connected, and to peers that are dialled later. Else these paths would carry
// nothing until their hop fields are renewed.
func TestMovedRouters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		as := &growingAS{interfaces: map[uint16]netip.AddrPort{41: router, 42: router}}
		h := newHost(Config{LocalIP: netip.MustParseAddr("10.0.0.1")})
		h.connector = as
		if err := h.start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		peer := Addr{peerIA, netip.MustParseAddr("10.0.0.3"), 2000}
		tr, other := trailFrom(41, 51, 61, 81), trailFrom(42, 51, 61, 81)
		w := &way{raw: []byte{1}, nextHop: router, expiry: time.Now().Add(time.Hour)}
		h.lookup.add(peerIA, []found{{path: pathsel.Path{Expiry: w.expiry}, trail: tr, way: w}})
		dialled, stays := h.routes.dial(peer, tr, w), h.routes.dial(peer, other, w)
		raw := rawPath(t, true, segment{true, false, 1000, [][2]uint16{{0, 81}, {62, 51}, {41, 0}}})
		accepted := h.routes.mustArrive(t, peer, raw, router)
		neighbour := netip.MustParseAddrPort("10.0.0.66:6666")
		raw = rawPath(t, true, segment{true, false, 1000, [][2]uint16{{0, 81}, {63, 51}, {43, 0}}})
		through := h.routes.mustArrive(t, peer, raw, neighbour)

		moved := netip.MustParseAddrPort("127.0.0.10:30001")
		as.mu.Lock()
		as.interfaces = map[uint16]netip.AddrPort{41: moved, 42: router, 43: moved}
		as.mu.Unlock()
		time.Sleep(2 * reloadEvery)
		later, _ := h.lookup.find(peerIA, tr)
		for _, tt := range []struct {
			name string
			way  *way
			want netip.AddrPort
		}{
			{"a dialled peer", dialled.way.Load(), moved},
			{"a peer that has connected", accepted.way.Load(), moved},
			{"a peer that is dialled later", later.way, moved},
			{"a peer behind a router that stays", stays.way.Load(), router},
			{"a peer whose packets a neighbour has passed on", through.way.Load(), neighbour},
		} {
			if tt.way.nextHop != tt.want {
				t.Errorf("packets to %s go to %s, want %s", tt.name, tt.way.nextHop, tt.want)
			}
		}
	})
}

// A host whose AS has routers in several networks sends from the same address after each start.
func TestDefaultIPStays(t *testing.T) {
	h := &Host{}
	h.interfaces.Store(&map[uint16]netip.AddrPort{
		1: netip.MustParseAddrPort("[::1]:30001"), 2: netip.MustParseAddrPort("127.0.0.1:30001"),
	})
	for range 32 {
		if got, err := h.defaultIP(t.Context()); got != netip.MustParseAddr("127.0.0.1") {
			t.Fatalf("%v, %v", got, err)
		}
	}
}
