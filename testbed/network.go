// Package testbed runs real SCION networks on one machine, without privileges: scionproto's own border
// routers and control services as processes on loopback addresses, and links with the rate, delay, loss
// and queue of one's choice between them.
//
// It owns what a topology file means, the configuration and the life of the processes, the emulated
// links, and what can be seen of them. It refuses to restart what died: a testbed with a dead router
// says so and stays as it is. Scenarios that need packets lost inside an AS are not covered; everything
// that happens, happens on links.
package testbed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"braid/pathsel"
	"braid/testbed/linkemu"
)

// Options say which network to start, and where.
type Options struct {
	Topology Topology
	// Dir keeps configuration, logs and state. It is created, and may be used again.
	Dir string
	// SCIONBin is the folder of the SCION programs; by default BRAID_SCION_BIN, else the folder scion
	// beside the executable.
	SCIONBin string
	// RouterCommand is the border router to run instead of scionproto's: a program and its first arguments.
	// "--config" and the name of a configuration file for scionproto's router are put behind them.
	RouterCommand []string
	// RoutersOf are exceptions from it; of several for one router the last counts.
	RoutersOf []RouterOf
	// Subnet of 127.0.0.0/8 to use; by default a free /24, the same for the same Dir if possible.
	Subnet netip.Prefix
	// BFD is the interval between the packets with which neighbouring routers watch a link: three
	// missing ones take it down. 0: 1 s. NoBFD: links are never declared down.
	//
	// Under CPU load, short intervals take links down that are fine.
	BFD   time.Duration
	NoBFD bool
	// PathLifetime is how long paths are valid after their beacon: multiples of 5 min 37.5 s up to 24 h,
	// rounded down. 0: 6 h.
	PathLifetime time.Duration
	// LinksOnly leaves SCION out: no routers and no control services, only the links, for hosts on IP (Network.IP).
	LinksOnly bool
	// Timeout is how long Start waits for all paths. 0: 60 s and a second more for each AS.
	Timeout time.Duration
	// Progress is told how far Start is, from Start's goroutine; may be nil.
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

// Progress is how far a starting network is.
type Progress struct {
	Processes int `json:"processes"` // running
	// Links that are up, as their routers see it; control services start when all are. 0 without BFD.
	Links        int `json:"links"`
	ImpliedLinks int `json:"implied_links"`
	// Segments that the control services have found, of those that the topology implies.
	Segments        int `json:"segments"`
	ImpliedSegments int `json:"implied_segments"`
	// Paths that hosts find, over all ordered pairs of ASes; 0 until all segments are there.
	Paths        int `json:"paths"`
	ImpliedPaths int `json:"implied_paths"`
}

const (
	defaultBFD    = time.Second
	minBFD        = 10 * time.Millisecond
	poll          = 100 * time.Millisecond
	lookupWorkers = 4 // control services asked at the same time
)

// Network is a running testbed.
type Network struct {
	opts    Options
	dir     string // absolute
	plan    plan
	implied map[Pair]int
	surveys []survey // what shows that the network has converged
	lookup  lookup
	started time.Time
	log     *slog.Logger

	lock      *os.File
	claims    claims
	launcher  *Launcher
	processes []*process
	links     []*linkemu.Link // as in the topology
	running   sync.WaitGroup  // of links and watch
	stopLinks context.CancelFunc
	control   *controlServer

	progress Progress // of the start

	died    chan *process // one for each process that ends by itself
	closing chan struct{}
	closed  chan struct{}
	once    sync.Once
}

// Start brings the network up and returns when every pair of ASes has the paths that the topology
// implies. ctx bounds the start only; the caller closes the network. If Start fails it leaves nothing
// running.
func Start(ctx context.Context, opts Options) (*Network, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if err := checkOptions(&opts); err != nil {
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
		lookup:  lookup{opts.Topology, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: lookupWorkers}}},
		closing: make(chan struct{}), closed: make(chan struct{}),
	}
	if !opts.LinksOnly {
		if n.implied, err = ImpliedPaths(opts.Topology, bestSetSize); err != nil {
			return nil, err
		}
	}
	if n.lock, err = lockDir(dir); err != nil {
		return nil, err
	}
	if err := n.start(ctx, bin); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

