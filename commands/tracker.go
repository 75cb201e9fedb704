package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sync/errgroup"

	"braid/commands/flags"
	"braid/commands/program"
	"braid/node/event"
	"braid/scionnet"
	"braid/tracker/server"
	"braid/tracker/swarm"
	"braid/units"
)

func trackerCommand() *cli.Command {
	return &cli.Command{
		Name:  "tracker",
		Usage: "introduce the peers of swarms to each other, on SCION and on IP",
		Description: "Answers announces and scrapes over HTTP, UDP, WebSocket and HTTP/3 on " +
			"SCION until it is interrupted. On SIGHUP it reads the configuration file, the lists " +
			"and the keys again. Everybody can read /healthz. For /stats and /metrics, add a " +
			"listener for operators, such as --listen stats://127.0.0.1:8081. Once it is ready, " +
			"it prints its addresses on standard error. With --json it prints " +
			`{"event":"ready","listen":[...]}.` + "\n\n" + program.ExitCodes,
		Flags: append([]cli.Flag{
			flags.List("listen", "answer on `URL`: http://127.0.0.1:8080, udp://127.0.0.1:8080, "+
				"scion://1-ff00:0:110,[127.0.0.1]:31080, ws://127.0.0.1:8082 for browsers "+
				"(WebRTC; a reverse proxy makes it wss://), or for operators "+
				"stats://127.0.0.1:8081 (repeatable)"),
			flags.List("announce-url", "tell peers to reach the tracker at `URL`, scion://… or "+
				"http://… (repeatable; default: the addresses of --listen that name a host)"),
			flags.File("data", "", "keep peers in a journal in `DIR` (default: they are forgotten "+
				"when the tracker ends)"),
			flags.String("store", "", "keep peers in the Valkey or Redis server at `URL`, such as "+
				"redis://user@host:6379/0, which several trackers may share"),
			flags.File("store-password-file", "", "read the password for --store from `FILE`"),
			flags.File("config", "", "read the configuration `FILE` (TOML); flags override it"),
			flags.Bool("print-config", "print and check the configuration that results from file "+
				"and flags, and exit"),
			flags.Time("interval", 0, "ask peers to announce every `TIME` (default: 20m)"),
			flags.Time("min-interval", 0, "ask peers to wait at least `TIME` between announces "+
				"(default: 15s)"),
			flags.Time("sync", 0, "write the journal every `TIME` (default: 1s)"),
			&cli.BoolFlag{
				Name:  "path-knowledge",
				Value: true,
				Usage: "accept path measurements from peers on SCION, and tell them near peers " +
					"and good paths",
			},
			flags.File("allow", "", "serve only the info hashes in `FILE`"),
			flags.File("deny", "", "do not serve the info hashes in `FILE`"),
			flags.File("keys", "", "private tracker: serve only peers with a key in `FILE`"),
			flags.Events(),
			debugFlag(),
			forceFlag(),
			flags.Verbose(),
		}, scionFlags()...),
		Action: working(true, runTracker),
	}
}

// trackerConfig merges the configuration file and the flags.
func trackerConfig(cmd *cli.Command) (server.Config, error) {
	cfg := server.Default()
	if name := cmd.String("config"); name != "" {
		f, err := os.Open(name)
		if err != nil {
			return cfg, fmt.Errorf("read the configuration: %w", err)
		}
		defer f.Close()
		if err := cfg.Read(f); err != nil {
			return cfg, fmt.Errorf("configuration %s: %w", name, err)
		}
	}
	duration := func(flag string) units.Duration { return units.Duration(cmd.Duration(flag)) }
	flags.Override(cmd, "listen", &cfg.Listen, cmd.StringSlice)
	flags.Override(cmd, "announce-url", &cfg.AnnounceAt, cmd.StringSlice)
	flags.Override(cmd, "data", &cfg.Data, cmd.String)
	flags.Override(cmd, "store", &cfg.Store, cmd.String)
	flags.Override(cmd, "store-password-file", &cfg.StorePass, cmd.String)
	flags.Override(cmd, "allow", &cfg.Allow, cmd.String)
	flags.Override(cmd, "deny", &cfg.Deny, cmd.String)
	flags.Override(cmd, "keys", &cfg.Keys, cmd.String)
	flags.Override(cmd, "interval", &cfg.Interval, duration)
	flags.Override(cmd, "min-interval", &cfg.MinInterval, duration)
	flags.Override(cmd, "sync", &cfg.Sync, duration)
	flags.Override(cmd, "path-knowledge", &cfg.Paths, cmd.Bool)
	if cmd.IsSet("interval") {
		// A short --interval alone must be valid, so the other times follow it.
		if !cmd.IsSet("min-interval") {
			cfg.MinInterval = min(cfg.MinInterval, cfg.Interval)
		}
		cfg.Lifetime = max(cfg.Lifetime, cfg.Interval*5/4)
	}
	return cfg, nil
}

