package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/anacrolix/torrent/metainfo"
	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/node/event"
	"braid/storage"
)

func storageFlag() cli.Flag {
	return &cli.StringFlag{Name: "storage", Value: "file", Usage: "`KIND` of storage: file, mmap (files mapped into memory), or bolt (a database in .braid; see braid export)"}
}

func storageKind(cmd *cli.Command) (storage.Kind, error) {
	k, err := storage.ParseKind(cmd.String("storage"))
	if err != nil {
		return "", usageErrorf("--storage: %w", err)
	}
	return k, nil
}

// writeFlags say what data may be written over.
func writeFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "overwrite", Usage: "delete files that are in the way and hold nothing of the torrent, unless they are write-protected"},
		&cli.BoolFlag{Name: "rename", Usage: "give what is in the way and holds nothing of the torrent another name, ending in .before-download"},
		&cli.BoolFlag{Name: "allow-dotfiles", Usage: "write a torrent whose name begins with a dot"},
	}
}

func writeOptions(cmd *cli.Command, out *display) ([]storage.Option, error) {
	how := storage.KeepExisting
	switch {
	case cmd.Bool("overwrite") && cmd.Bool("rename"):
		return nil, usageErrorf("--overwrite and --rename: leave one of the two away")
	case cmd.Bool("overwrite"):
		how = storage.ReplaceExisting
	case cmd.Bool("rename"):
		how = storage.RenameExisting
	}
	opts := []storage.Option{storage.OnExisting(how, out.moved)}
	if cmd.Bool("allow-dotfiles") {
		opts = append(opts, storage.AllowDotfiles())
	}
	return opts, nil
}

// moved tells of a file that was in the way of a download.
func (d *display) moved(path, aside string) {
	if d.json {
		d.emit(event.InTheWay{Event: "in-the-way", Path: path, Aside: aside})
	}
	if aside == "" {
		d.say(fmt.Sprintf("%s was in the way and is deleted", path))
		return
	}
	d.say(fmt.Sprintf("%s was in the way and is now %s", path, aside))
}

// claim looks at the files that are there before anybody is asked for data, and shows how far it is.
func claim(ctx context.Context, out *display, store storage.Store, s client.Source) error {
	if s.IsMagnet() {
		return nil // the transfer does it when it knows them
	}
	var done, total atomic.Int64
	total.Store(s.Layout.Length)
	stop := out.counting("checking "+s.Name, &done, &total)
	defer stop()
	return storage.Claim(ctx, store, s.Layout, s.InfoHash, func(n int64) { raise(&done, n) })
}

// keepFlags say what a download takes and how it keeps it.
func keepFlags() []cli.Flag {
	return []cli.Flag{
		storageFlag(),
		&cli.StringSliceFlag{Name: "select", Usage: "download only files that match `GLOB`: a name (*.iso), directory (docs) or path (docs/*.pdf), or the numbers of --list (#3,7-9) (repeatable)"},
		&cli.StringSliceFlag{Name: "priority", Usage: "`GLOB=LEVEL` is high, normal, low or skip for files that match, as in --select; the last that matches counts (repeatable)"},
		&cli.BoolFlag{Name: "sequential", Usage: "download in the order of the data, rather than rare pieces first"},
		&cli.StringFlag{Name: "request-strategy", Value: "fastest", Usage: "which pieces are asked for: `NAME` is fastest (rare ones first, the fastest connection has first choice), strict (in the order of the data), or fuzzy (nearly in that order)"},
		&cli.BoolFlag{Name: "list", Usage: "show the files with their numbers, and which of them --select and --priority take, and end"},
		&cli.BoolFlag{Name: "recheck", Usage: "hash all data that is there, whatever is recorded of it"},
		&cli.StringFlag{Name: "on-done", Usage: "run `CMD` with the shell when a torrent is complete; BRAID_NAME, BRAID_INFO_HASH, BRAID_DIR and BRAID_BYTES are set"},
	}
}

// selection is what the flags take of the torrents. A pattern that matches no file is wrong as soon as the files are known.
func selection(cmd *cli.Command, sources []client.Source) (client.Selection, error) {
	s := client.Selection{Select: cmd.StringSlice("select"), Sequential: cmd.Bool("sequential"), Shared: len(sources) > 1}
	var err error
	if s.Strategy, err = client.ParseStrategy(cmd.String("request-strategy")); err != nil {
		return s, usageErrorf("--request-strategy: %w", err)
	}
	if s.Sequential && cmd.IsSet("request-strategy") {
		return s, usageErrorf("--sequential is a request strategy of its own: leave one of the two away")
	}
	for _, p := range s.Select {
		if err := client.CheckPattern(p); err != nil {
			return s, usageErrorf("--select: %w", err)
		}
	}
	for _, x := range cmd.StringSlice("priority") {
		p, err := client.ParseFilePriority(x)
		if err != nil {
			return s, usageErrorf("--priority: %w", err)
		}
		s.Priorities = append(s.Priorities, p)
	}
	if s.Shared && s.HasNumbers() {
		return s, usageErrorf("numbers of files belong to one torrent: name one torrent, or files by name")
	}
	return s, nil
}