func checkOptions(o *Options) error {
	if len(o.Topology.ASes) == 0 {
		return errors.New("topology without ASes")
	}
	if o.Dir == "" {
		return errors.New("no directory for the testbed")
	}
	if o.Subnet.IsValid() {
		if err := checkSubnet(o.Subnet); err != nil {
			return err
		}
	}
	if o.BFD == 0 {
		o.BFD = defaultBFD
	}
	if o.BFD < minBFD {
		return fmt.Errorf("BFD interval %v: must be at least %v", o.BFD, minBFD)
	}
	if l := o.PathLifetime; l != 0 && (l < expirationUnit || l > 24*time.Hour) {
		return fmt.Errorf("path lifetime %v: must be from %v to 24h", l, expirationUnit)
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute + time.Duration(len(o.Topology.ASes))*time.Second
	}
	return nil
}

// start, in order:
//  1. claim addresses, write the configuration
//  2. run the emulated links and the routers, and wait until the routers see the links
//  3. start the control services
//  4. open the control socket, so that status and down work from here on
//  5. wait for the paths
//
// The order of 2 and 3 matters: a beacon that is sent on a link before BFD has seen it makes the router
// answer "interface down", and for the ten seconds that this holds no segment over that link is used.
func (n *Network) start(ctx context.Context, bin programs) error {
	var err error
	if n.plan, n.claims, err = claimPlan(n.opts.Topology, n.dir, n.opts.Subnet); err != nil {
		return err
	}
	if n.opts.LinksOnly {
		return n.startLinks()
	}
	g := generator{dir: filepath.Join(n.dir, "gen"), plan: n.plan, bfd: n.opts.BFD, lifetime: n.opts.PathLifetime, pki: bin.pki}
	if n.surveys, err = surveys(n.opts.Topology, n.plan.ases); err != nil {
		return fmt.Errorf("topology %s: %w", n.opts.Topology.Name, err)
	}
	for _, s := range n.surveys {
		g.segments += s.want
	}
	if n.opts.NoBFD {
		g.bfd = 0
	}
	if err := g.run(ctx); err != nil {
		return err
	}
	if err := n.startLinks(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, n.opts.Timeout)
	defer cancel()
	commands, err := n.routerCommands(bin.router)
	if err != nil {
		return err
	}
	if err := n.startRouters(commands); err != nil {
		return err
	}
	if !n.opts.NoBFD {
		if err := n.waitForLinks(ctx); err != nil {
			return err
		}
	}
	if err := n.startServices(bin.control); err != nil {
		return err
	}
	if err := n.writeState(); err != nil {
		return err
	}
	if n.control, err = serveControl(n); err != nil {
		return err
	}
	n.log.Info("processes started", "processes", len(n.processes), "links", len(n.links), "subnet", n.plan.subnet)
	if err := n.waitForPaths(ctx); err != nil {
		return err
	}
	n.log.Info("all paths found", "seconds", time.Since(n.started).Seconds())
	n.running.Go(n.watch)
	return nil
}

func (n *Network) startLinks() error {
	ctx, stop := context.WithCancel(context.Background())
	n.stopLinks = stop
	for i, p := range n.plan.links {
		l := n.opts.Topology.Links[i]
		link, err := linkemu.New(p.a, p.b, l.Config)
		if err != nil {
			return fmt.Errorf("emulate link %s to %s: %w", l.A.Interface, l.B.Interface, err)
		}
		link.Answer(n.tooBigAt(l.B.Interface.IA), n.tooBigAt(l.A.Interface.IA))
		n.links = append(n.links, link)
		n.running.Go(func() {
			if err := link.Run(ctx); err != nil {
				n.log.Error("link emulator stopped", "a", l.A.Interface, "b", l.B.Interface, "err", err)
			}
		})
	}
	return nil
}

