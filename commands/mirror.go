package commands

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/commands/flags"
	"braid/commands/program"
	"braid/commands/terminal"
	"braid/node"
	"braid/node/event"
	"braid/node/mirror"
	"braid/scionnet"
)

func mirrorCommand() *cli.Command {
	own := []cli.Flag{
		flags.File("output", ".", "keep the copy in `DIR`", "o"),
		flags.Pattern("include", "take only torrents whose title matches `GLOB`, such as "+
			"'*netinst*' (repeatable)"),
		flags.Pattern("exclude", "leave out torrents whose title matches `GLOB` (repeatable)"),
		flags.Size("max-size", 0, "leave out torrents larger than `SIZE` (default: no limit)"),
		flags.Size("max-total", 0, "keep at most `SIZE` of data (default: no limit)"),
		flags.Count("max-torrents", 1000, "keep at most `N` torrents"),
		flags.Size("keep-free", 1<<30, "leave `SIZE` of the disk free"),
		flags.Bool("delete", "delete the data of torrents that are no longer offered (default: "+
			"they are kept)"),
		flags.Time("interval", 0, "look for changes every `TIME`, at least 10s (default: 15m; 10s "+
			"in a directory)"),
		flags.Bool("once", "look once, wait for the downloads, and end, for cron"),
		flags.Period("stop-timeout", 0, "give up a torrent after `TIME` without data, until the "+
			"next look (default: never; 10m with --once)"),
		flags.Count("downloads", 8, "download at most `N` torrents at a time"),
		flags.File("state", "", "remember torrents and offers in `DIR` (default: a directory for "+
			"this source and --output in $XDG_STATE_HOME/braid or ~/.local/state/braid)"),
		flags.List("peer", "download from `ADDR`, too: 1-ff00:0:110,[127.0.0.1]:31000, "+
			"scion://name:31000, or host:port for TCP or QUIC (repeatable)"),
		flags.Events(),
	}
	return &cli.Command{
		Name:      "mirror",
		Usage:     "keep a copy of what a feed or a directory of torrents offers",
		ArgsUsage: "FEED|DIR|URL",
		ArgValidator: flags.Arguments(1, 1, "name one feed, directory or URL; see braid mirror "+
			"--help"),
		Description: "Downloads the torrents of an RSS or Atom feed, of a web page with links, " +
			"or of a directory of .torrent files, and serves them. It adds new torrents in the " +
			"order of the list, as far as the limits allow. Torrents that are no longer offered " +
			"stay, unless you give --delete. Prints one line for each event. The same command " +
			"resumes. " +
			"FEED and URL are http, https or scion URLs, or files. A feed names torrents by " +
			"enclosures, links that end in .torrent, magnet links, or elements such as " +
			"<torrent:infoHash>.\n\n" + program.ExitCodes,
		Flags: slices.Concat(own, writeFlags(), seedGoalFlags("no limit"),
			withoutFlags(nodeFlags(), "interactive")),
		Action: program.EndOnHangup(working(true, runMirror)),
	}
}

func runMirror(ctx context.Context, t *task) error {
	source, err := mirrorSource(t.Command)
	if err != nil {
		return err
	}
	every, options := t.mirrorInterval(source), t.mirrorOptions(ctx)
	var failed atomic.Int64 // offers that have failed
	cfg := mirror.Config{
		Source: source, Logger: t.log, Options: options,
		Tell: func(e event.Mirror) {
			if e.Action == "failed" {
				failed.Add(1)
			}
			t.out.mirrored(e)
		},
		Filter: mirror.Filter{Include: t.StringSlice("include"), Exclude: t.StringSlice("exclude")},
		Limits: mirror.Limits{
			MaxTorrent:  t.Int64("max-size"),
			MaxTotal:    t.Int64("max-total"),
			MaxTorrents: t.Int("max-torrents"),
			KeepFree:    t.Int64("keep-free"),
			Delete:      t.Bool("delete"),
		},
	}
	if err := cfg.Filter.Check(); err != nil {
		t.Wrongf("--include and --exclude: %w", err)
	}
	own := t.mirrorNode(source)
	if t.Err != nil {
		return t.Err
	}
	if cfg.Dir, err = filepath.Abs(t.String("output")); err != nil {
		return err
	}
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return err
	}
	state, err := t.mirrorState(source, cfg.Dir)
	if err != nil {
		return err
	}
	cfg.State = filepath.Join(state, "mirror.json")
	own.State, own.Settings.Dir = state, cfg.Dir
	if cfg.Node, err = t.start(ctx, own, t.out.finishing); err != nil {
		return err
	}
	if err := cfg.Node.Restore(ctx); err != nil {
		t.log.Error("torrents of the state directory are left out", "error", err)
	}
	m, err := mirror.Open(cfg)
	if err != nil {
		return err
	}
	if t.out.say("mirror of " + source + " in " + cfg.Dir); !t.Bool("once") {
		m.Run(ctx, every)
		return nil // an interrupt is the expected end
	}
	if err := m.Look(ctx); err != nil {
		return err
	}
	if err := completed(ctx, cfg.Node); err != nil || failed.Load() == 0 {
		return err
	}
	return fmt.Errorf("%d of the offers failed: see the lines above", failed.Load())
}