// checkSelection finds a pattern that matches no file of the torrents.
func checkSelection(s client.Selection, sources []client.Source) error {
	var layouts []storage.Layout
	for _, src := range sources {
		if src.IsMagnet() {
			return nil // the transfer does it when it knows the files
		}
		layouts = append(layouts, src.Layout)
	}
	s.Shared = false // these are all of them
	if err := s.Check(layouts...); err != nil {
		return usageErrorf("%w; --list shows the files", err)
	}
	return nil
}

// openStore opens what the flags of a download ask for.
func openStore(cmd *cli.Command, out *display, s client.Selection, open func(storage.Kind, ...storage.Option) (storage.Store, error)) (storage.Store, error) {
	kind, err := storageKind(cmd)
	if err != nil {
		return nil, err
	}
	opts, err := writeOptions(cmd, out)
	if err != nil {
		return nil, err
	}
	opts = append(opts, storage.Wanted(func(_ metainfo.Hash, l storage.Layout) []bool { return s.Wants(l) }))
	if cmd.Bool("recheck") {
		opts = append(opts, storage.Recheck())
	}
	return open(kind, opts...)
}

// listFiles shows what is in a torrent.
func listFiles(out *display, l storage.Layout, s client.Selection) error {
	levels := []string{"skip", "low", "normal", "high"}
	priorities := s.Files(l)
	if out.json {
		files := []event.File{}
		for i, f := range l.Files {
			files = append(files, event.File{Number: i + 1, Path: f.Path, Length: f.Length, Priority: levels[priorities[i]]})
		}
		out.emit(event.Files{Event: "files", Torrent: l.Name, Files: files})
		return nil
	}
	w, width := newTable(out.results), len(strconv.Itoa(len(l.Files)))
	for i, f := range l.Files {
		w.printf("%*d\t%s\t%s\t%s\n", width, i+1, levels[priorities[i]], bytesText(f.Length), f.Path)
	}
	return w.Flush()
}

// describe asks peers what is behind magnet links, and shows it.
func describe(ctx context.Context, out *display, session *client.Session, src client.Source, peers []client.Peer, s client.Selection, added func(*client.Transfer) error) error {
	src, err := described(ctx, session, src, peers, added)
	if err != nil {
		return err
	}
	if err := listFiles(out, src.Layout, s); err != nil {
		return err
	}
	if err := s.Check(src.Layout); err != nil {
		return usageErrorf("%w", err)
	}
	return nil
}

// described asks peers what is behind a magnet link. added is told of the transfer that asks.
func described(ctx context.Context, session *client.Session, src client.Source, peers []client.Peer, added func(*client.Transfer) error) (client.Source, error) {
	if !src.IsMagnet() {
		return src, nil
	}
	dir, err := os.MkdirTemp("", "braid-list-")
	if err != nil {
		return src, err
	}
	defer os.RemoveAll(dir)
	store := storage.OpenVerified(dir, slog.New(slog.DiscardHandler))
	t, err := session.Add(src, store, client.Options{Peers: peers, Describe: true})
	if err != nil {
		return src, err
	}
	defer t.Close()
	if err := added(t); err != nil {
		return src, err
	}
	select {
	case <-t.Done():
	case <-ctx.Done():
		return src, context.Cause(ctx)
	}
	if err := t.Progress().Err; err != nil {
		return src, err
	}
	return t.Described()
}

// onDone runs the user's command for each transfer that is complete, and waits for it.
func onDone(ctx context.Context, out *display, command, dir string, transfers []*client.Transfer) error {
	for _, t := range transfers {
		p := t.Progress()
		c := exec.CommandContext(ctx, "sh", "-c", command)
		c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
		c.WaitDelay = 5 * time.Second
		out.people.lend(c) // standard output is braid's own
		c.Env = append(os.Environ(), "BRAID_NAME="+p.Name, "BRAID_INFO_HASH="+t.Source().InfoHash.HexString(),
			"BRAID_DIR="+dir, "BRAID_BYTES="+strconv.FormatInt(p.Total, 10))
		if err := c.Run(); err != nil {
			return fmt.Errorf("--on-done for %s: %w", p.Name, err)
		}
	}
	return nil
}
