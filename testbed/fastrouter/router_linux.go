// Package fastrouter is scionproto's border router with other socket I/O: batches of packets of one size are sent and
// received as one, with segmentation and receive offload (UDP_SEGMENT, UDP_GRO). What is done to a packet is
// scionproto's own data plane, unchanged: paths, MACs, BFD and SCMP are as in the stock router, and the two work in one
// network. It stands in for the high-speed router of the original evaluation.
//
// Its place is scionproto's seam for underlays (router.AddUnderlay): the UDP/IP underlay under its own name, with
// another opener of connections. It needs Linux and one process for each router.
package fastrouter

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	_ "unsafe" // for go:linkname

	"github.com/scionproto/scion/pkg/log"
	"github.com/scionproto/scion/private/config"
	"github.com/scionproto/scion/private/underlay/conn"
	"github.com/scionproto/scion/router"
	routerconfig "github.com/scionproto/scion/router/config"
	"github.com/scionproto/scion/router/control"
	_ "github.com/scionproto/scion/router/underlayproviders/udpip" // the underlay that ours is made from
	"golang.org/x/sync/errgroup"
)

// providers are the underlays that scionproto's packages have registered. The package has a way to add one and none to
// get one; a copy of the underlay's thousand lines would be the alternative.
//
//go:linkname providers github.com/scionproto/scion/router.underlayProviders
var providers map[string]router.NewProviderFn

const underlay = "udpip"

// share is the part of the machine's processors that a router uses, unless the environment says otherwise (GOMAXPROCS). It
// has others beside it, and hosts. On two processors, with a thread on each, every few packets wake the other thread to
// process or to send them, for an eighth of all that the router costs.
const share = 4

// Run is the router of a configuration file of scionproto's router, until ctx ends. It may be called once in a process.
func Run(ctx context.Context, file string) error {
	var cfg routerconfig.Config
	if err := config.LoadFile(file, &cfg); err != nil {
		return fmt.Errorf("router configuration %s: %w", file, err)
	}
	cfg.InitDefaults()
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("router configuration %s: %w", file, err)
	}
	if err := log.Setup(cfg.Logging); err != nil {
		return fmt.Errorf("router log: %w", err)
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, runtime.NumCPU()/share))
	}
	stock := providers[underlay]
	if stock == nil {
		return errors.New("this version of scionproto keeps its underlays elsewhere: the fast router needs the one that braid was made for")
	}
	router.AddUnderlay(underlay, func(batch, receive, send int) router.UnderlayProvider {
		p := stock(batch, receive, send)
		p.SetConnOpener(opener{})
		return p
	})
	c, err := control.LoadConfig(cfg.General.ID, cfg.General.ConfigDir)
	if err != nil {
		return fmt.Errorf("router topology in %s: %w", cfg.General.ConfigDir, err)
	}
	dp := router.NewConnector(cfg.Router, cfg.Features)
	if err := (&control.IACtx{Config: c, DP: dp}).Configure(); err != nil {
		return fmt.Errorf("configure the data plane: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return cfg.Metrics.ServePrometheus(ctx) })
	g.Go(func() error { return dp.DataPlane.Run(ctx) })
	return g.Wait()
}

// opener is what scionproto's underlay opens its sockets with (udpip.ConnOpener).
type opener struct{}

func (opener) Open(local, remote netip.AddrPort, cfg *conn.Config) (router.BatchConn, error) {
	return open(local, remote, cfg)
}

func (opener) UDPCanReuseLocal() bool { return true }
