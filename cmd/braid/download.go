package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/node"
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
			webSeedFlag(),
			&cli.BoolFlag{Name: "piece-events", Usage: "with --json: tell of every piece when it is verified"},
			&cli.StringFlag{Name: "trace", Usage: "write what path selection sees and decides to `FILE`, one JSON object a line, compressed if it ends in .gz"},
			&durationFlag{Name: "stop-timeout", Usage: "give up a torrent after `TIME` without data, and say why (default: never)"},
			&cli.BoolFlag{Name: "seed-after", Usage: "go on serving others until interrupted, or until --ratio or --seed-time, which imply it"},
		}, slices.Concat(seedGoalFlags(), keepFlags(), writeFlags(), sessionFlags())...),
		Action: endOnHangup(download),
	}
}

func download(ctx context.Context, cmd *cli.Command) (err error) {
	out, err := sampling(cmd, false)
	if err != nil {
		return err
	}
	defer func() { out.failed(err) }()
	torrents, err := downloads(ctx, cmd)
	if err != nil {
		return err
	}
	if cmd.Bool("list") && !slices.ContainsFunc(torrents, func(o node.Options) bool { return o.Source.IsMagnet() }) {
		return listAll(out, torrents)
	}
	closeTrace, err := openTraces(cmd, torrents)
	if err != nil {
		return err
	}
	defer closeTrace() // when the node is closed, which ends the writing
	n, closeNode, err := openNode(ctx, cmd, out, torrents)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeNode()) }()
	if cmd.Bool("list") {
		return describeAll(ctx, out, n, torrents)
	}
	added, err := addAll(ctx, out, n, torrents)
	if err != nil {
		return err
	}
	if cmd.IsSet("listen") {
		out.ready(n.Listening())
	}
	return fetch(ctx, cmd, out, added)
}

// fetch shows downloads to their end, and serves them afterwards if the user wants it.
func fetch(ctx context.Context, cmd *cli.Command, out *display, torrents []*node.Torrent) error {
	endStatus, err := keepStatus(cmd, torrents, logger(cmd))
	if err != nil {
		return err
	}
	defer endStatus()
	serving, stop := untilServed(ctx, torrents)
	defer stop()
	if err := follow(ctx, out, torrents); err != nil {
		return err
	}
	if command := cmd.String("on-done"); command != "" {
		if err := onDone(ctx, out, command, cmd.String("output"), torrents); err != nil {
			return err
		}
	}
	goal := torrents[0].Options().Goal
	if (cmd.Bool("seed-after") || !goal.IsZero()) && serving.Err() == nil {
		out.say("complete; serving until interrupted" + orUntil(goal))
		out.watch(serving, torrents)
	}
	return nil
}

