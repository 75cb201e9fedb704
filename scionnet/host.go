// Package scionnet is a SCION host with QUIC connections that are pinned to a path.
//
// A Host is one end system in one AS. It looks paths up, keeps them fresh, handles revocations, and
// opens Endpoints. An Endpoint is one UDP port of the host, which dials and accepts. A Conn is one
// QUIC connection over one path, with one stream, as a net.Conn: a path-level peer. There are no
// globals: one process can hold hosts in several ASes.
//
// The package refuses to choose or rank paths; pathsel does that. Nor does it know BitTorrent. It
// does not move a connection to another path: a connection whose path dies ends with an error.
//
// Unsolved: quic-go cannot lower the packet size of a live connection, so a path whose MTU falls
// costs its connections. Nothing is authenticated against ASes on the path (proof.go, revoke.go).
//
//	Conn        net.Conn, statistics, orderly close             conn.go, duplex.go
//	Endpoint    dial, accept, limits, identity, also on IP      endpoint.go, pool.go, ip.go, identity.go
//	QUIC        one transport for each endpoint                 tuning.go, quic
//	HTTP        HTTP/3 for trackers                             http3.go
//	routes      (remote, path) <-> pseudo address -> hop fields routes.go, hops.go
//	packetConn  SCION packets below QUIC: with snet, or         packetconn.go
//	            without, in batches with offloading             fastconn_linux.go, batch_linux.go, header.go
//	frames      several QUIC packets in one large packet        bundle.go, large.go
//	MTU         the packet size that a path really carries      mtu.go
//	memory      what connections find out about paths           memory.go
//	ports       the ports of a host that the AS delivers to     ports.go
//	NAT         the addresses at which routers see a port       nat.go
//	congestion  a controller for each connection; links and     control.go, congestion
//	            rates that the host's connections share
//	EPIC        packets that the last two ASes of a path check      epic.go
//	proof       is a peer in the AS that it claims, and for     proof.go, quota.go
//	            whom does its connection count
//	Host        path lookup, refresh, revocations, names        host.go, lookup.go, ask.go, refresh.go,
//	                                                            revoke.go, names.go
//	tests       probing paths, answering echo requests          probe.go, echo.go, lifesign.go
package scionnet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/daemon"
	"github.com/scionproto/scion/pkg/snet"
	"github.com/scionproto/scion/pkg/snet/addrutil"
	"github.com/scionproto/scion/private/topology"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"braid/pathsel"
	"braid/scionnet/quic"
)

// Host is a SCION end system in one AS.
type Host struct {
	cfg       Config
	ia        pathsel.IA
	localIP   netip.Addr
	mtu       int // of the AS's internal network
	log       *slog.Logger
	connector daemon.Connector
	file      *topology.Loader // of topology.json, for a daemon in this process; else nil
	reread    chan struct{}    // has file read it again
	topo      snet.Topology
	// interfaces are those of the AS, with the internal addresses of their routers.
	interfaces atomic.Pointer[map[uint16]netip.AddrPort]
	routes     *routes
	lookup     *lookup
	claims     *claims
	links      *quic.Group // of connections that cross the same links
	memory     memory
	natWait    time.Duration // natWait, except in tests

	behindNAT atomic.Bool // a router has seen a port of the host at another address
	mu        sync.Mutex
	natViews  map[netip.AddrPort]natView
	mappers   map[*mapper]struct{}
}

// ErrOtherAS says that the host is not in the AS of Config.IA.
var ErrOtherAS = errors.New("this host is in another AS")

// Open connects to the control plane of the local AS and starts the host. It sends no packet to
// other ASes yet.
func Open(ctx context.Context, cfg Config) (*Host, error) {
	h := newHost(cfg)
	if err := h.connect(ctx); err != nil {
		return nil, err
	}
	if err := h.start(ctx); err != nil {
		return nil, errors.Join(err, h.connector.Close())
	}
	return h, nil
}

func newHost(cfg Config) *Host {
	return &Host{
		cfg: cfg, log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)), links: quic.NewGroup(),
		natWait: natWait, natViews: map[netip.AddrPort]natView{}, mappers: map[*mapper]struct{}{},
	}
}