// routerKey is an AS and the name of a router of it.
type routerKey struct {
	ia   pathsel.IA
	name string
}

// routerCommands says how each router is run.
func (n *Network) routerCommands(stock string) (map[routerKey][]string, error) {
	orStock := func(command []string) []string {
		if len(command) == 0 {
			return []string{stock}
		}
		return command
	}
	commands := map[routerKey][]string{}
	used := make([]bool, len(n.opts.RoutersOf))
	for _, a := range n.plan.ases {
		for _, r := range a.routers {
			k := routerKey{a.IA, r.name}
			commands[k] = orStock(n.opts.RouterCommand)
			for i, of := range n.opts.RoutersOf {
				if of.Interface.IA == a.IA && (of.Interface.ID == 0 || r.has(of.Interface.ID)) {
					commands[k], used[i] = orStock(of.Command), true
				}
			}
		}
	}
	if i := slices.Index(used, false); i >= 0 {
		return nil, fmt.Errorf("no router of topology %s is at %s", n.opts.Topology.Name, n.opts.RoutersOf[i].Interface)
	}
	return commands, nil
}

// tooBigAt answers packets that are too large for a link as a router of the AS at its far end.
func (n *Network) tooBigAt(ia pathsel.IA) func([]byte, int) []byte {
	at := n.HostIP(ia)
	return func(packet []byte, mtu int) []byte { return answerTooBig(packet, mtu, ia, at) }
}

func (n *Network) startRouters(commands map[routerKey][]string) error {
	logs := n.logDir()
	if err := os.RemoveAll(logs); err != nil {
		return fmt.Errorf("remove old logs: %w", err)
	}
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return fmt.Errorf("create log folder: %w", err)
	}
	n.launcher = NewLauncher()
	count := 0
	for _, a := range n.plan.ases {
		count += len(a.routers) + 1
	}
	n.died = make(chan *process, count)
	for _, a := range n.plan.ases {
		for _, r := range a.routers {
			if err := n.startProcess(a, r.name, commands[routerKey{a.IA, r.name}]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *Network) startServices(program string) error {
	for _, a := range n.plan.ases {
		if err := n.startProcess(a, "cs-1", []string{program}); err != nil {
			return err
		}
	}
	return nil
}

func (n *Network) startProcess(a asPlan, name string, command []string) error {
	config := filepath.Join(n.ConfigDir(a.IA), name+".toml")
	log := filepath.Join(n.logDir(), strings.ReplaceAll(a.folder, "/", "-")+"-"+name+".log")
	p, err := n.launcher.start(a.IA, name, command, config, log, func(p *process) { n.died <- p })
	if err == nil {
		n.processes = append(n.processes, p)
	}
	return err
}

func (n *Network) logDir() string { return filepath.Join(n.dir, "logs") }

// await repeats an attempt until it is done. missing says what is not there yet, for when time is up.
func (n *Network) await(ctx context.Context, attempt func() (done bool), missing func() error) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		select {
		case p := <-n.died:
			return fmt.Errorf("%s ended while the network was starting: %s", p, p.reason())
		case <-n.closing:
			return errors.New("the testbed was taken down while it was starting")
		default:
		}
		done := attempt()
		n.progress.Processes = len(n.processes)
		if n.opts.Progress != nil {
			n.opts.Progress(n.progress)
		}
		if done {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
				return fmt.Errorf("start testbed: %w", cause)
			}
			return fmt.Errorf("not up after %v: %w; see the logs in %s", n.opts.Timeout, missing(), n.logDir())
		}
	}
}

