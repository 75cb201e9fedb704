package commands

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sync/errgroup"

	"braid/commands/flags"
	"braid/commands/program"
	"braid/node"
	"braid/node/gateway"
	"braid/scionnet"
	"braid/tracker"
	"braid/tracker/server"
	"braid/tracker/swarm"
	"braid/units"
	"braid/units/lists"
)

func gatewayCommand() *cli.Command {
	own := []cli.Flag{
		flags.List("tracker-listen", "answer announces on `URL`: http://0.0.0.0:8080, "+
			"udp://0.0.0.0:8080, ws://0.0.0.0:8000 for browsers, "+
			"scion://1-ff00:0:110,[127.0.0.1]:31080, or stats://127.0.0.1:8081 for operators "+
			"(repeatable)"),
		flags.List("public", "clients on IP reach the gateway at `IP:PORT` (repeatable; default: "+
			"the addresses of --listen that name a host)"),
		flags.List("fellow", "name another gateway to clients, too, while it lives: its tracker "+
			"is at `URL`, http://HOST:PORT (repeatable; name each gateway to the other)"),
		flags.File("collection", "", "allow the torrents in `FILE`, too: a .torrent file, a URL "+
			"of one, or a directory of them on each line; a tab and comma-separated labels may "+
			"follow"),
		flags.Pattern("label", "allow only lines of --collection with `LABEL` (repeatable: one of "+
			"them is enough)"),
		flags.File("cache", "gateway-cache", "keep data in `DIR`, which belongs to the gateway"),
		flags.Size("cache-size", 10<<30, "keep at most `SIZE` of data; a larger torrent is left "+
			"out"),
		flags.Time("idle", 15*time.Minute, "leave a torrent that nobody has asked for or "+
			"downloaded in the last `TIME`, at least twice --interval"),
		flags.Time("interval", 5*time.Minute, "tell clients to ask again every `TIME`"),
		flags.Events(),
		debugFlag(),
	}
	return &cli.Command{
		Name:      "gateway",
		Usage:     "bring ordinary clients on IP into swarms on SCION, and the other way round",
		ArgsUsage: "TORRENT|URL|DIR...",
		Description: "Runs a tracker for the torrents named here and in --collection, and for no " +
			"others. A directory stands for the .torrent files in it. When a client asks for " +
			"peers of such a torrent, the gateway joins it on SCION and on IP, and names itself " +
			"in the answer. It downloads the torrent while it serves it, and leaves when nobody " +
			"asks any more. When the cache is full, the torrents that were not used for longest " +
			"make room. Private torrents are never joined. On SIGHUP it reads the torrents " +
			"again. Torrents name http://HOST:PORT/announce of --tracker-listen as their " +
			"tracker. When it is ready it says so on standard error, and with --json as " +
			`{"event":"ready","listen":[...],"trackers":[...]}. ` +
			`Then --json prints {"event":"gateway",...} every 5 s, with the bytes from and to ` +
			"each side and the hit rate of the cache, which a listener stats:// has for " +
			"Prometheus.\n\n" + program.ExitCodes,
		Flags:  append(own, withoutFlags(nodeFlags(), "interactive")...),
		Action: working(true, runGateway),
	}
}

func runGateway(ctx context.Context, t *task) error {
	hup := t.hangups()
	cfg := t.gateway(t.log)
	if t.Err != nil {
		return t.Err
	}
	g, err := gateway.New(cfg)
	if err != nil {
		return err
	}
	torrents, err := t.allowTorrents(ctx, g)
	if err != nil {
		return err
	}
	if err := t.lockDir(cfg.Dir, "braid gateway"); err != nil { // it makes the directory
		return err
	}
	l, err := t.openGatewayTracker(ctx, g)
	if err != nil {
		return err
	}
	n, err := t.openNode(ctx, torrents, g)
	if err != nil {
		return err
	}
	if err := g.Open(n); err != nil {
		return err
	}
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { g.Run(ctx); return nil })
	l.serve(ctx, all)
	reload := func() error {
		_, err := t.allowTorrents(ctx, g)
		return err
	}
	all.Go(func() error {
		t.reloading(ctx, hup, reload,
			"the torrents were not read again; the old ones stay allowed",
			"the torrents were read again")
		return nil
	})
	ready := node.NewReady(n.Listening())
	ready.Trackers = l.addresses
	if t.out.JSON {
		t.out.emit(ready)
		t.repeat(5*time.Second, func() { t.out.emit(g.Figures()) })
	}
	t.out.say(fmt.Sprintf("ready; the tracker is at %s, peers connect to %s",
		strings.Join(l.addresses, " and "), strings.Join(ready.Listen, " and ")))
	return all.Wait() // nil after an interrupt
}

// maxFellows bounds the gateways in one answer, to leave room for other peers.
const maxFellows = 8

