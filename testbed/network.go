// Package testbed runs real SCION networks on one machine, without privileges: scionproto's own
// border routers and control services as processes on loopback addresses, and emulated links with
// any rate, delay, loss and queue between them.
//
// It owns the meaning of topology files, the configuration and life of the processes, the emulated
// links, and their status. It does not restart dead processes: a testbed with a dead router reports
// that and stays as it is. Packets are lost and delayed on links only, never inside an AS.
package testbed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/scionproto/scion/pkg/segment"

	"braid/pathsel"
	"braid/testbed/linkemu"
	"braid/units"
)

// Options say which network to start, and where.
type Options struct {
	Topology Topology
	// Dir keeps configuration, logs and state. It is created, and may be used again.
	Dir string
	// SCIONBin is the folder of the SCION programs; by default BRAID_SCION_BIN, else the folder
	// scion beside the executable.
	SCIONBin string
	// RouterCommand is the border router to run instead of scionproto's: a program and its first
	// arguments. "--config" and the name of a configuration file for scionproto's router are put
	// behind them.
	RouterCommand []string
	// RoutersOf are exceptions from it. If several match a router, the last counts.
	RoutersOf []RouterOf
	// Subnet of 127.0.0.0/8 to use; by default a free /24, the same for the same Dir if possible.
	Subnet netip.Prefix
	// BFD is the interval between the packets with which neighbouring routers watch a link: three
	// missing ones take it down. 0: 1 s. [NoBFD]: links are never declared down.
	//
	// Under CPU load, short intervals take links down that are fine.
	BFD time.Duration
	// PathLifetime is how long paths are valid after their beacon: multiples of 5 min 37.5 s up to
	// 24 h, rounded down. 0: 6 h. Unless it is 0, control services go on sending beacons every few
	// seconds once all paths are found: they would not renew short-lived paths in time otherwise.
	PathLifetime time.Duration
	// HiddenPaths are the groups and registration policies of hidden paths, in the format of the
	// control service's hidden_paths_cfg. All control services get them. Start waits for hidden
	// paths, too, so leave their ASes out of Between.
	HiddenPaths string
	// LinksOnly starts no routers and no control services, only the links, for hosts on IP
	// (Network.IP).
	LinksOnly bool
	// Between names the ASes between which Start waits for paths, and whose paths Status reports;
	// by default all.
	Between []pathsel.IA
	// Timeout is how long Start waits for all paths. 0: 60 s and five seconds more for each AS.
	Timeout time.Duration
	// Progress is called from Start's goroutine as the start proceeds; may be nil.
	Progress func(Progress) `json:"-"`
	// Log gets the testbed's own log; nil discards it.
	Log *slog.Logger `json:"-"`
}

// RouterOf names the command of some routers of a network.
type RouterOf struct {
	// Interface is one of the router's; with ID 0 all routers of the AS are meant.
	Interface pathsel.Interface
	// Command is as [Options.RouterCommand]; empty: scionproto's router.
	Command []string
}

const (
	defaultBFD = time.Second
	minBFD     = 10 * time.Millisecond
	// NoBFD as [Options.BFD]: routers do not watch links.
	NoBFD time.Duration = -1
)

// ParseBFD reads the interval at which routers watch links, or "off".
func ParseBFD(s string) (time.Duration, error) {
	if s == "off" {
		return NoBFD, nil
	}
	d, err := units.ParseDuration(s)
	if err != nil || d == 0 {
		return 0, fmt.Errorf("%q: want an interval such as 200ms, or off", s)
	}
	return d, nil
}

// Network is a running testbed.
type Network struct {
	opts    Options
	dir     string // absolute
	plan    plan
	implied map[Pair]int
	surveys []survey     // answers that show that the network has converged
	http    *http.Client // to control services and routers
	started time.Time
	log     *slog.Logger

	lock      *os.File
	claims    claims
	launcher  *Launcher
	mu        sync.Mutex // guards processes, and is held while they are exchanged
	processes []*process
	links     []*linkemu.Link // as in the topology
	changing  sync.Mutex      // held between reading and setting a link's configuration
	running   sync.WaitGroup  // of links
	// closeControl closes the control socket; nil if it is not open.
	closeControl func()

	progress Progress // of the start

	life   context.Context // ends when the network begins to close
	end    context.CancelFunc
	closed chan struct{}
	once   sync.Once
}

