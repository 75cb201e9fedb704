package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/storage"
)

func downloadCommand() *cli.Command {
	return &cli.Command{
		Name:      "download",
		Usage:     "download torrents from peers that are named or that trackers know, over all their paths",
		ArgsUsage: "TORRENT|URL|MAGNET...",
		Description: "Downloads what .torrent files, their http or https URLs, and magnet links describe. Files end in .part until\n" +
			"they are complete. Ctrl-C stops cleanly, and the same command resumes the download. A file that is there\n" +
			"already is used if a piece of it is right; if none is, nothing is written: see --overwrite and --rename.\n\n" + exitCodes,
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Value: ".", Usage: "download into `DIR`"},
			&cli.StringSliceFlag{Name: "peer", Usage: "download from `ADDR`: 1-ff00:0:110,[127.0.0.1]:31000, scion://name:31000, or host:port for TCP or QUIC (repeatable)", Config: cli.StringConfig{TrimSpace: true}},
			&cli.BoolFlag{Name: "piece-events", Usage: "with --json: tell of every piece when it is verified"},
			&cli.StringFlag{Name: "trace", Usage: "write what path selection sees and decides to `FILE`, one JSON object a line, compressed if it ends in .gz"},
			&durationFlag{Name: "stop-timeout", Usage: "give up a torrent after `TIME` without data, and say why (default: never)"},
			&cli.BoolFlag{Name: "seed-after", Usage: "go on serving others until interrupted, or until --ratio or --seed-time, which imply it"},
		}, slices.Concat(seedGoalFlags(), keepFlags(), writeFlags(), sessionFlags())...),
		Action: endOnHangup(download),
	}
}

func download(ctx context.Context, cmd *cli.Command) (err error) {
	log := logger(cmd)
	out, err := sampling(cmd, false)
	if err != nil {
		return err
	}
	defer func() { out.failed(err) }()
	if stop := cmd.Duration("stop-timeout"); stop < 0 || cmd.IsSet("stop-timeout") && stop == 0 {
		return usageErrorf("--stop-timeout %v: want more than 0", stop)
	}
	sources, err := openSources(ctx, cmd)
	if err != nil {
		return err
	}
	for i, s := range sources {
		sources[i] = s.WithKept(cmd.String("output"))
	}
	peers, err := namedPeers(ctx, cmd)
	if err != nil {
		return err
	}
	listen, err := parsePeers(cmd, "listen", client.ParseListen)
	if err != nil {
		return err
	}
	selected, err := selection(cmd, sources)
	if err != nil {
		return err
	}
	goal, err := parseSeedGoal(cmd)
	if err != nil {
		return err
	}
	if cmd.Bool("list") && !slices.ContainsFunc(sources, client.Source.IsMagnet) {
		for _, s := range sources {
			err = errors.Join(err, listFiles(out, s.Layout, selected))
		}
		return errors.Join(err, checkSelection(selected, sources))
	}
	if err := checkSelection(selected, sources); err != nil {
		return err
	}
	torrents, err := announcedSources(cmd, sources, log)
	if err != nil {
		return err
	}
	everybody, onlyTrackers := peers, false
	for i, s := range sources {
		if len(peers)+len(s.Peers)+len(listen) == 0 {
			if onlyTrackers = true; len(torrents[i].tiers) == 0 {
				return usageErrorf("nobody to download %s from: %sname a peer with --peer or a tracker with --tracker", s.Name, onlyWebSeeds(s))
			}
		}
		everybody = append(everybody[:len(everybody):len(everybody)], s.Peers...)
	}
	if cmd.IsSet("trace") && len(sources) > 1 {
		return usageErrorf("--trace: one torrent at a time")
	}
	var store storage.Store
	if !cmd.Bool("list") {
		store, err = openStore(cmd, out, selected, func(kind storage.Kind, opts ...storage.Option) (storage.Store, error) {
			return storage.Open(kind, cmd.String("output"), log, opts...)
		})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, store.Close()) }()
		for _, s := range sources {
			if err := claim(ctx, out, store, s); err != nil {
				return fmt.Errorf("download %s: %w", s.Name, err)
			}
		}
	}
	session, host, closeSession, err := openSession(ctx, cmd, listen, everybody, torrents, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeSession()) }()
	trackers, err := openAnnouncing(ctx, cmd, session, host, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, trackers.close()) }()

	if cmd.Bool("list") {
		for i, s := range sources {
			added := func(t *client.Transfer) error {
				return trackers.announceAll([]*client.Transfer{t}, torrents[i:i+1], false, onlyTrackers)
			}
			if err := describe(ctx, out, session, s, peers, selected, added); err != nil {
				return err
			}
		}
		return nil
	}
	var trace io.Writer
	if name := cmd.String("trace"); name != "" {
		w, err := createTrace(name, log)
		if err != nil {
			return err
		}
		// The session is closed first, which ends the writing.
		closeFirst := closeSession
		closeSession = func() error { return errors.Join(closeFirst(), w.Close()) }
		trace = w
	}
	var transfers []*client.Transfer
	for _, s := range sources {
		t, err := session.Add(s, store, client.Options{
			Peers: peers, Decided: out.decided(s), Verified: out.verified(s, cmd.Bool("piece-events")), Caused: out.caused(s),
			Trace: trace, Selection: selected, StopTimeout: cmd.Duration("stop-timeout"),
		})
		if err != nil {
			return err
		}
		transfers = append(transfers, t)
	}
	if err := trackers.announceAll(transfers, torrents, false, onlyTrackers); err != nil {
		return err
	}
	if len(listen) > 0 {
		out.ready(session.Listening())
	}
	endStatus, err := keepStatus(cmd, transfers, log)
	if err != nil {
		return err
	}
	defer endStatus()
	served, stop := goal.until(ctx, out, transfers)
	defer stop()
	if err := follow(ctx, out, transfers); err != nil {
		return err
	}
	if command := cmd.String("on-done"); command != "" {
		if err := onDone(ctx, out, command, cmd.String("output"), transfers); err != nil {
			return err
		}
	}
	if (cmd.Bool("seed-after") || goal.isSet()) && served.Err() == nil {
		out.say("complete; serving until interrupted" + goal.orUntil())
		out.watch(served, transfers)
	}
	return nil
}

// follow shows the transfers until all are done.
func follow(ctx context.Context, out *display, transfers []*client.Transfer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		for _, t := range transfers {
			select {
			case <-t.Done():
			case <-ctx.Done():
				return
			}
		}
		cancel(errAllDone)
	}()
	out.watch(ctx, transfers)
	if !errors.Is(context.Cause(ctx), errAllDone) {
		var have, total int64
		why := ""
		for _, t := range transfers {
			p := t.Progress()
			have, total = have+p.Have, total+p.Total
			if p.Cause != nil && why == "" {
				why = " without progress: " + p.Cause.Text
			}
		}
		return codedError{fmt.Errorf("interrupted at %s%s; run the same command again to resume", percent(have, total), why), exitInterrupted}
	}
	var errs []error
	for _, t := range transfers {
		if err := t.Progress().Err; err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

var errAllDone = errors.New("all transfers are done")

// onlyWebSeeds is what stands in the message that there is nobody to download from.
func onlyWebSeeds(s client.Source) string {
	if len(s.WebSeeds) == 0 {
		return ""
	}
	return client.OnlyWebSeeds(len(s.WebSeeds)) + "; "
}
