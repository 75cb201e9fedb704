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