// mirrorSource reads the argument.
func mirrorSource(cmd *cli.Command) (string, error) {
	source := envOf(cmd).source(cmd.Args().First())
	if !mirror.IsLocal(source) {
		_, onSCION, _ := scionnet.ParseServerURL(source) // mirrorNode reports its errors
		if u, err := url.Parse(source); !onSCION && (err != nil || u.Host == "") {
			return "", program.UsageErrorf("%s is not a URL such as https://example.org", source)
		}
		return source, nil
	}
	if _, err := os.Stat(source); err != nil {
		return "",
			program.UsageErrorf("%w (want a directory, a file, or an http, https or scion URL)",
				err)
	}
	return filepath.Abs(source)
}

func (f *cmdline) mirrorInterval(source string) time.Duration {
	every := f.Duration("interval")
	switch {
	case f.IsSet("interval"):
		f.Wantf(every >= 10*time.Second, "--interval %v: want at least 10s", every)
		return every
	case mirror.IsLocal(source):
		return 10 * time.Second
	}
	return 15 * time.Minute
}

// mirrorOptions says how each torrent is added.
func (f *cmdline) mirrorOptions(ctx context.Context) func(client.Source) (node.Options, error) {
	o := node.Options{
		StopTimeout: f.Duration("stop-timeout"), Peers: f.peers(ctx), Goal: f.seedGoal(),
		Storage: node.Storage{Existing: f.existingFiles(), AllowDotfiles: f.Bool("allow-dotfiles")},
	}
	if f.Bool("once") {
		o.StopTimeout = cmp.Or(o.StopTimeout, 10*time.Minute)
	}
	log := logger(f.Command)
	return func(src client.Source) (node.Options, error) {
		f, o := newCmdline(f.Command), o
		o.Source, o.Trackers = src, f.trackers(src, log)
		return o, f.Err
	}
}

// mirrorState makes the state directory for this source and output, and locks it for this process.
func (t *task) mirrorState(source, dir string) (string, error) {
	state, err := envOf(t.Command).stateDir(t.String("state"))
	if err != nil {
		return "", err
	}
	if t.String("state") == "" {
		sum := sha256.Sum256([]byte(source + "\x00" + dir))
		state = filepath.Join(state, "mirrors", hex.EncodeToString(sum[:12]))
	}
	return state, t.lockDir(state, "braid mirror")
}

// mirrorNode reads the flags that configure the node of a mirror.
func (t *task) mirrorNode(source string) node.Config {
	cfg := t.node(t.log)
	cfg.Service, cfg.DHT = true, t.dht()
	_, onSCION, err := scionnet.ParseServerURL(source)
	if onSCION && err != nil {
		t.Wrongf("%w", err)
	}
	cfg.SCION.Required = cfg.SCION.Required || onSCION && cfg.SCION.Open != nil
	cfg.Settings.Queue = node.Queue{Downloads: t.Int("downloads")}
	return cfg
}

// finishing reports the torrents of a mirror that become complete or fail.
func (d *display) finishing(e any) {
	switch e := e.(type) {
	case event.Done:
		d.result(e, "complete: %s, %s, %s of it downloaded now\n",
			e.Torrent, terminal.BytesText(e.Bytes), terminal.BytesText(e.Fetched))
	case event.Failed:
		d.result(e, "failed: %s: %s\n", e.Torrent, e.Error)
	}
}

// mirrored prints an event of a mirror.
func (d *display) mirrored(e event.Mirror) {
	line := e.Action
	if e.Torrent != "" {
		line += ": " + e.Torrent
	}
	if e.Bytes > 0 {
		line += ", " + terminal.BytesText(e.Bytes)
	}
	if e.Reason != "" {
		line += ": " + e.Reason
	}
	d.result(e, "%s\n", line)
}

// completed waits until all downloads of a node have ended.
func completed(ctx context.Context, n *node.Node) error {
	var errs []error
	for _, t := range n.Torrents() {
		select {
		case <-ctx.Done():
			err := errors.New("interrupted; run the same command again to resume")
			return program.WithCode(err, program.Interrupted)
		case <-t.Done():
		}
		errs = append(errs, failure(t))
	}
	return errors.Join(errs...)
}
