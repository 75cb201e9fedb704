package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/commands/flags"
	"braid/commands/program"
	"braid/commands/terminal"
	"braid/node"
	"braid/units/lists"
)

func downloadCommand() *cli.Command {
	return &cli.Command{
		Name:      "download",
		Usage:     "download torrents over all SCION paths to their peers",
		ArgsUsage: "TORRENT|URL|DIR|MAGNET...",
		Description: "Downloads torrents, which you name by .torrent files, their http or https " +
			"URLs, directories of .torrent files, or magnet links. Files end in .part until they " +
			"are complete. Ctrl-C stops cleanly, and the same command resumes the download. " +
			"braid uses an existing file if at least one of its pieces is right. Otherwise it " +
			"writes nothing: see --overwrite and --rename.\n\n" + program.ExitCodes,
		Flags: append([]cli.Flag{
			flags.File("output", ".", "download into `DIR`", "o"),
			flags.List("peer", "download from `ADDR`: 1-ff00:0:110,[127.0.0.1]:31000, "+
				"scion://name:31000, or host:port for TCP or QUIC (repeatable)"),
			webSeedFlag(),
			flags.Bool("piece-events", "with --json: print an event for each verified piece"),
			flags.File("trace", "", "write the views and decisions of path selection to `FILE`, "+
				"one JSON object a line, compressed if its name ends in .gz"),
			flags.Period("stop-timeout", 0, "give up a torrent after `TIME` without data, and say "+
				"why (default: never)"),
			flags.Bool("seed-after", "after the download, serve others until interrupted, or "+
				"until --ratio or --seed-time, which imply it"),
		}, slices.Concat(seedGoalFlags("no limit"), keepFlags(), writeFlags(), sessionFlags())...),
		Action: session(false, download),
	}
}

func download(ctx context.Context, t *task) error {
	torrents, err := t.downloads(ctx)
	if err != nil {
		return err
	}
	isMagnet := func(o node.Options) bool { return o.Source.IsMagnet() }
	if t.Bool("list") && !slices.ContainsFunc(torrents, isMagnet) {
		return listAll(t.out, torrents)
	}
	if err := t.openTraces(torrents); err != nil {
		return err
	}
	n, err := t.openNode(ctx, torrents)
	if err != nil {
		return err
	}
	if t.Bool("list") {
		return describeAll(ctx, t.out, n, torrents)
	}
	added, err := t.addAll(ctx, n, torrents)
	if err != nil {
		return err
	}
	if t.IsSet("listen") {
		t.out.ready(n.Listening())
	}
	return t.fetch(ctx, added)
}