// Start brings the network up and returns when every pair of ASes (see [Options.Between]) has the
// paths that the topology implies. ctx bounds the start only; the caller closes the network. If
// Start fails it leaves nothing running.
func Start(ctx context.Context, opts Options) (*Network, error) {
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	if opts.Dir == "" {
		return nil, errors.New("no directory for the testbed")
	}
	if err := opts.Check(); err != nil {
		return nil, err
	}
	var bin programs
	var err error
	if !opts.LinksOnly {
		if bin, err = findPrograms(opts.SCIONBin); err != nil {
			return nil, err
		}
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("testbed directory %s: %w", opts.Dir, err)
	}
	if usesIPv6(opts.Topology) && !haveIPv6() {
		opts.Log.Warn("this machine has no ::1: the IPv6 underlays of the topology are on IPv4 instead")
		opts.Topology = withoutIPv6(opts.Topology)
	}
	n := &Network{
		opts: opts, dir: dir, log: opts.Log, started: time.Now(),
		http:   &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: lookupWorkers}},
		closed: make(chan struct{}),
	}
	n.life, n.end = context.WithCancel(context.Background())
	if !opts.LinksOnly {
		found, err := discover(opts.Topology, bestSetSize)
		if err != nil {
			return nil, err
		}
		n.implied = found.paths(opts.Topology, bestSetSize)
		n.surveys = found.surveys(opts.Topology, bestSetSize)
	}
	if between := opts.Between; len(between) > 0 {
		maps.DeleteFunc(n.implied, func(p Pair, _ int) bool {
			return !slices.Contains(between, p.Src) || !slices.Contains(between, p.Dst)
		})
	}
	if n.lock, err = lockDir(dir); err != nil {
		return nil, err
	}
	err = n.start(ctx, bin)
	if err == nil {
		err = n.SetLinks(n.opts.Topology.Links)
	}
	if err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// Check returns an error for options that no network can have, and sets defaults.
func (o *Options) Check() error {
	if len(o.Topology.ASes) == 0 {
		return errors.New("topology without ASes")
	}
	if o.Subnet.IsValid() {
		if err := checkSubnet(o.Subnet); err != nil {
			return err
		}
	}
	o.BFD = cmp.Or(o.BFD, defaultBFD)
	if o.BFD < minBFD && o.BFD != NoBFD {
		return fmt.Errorf("BFD interval %v: must be at least %v", o.BFD, minBFD)
	}
	if l := o.PathLifetime; l != 0 && (l < expirationUnit || l > 24*time.Hour) {
		return fmt.Errorf("path lifetime %v: must be from %v to 24h", l, expirationUnit)
	}
	o.Timeout = cmp.Or(o.Timeout, time.Minute+time.Duration(len(o.Topology.ASes))*5*time.Second)
	return nil
}

