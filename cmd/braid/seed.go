package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/storage"
)

func seedCommand() *cli.Command {
	return &cli.Command{
		Name:      "seed",
		Usage:     "serve torrents whose data is complete",
		ArgsUsage: "TORRENT|URL|DIR|MAGNET...",
		Description: "Checks the data (what braid has downloaded and nobody has touched since is trusted), then serves it until\n" +
			"interrupted, or until --ratio or --seed-time. A directory stands for the .torrent files in it; those whose data is\n" +
			"not complete are passed over. What is in a magnet link is known from its download, or peers are asked.\n" +
			"Nothing is written. When it is ready it says so on standard error, and with --json as\n" +
			`{"event":"ready","listen":[...]}.` + "\n\n" + exitCodes,
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "data", Value: ".", Usage: "`DIR` that holds the torrents' files or directories"},
			storageFlag(),
			superSeedingFlag(),
			&cli.BoolFlag{Name: "recheck", Usage: "hash all data, whatever is recorded of it"},
			debugFlag(),
		}, slices.Concat(seedGoalFlags(), sessionFlags())...),
		Action: endOnHangup(seed),
	}
}

func seed(ctx context.Context, cmd *cli.Command) (err error) {
	log := logger(cmd)
	named, err := seedSources(ctx, cmd, log)
	if err != nil {
		return err
	}
	listen, err := parsePeers(cmd, "listen", client.ParseListen)
	if err != nil {
		return err
	}
	if len(listen) == 0 {
		return usageErrorf("no listen address: give --listen ISD-AS,[IP]:PORT (see --help)")
	}
	super, err := parseSuperSeeding(cmd)
	if err != nil {
		return err
	}
	goal, err := parseSeedGoal(cmd)
	if err != nil {
		return err
	}
	out, err := sampling(cmd, true)
	if err != nil {
		return err
	}
	dir := cmd.String("data")
	kind, err := storageKind(cmd)
	if err != nil {
		return err
	}
	isComplete := func(s client.Source) (bool, error) {
		stored := storage.Stored{Kind: kind, Dir: dir, Hash: s.InfoHash, Layout: s.Layout}
		if !cmd.Bool("recheck") && stored.Trusted() {
			return true, nil
		}
		r, err := check(ctx, out, stored, nil)
		return err == nil && r.Complete(), err
	}
	incomplete := func(s client.Source) error {
		return codedError{fmt.Errorf("%s in %s is not complete and right: braid verify says what is wrong, braid download completes it", s.Name, dir), exitData}
	}
	var sources []client.Source
	for _, s := range named {
		s.Source = s.WithKept(dir)
		ok := s.IsMagnet() // looked at when peers have said what is in it
		if !ok {
			if ok, err = isComplete(s.Source); err != nil {
				return err
			}
		}
		switch {
		case ok:
			sources = append(sources, s.Source)
		case s.listed:
			log.Warn("torrent passed over: its data is not complete and right", "torrent", s.Name, "data", dir)
		default:
			return incomplete(s.Source)
		}
	}
	if len(sources) == 0 {
		return codedError{fmt.Errorf("the data of none of the %d torrents is complete and right in %s", len(named), dir), exitData}
	}
	torrents, err := announcedSources(cmd, sources, log)
	if err != nil {
		return err
	}
	store, err := storage.OpenVerifiedIn(kind, dir, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	closeDebug, err := serveDebug(cmd, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeDebug()) }()
	session, host, closeSession, err := openSession(ctx, cmd, listen, nil, torrents, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeSession()) }()
	trackers, err := openAnnouncing(ctx, cmd, session, host, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, trackers.close()) }()
	for i, s := range sources {
		if !s.IsMagnet() {
			continue
		}
		if len(s.Peers)+len(torrents[i].tiers) == 0 {
			return usageErrorf("nobody to ask what is in the magnet link of %s: name a tracker with --tracker, or the .torrent file", cmp.Or(s.Name, s.InfoHash.HexString()))
		}
		out.say("asking peers what is in " + cmp.Or(s.Name, s.InfoHash.HexString()))
		s, err := described(ctx, session, s, nil, func(t *client.Transfer) error {
			return trackers.announceAll([]*client.Transfer{t}, torrents[i:i+1], false, len(s.Peers) == 0)
		})
		if err != nil {
			return err
		}
		if ok, err := isComplete(s); err != nil {
			return err
		} else if !ok {
			return incomplete(s)
		}
		sources[i], torrents[i].source = s, s
	}
	var transfers []*client.Transfer
	for _, s := range sources {
		t, err := session.Add(s, store, client.Options{Decided: out.decided(s), SuperSeeding: super})
		if err != nil {
			return err
		}
		transfers = append(transfers, t)
	}
	if err := trackers.announceAll(transfers, torrents, true, false); err != nil {
		return err
	}
	endStatus, err := keepStatus(cmd, transfers, log)
	if err != nil {
		return err
	}
	defer endStatus()
	out.ready(session.Listening())
	over, err := parseTransports(cmd)
	if err != nil {
		return err
	}
	for _, line := range reach(session.Listening(), over.ip, torrents) {
		out.people.printf("%s\n", line)
	}
	served, stop := goal.until(ctx, out, transfers)
	defer stop()
	out.watch(served, transfers)
	return nil // to be interrupted is how a seed ends
}

