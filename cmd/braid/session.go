package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/pathsel"
	"braid/scionnet"
)

// sessionFlags are common to the commands that talk to peers.
func sessionFlags() []cli.Flag {
	own := []cli.Flag{
		transportFlag(),
		&cli.StringSliceFlag{Name: "listen", Usage: "accept peers on `ADDR`: 1-ff00:0:111,[127.0.0.1]:31000, or host:port for TCP or QUIC (repeatable)", Config: cli.StringConfig{TrimSpace: true}},
		&cli.IntFlag{Name: "max-paths", Value: client.DefaultMaxPaths, Usage: "use at most `N` paths to each peer"},
		&cli.IntFlag{Name: "max-requests", Usage: "keep at most `N` requests outstanding on each connection (default: as many as are useful)"},
		congestionFlag(),
		&cli.StringFlag{Name: "tcp-congestion", Usage: "congestion controller of TCP connections: `NAME` is one of the kernel's, such as cubic or bbr (default: the system's)"},
		&cli.IntFlag{Name: "max-uploads", Usage: "serve at most `N` peers of each torrent at a time, over all of their paths; the others take turns, by network and host (default: all)"},
		&cli.StringFlag{Name: "identity", Usage: "`FILE` with the private key that identifies this client to peers; created if missing (default: identity.pem in the user's configuration directory)"},
		&cli.BoolFlag{Name: "json", Usage: "print events on standard output, one JSON object a line"},
		statusFlag(),
		&durationFlag{Name: "sample", Value: time.Second, Usage: "with --json: tell the progress every `TIME`, at least 10ms"},
		&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "log what happens on standard error; twice for all of it"},
	}
	return slices.Concat(selectorFlags(), own, limitFlags(), policyFlags(), announceFlags(), scionFlags(), []cli.Flag{forceFlag()})
}

// selectorFlags choose a selector, for openSelector.
func selectorFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "path-selection", Value: "adaptive", Usage: "which paths to a peer are used: `NAME` is adaptive (what adds bandwidth), all, first, or slots (the published algorithm)"},
		&durationFlag{Name: "initial-deadline", Value: 2 * time.Second, Usage: "slots: wait at most `TIME` for handshakes before the first selection"},
		&durationFlag{Name: "slot", Value: time.Second, Usage: "slots: select every `TIME`"},
		&cli.IntFlag{Name: "min-weight", Value: 25, Usage: "slots: keep paths with at least `PERCENT` of the best one's weight"},
		&cli.StringSliceFlag{Name: "without", Usage: "select paths without `WHAT`, to see what it is worth: handshake, bandwidth, disjointness or exploration (repeatable)", Config: cli.StringConfig{TrimSpace: true}},
	}
}

// logger writes warnings, and more if the user asks for it.
func logger(cmd *cli.Command) *slog.Logger {
	level := slog.LevelWarn
	switch n := cmd.Count("verbose"); {
	case n > 1:
		level = slog.LevelDebug
	case n == 1:
		level = slog.LevelInfo
	}
	h := stderr(cmd).handler(level)
	if level == slog.LevelWarn { // otherwise the user asked for all of it
		h = newCalm(h)
	}
	return slog.New(h)
}

func parsePeers(cmd *cli.Command, flag string, parse func(string) (client.Peer, error)) ([]client.Peer, error) {
	var out []client.Peer
	for _, s := range cmd.StringSlice(flag) {
		p, err := parse(s)
		if err != nil {
			return nil, usageErrorf("--%s: %w", flag, err)
		}
		out = append(out, p)
	}
	return out, nil
}

// openSources reads the torrents that the command line names.
func openSources(ctx context.Context, cmd *cli.Command) ([]client.Source, error) {
	if cmd.Args().Len() == 0 {
		return nil, usageErrorf("name at least one torrent; see braid %s --help", cmd.Name)
	}
	var out []client.Source
	for _, name := range cmd.Args().Slice() {
		s, err := client.OpenSource(ctx, name)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out, func(o client.Source) bool { return o.InfoHash == s.InfoHash }) {
			return nil, usageErrorf("%s: the same torrent is named twice", name)
		}
		out = append(out, s)
	}
	return out, nil
}

