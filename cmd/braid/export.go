package main

import (
	"context"
	"errors"

	"github.com/urfave/cli/v3"

	"braid/node"
	"braid/node/event"
	"braid/storage"
)

func exportCommand() *cli.Command {
	return &cli.Command{
		Name:      "export",
		Usage:     "write the files of a torrent that is kept in a database",
		ArgsUsage: "TORRENT|URL|MAGNET",
		Description: "Checks every piece while it writes the files. If pieces are missing, files " +
			"that lack some end in .part; a download with --storage file into the same directory " +
			"continues with them. For a magnet link, braid uses the description that its " +
			"download has kept.\n\n" + exitCodes,
		Flags: append([]cli.Flag{
			stringFlag("storage", "bolt", "`KIND` of storage that has the pieces: bolt"),
			stringFlag("data", ".", "`DIR` that the torrent was downloaded into"),
			stringFlag("output", ".", "write the files into `OUT`", "o"),
			boolFlag("json", "print the result as a JSON object"),
			verboseFlag(),
		}, writeFlags()...),
		Action: endOnHangup(working(false, export)),
	}
}

func export(ctx context.Context, t *task) error {
	s, err := keptSource(ctx, t.Command)
	if err != nil {
		return err
	}
	kind, existing := t.storageKind(), t.existingFiles()
	if t.err != nil {
		return t.err
	}
	if kind != storage.KindBolt {
		return usageErrorf("--storage %s keeps the files as they are; only bolt needs an export",
			kind)
	}
	opts := storage.Options{
		Existing: existing,
		Moved: func(path, aside string) {
			t.out.event(event.InTheWay{Event: "in-the-way", Path: path, Aside: aside})
		},
		AllowDotfiles: t.Bool("allow-dotfiles"),
	}
	count, stop := t.out.counting("exporting "+s.Name, s.Layout.Length)
	stored := node.Storage{Kind: kind, Dir: t.String("data")}.Of(s)
	err = stored.Export(ctx, t.String("output"), t.log, count.done.Store, opts)
	stop()
	if errors.Is(err, storage.ErrIncomplete) {
		err = codedError{err, exitData}
	}
	if err != nil {
		return err
	}
	files := len(s.Layout.Files)
	e := event.Exported{Event: "exported", Files: files, Bytes: s.Layout.Length}
	t.out.result(e, "%s: %s written\n", s.Name, plural(files, "file"))
	return nil
}