// downloads reads the torrents that the command line names, and checks what can be checked before
// anything is opened.
func downloads(ctx context.Context, cmd *cli.Command) ([]node.Options, error) {
	f := &flags{Command: cmd}
	if f.stopTimeout(); f.err != nil {
		return nil, f.err
	}
	sources, err := openSources(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return downloadsOf(ctx, cmd, sources)
}

// downloadsOf is downloads for torrents that are read already.
func downloadsOf(ctx context.Context, cmd *cli.Command, sources []client.Source) ([]node.Options, error) {
	for i, s := range sources {
		sources[i] = s.WithKept(cmd.String("output"))
	}
	f := &flags{Command: cmd}
	o := node.Options{
		StopTimeout: f.stopTimeout(), PieceEvents: cmd.Bool("json") && cmd.Bool("piece-events"),
		Peers: f.peers(ctx), WebSeeds: f.webSeeds(), Selection: f.selection(sources), Goal: f.seedGoal(), Storage: f.storage(),
	}
	if f.err == nil && !cmd.Bool("list") { // which shows the files
		f.note(checkSelection(o.Selection, sources))
	}
	f.want(!cmd.IsSet("trace") || len(sources) == 1, "--trace: one torrent at a time")
	var out []node.Options
	for _, s := range sources {
		o.Source, o.Trackers = s, f.trackers(s, logger(cmd))
		useless, usable := s.WebSeedErrors()
		o.MustFind = len(o.Peers)+len(s.Peers)+len(o.WebSeeds) == 0 && !usable && !cmd.IsSet("listen")
		if o.MustFind && len(o.Trackers) == 0 && !cmd.Bool("list") && !mayFindInDHT(cmd, s) && (cmd.String("lsd") != "on" || s.IsPrivate()) {
			f.wrong("nobody to download %s from: %sname a peer with --peer, a tracker with --tracker, or a node of the DHT with --dht-node, or look on the local network with --lsd on", s.Name, reasons(useless))
		}
		out = append(out, o)
	}
	return out, f.err
}

// openTraces opens the file of --trace for the one torrent that is downloaded.
func openTraces(cmd *cli.Command, torrents []node.Options) (closeTrace func(), err error) {
	name := cmd.String("trace")
	if name == "" || cmd.Bool("list") {
		return func() {}, nil
	}
	w, err := createTrace(name, logger(cmd))
	if err != nil {
		return nil, err
	}
	torrents[0].Trace = w
	return func() { _ = w.Close() }, nil // never fails
}

// addAll adds the torrents, and shows how far existing data is checked.
func addAll(ctx context.Context, out *display, n *node.Node, torrents []node.Options) (added []*node.Torrent, err error) {
	for _, o := range torrents {
		var done, total atomic.Int64
		total.Store(o.Source.Layout.Length)
		o.Checking = func(n int64) { raise(&done, n) }
		stop := out.counting("checking "+o.Source.Name, &done, &total)
		t, err := n.Add(ctx, o)
		stop()
		if err != nil {
			return nil, err
		}
		added = append(added, t)
	}
	return added, nil
}

// listAll shows the files of torrents that are known.
func listAll(out *display, torrents []node.Options) (err error) {
	var sources []client.Source
	for _, o := range torrents {
		sources = append(sources, o.Source)
		err = errors.Join(err, listFiles(out, o.Source.Layout, o.Selection))
	}
	return errors.Join(err, checkSelection(torrents[0].Selection, sources))
}

// describeAll asks peers what is in magnet links, and shows the files of all torrents.
func describeAll(ctx context.Context, out *display, n *node.Node, torrents []node.Options) error {
	for _, o := range torrents {
		src, err := n.Describe(ctx, o)
		if err != nil {
			return err
		}
		if err := listFiles(out, src.Layout, o.Selection); err != nil {
			return err
		}
		if err := o.Selection.Check(src.Layout); err != nil {
			return usageErrorf("%w", err)
		}
	}
	return nil
}

// untilServed returns a context that ends with the other one, or when no torrent is served any
// longer.
func untilServed(ctx context.Context, torrents []*node.Torrent) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		for _, t := range torrents {
			select {
			case <-t.Ended():
			case <-ctx.Done():
				return
			}
		}
		cancel()
	}()
	return ctx, cancel
}

// follow shows the torrents until all are done.
func follow(ctx context.Context, out *display, torrents []*node.Torrent) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		for _, t := range torrents {
			select {
			case <-t.Done():
			case <-ctx.Done():
				return
			}
		}
		cancel(errAllDone)
	}()
	out.watch(ctx, torrents)
	if !errors.Is(context.Cause(ctx), errAllDone) {
		var have, total int64
		why := ""
		for _, t := range torrents {
			p := t.Progress()
			have, total = have+p.Have, total+p.Total
			if p.Cause != nil && why == "" {
				why = " without progress: " + p.Cause.Text + askDoctor(p.Cause)
			}
		}
		return codedError{fmt.Errorf("interrupted at %s%s; run the same command again to resume", percent(have, total), why), exitInterrupted}
	}
	var errs []error
	for _, t := range torrents {
		if err := t.Progress().Err; err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

var errAllDone = errors.New("all transfers are done")

// reasons is what stands in the message that there is nobody to download from: why not from the
// torrent's web seeds.
func reasons(useless []error) string {
	if len(useless) == 0 {
		return ""
	}
	return useless[0].Error() + "; "
}
