package commands

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/commands/flags"
	"braid/commands/program"
	"braid/commands/terminal"
	"braid/node"
	"braid/node/event"
	"braid/storage"
)

func verifyCommand() *cli.Command {
	return &cli.Command{
		Name:      "verify",
		Usage:     "compare data on disk with its torrent",
		ArgsUsage: "TORRENT|URL|MAGNET",
		Description: "Hashes the pieces of each file and says what is known of it. Nothing is " +
			"written.\n\n" +
			"A file is ok; damaged (a piece is wrong; if several complete files share this " +
			"piece, all of them are); missing; partial (a download has not completed it); of " +
			"another size; or unchecked (no piece is known to be wrong, but some need bytes of " +
			"an incomplete file). Others are skipped.\n\n" +
			"After a download of selected files, only these are checked. The .part files of " +
			"others serve for the pieces that they share. For a magnet link, braid uses the " +
			"description that its download has kept.\n\n" + program.ExitCodes,
		Flags: []cli.Flag{
			flags.File("data", ".", "`DIR` that holds the torrent's file or directory"),
			storageFlag(),
			flags.Pattern("select", "check only files that match `GLOB`, as in braid download "+
				"(repeatable; default: what the last download has selected; '*' is all)"),
			flags.Bool("json", "print the result as a JSON object"),
		},
		Action: program.EndOnHangup(working(false, verify)),
	}
}

func verify(ctx context.Context, t *task) error {
	s, err := keptSource(ctx, t.Command)
	if err != nil {
		return err
	}
	out, kind := t.out, t.storageKind()
	if t.Check("select", client.CheckPattern); t.Err != nil {
		return t.Err
	}
	stored := node.Storage{Kind: kind, Dir: t.String("data")}.Of(s)
	wanted, by, err := verifiedFiles(t.StringSlice("select"), stored)
	if err != nil {
		return err
	}
	count, stop := out.counting("checking "+s.Layout.Name, s.Layout.BytesOf(wanted))
	r, err := stored.CheckWanted(ctx, wanted, count.done.Store)
	stop()
	if err != nil {
		return err
	}
	if out.JSON {
		out.emit(struct {
			Complete   bool                 `json:"complete"`
			Selection  string               `json:"selection"`
			Pieces     int                  `json:"pieces"`
			GoodPieces int                  `json:"good_pieces"`
			Files      []storage.FileReport `json:"files"`
		}{r.Complete(), by, r.Pieces, r.GoodPieces(), r.Files})
	} else {
		printReport(out.results, r)
		for _, path := range s.Layout.Symlinks {
			out.results.Printf("%-9s  %s (a symbolic link, which braid does not make)\n",
				"left out", path)
		}
	}
	said := conclusion(r, by)
	if !r.Complete() {
		return program.WithCode(fmt.Errorf("%s: %s", s.Name, said), program.Data)
	}
	if !out.JSON {
		out.results.Printf("%s: %s\n", s.Name, said)
	}
	return nil
}

// keptSource is openSource for a torrent whose files must be known. It completes a magnet link with
// the description that its download into --data has kept.
func keptSource(ctx context.Context, cmd *cli.Command) (client.Source, error) {
	s, err := openSource(ctx, cmd)
	if err != nil {
		return s, err
	}
	dir := cmd.String("data")
	if s = s.WithKept(dir); s.IsMagnet() {
		return s, program.UsageErrorf("no download into %s has kept the description of this "+
			"magnet link: name its directory with --data, or the .torrent file", dir)
	}
	return s, nil
}

// verifiedFiles returns the files to check (nil: all), and what has chosen them: select (the user),
// record (the last download), or all.
func verifiedFiles(
	patterns []string, stored storage.Stored,
) (wanted []bool, by string, err error) {
	if len(patterns) > 0 {
		s := client.Selection{Select: patterns}
		if err := s.Check(stored.Layout); err != nil {
			return nil, "", program.UsageErrorf("--select: %w", err)
		}
		return s.Wants(stored.Layout), "select", nil
	}
	if wanted := stored.Wanted(); wanted != nil {
		return wanted, "record", nil
	}
	return nil, "all", nil
}