// start starts everything, in order:
//  1. claim addresses, write the configuration
//  2. run the emulated links and the routers, and wait until the routers see the links
//  3. start the control services
//  4. open the control socket, so that status and down work from here on
//  5. wait for the paths
//  6. restart the control services, to send fewer beacons
//
// The order of 2 and 3 matters: a beacon that is sent on a link before BFD has seen it makes the
// router answer "interface down", and for the ten seconds that this holds no segment over that link
// is used.
func (n *Network) start(ctx context.Context, bin programs) error {
	var err error
	if n.plan, n.claims, err = claimPlan(n.opts.Topology, n.dir, n.opts.Subnet); err != nil {
		return err
	}
	if n.opts.LinksOnly {
		return n.startLinks()
	}
	g := generator{
		dir: filepath.Join(n.dir, "gen"), plan: n.plan, bfd: n.opts.BFD, lifetime: n.opts.PathLifetime,
		segments: wanted(n.surveys), hidden: n.opts.HiddenPaths, pki: bin.pki,
	}
	if between := n.opts.Between; len(between) > 0 {
		n.surveys = slices.DeleteFunc(n.surveys, func(s survey) bool {
			return s.SegType == segment.TypeDown && !slices.Contains(between, pathsel.IA(s.Dst))
		})
	}
	if err := g.run(ctx); err != nil {
		return err
	}
	if err := n.startLinks(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, n.opts.Timeout)
	defer cancel()
	if err := n.chooseRouters(bin.router); err != nil {
		return err
	}
	if err := n.startRouters(); err != nil {
		return err
	}
	if n.opts.BFD != NoBFD {
		if err := n.waitForLinks(ctx); err != nil {
			return err
		}
	}
	n.mu.Lock()
	err = n.startServices(bin.control)
	n.mu.Unlock()
	if err != nil {
		return err
	}
	if err := n.writeState(); err != nil {
		return err
	}
	if n.closeControl, err = n.serveControl(); err != nil {
		return err
	}
	n.log.Info("processes started", "processes", len(n.all()), "links", len(n.links), "subnet", n.plan.subnet)
	if err := n.waitForSegments(ctx); err != nil {
		return err
	}
	if err := n.waitForPaths(ctx); err != nil {
		return err
	}
	n.log.Info("all paths found", "seconds", time.Since(n.started).Seconds())
	if n.opts.PathLifetime == 0 {
		g.atRest = true
		if err := n.restartServices(ctx, g, bin.control); err != nil {
			return err
		}
		n.log.Info("control services at rest", "seconds", time.Since(n.started).Seconds())
	}
	return nil
}

// ended reports a process that has ended by itself.
func (n *Network) ended(p *process) {
	if n.life.Err() == nil && slices.Contains(n.all(), p) { // else it was replaced
		n.log.Error("process ended; nothing restarts it", "process", p.String(), "reason", p.reason())
	}
}

// Close takes the network down and waits until nothing of it runs.
func (n *Network) Close() {
	n.once.Do(func() {
		n.end()
		stopAll(n.all())
		if n.launcher != nil {
			n.launcher.Close()
		}
		for _, l := range n.links {
			l.Close()
		}
		n.running.Wait()
		n.claims.release()
		n.http.CloseIdleConnections()
		os.Remove(filepath.Join(n.dir, stateFile))
		if n.closeControl != nil {
			n.closeControl()
		}
		unlockDir(n.lock)
		n.log.Info("testbed is down")
		close(n.closed)
	})
	<-n.closed
}

// Done is closed when the network is down.
func (n *Network) Done() <-chan struct{} { return n.closed }

// Topology returns the topology that runs: that of the options, without IPv6 if the machine has
// none.
func (n *Network) Topology() Topology { return n.opts.Topology }

// ConfigDir returns the folder of an AS with topology.json and certs, which a SCION host needs; ""
// for an unknown AS.
func (n *Network) ConfigDir(ia pathsel.IA) string {
	if a, ok := n.as(ia); ok {
		return filepath.Join(n.dir, "gen", filepath.FromSlash(a.folder))
	}
	return ""
}

// HostIP returns the address that the end hosts of an AS share; invalid for an unknown AS.
func (n *Network) HostIP(ia pathsel.IA) netip.Addr {
	a, _ := n.as(ia)
	return a.host
}

// HostAddr returns the address of a port on the host of an AS, as braid reads it.
func (n *Network) HostAddr(ia pathsel.IA, port int) string {
	return fmt.Sprintf("%s,[%s]:%d", ia, n.HostIP(ia), port)
}

// HostFlags returns the flags that make braid run on the host of an AS.
func (n *Network) HostFlags(ia pathsel.IA) []string {
	return []string{"--config-dir", n.ConfigDir(ia), "--local", n.HostIP(ia).String()}
}

// API returns the address at which the control service of an AS serves its topology and TRCs over
// HTTP; invalid for an unknown AS.
func (n *Network) API(ia pathsel.IA) netip.AddrPort {
	a, _ := n.as(ia)
	return a.api
}

func (n *Network) as(ia pathsel.IA) (asPlan, bool) {
	i := slices.IndexFunc(n.plan.ases, func(a asPlan) bool { return a.IA == ia })
	if i < 0 {
		return asPlan{}, false
	}
	return n.plan.ases[i], true
}