// fetch shows downloads until they end, and then serves them if the user wants it.
func (t *task) fetch(ctx context.Context, torrents []*node.Torrent) error {
	if !t.out.watch(ctx, torrents) {
		return interrupted(torrents)
	}
	errs := lists.Map(torrents, failure)
	if command := t.String("on-done"); command != "" {
		errs = append(errs, t.onDone(ctx, command, torrents))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	goal := torrents[0].Options().Goal
	isUnserved := func(x *node.Torrent) bool { return x.State() != node.Served }
	goOn := t.Bool("seed-after") || !goal.IsZero()
	if goOn && slices.ContainsFunc(torrents, isUnserved) && ctx.Err() == nil {
		t.out.say("complete; serving until interrupted" + orUntil(goal))
		t.out.watch(ctx, torrents)
	}
	return nil
}

// failure returns the error that has ended a torrent, with the torrent's name.
func failure(t *node.Torrent) error {
	p := t.Progress()
	if p.Err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", p.Name, p.Err)
}

// interrupted is the error of downloads that the user has interrupted.
func interrupted(torrents []*node.Torrent) error {
	var have, total int64
	why := ""
	for _, t := range torrents {
		p := t.Progress()
		have, total = have+p.Have, total+p.Total
		if p.Cause != nil && why == "" {
			why = " without progress: " + p.Cause.Text + askDoctor(p.Cause)
		}
	}
	return program.WithCode(fmt.Errorf("interrupted at %s%s; run the same command again to resume",
		terminal.Percent(have, total), why), program.Interrupted)
}

// downloads reads the torrents that the command line names, and finds errors of the command line
// before anything is opened.
func (t *task) downloads(ctx context.Context) ([]node.Options, error) {
	named, err := t.sources(ctx)
	if err != nil {
		return nil, err
	}
	sources := lists.Map(named, func(s listedSource) client.Source { return s.Source })
	return t.downloadsOf(ctx, sources)
}

// downloadsOf is downloads for sources that are known already.
func (t *task) downloadsOf(ctx context.Context, sources []client.Source) ([]node.Options, error) {
	for i, s := range sources {
		sources[i] = s.WithKept(t.String("output"))
	}
	o := node.Options{
		StopTimeout: t.Duration("stop-timeout"),
		PieceEvents: t.Bool("json") && t.Bool("piece-events"),
		Peers:       t.peers(ctx),
		WebSeeds:    t.webSeeds(),
		Selection:   t.selection(sources),
		Goal:        t.seedGoal(),
		Storage:     t.storage(),
	}
	if t.Err == nil && !t.Bool("list") { // listAll does it, after it has shown the files
		err := checkSelection(o.Selection, sources)
		if err != nil && t.Name == "download" { // braid get has no --list
			err = program.UsageErrorf("%w; --list shows the files", err)
		}
		t.Note(err)
	}
	t.Wantf(!t.IsSet("trace") || len(sources) == 1, "--trace: one torrent at a time")
	var out []node.Options
	for _, s := range sources {
		o.Source, o.Trackers = s, t.trackers(s, t.log)
		useless, usable := s.WebSeedErrors()
		why := ""
		if len(useless) > 0 {
			why = useless[0].Error() + "; "
		}
		o.MustFind = len(o.Peers)+len(s.Peers)+len(o.WebSeeds) == 0 && !usable && !t.IsSet("listen")
		mayFind := len(o.Trackers) > 0 || mayFindInDHT(t.Command, s) ||
			t.String("lsd") == "on" && !s.IsPrivate()
		t.Wantf(!o.MustFind || mayFind || t.Bool("list"),
			"nobody to download %s from: %sname a peer with --peer, a tracker with --tracker, "+
				"or a node of the DHT with --dht-node, or look on the local network with --lsd on",
			s.Name, why)
		out = append(out, o)
	}
	return out, t.Err
}

// openTraces opens the file of --trace for the only torrent.
func (t *task) openTraces(torrents []node.Options) error {
	name := t.String("trace")
	if name == "" || t.Bool("list") {
		return nil
	}
	w, err := createTrace(name, t.log)
	if err != nil {
		return err
	}
	torrents[0].Trace = w
	t.atEnd(w.Close)
	return nil
}

// addAll adds the torrents, shows the progress of checking existing data, and keeps the file of
// --status.
func (t *task) addAll(
	ctx context.Context, n *node.Node, torrents []node.Options,
) (added []*node.Torrent, err error) {
	for _, o := range torrents {
		c, stop := t.out.counting("checking "+o.Source.Name, o.Source.Layout.Length)
		o.Checking = c.done.Store
		x, err := n.Add(ctx, o)
		stop()
		if err != nil {
			return nil, err
		}
		added = append(added, x)
	}
	return added, t.keepStatus(added)
}

// listAll shows the files of torrents.
func listAll(out *display, torrents []node.Options) error {
	var sources []client.Source
	for _, o := range torrents {
		sources = append(sources, o.Source)
		listFiles(out, o.Source.Layout, o.Selection)
	}
	return checkSelection(torrents[0].Selection, sources)
}

// describeAll asks peers for the descriptions of magnet links, and shows the files of all torrents.
func describeAll(ctx context.Context, out *display, n *node.Node, torrents []node.Options) error {
	for _, o := range torrents {
		src, err := n.Describe(ctx, o)
		if err != nil {
			return fmt.Errorf("%s: %w", cmp.Or(o.Source.Name, o.Source.InfoHash.HexString()), err)
		}
		listFiles(out, src.Layout, o.Selection)
		if err := o.Selection.Check(src.Layout); err != nil {
			return program.UsageErrorf("%w", err)
		}
	}
	return nil
}