// conclusion summarizes a report.
func conclusion(r storage.Report, by string) (said string) {
	checked, bad, unknown := 0, 0, 0
	for _, f := range r.Files {
		switch f.State {
		case storage.FileSkipped:
			continue
		case storage.FileOK:
		case storage.FileUnknown:
			unknown++
		default:
			bad++
		}
		checked++
	}
	switch {
	case bad > 0:
		said = fmt.Sprintf("%d of %s and %d of %s are missing or wrong",
			bad, terminal.Plural(checked, "file"), r.Pieces-r.GoodPieces(),
			terminal.Plural(r.Pieces, "piece"))
	case unknown > 0:
		said = fmt.Sprintf(
			"nothing is known to be wrong, but %d of %s could not be checked in full",
			unknown, terminal.Plural(checked, "file"))
	case checked == 1:
		said = "the file is right"
	default:
		said = fmt.Sprintf("all %d files are right", checked)
	}
	if n := len(r.Files) - checked; n > 0 {
		said += fmt.Sprintf("; %s not selected", terminal.Plural(n, "file"))
		if by == "record" {
			said += " by the last download (--select '*' checks all)"
		}
	}
	return said
}

func printReport(out *terminal.Printer, r storage.Report) {
	for _, f := range r.Files {
		out.Printf("%-9s  %s\n", f.State, describeFile(f))
	}
}

func describeFile(f storage.FileReport) string {
	s, all := f.Path, terminal.Plural(f.GoodPieces+f.BadPieces, "piece")
	switch f.State {
	case storage.FileDamaged:
		s += fmt.Sprintf(" (%d of %s not right)", f.BadPieces, all)
	case storage.FileSize:
		s += " (not as long as it should be)"
	case storage.FilePartial:
		s += fmt.Sprintf(" (%d of %s there)", f.GoodPieces, all)
	case storage.FileUnknown:
		s += fmt.Sprintf(" (%d of %s right; the rest cannot be checked without %s)",
			f.GoodPieces, all, f.Lacks)
	}
	if f.Error != "" {
		s += ": " + f.Error
	}
	return s
}

func exportCommand() *cli.Command {
	return &cli.Command{
		Name:      "export",
		Usage:     "write the files of a torrent that is kept in a database",
		ArgsUsage: "TORRENT|URL|MAGNET",
		Description: "Checks every piece while it writes the files. If pieces are missing, files " +
			"that lack some end in .part; a download with --storage file into the same directory " +
			"continues with them. For a magnet link, braid uses the description that its " +
			"download has kept.\n\n" + program.ExitCodes,
		Flags: append([]cli.Flag{
			flags.String("storage", "bolt", "`KIND` of storage that has the pieces: bolt"),
			flags.File("data", ".", "`DIR` that the torrent was downloaded into"),
			flags.File("output", ".", "write the files into `OUT`", "o"),
			flags.Bool("json", "print the result as a JSON object"),
			flags.Verbose(),
		}, writeFlags()...),
		Action: program.EndOnHangup(working(false, export)),
	}
}

func export(ctx context.Context, t *task) error {
	s, err := keptSource(ctx, t.Command)
	if err != nil {
		return err
	}
	kind, existing := t.storageKind(), t.existingFiles()
	if t.Err != nil {
		return t.Err
	}
	if kind != storage.KindBolt {
		return program.UsageErrorf("--storage %s keeps the files as they are; only bolt needs an "+
			"export",
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
		err = program.WithCode(err, program.Data)
	}
	if err != nil {
		return err
	}
	files := len(s.Layout.Files)
	e := event.Exported{Event: "exported", Files: files, Bytes: s.Layout.Length}
	t.out.result(e, "%s: %s written\n", s.Name, terminal.Plural(files, "file"))
	return nil
}
