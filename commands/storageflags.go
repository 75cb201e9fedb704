package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/commands/flags"
	"braid/commands/program"
	"braid/commands/terminal"
	"braid/node"
	"braid/node/daemon"
	"braid/node/event"
	"braid/storage"
)

func storageFlag() cli.Flag {
	return flags.String("storage", "file", "`KIND` of storage: file, mmap (files mapped into "+
		"memory), or bolt (a database in .braid; see braid export)")
}

func recheckFlag() cli.Flag {
	return flags.Bool("recheck", "hash all existing data, even if braid has recorded it as "+
		"verified")
}

func (f *cmdline) storageKind() storage.Kind { return flags.Read(f, "storage", storage.ParseKind) }

// writeFlags say what a download may do to existing files.
func writeFlags() []cli.Flag {
	return []cli.Flag{
		flags.Bool("overwrite", "delete existing files that have a name of the torrent but none "+
			"of its data, unless they are write-protected"),
		flags.Bool("rename", "rename existing files and directories that have a name of the "+
			"torrent but none of its data: add .before-download"),
		flags.Bool("allow-dotfiles", "accept a torrent whose name begins with a dot"),
	}
}

// existingFiles reads --overwrite and --rename.
func (f *cmdline) existingFiles() storage.Existing {
	switch {
	case f.Bool("overwrite") && f.Bool("rename"):
		f.Wrongf("--overwrite and --rename: leave one of the two away")
	case f.Bool("overwrite"):
		return storage.ReplaceExisting
	case f.Bool("rename"):
		return storage.RenameExisting
	}
	return storage.KeepExisting
}

// storage reads the flags for a download's data.
func (f *cmdline) storage() node.Storage {
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
		flags.Pattern("select", "download only files that match `GLOB`: a name (*.iso), directory "+
			"(docs) or path (docs/*.pdf), or the numbers of --list (#3,7-9) (repeatable)"),
		flags.Pattern("priority", "give files that match GLOB (as in --select) a priority: "+
			"`GLOB=LEVEL`, with high, normal, low or skip; the last match counts (repeatable)"),
		flags.Bool("sequential", "download pieces in the order of the data; without it, rare "+
			"pieces come first"),
		flags.String("request-strategy", "fastest", "`NAME` of the order of pieces: fastest (rare "+
			"ones first, the fastest connection has first choice), strict (in the order of the "+
			"data), or fuzzy (nearly in that order)"),
		flags.Bool("list", "list the files with their numbers and the priorities that --select "+
			"and --priority give them, and exit"),
		recheckFlag(),
		flags.String("on-done", "", "run `CMD` with the shell when a torrent is complete; "+
			"BRAID_NAME, BRAID_INFO_HASH, BRAID_DIR and BRAID_BYTES are set"),
	}
}

// selection reads which files to download. A pattern that matches no file becomes an error once the
// files are known.
func (f *cmdline) selection(sources []client.Source) client.Selection {
	s := client.Selection{
		Select: f.StringSlice("select"), Sequential: f.Bool("sequential"), Shared: len(sources) > 1,
		Strategy: flags.Read(f, "request-strategy", client.ParseStrategy),
	}
	f.Wantf(!s.Sequential || !f.IsSet("request-strategy"),
		"--sequential is a request strategy of its own: leave one of the two away")
	f.Check("select", client.CheckPattern)
	s.Priorities = flags.ReadAll(f, "priority", client.ParseFilePriority)
	f.Wantf(!s.Shared || !s.HasNumbers(),
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
		return program.UsageErrorf("%w", err)
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
	if out.JSON {
		out.emit(event.Files{Event: "files", Torrent: l.Name, Files: files})
		return
	}
	w, width := terminal.NewTable(out.results), len(strconv.Itoa(len(files)))
	for _, f := range files {
		w.Printf("%*d\t%s\t%s\t%s\n", width, f.Number, f.Priority, terminal.BytesText(f.Length),
			f.Path)
	}
	w.Flush()
}

// onDone runs the user's command for each transfer that is complete, and waits for it.
func (t *task) onDone(ctx context.Context, command string, torrents []*node.Torrent) error {
	var errs []error
	for _, x := range torrents {
		if failure(x) != nil {
			continue
		}
		s := x.Status()
		c := daemon.Command(ctx, s, "sh", "-c", command)
		c.Dir = envOf(t.Command).Dir
		t.out.people.Lend(c) // standard output is for braid's results
		if err := c.Run(); err != nil {
			errs = append(errs, fmt.Errorf("--on-done for %s: %w", s.Name, cmp.Or(ctx.Err(), err)))
		}
	}
	return errors.Join(errs...)
}