// seedSource is a torrent to be seeded.
type seedSource struct {
	client.Source
	listed bool // one of those in a directory: it may be incomplete
}

// seedSources reads the torrents that the command line names, and those in the directories that it names.
func seedSources(ctx context.Context, cmd *cli.Command, log *slog.Logger) ([]seedSource, error) {
	if cmd.Args().Len() == 0 {
		return nil, usageErrorf("name at least one torrent; see braid %s --help", cmd.Name)
	}
	var out []seedSource
	add := func(s seedSource) bool {
		if slices.ContainsFunc(out, func(o seedSource) bool { return o.InfoHash == s.InfoHash }) {
			return false
		}
		out = append(out, s)
		return true
	}
	for _, name := range cmd.Args().Slice() {
		if st, err := os.Stat(name); err == nil && st.IsDir() {
			files, err := os.ReadDir(name)
			if err != nil {
				return nil, fmt.Errorf("list torrents: %w", err)
			}
			files = slices.DeleteFunc(files, func(f os.DirEntry) bool { return !strings.EqualFold(filepath.Ext(f.Name()), ".torrent") })
			if len(files) == 0 {
				return nil, usageErrorf("%s: there is no .torrent file in this directory", name)
			}
			for _, f := range files {
				s, err := client.OpenSource(ctx, filepath.Join(name, f.Name()))
				if err != nil {
					log.Warn("torrent passed over", "error", err)
				} else if !add(seedSource{s, true}) {
					log.Warn("torrent passed over: it is there twice", "file", f.Name())
				}
			}
			continue
		}
		s, err := client.OpenSource(ctx, name)
		if err != nil {
			return nil, err
		}
		if !add(seedSource{s, false}) {
			return nil, usageErrorf("%s: the same torrent is named twice", name)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("none of the torrents can be read")
	}
	return out, nil
}

// check hashes the data of a torrent's wanted files, nil for all, and shows how far it is.
func check(ctx context.Context, out *display, s storage.Stored, wanted []bool) (storage.Report, error) {
	var done, total atomic.Int64
	total.Store(s.Layout.BytesOf(wanted))
	stop := out.counting("checking "+s.Layout.Name, &done, &total)
	defer stop()
	return s.CheckWanted(ctx, wanted, func(n int64) { raise(&done, n) })
}

// raise sets a counter that several goroutines report to, which may be late.
func raise(v *atomic.Int64, n int64) {
	for old := v.Load(); n > old && !v.CompareAndSwap(old, n); old = v.Load() {
	}
}

// counting shows a counter until the returned function is called.
func (d *display) counting(what string, done, total *atomic.Int64) (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	start := time.Now()
	var said pace
	go func() {
		defer close(ended)
		tick := time.NewTicker(d.interval())
		defer tick.Stop()
		for {
			select {
			case <-quit:
				d.people.clear()
				return
			case <-tick.C:
				d.count(&said, what, done.Load(), total.Load(), time.Since(start))
			}
		}
	}()
	return func() { close(quit); <-ended }
}
