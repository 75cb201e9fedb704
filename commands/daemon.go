package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/urfave/cli/v3"

	"braid/commands/flags"
	"braid/commands/program"
	"braid/commands/terminal"
	"braid/node"
	service "braid/node/daemon"
	"braid/node/web"
	"braid/node/web/files"
	"braid/node/web/transmission"
	v1 "braid/node/web/v1"
	"braid/storage/durable"
)

func daemonCommand() *cli.Command {
	own := []cli.Flag{
		flags.File("state", "", "keep torrents, settings and the key in `DIR` (default: "+
			"STATE_DIRECTORY, or braid in the user's state directory)"),
		flags.List("api", "answer commands, programs and browsers at `ADDR`: unix:PATH, or "+
			"HOST:PORT; hosts other than 127.0.0.1 need a password, see braid password "+
			"(repeatable; the daemon always answers on a unix socket, too, by default one that "+
			"only this user can open)"),
		flags.List("allow-host", "answer browsers that use the name `HOST`, or *.HOST for all "+
			"names below it; IP addresses and localhost need no permission (repeatable)"),
		flags.File("directory", "", "keep data in `DIR` unless a torrent names another one "+
			"(default: downloads in the directory of --state)", "o"),
		flags.Bool("json", "print one JSON object when the daemon is ready"),
		debugFlag(),
	}
	return &cli.Command{
		Name:  "daemon",
		Usage: "run torrents in the background, for braid add, list and the other commands",
		Description: "Runs until it is ended. The next start resumes its torrents, even after " +
			"kill -9. SIGTERM and Ctrl-C end it cleanly; a second one ends it at once. SIGHUP " +
			"reads the password again. Under systemd it reports when it is ready (Type=notify) " +
			"and answers the watchdog. --directory, --pex, --lsd, the limits and the path policy " +
			"change its settings, which it keeps.\n\n" + program.ExitCodes,
		Flags: slices.Concat(own, filesFlags(),
			withoutFlags(nodeFlags(), "interactive", "tracker", "no-trackers")),
		ArgValidator: flags.Arguments(0, 0, "braid daemon takes no torrents: "+
			"braid add ARGS adds them to a running one"),
		Action: working(true, runDaemon),
	}
}

func withoutFlags(flags []cli.Flag, names ...string) []cli.Flag {
	return slices.DeleteFunc(flags, func(f cli.Flag) bool {
		return slices.Contains(names, f.Names()[0])
	})
}

func runDaemon(ctx context.Context, t *task) error {
	hangups := t.hangups()
	state, err := envOf(t.Command).stateDir(t.String("state"))
	if err != nil {
		return err
	}
	journal := &v1.Journal{}
	t.log = slog.New(slog.NewMultiHandler(t.log.Handler(), journal.Handler()))
	cfg := t.service(state)
	if t.Err != nil {
		return t.Err
	}
	if err := t.lockDir(state, "braid daemon"); err != nil {
		return err
	}
	access, err := web.OpenAccess(filepath.Join(state, "password"), t.StringSlice("allow-host"))
	if err != nil {
		return err
	}
	n, err := t.openService(ctx, cfg)
	if err != nil {
		return err
	}
	ctx, shutdown := context.WithCancel(ctx)
	defer shutdown()
	s, err := t.openServer(n, access, journal, transmission.Options{
		Version:  program.Version("braid"),
		State:    state,
		Shutdown: shutdown,
		Logger:   t.log,
	})
	if err != nil {
		return err
	}
	work := service.Open(n, t.log)
	if err := n.Restore(ctx); err != nil {
		t.log.Error("torrents of the state directory are left out", "error", err)
	}
	s.Serve() // only now: others may add a torrent again that seems to be missing
	served, err := t.openFiles(ctx, n)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	running.Go(func() { work.Run(ctx) })
	t.atEnd(func() error { shutdown(); running.Wait(); return nil })
	sayReady(t.Command, n, s.Addresses(), served)
	return superviseDaemon(ctx, hangups, n, access.Reload, t.log)
}

