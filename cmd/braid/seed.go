package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
		ArgsUsage: "TORRENT|URL...",
		Description: "Checks the data (what braid has downloaded and nobody has touched since is trusted), then serves it until\n" +
			"interrupted, or until --ratio or --seed-time. Nothing is written. When it is ready it says so on standard error, and with --json as\n" +
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
	sources, err := openSources(ctx, cmd)
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
	for _, s := range sources {
		if s.IsMagnet() {
			return usageErrorf("a magnet link cannot be seeded: name the .torrent file")
		}
		stored := storage.Stored{Kind: kind, Dir: dir, Hash: s.InfoHash, Layout: s.Layout}
		if !cmd.Bool("recheck") && stored.Trusted() {
			continue
		}
		r, err := check(ctx, out, stored)
		if err != nil {
			return err
		}
		if !r.Complete() {
			return codedError{fmt.Errorf("%s in %s is not complete and right: braid verify says what is wrong, braid download completes it", s.Name, dir), exitData}
		}
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

// check hashes a torrent's data and shows how far it is.
func check(ctx context.Context, out *display, s storage.Stored) (storage.Report, error) {
	var done, total atomic.Int64
	total.Store(s.Layout.Length)
	stop := out.counting("checking "+s.Layout.Name, &done, &total)
	defer stop()
	return s.Check(ctx, func(n int64) { raise(&done, n) })
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
