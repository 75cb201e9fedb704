// Package fastrouter is scionproto's border router with other socket I/O. It sends and receives
// batches of packets of one size in one system call, with segmentation and receive offload
// (UDP_SEGMENT, UDP_GRO). Packets are processed by scionproto's own data plane, so paths, MACs, BFD
// and SCMP are as in the stock router, and both routers work in one network. It takes the place of
// the high-speed router of the original evaluation.
//
// It replaces scionproto's UDP/IP underlay (router.AddUnderlay) by the same underlay with other
// sockets. It needs Linux, and one process for each router.
package fastrouter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	_ "unsafe" // for go:linkname

	"github.com/scionproto/scion/pkg/log"
	"github.com/scionproto/scion/private/config"
	"github.com/scionproto/scion/router"
	routerconfig "github.com/scionproto/scion/router/config"
	"github.com/scionproto/scion/router/control"
	_ "github.com/scionproto/scion/router/underlayproviders/udpip" // the underlay that ours is made from
	"golang.org/x/sync/errgroup"
)

// providers are the underlays that scionproto's packages have registered. The package has no
// exported way to get one. The alternative would be a copy of the thousand lines of the underlay.
//
//go:linkname providers github.com/scionproto/scion/router.underlayProviders
var providers map[string]router.NewProviderFn

const underlay = "udpip"

// share: a router uses one of four processors of the machine, unless GOMAXPROCS is set. Other
// routers and hosts run beside it. With a thread on each of two processors, the threads would wake
// each other every few packets, which takes an eighth of the router's CPU time.
const share = 4

// Run runs a router until ctx ends. file is a configuration of scionproto's router. Run may be
// called once in a process.
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
		return errors.New("this version of scionproto keeps its underlays elsewhere: " +
			"the fast router needs the one that braid was made for")
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