// waitForLinks waits until every router sees all its links, and the other routers of its AS.
func (n *Network) waitForLinks(ctx context.Context) error {
	n.progress.ImpliedLinks = len(n.links)
	var down []string
	return n.await(ctx, func() bool {
		seen, siblings := n.routerStates(ctx)
		down = down[:0]
		for _, l := range n.opts.Topology.Links {
			for _, e := range []LinkEnd{l.A, l.B} {
				if seen[e.Interface].state != "up" {
					down = append(down, e.Interface.String())
				}
			}
		}
		n.progress.Links = len(n.links) - (len(down)+1)/2
		return len(down) == 0 && siblings
	}, func() error {
		if len(down) == 0 {
			return errors.New("routers of one AS do not reach each other")
		}
		return fmt.Errorf("links are down at %s", list(down))
	})
}

// waitForPaths first waits until the control services have the segments that the topology implies, and
// then until hosts find all paths.
func (n *Network) waitForPaths(ctx context.Context) error {
	open := n.surveys
	for _, s := range open {
		n.progress.ImpliedSegments += s.want
	}
	for _, k := range n.implied {
		n.progress.ImpliedPaths += k
	}
	found := map[Pair]int{}
	var last error
	return n.await(ctx, func() bool {
		var err error
		if len(open) > 0 {
			var missing int
			open, missing, err = n.survey(ctx, open)
			n.progress.Segments = n.progress.ImpliedSegments - missing
		} else {
			var paths map[Pair][][]pathsel.Interface
			paths, err = n.findPaths(ctx, func(p Pair) bool { return found[p] < n.implied[p] })
			n.progress.Paths = 0
			for p, k := range n.implied {
				found[p] = max(found[p], len(paths[p]))
				n.progress.Paths += min(found[p], k)
			}
		}
		if err != nil {
			last = err
		}
		return len(open) == 0 && n.progress.Paths == n.progress.ImpliedPaths
	}, func() error { return n.missing(open, found, last) })
}

// survey asks the questions and returns those whose answer was not yet good enough, with the number of
// segments that are missing.
func (n *Network) survey(ctx context.Context, open []survey) (left []survey, missing int, err error) {
	answers := make([]int, len(open))
	errs := make([]error, len(open))
	var g errgroup.Group
	g.SetLimit(lookupWorkers)
	for i, s := range open {
		g.Go(func() error {
			answers[i], errs[i] = n.lookup.ask(ctx, s)
			return nil
		})
	}
	g.Wait()
	for i, s := range open {
		if answers[i] < s.want {
			left, missing = append(left, s), missing+s.want-answers[i]
			err = errs[i]
		}
	}
	return left, missing, err
}

// missing says which segments or paths are missing.
func (n *Network) missing(open []survey, found map[Pair]int, last error) error {
	var what []string
	for _, s := range open {
		what = append(what, fmt.Sprintf("%s segments of %s to %s", s.request.SegType, s.request.Src, s.request.Dst))
	}
	if len(open) == 0 {
		for p, k := range n.implied {
			if found[p] < k {
				what = append(what, fmt.Sprintf("%s to %s: %d of %d paths", p.Src, p.Dst, found[p], k))
			}
		}
	}
	err := fmt.Errorf("missing are %s", list(what))
	if last != nil {
		err = fmt.Errorf("%w (last error: %w)", err, last)
	}
	return err
}

// list writes the first few of what may be many.
func list(s []string) string {
	const most = 10
	slices.Sort(s)
	if len(s) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(s[:most], ", "), len(s)-most)
	}
	return strings.Join(s, ", ")
}

// findPaths finds the paths of the pairs that are wanted.
func (n *Network) findPaths(ctx context.Context, wanted func(Pair) bool) (map[Pair][][]pathsel.Interface, error) {
	var mu sync.Mutex
	var first error
	paths := map[Pair][][]pathsel.Interface{}
	var g errgroup.Group
	g.SetLimit(lookupWorkers)
	for _, src := range n.plan.ases {
		var dsts []pathsel.IA
		for _, dst := range n.plan.ases {
			if p := (Pair{src.IA, dst.IA}); src.IA != dst.IA && wanted(p) {
				dsts = append(dsts, dst.IA)
			}
		}
		if len(dsts) == 0 {
			continue
		}
		g.Go(func() error {
			found, err := n.lookup.paths(ctx, src, dsts)
			mu.Lock()
			defer mu.Unlock()
			if first == nil {
				first = err
			}
			for dst, p := range found {
				paths[Pair{src.IA, dst}] = p
			}
			return nil
		})
	}
	g.Wait()
	return paths, first
}