// openSession opens a session, with SCION if one of the addresses is SCION's or a flag asks for it; if only trackers are on
// SCION, or may say that they are, then if that is possible. The returned host is nil without SCION; the function closes both.
func openSession(ctx context.Context, cmd *cli.Command, listen, peers []client.Peer, torrents []announced, log *slog.Logger) (*client.Session, *scionnet.Host, func() error, error) {
	selector, err := openSelector(cmd)
	if err != nil {
		return nil, nil, nil, err
	}
	policy, err := parsePolicy(cmd)
	if err != nil {
		return nil, nil, nil, err
	}
	limits, err := parseLimits(cmd)
	if err != nil {
		return nil, nil, nil, err
	}
	over, err := parseTransports(cmd)
	if err != nil {
		return nil, nil, nil, err
	}
	control, err := parseCongestion(cmd)
	if err != nil {
		return nil, nil, nil, err
	}
	if n := cmd.Int("max-paths"); n < 1 {
		return nil, nil, nil, usageErrorf("--max-paths %d: want at least 1", n)
	}
	if n := cmd.Int("max-requests"); n < 0 {
		return nil, nil, nil, usageErrorf("--max-requests %d: want 0 for as many as are useful, or a number", n)
	}
	if n := cmd.Int("max-uploads"); n < 0 {
		return nil, nil, nil, usageErrorf("--max-uploads %d: want 0 for all, or a number of peers", n)
	}
	cfg := client.Config{
		Listen: listen, IP: over.ip, Selector: selector, MaxPaths: cmd.Int("max-paths"), MaxUploads: cmd.Int("max-uploads"), MaxRequests: cmd.Int("max-requests"), Congestion: control, TCPCongestion: cmd.String("tcp-congestion"), Limits: limits, Logger: log,
	}
	isSCION := func(p client.Peer) bool { _, ok := p.SCION(); return ok }
	asked := cmd.IsSet("config-dir") || cmd.IsSet("sciond") || slices.ContainsFunc(slices.Concat(listen, peers), isSCION)
	var at []scionnet.Addr
	for _, p := range listen {
		if a, ok := p.SCION(); ok {
			at = append(at, a)
		}
	}
	trackers := onSCION(torrents)
	if over.scion && (asked || trackers || askedOverHTTP(torrents) && hasSCION(cmd)) {
		host, err := openListening(ctx, cmd, at, log)
		if err != nil {
			if asked {
				return nil, nil, nil, err
			}
			if trackers {
				log.Warn("trackers on SCION are not asked: this host has no SCION", "error", err)
			} else {
				log.Info("SCION is not used", "error", err)
			}
		} else {
			cfg.Host = host
		}
	}
	if cfg.Host != nil {
		for _, a := range at {
			if err := fits(cfg.Host, a); err != nil {
				cfg.Host.Close()
				return nil, nil, nil, err
			}
		}
		var ask *questions
		if cmd.Bool("interactive") {
			ask = newQuestions(os.Stdin, stderr(cmd))
		}
		if cfg.Policy, err = settle(ctx, cfg.Host, policy, peers, len(listen) > 0, ask, log); err != nil {
			cfg.Host.Close()
			return nil, nil, nil, err
		}
		if slices.ContainsFunc(listen, isSCION) {
			if err := cfg.Host.AnswerEcho(); err != nil {
				log.Info("scion ping will get no answer from this braid", "error", err)
			}
		}
	}
	if cfg.Host == nil && cmd.Bool("interactive") {
		return nil, nil, nil, usageErrorf("--interactive: no SCION peer is named whose paths could be listed")
	}
	if cfg.Host != nil || cfg.IP == client.QUIC {
		cfg.Identity, err = loadIdentity(cmd.String("identity"), log)
	}
	var s *client.Session
	if err == nil {
		s, err = client.New(ctx, cfg)
	}
	if err != nil {
		if cfg.Host != nil {
			cfg.Host.Close()
		}
		return nil, nil, nil, listenError(err)
	}
	return s, cfg.Host, func() error {
		err := s.Close()
		if cfg.Host != nil {
			if e := cfg.Host.Close(); err == nil {
				err = e
			}
		}
		return err
	}, nil
}

func openSelector(cmd *cli.Command) (pathsel.Selector, error) {
	c := pathsel.Config{
		InitialDeadline: cmd.Duration("initial-deadline"),
		Slot:            cmd.Duration("slot"),
		MinWeight:       cmd.Int("min-weight"),
	}
	switch {
	case c.InitialDeadline <= 0:
		return nil, usageErrorf("--initial-deadline %v: want more than 0", c.InitialDeadline)
	case c.Slot <= 0:
		return nil, usageErrorf("--slot %v: want more than 0", c.Slot)
	case c.MinWeight < 1 || c.MinWeight > 100:
		return nil, usageErrorf("--min-weight %d: want 1 to 100 percent", c.MinWeight)
	}
	var err error
	if c.Without, err = pathsel.ParseWithout(cmd.StringSlice("without")); err != nil {
		return nil, usageErrorf("--without: %w", err)
	}
	s, err := c.New(cmd.String("path-selection"))
	if err != nil {
		return nil, usageErrorf("--path-selection: %w", err)
	}
	return s, nil
}

// loadIdentity reads the key, or makes it. Where there is no place to keep one, braid goes without: its key is then
// new each time, and only that is lost.
func loadIdentity(name string, log *slog.Logger) (*scionnet.Identity, error) {
	if name != "" {
		return scionnet.LoadIdentity(name)
	}
	dir, err := os.UserConfigDir()
	if err == nil {
		dir = filepath.Join(dir, "braid")
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		log.Info("no place for a lasting identity", "error", err)
		return scionnet.NewIdentity()
	}
	return scionnet.LoadIdentity(filepath.Join(dir, "identity.pem"))
}