func runTracker(ctx context.Context, t *task) error {
	cfg, err := trackerConfig(t.Command)
	if err != nil {
		return err
	}
	wrong := cfg.Check()
	if wrong != nil {
		wrong = program.UsageErrorf("configuration: %w", wrong)
	}
	if t.Bool("print-config") {
		_, _ = io.WriteString(t.out.results, cfg.String())
		return wrong
	}
	if len(cfg.Listen) == 0 {
		return program.UsageErrorf("no listen address: give --listen (see --help), " +
			"or set listen in the configuration file")
	}
	if wrong != nil {
		return wrong
	}
	hup := t.hangups()
	store, err := openSwarms(ctx, cfg, t.log)
	if err != nil {
		return err
	}
	t.atEnd(store.Close)
	s, err := server.New(cfg, store, t.log)
	if err != nil {
		return program.UsageErrorf("configuration: %w", err)
	}
	all, ctx := errgroup.WithContext(ctx)
	l, err := t.listenAt(ctx, s, cfg.MaxConns, "listen", cfg.Listen)
	if err != nil {
		return err
	}
	if err := l.announceAddresses(cfg.AnnounceAt); err != nil {
		return program.UsageErrorf("announce_urls: %w", err)
	}
	l.serve(ctx, all)
	reload := func() error { // an invalid configuration changes nothing
		cfg, err := trackerConfig(t.Command)
		if err != nil {
			return err
		}
		return s.Reload(cfg)
	}
	all.Go(func() error {
		t.reloading(ctx, hup, reload,
			"the configuration was not reloaded; the old one stays in use",
			"configuration reloaded; changes of addresses, data and sizes need a restart")
		return nil
	})
	t.out.event(event.Ready{Event: "ready", Listen: l.addresses})
	t.out.say("tracking on " + strings.Join(l.addresses, ", "))
	return all.Wait() // nil after an interrupt
}

// openSwarms opens the store that the configuration names.
func openSwarms(ctx context.Context, cfg server.Config, log *slog.Logger) (swarm.Store, error) {
	switch {
	case cfg.Data != "":
		return swarm.OpenDurable(cfg.Data, cfg.Limits(), time.Duration(cfg.Sync), log)
	case cfg.Store == "":
		return swarm.NewMemory(cfg.Limits()), nil
	}
	password := ""
	if cfg.StorePass != "" {
		b, err := os.ReadFile(cfg.StorePass)
		if err != nil {
			return nil, fmt.Errorf("read the password for the store: %w", err)
		}
		password = strings.TrimRight(string(b), "\r\n")
	}
	return swarm.OpenShared(ctx, cfg.Store, password, cfg.Limits(), log)
}

// trackerListeners are the listeners of a tracker.
type trackerListeners struct {
	*task
	server    *server.Server
	maxConns  int
	host      *scionnet.Host
	addresses []string
	serving   []func(context.Context) error // one for each address
}

// listenAt opens the listeners at the addresses of a flag. The end of the task closes them.
func (t *task) listenAt(
	ctx context.Context, s *server.Server, maxConns int, flag string, addresses []string,
) (*trackerListeners, error) {
	l := &trackerListeners{task: t, server: s, maxConns: maxConns}
	for _, text := range addresses {
		if err := l.open(ctx, text); err != nil {
			return nil, fmt.Errorf("--%s %s: %w", flag, text, err)
		}
	}
	return l, nil
}