// start starts a host that is connected.
func (h *Host) start(ctx context.Context) error {
	if err := h.load(ctx); err != nil {
		return err
	}
	h.routes = newRoutes(h.ia, h.localIP, h.nextHop, h.underlayPort)
	h.lookup = newLookup(h.query, h.routes.learn, h.routes.inUse, h.log)
	h.claims = h.newClaims()
	if h.file != nil {
		h.lookup.spawn(func(ctx context.Context) { _ = h.file.Run(ctx) }) // the error is always nil
	}
	h.lookup.spawn(h.reload)
	return nil
}

// registerMu guards prometheus.DefaultRegisterer. The in-process daemon registers its metrics
// there, and a second daemon in one process would panic.
var registerMu sync.Mutex

// connect connects to the daemon, or starts one in this process.
func (h *Host) connect(ctx context.Context) (err error) {
	registerMu.Lock()
	defer registerMu.Unlock()
	before := prometheus.DefaultRegisterer
	prometheus.DefaultRegisterer = prometheus.NewRegistry()
	defer func() { prometheus.DefaultRegisterer = before }()
	if h.cfg.Daemon != "" {
		if h.connector, err = daemon.NewAutoConnector(ctx, daemon.WithDaemon(h.cfg.Daemon)); err != nil {
			return fmt.Errorf("%w from the SCION daemon at %s: %w", ErrNoControl, h.cfg.Daemon, err)
		}
		return nil
	}
	h.reread = make(chan struct{}, 1)
	h.file, err = topology.NewLoader(topology.LoaderCfg{
		File: filepath.Join(h.cfg.ConfigDir, "topology.json"), Reload: h.reread,
		Validator: &topology.DefaultValidator{},
	})
	if err == nil {
		certs := daemon.WithCertsDir(filepath.Join(h.cfg.ConfigDir, "certs"))
		h.connector, err = daemon.NewStandaloneConnector(ctx, h.file, certs)
	}
	if err != nil {
		if missing := (*fs.PathError)(nil); errors.As(err, &missing) {
			err = missing // without the library's words
		}
		return fmt.Errorf("read the SCION configuration in %q (topology.json and certs/ are needed): %w",
			h.cfg.ConfigDir, err)
	}
	return nil
}

// load asks for the local AS's properties. Of these, only the interfaces may change later.
func (h *Host) load(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	if h.topo, err = daemon.LoadTopology(ctx, h.connector); err != nil {
		return fmt.Errorf("load the local AS's topology: %w", err)
	}
	h.ia = pathsel.IA(h.topo.LocalIA)
	if h.cfg.IA != 0 && h.cfg.IA != h.ia {
		return fmt.Errorf("%w: %s, not %s", ErrOtherAS, h.ia, h.cfg.IA)
	}
	as, err := h.connector.ASInfo(ctx, 0)
	if err != nil {
		return fmt.Errorf("load the local AS's MTU: %w", err)
	}
	h.mtu = int(as.MTU)
	if err := h.loadInterfaces(ctx); err != nil {
		return err
	}
	if h.localIP = h.cfg.LocalIP; !h.localIP.IsValid() {
		h.localIP, err = h.defaultIP(ctx)
	}
	return err
}

func (h *Host) loadInterfaces(ctx context.Context) error {
	var now map[uint16]netip.AddrPort
	if err := h.askDaemon(ctx, func(c daemon.Connector) (err error) {
		now, err = c.Interfaces(ctx)
		return err
	}); err != nil {
		return fmt.Errorf("list the local AS's interfaces: %w", err)
	}
	old := h.interfaces.Load()
	if old != nil && maps.Equal(*old, now) {
		return nil
	}
	h.interfaces.Store(&now)
	h.askAgain(nil)
	if old != nil {
		h.followRouters(*old, now)
	}
	return nil
}

// followRouters has packets go to the new addresses of routers that have moved. The next answer
// about a path has the same hop fields, and so would not replace the way of its route.
func (h *Host) followRouters(old, now map[uint16]netip.AddrPort) {
	follow := func(t trail, w *way) *way {
		id := t.first()
		if to, ok := now[id]; ok && to != old[id] && w.nextHop == unmapped(old[id]) {
			w = w.through(unmapped(to))
		}
		return w
	}
	h.lookup.replaceWays(follow)
	h.routes.replaceWays(follow)
}

// reloadEvery is how often the routers of the AS are looked up. Until then packets for a moved
// router are lost.
const reloadEvery = 10 * time.Second