// lockDir makes a directory, and locks it for this process. If another process has locked
// it, the error says that it belongs to another such command.
func (t *task) lockDir(dir, command string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		at, isPath := errors.AsType[*fs.PathError](err)
		if isPath && errors.Is(err, syscall.ENOTDIR) {
			return fmt.Errorf("make the directory %s: %s is a file; "+
				"move it away, or name another directory", dir, at.Path)
		}
		return fmt.Errorf("make the directory: %w", err)
	}
	f, err := durable.OpenLocked(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600, 0)
	if errors.Is(err, durable.ErrInUse) {
		return fmt.Errorf("the directory %s belongs to another %s that runs: %w",
			dir, command, err)
	}
	if err != nil {
		return fmt.Errorf("lock the directory: %w", err)
	}
	t.atEnd(func() error { _ = f.Close(); return nil })
	return nil
}

// stateDir is where a daemon keeps its state.
func (e *Env) stateDir(flag string) (string, error) {
	if d := cmp.Or(flag, e.Getenv("STATE_DIRECTORY")); d != "" {
		return e.abs(d)
	}
	if d := e.Getenv("XDG_STATE_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "braid"), nil
	}
	home := e.home()
	if home == "" {
		return "", program.UsageErrorf("no place for the state: set HOME or XDG_STATE_HOME")
	}
	return filepath.Join(home, ".local", "state", "braid"), nil
}

// service reads the flags that configure the node of a daemon.
func (t *task) service(state string) node.Config {
	t.Check("api", checkAPI)
	cfg := t.node(t.log)
	cfg.State, cfg.Service, cfg.DHT = state, true, t.dht()
	cfg.Identity = cmp.Or(cfg.Identity, filepath.Join(state, "identity.pem"))
	if cfg.DHT != nil {
		cfg.DHT.File = filepath.Join(state, "dht.json")
	}
	dir, err := filepath.Abs(cmp.Or(t.String("directory"), filepath.Join(state, "downloads")))
	t.Note(err)
	cfg.Settings.Dir, cfg.Settings.Rates = dir, node.RatesOf(cfg.Client.Limits)
	cfg.Settings.Policy = node.Policy{
		Sequence:   t.String("sequence"),
		ACL:        t.acl(),
		Preference: t.String("preference"),
		MaxLatency: t.Duration("max-latency"),
		MinMTU:     t.Int("min-mtu"),
	}
	return cfg
}

func (t *task) openService(ctx context.Context, cfg node.Config) (*node.Node, error) {
	n, err := node.Open(ctx, cfg)
	if err != nil {
		return nil, listenError(err)
	}
	t.atEnd(n.Close)
	if t.AnySet("directory", "pex", "lsd", "upload-rate", "download-rate", "rate-limit",
		"sequence", "acl", "preference", "max-latency", "min-mtu") {
		err = n.Change(func(s *node.Settings) error {
			t.replaceSettings(s, cfg.Settings)
			return nil
		})
	}
	return n, err
}

// replaceSettings replaces the settings for which a flag is given by those of own.
func (f *cmdline) replaceSettings(s *node.Settings, own node.Settings) {
	cmd := f.Command
	flags.Override(cmd, "directory", &s.Dir, func(string) string { return own.Dir })
	flags.Override(cmd, "pex", &s.NoPEX, func(string) bool { return own.NoPEX })
	flags.Override(cmd, "lsd", &s.LSD, func(string) bool { return own.LSD })
	flags.Override(cmd, "upload-rate", &s.Rates.Upload, cmd.Int64)
	flags.Override(cmd, "download-rate", &s.Rates.Download, cmd.Int64)
	s.Rates.UploadOff = s.Rates.UploadOff && !cmd.IsSet("upload-rate")
	s.Rates.DownloadOff = s.Rates.DownloadOff && !cmd.IsSet("download-rate")
	if cmd.IsSet("rate-limit") { // it does not end with the schedule
		s.Rates.Paths, s.Alternative.Rates.Paths = own.Rates.Paths, own.Rates.Paths
	}
	flags.Override(cmd, "sequence", &s.Policy.Sequence, cmd.String)
	flags.Override(cmd, "acl", &s.Policy.ACL, func(string) string { return f.acl() })
	flags.Override(cmd, "preference", &s.Policy.Preference, cmd.String)
	flags.Override(cmd, "max-latency", &s.Policy.MaxLatency, cmd.Duration)
	flags.Override(cmd, "min-mtu", &s.Policy.MinMTU, cmd.Int)
}