// serve answers at all addresses.
func (l *trackerListeners) serve(ctx context.Context, all *errgroup.Group) {
	for _, serve := range l.serving {
		all.Go(func() error { return serve(ctx) })
	}
	all.Go(func() error { l.server.Run(ctx); return nil })
}

// open binds an address. The tracker binds all of them before it answers the first request.
func (l *trackerListeners) open(ctx context.Context, text string) error {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return program.UsageErrorf("want http://, udp://, ws://, scion:// or stats://, host and " +
			"port")
	}
	rest = strings.TrimSuffix(strings.TrimSuffix(rest, "/announce"), "/")
	if slices.Contains([]string{"http", "udp", "ws", "stats"}, scheme) {
		if err := flags.CheckHostPort(rest); err != nil {
			return program.UsageErrorf("%w", err)
		} else if strings.HasSuffix(rest, ":") {
			return program.UsageErrorf("the port is missing; 0 stands for any free port")
		}
	}
	switch scheme {
	case "scion":
		return l.openSCION(ctx, rest)
	case "wss":
		return program.UsageErrorf("braid serves no TLS: listen on ws://, " +
			"and let a reverse proxy with a certificate pass wss:// on to it")
	case "http", "ws", "stats":
		if _, err := url.Parse(text); err != nil {
			return program.UsageErrorf("%w", errors.Unwrap(err))
		}
		return l.openTCP(ctx, scheme, rest)
	case "udp":
		addr, err := net.ResolveUDPAddr("udp", rest)
		if err != nil {
			return err
		}
		c, err := net.ListenUDP("udp", addr)
		if err != nil {
			return err
		}
		l.add("udp://"+c.LocalAddr().String(), c.Close, func(ctx context.Context) error {
			return l.server.ServeUDP(ctx, c)
		})
		return nil
	}
	return program.UsageErrorf("scheme %q: want http, udp, ws, scion or stats", scheme)
}

func (l *trackerListeners) openTCP(ctx context.Context, scheme, at string) error {
	c, err := envOf(l.Command).Network.listen(ctx, "tcp", at)
	if err != nil {
		return err
	}
	address := scheme + "://" + c.Addr().String()
	if scheme == "stats" {
		l.add(address, c.Close, func(ctx context.Context) error {
			return l.server.ServeStats(ctx, c)
		})
		return nil
	}
	serve := l.server.ServeHTTP1
	if scheme == "ws" {
		serve = l.server.ServeWebSocket
	}
	l.add(address+"/announce", c.Close, func(ctx context.Context) error {
		return serve(ctx, c, l.maxConns)
	})
	return nil
}

func (l *trackerListeners) openSCION(ctx context.Context, text string) error {
	addr, err := scionnet.ParseAddr(text)
	if err != nil {
		return program.UsageErrorf("%w", err)
	}
	if l.host == nil {
		if l.host, err = openHost(ctx, l.Command, l.log, addr); err != nil {
			return err
		}
		l.atEnd(l.host.Close)
	} else if err := fits(l.host, addr); err != nil {
		return err
	}
	p, err := l.host.OpenHTTP(ctx, addr.Port)
	if err != nil {
		return listenError(err)
	}
	l.add("scion://"+p.Addr().String()+"/announce", p.Close, func(ctx context.Context) error {
		return l.server.ServeSCION(ctx, p)
	})
	return nil
}

func (l *trackerListeners) add(
	address string, closer func() error, serve func(context.Context) error,
) {
	l.addresses, l.serving = append(l.addresses, address), append(l.serving, serve)
	l.atEnd(func() error { _ = closer(); return nil }) // an error says only that it is closed already
}

// announceAddresses sets the addresses that peers learn: those in the configuration or, without
// any, those of the listeners.
func (l *trackerListeners) announceAddresses(named []string) error {
	if len(named) == 0 {
		named = slices.DeleteFunc(slices.Clone(l.addresses), func(a string) bool {
			// Peers that read these addresses have no WebRTC.
			return strings.HasPrefix(a, "stats://") || strings.HasPrefix(a, "ws://")
		})
	}
	return l.server.SetAddresses(named)
}