// reload keeps the interfaces current until ctx ends: the AS may add and move routers. It learns of
// a change of topology.json one round later, since the file is read meanwhile.
func (h *Host) reload(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(reloadEvery):
		}
		notify(h.reread)
		ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
		if err := h.loadInterfaces(ctx); err != nil {
			h.log.Debug("the AS's routers stay as they were", "error", err)
		}
		cancel()
	}
}

// nextHop is the internal address of the AS's router with that interface.
func (h *Host) nextHop(id uint16) (netip.AddrPort, bool) {
	a, ok := (*h.interfaces.Load())[id]
	return a, ok
}

// routers lists the internal addresses of the AS's routers.
func (h *Host) routers() []netip.AddrPort {
	var all []netip.AddrPort
	for _, a := range *h.interfaces.Load() {
		if a = unmapped(a); a.Addr().Is4() == h.localIP.Is4() {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	all = slices.Compact(all)
	return all[:min(len(all), maxRouters)]
}

// defaultIP is the address that the system uses towards the local AS's routers or, without routers,
// its control service.
func (h *Host) defaultIP(ctx context.Context) (netip.Addr, error) {
	var towards net.IP
	routers := slices.SortedFunc(maps.Values(*h.interfaces.Load()), netip.AddrPort.Compare)
	if len(routers) > 0 {
		towards = routers[0].Addr().AsSlice() // the same router at each start
	} else {
		cs, err := daemon.TopoQuerier{Connector: h.connector}.UnderlayAnycast(ctx, addr.SvcCS)
		if err != nil {
			return netip.Addr{}, fmt.Errorf("choose the local address: %w", err)
		}
		towards = cs.IP
	}
	ip, err := addrutil.ResolveLocal(towards)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("choose the local address towards %s: %w", towards, err)
	}
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap(), nil
}

// IA is the AS of the host.
func (h *Host) IA() pathsel.IA { return h.ia }

// LocalIP is the address from which packets are sent.
func (h *Host) LocalIP() netip.Addr { return h.localIP }

// Close stops the lookups and disconnects from the control plane. The owners of the host's
// endpoints close them first.
func (h *Host) Close() error {
	h.lookup.close()
	if err := h.connector.Close(); err != nil {
		return fmt.Errorf("close the SCION daemon's connection: %w", err)
	}
	return nil
}

// addrOf is the SCION address of a UDP socket of the host.
func (h *Host) addrOf(socket interface{ LocalAddr() net.Addr }) Addr {
	return Addr{h.ia, h.localIP, socket.LocalAddr().(*net.UDPAddr).AddrPort().Port()}
}

// askDaemon calls f with the daemon. If that is away, it calls f again with a new connection: after
// a failure gRPC waits up to two minutes before it connects again, and the daemon may be back.
func (h *Host) askDaemon(ctx context.Context, f func(daemon.Connector) error) error {
	err := f(h.connector)
	if h.cfg.Daemon == "" || status.Code(err) != codes.Unavailable {
		return err
	}
	c, wrong := (daemon.Service{Address: h.cfg.Daemon}).Connect(ctx)
	if wrong != nil {
		return err
	}
	defer c.Close()
	return f(c)
}

// query asks the control plane for the paths to dst.
func (h *Host) query(ctx context.Context, dst pathsel.IA, refresh bool) ([]found, error) {
	var ps []snet.Path
	err := h.askDaemon(ctx, func(c daemon.Connector) (err error) {
		ps, err = askPaths(ctx, c, addr.IA(dst), addr.IA(h.ia), refresh)
		return err
	})
	out := make([]found, 0, len(ps))
	for _, p := range ps {
		f, wrong := h.foundPath(p)
		if wrong != nil {
			h.log.Warn("path from the control plane cannot be used", "path", fmt.Sprint(p), "error", wrong)
			continue
		}
		out = append(out, f)
	}
	sortFound(out)
	return out, err
}

// localPath is the path inside the host's own AS. It has no hop fields and so never expires;
// comparisons need an expiry, and a day is long enough for them.
func (h *Host) localPath() pathsel.Path {
	return pathsel.Path{Src: h.ia, Dst: h.ia, MTU: h.mtu, LatencyKnown: true, Expiry: time.Now().Add(24 * time.Hour)}
}
