package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/node"
	"braid/node/daemon"
	"braid/node/event"
	"braid/storage"
)

func storageFlag() cli.Flag {
	return stringFlag("storage", "file", "`KIND` of storage: file, mmap (files mapped into "+
		"memory), or bolt (a database in .braid; see braid export)")
}

func recheckFlag() cli.Flag {
	return boolFlag("recheck", "hash all existing data, even if braid has recorded it as verified")
}

func (f *flags) storageKind() storage.Kind { return read(f, "storage", storage.ParseKind) }

// writeFlags say what a download may do to existing files.
func writeFlags() []cli.Flag {
	return []cli.Flag{
		boolFlag("overwrite", "delete existing files that have a name of the torrent but none of "+
			"its data, unless they are write-protected"),
		boolFlag("rename", "rename existing files and directories that have a name of the torrent "+
			"but none of its data: add .before-download"),
		boolFlag("allow-dotfiles", "accept a torrent whose name begins with a dot"),
	}
}

// existingFiles reads --overwrite and --rename.
func (f *flags) existingFiles() storage.Existing {
	switch {
	case f.Bool("overwrite") && f.Bool("rename"):
		f.wrong("--overwrite and --rename: leave one of the two away")
	case f.Bool("overwrite"):
		return storage.ReplaceExisting
	case f.Bool("rename"):
		return storage.RenameExisting
	}
	return storage.KeepExisting
}

// storage reads the flags for a download's data.
func (f *flags) storage() node.Storage {
	return node.Storage{
		Kind: f.storageKind(), Dir: f.String("output"), Existing: f.existingFiles(),
		AllowDotfiles: f.Bool("allow-dotfiles"), Recheck: f.Bool("recheck"),
	}
}

// storageAdvice adds the flag that helps to an error about files.
func storageAdvice(err error) error {
	switch {
	case errors.Is(err, storage.ErrDotName):
		return fmt.Errorf("%w (--allow-dotfiles accepts it)", err)
	case errors.Is(err, storage.ErrReplaceable):
		return fmt.Errorf("%w (--rename renames it, --overwrite replaces files; "+
			"or use another directory)", err)
	case errors.Is(err, client.ErrChanging):
		return fmt.Errorf("%w: wait until they are complete, or leave them out with --exclude; "+
			"braid send --watch waits for them", err)
	case errors.Is(err, storage.ErrInTheWay):
		return fmt.Errorf("%w (--rename renames it; or use another directory)", err)
	}
	return err
}

// moved reports that a file in a download's way was renamed or, if aside is empty, deleted.
func (d *display) moved(path, aside string) {
	if aside == "" {
		d.say(fmt.Sprintf("%s was in the way and is deleted", path))
		return
	}
	d.say(fmt.Sprintf("%s was in the way and is now %s", path, aside))
}

// keepFlags say which files a download fetches, in which order, and how it stores them.
func keepFlags() []cli.Flag {
	return []cli.Flag{
		storageFlag(),
		patternFlag("select", "download only files that match `GLOB`: a name (*.iso), directory "+
			"(docs) or path (docs/*.pdf), or the numbers of --list (#3,7-9) (repeatable)"),
		patternFlag("priority", "give files that match GLOB (as in --select) a priority: "+
			"`GLOB=LEVEL`, with high, normal, low or skip; the last match counts (repeatable)"),
		boolFlag("sequential", "download pieces in the order of the data; without it, rare pieces "+
			"come first"),
		stringFlag("request-strategy", "fastest", "`NAME` of the order of pieces: fastest (rare "+
			"ones first, the fastest connection has first choice), strict (in the order of the "+
			"data), or fuzzy (nearly in that order)"),
		boolFlag("list", "list the files with their numbers and the priorities that --select and "+
			"--priority give them, and exit"),
		recheckFlag(),
		stringFlag("on-done", "", "run `CMD` with the shell when a torrent is complete; "+
			"BRAID_NAME, BRAID_INFO_HASH, BRAID_DIR and BRAID_BYTES are set"),
	}
}

// selection reads which files to download. A pattern that matches no file becomes an error once the
// files are known.
func (f *flags) selection(sources []client.Source) client.Selection {
	s := client.Selection{
		Select: f.StringSlice("select"), Sequential: f.Bool("sequential"), Shared: len(sources) > 1,
		Strategy: read(f, "request-strategy", client.ParseStrategy),
	}
	f.want(!s.Sequential || !f.IsSet("request-strategy"),
		"--sequential is a request strategy of its own: leave one of the two away")
	f.check("select", client.CheckPattern)
	s.Priorities = readAll(f, "priority", client.ParseFilePriority)
	f.want(!s.Shared || !s.HasNumbers(),
		"numbers of files belong to one torrent: name one torrent, or files by name")
	return s
}

// checkSelection returns an error if a pattern matches no file of the torrents.
func checkSelection(s client.Selection, sources []client.Source) error {
	var layouts []storage.Layout
	for _, src := range sources {
		if src.IsMagnet() {
			return nil // the transfer checks the patterns when it knows the files
		}
		layouts = append(layouts, src.Layout)
	}
	s.Shared = false // layouts has all torrents, so each pattern must match in one of them
	if err := s.Check(layouts...); err != nil {
		return usageErrorf("%w", err)
	}
	return nil
}

// listFiles shows what is in a torrent.
func listFiles(out *display, l storage.Layout, s client.Selection) {
	levels, priorities := []string{"skip", "low", "normal", "high"}, s.Files(l)
	files := make([]event.File, len(l.Files))
	for i, f := range l.Files {
		files[i] = event.File{
			Number:   i + 1,
			Path:     f.Path,
			Length:   f.Length,
			Priority: levels[priorities[i]],
		}
	}
	if out.json {
		out.emit(event.Files{Event: "files", Torrent: l.Name, Files: files})
		return
	}
	w, width := newTable(out.results), len(strconv.Itoa(len(files)))
	for _, f := range files {
		w.printf("%*d\t%s\t%s\t%s\n", width, f.Number, f.Priority, bytesText(f.Length), f.Path)
	}
	w.flush()
}

// onDone runs the user's command for each transfer that is complete, and waits for it.
func onDone(ctx context.Context, out *display, command string, torrents []*node.Torrent) error {
	var errs []error
	for _, t := range torrents {
		if failure(t) != nil {
			continue
		}
		s := t.Status()
		c := daemon.Command(ctx, s, "sh", "-c", command)
		out.people.lend(c) // standard output is for braid's results
		if err := c.Run(); err != nil {
			errs = append(errs, fmt.Errorf("--on-done for %s: %w", s.Name, cmp.Or(ctx.Err(), err)))
		}
	}
	return errors.Join(errs...)
}