// gateway reads the gateway's own flags.
func (f *cmdline) gateway(log *slog.Logger) gateway.Config {
	cfg := gateway.Config{
		Dir:    f.String("cache"),
		Size:   f.Int64("cache-size"),
		Idle:   f.Duration("idle"),
		Logger: log,
	}
	f.Wantf(f.IsSet("tracker-listen"),
		"no address to answer announces at: give --tracker-listen http://HOST:PORT (see --help)")
	f.Wantf(f.IsSet("listen"),
		"no address to accept peers at: "+
			"give --listen HOST:PORT and --listen ISD-AS,[IP]:PORT (see --help)")
	f.Wantf(cfg.Size > 0, "--cache-size: want more than 0")
	f.Wantf(cfg.Idle >= 2*f.Duration("interval"),
		"--idle %v: want at least twice --interval, or the gateway leaves between two announces",
		cfg.Idle)
	for _, text := range f.StringSlice("fellow") {
		u, err := tracker.ParseURL(text)
		f.Wantf(err == nil && (u.Scheme() == "http" || u.Scheme() == "https"),
			"--fellow %s: want http://HOST:PORT, the tracker of another gateway", text)
		cfg.Fellows = append(cfg.Fellows, u)
	}
	f.Wantf(len(cfg.Fellows) <= maxFellows,
		"--fellow: %d gateways, want at most %d", len(cfg.Fellows), maxFellows)
	for _, text := range f.StringSlice("public") {
		a, err := netip.ParseAddrPort(text)
		f.Wantf(err == nil && scionnet.IPAddr(a).Dialable(),
			"--public %s: want an IP address and a port", text)
		cfg.Public = append(cfg.Public, scionnet.IPAddr(a))
	}
	return cfg
}

// allowTorrents reads the torrents that the gateway may join.
func (t *task) allowTorrents(ctx context.Context, g *gateway.Gateway) ([]node.Options, error) {
	names := t.sourceArgs()
	file := t.String("collection")
	if file == "" && t.IsSet("label") {
		return nil, program.UsageErrorf("--label chooses lines of a collection file: " +
			"give --collection, too")
	}
	if file != "" {
		more, err := readCollection(file, t.StringSlice("label"))
		if err != nil {
			return nil, err
		}
		names = append(names, more...)
	}
	if len(names) == 0 {
		return nil, program.UsageErrorf("name at least one torrent, or give --collection; " +
			"see braid gateway --help")
	}
	sources, err := readSources(ctx, names, t.log)
	if err != nil {
		return nil, err
	}
	f := newCmdline(t.Command) // a reload begins without errors
	var allowed []gateway.Allowed
	var torrents []node.Options
	for _, s := range sources {
		if err := g.Check(s.Source); err != nil {
			t.log.Warn("torrent left out", "torrent", s.Name, "reason", err)
			continue
		}
		tiers := f.trackers(s.Source, t.log)
		if f.Err != nil {
			return nil, f.Err
		}
		allowed = append(allowed, gateway.Allowed{Source: s.Source, Trackers: tiers})
		torrents = append(torrents, node.Options{Source: s.Source, Trackers: tiers})
	}
	if len(allowed) == 0 {
		return nil, errors.New("the gateway may serve none of the torrents")
	}
	g.Allow(allowed)
	return torrents, nil
}

// maxCollection bounds a collection file in bytes. A larger one must be another kind of file.
const maxCollection = 16 << 20

// readCollection returns the names in a collection file. If labels are given, it reads only lines
// with at least one of them. Relative names begin at the file's directory.
func readCollection(file string, labels []string) (names []string, err error) {
	if info, err := os.Stat(file); err == nil && info.Size() > maxCollection {
		return nil, fmt.Errorf("collection %s: larger than the %d MiB that are accepted",
			file, maxCollection>>20)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the collection: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		name, has, _ := strings.Cut(line, "\t")
		name = strings.TrimSpace(name)
		isNamed := func(label string) bool { return slices.Contains(labels, label) }
		wanted := len(labels) == 0 || slices.ContainsFunc(lists.Split(has, ","), isNamed)
		if name == "" || name[0] == '#' || !wanted {
			continue
		}
		if !strings.Contains(name, "://") && !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(file), name)
		}
		names = append(names, name)
	}
	return names, nil
}

// openGatewayTracker opens the tracker of a gateway.
func (t *task) openGatewayTracker(
	ctx context.Context, g *gateway.Gateway,
) (*trackerListeners, error) {
	cfg := server.Default()
	cfg.Interval = units.Duration(t.Duration("interval"))
	cfg.MinInterval = min(cfg.MinInterval, cfg.Interval)
	cfg.Lifetime = cfg.Interval * 5 / 2
	memory := swarm.NewMemory(cfg.Limits())
	s, err := server.New(cfg, g.Store(memory), t.log)
	if err != nil {
		return nil, program.UsageErrorf("--interval: %w", err)
	}
	t.atEnd(memory.Close)
	if err := s.Register(g.Collector()); err != nil {
		return nil, err
	}
	l, err := t.listenAt(ctx, s, cfg.MaxConns, "tracker-listen", t.StringSlice("tracker-listen"))
	if err != nil {
		return nil, err
	}
	return l, l.announceAddresses(nil)
}