// checkAPI is an error unless a daemon can answer at such an address.
func checkAPI(address string) error {
	if strings.HasPrefix(address, "unix:") {
		return nil
	}
	return flags.CheckHostPort(address)
}

// openServer opens the HTTP server of a daemon with its interfaces.
func (t *task) openServer(
	n *node.Node, access *web.Access, journal *v1.Journal, remote transmission.Options,
) (s *web.Server, err error) {
	listen := t.StringSlice("api")
	if !slices.ContainsFunc(listen, func(a string) bool { return strings.HasPrefix(a, "unix:") }) {
		own, err := envOf(t.Command).ownSocket()
		if err != nil {
			return nil, err
		}
		listen = append([]string{"unix:" + own}, listen...)
	}
	api := v1.New(v1.Config{
		Node: n, Access: access, Version: program.Version("braid"), Journal: journal,
		Addresses: func() []string { return s.Addresses() },
	})
	routes, err := web.Routes(n, api, access, remote)
	if err == nil {
		s, err = web.New(web.Config{Listen: listen, Access: access, Logger: t.log}, routes)
	}
	if errors.Is(err, web.ErrNeedsPassword) {
		err = program.UsageErrorf("--api: %w (start without this --api, and run braid password)",
			err)
	}
	if err != nil {
		api.Close()
		return nil, err
	}
	t.atEnd(func() error { api.Close(); return s.Close() })
	return s, nil
}

// sayReady prints the addresses of the daemon.
func sayReady(cmd *cli.Command, n *node.Node, api []string, served *files.Server) {
	e := node.NewReady(n.Listening())
	e.HTTP = served.Addresses()
	if e.API = api; cmd.Bool("json") {
		_ = terminal.PrintObjects(terminal.Stdout(cmd), e) // the printer keeps the error
		return
	}
	w := terminal.Stderr(cmd)
	w.Printf("braid daemon: ready, with %s\n", terminal.Plural(len(n.Torrents()), "torrent"))
	for _, a := range api {
		if !strings.HasPrefix(a, "unix:") {
			a = "http://" + a + "/"
		}
		w.Printf("  answers at %s\n", a)
	}
	for _, url := range served.URLs() {
		w.Printf("  serves files at %s\n", url)
	}
	for _, a := range e.Listen {
		w.Printf("  accepts peers at %s\n", a)
	}
}

// superviseDaemon reports to systemd until the context ends, and reloads at each SIGHUP.
func superviseDaemon(
	ctx context.Context, hangups <-chan os.Signal, n *node.Node, reload func() error,
	log *slog.Logger,
) error {
	tell := func(state string) {
		if _, err := daemon.SdNotify(false, state); err != nil {
			log.Warn("systemd cannot be told", "state", state, "error", err)
		}
	}
	tell(daemon.SdNotifyReady)
	defer tell(daemon.SdNotifyStopping)
	var beat <-chan time.Time
	if every, err := daemon.SdWatchdogEnabled(false); err == nil && every > 0 {
		t := time.NewTicker(every / 2)
		defer t.Stop()
		beat = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hangups:
			tell(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
			if err := reload(); err != nil {
				log.Error("the reload has failed", "error", err)
			}
			tell(daemon.SdNotifyReady)
		case <-beat:
			n.Stats() // waits for the lock of each torrent: a deadlocked daemon sends no watchdog
			tell(daemon.SdNotifyWatchdog)
		}
	}
}
