package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/node"
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

// existingFiles reads --overwrite and --rename.
func existingFiles(cmd *cli.Command) (storage.Existing, error) {
	switch {
	case cmd.Bool("overwrite") && cmd.Bool("rename"):
		return 0, usageErrorf("--overwrite and --rename: leave one of the two away")
	case cmd.Bool("overwrite"):
		return storage.ReplaceExisting, nil
	case cmd.Bool("rename"):
		return storage.RenameExisting, nil
	}
	return storage.KeepExisting, nil
}

// parseStorage reads how a download keeps its data.
func parseStorage(cmd *cli.Command) (node.Storage, error) {
	kind, err := storageKind(cmd)
	if err != nil {
		return node.Storage{}, err
	}
	existing, err := existingFiles(cmd)
	return node.Storage{
		Kind: kind, Dir: cmd.String("output"), Existing: existing, AllowDotfiles: cmd.Bool("allow-dotfiles"), Recheck: cmd.Bool("recheck"),
	}, err
}

// storageAdvice adds to an error of the storage which flag lets the user go on.
func storageAdvice(err error) error {
	switch {
	case errors.Is(err, storage.ErrDotName):
		return fmt.Errorf("%w (--allow-dotfiles accepts it)", err)
	case errors.Is(err, storage.ErrReplaceable):
		return fmt.Errorf("%w (--rename sets aside what is in the way, --overwrite replaces files; or use another directory)", err)
	case errors.Is(err, storage.ErrInTheWay):
		return fmt.Errorf("%w (--rename sets aside what is in the way; or use another directory)", err)
	}
	return err
}

// moved tells of a file that was in the way of a download. An empty new name says that it was
// deleted.
func (d *display) moved(path, aside string) {
	if aside == "" {
		d.say(fmt.Sprintf("%s was in the way and is deleted", path))
		return
	}
	d.say(fmt.Sprintf("%s was in the way and is now %s", path, aside))
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

// selection is what the flags take of the torrents. A pattern that matches no file is wrong as soon
// as the files are known.
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

// onDone runs the user's command for each transfer that is complete, and waits for it.
func onDone(ctx context.Context, out *display, command, dir string, torrents []*node.Torrent) error {
	for _, t := range torrents {
		p := t.Progress()
		c := exec.CommandContext(ctx, "sh", "-c", command)
		c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
		c.WaitDelay = 5 * time.Second
		out.people.lend(c) // standard output is braid's own
		c.Env = append(os.Environ(), "BRAID_NAME="+p.Name, "BRAID_INFO_HASH="+t.InfoHash(),
			"BRAID_DIR="+dir, "BRAID_BYTES="+strconv.FormatInt(p.Total, 10))
		if err := c.Run(); err != nil {
			return fmt.Errorf("--on-done for %s: %w", p.Name, err)
		}
	}
	return nil
}