// watch reports processes that end by themselves.
func (n *Network) watch() {
	for {
		select {
		case p := <-n.died:
			select {
			case <-n.closing:
				return
			default:
			}
			n.log.Error("process ended; the testbed goes on without it", "process", p.String(), "reason", p.reason())
		case <-n.closing:
			return
		}
	}
}

// Close takes the network down and waits until nothing of it runs.
func (n *Network) Close() error {
	n.once.Do(func() {
		close(n.closing)
		stopAll(n.processes)
		if n.launcher != nil {
			n.launcher.Close()
		}
		if n.stopLinks != nil {
			n.stopLinks()
		}
		for _, l := range n.links {
			l.Close()
		}
		n.running.Wait()
		n.claims.release()
		n.lookup.http.CloseIdleConnections()
		os.Remove(filepath.Join(n.dir, stateFile))
		if n.control != nil {
			n.control.close()
		}
		n.lock.Close() // releases the directory
		n.log.Info("testbed is down")
		close(n.closed)
	})
	<-n.closed
	return nil
}

// Done is closed when the network is down.
func (n *Network) Done() <-chan struct{} { return n.closed }

// Topology is the one that runs: that of the options, without IPv6 if the machine has none.
func (n *Network) Topology() Topology { return n.opts.Topology }

// ConfigDir is the folder of an AS that a SCION host needs: topology.json and certs. It is "" for an AS
// that is not in the topology.
func (n *Network) ConfigDir(ia pathsel.IA) string {
	if a, ok := n.as(ia); ok {
		return filepath.Join(n.dir, "gen", filepath.FromSlash(a.folder))
	}
	return ""
}

// HostIP is the address that the end hosts of an AS share; invalid for an AS that is not in the topology.
func (n *Network) HostIP(ia pathsel.IA) netip.Addr {
	a, _ := n.as(ia)
	return a.host
}

func (n *Network) as(ia pathsel.IA) (asPlan, bool) {
	i := slices.IndexFunc(n.plan.ases, func(a asPlan) bool { return a.IA == ia })
	if i < 0 {
		return asPlan{}, false
	}
	return n.plan.ases[i], true
}

// SetLink changes both directions of the link that ends at the interface.
func (n *Network) SetLink(at pathsel.Interface, change func(*linkemu.Config)) error {
	return n.setLink(at, change, change)
}

// SetLinkOut changes the link that ends at the interface for packets that leave the AS there, and not
// for those that come in.
func (n *Network) SetLinkOut(at pathsel.Interface, change func(*linkemu.Config)) error {
	return n.setLink(at, change, func(*linkemu.Config) {})
}

func (n *Network) setLink(at pathsel.Interface, out, in func(*linkemu.Config)) error {
	for i, l := range n.opts.Topology.Links {
		if l.A.Interface != at && l.B.Interface != at {
			continue
		}
		ab, ba := n.links[i].Config()
		if l.A.Interface == at {
			out(&ab)
			in(&ba)
		} else {
			out(&ba)
			in(&ab)
		}
		if err := n.links[i].Set(ab, ba); err != nil {
			return fmt.Errorf("change link %s to %s: %w", l.A.Interface, l.B.Interface, err)
		}
		n.log.Info("link changed", "a", l.A.Interface, "b", l.B.Interface, "ab", ab.String(), "ba", ba.String())
		return nil
	}
	return fmt.Errorf("no link of topology %s ends at %s", n.opts.Topology.Name, at)
}
