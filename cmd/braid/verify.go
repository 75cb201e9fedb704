package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/storage"
)

func verifyCommand() *cli.Command {
	return &cli.Command{
		Name:      "verify",
		Usage:     "compare data on disk with its torrent",
		ArgsUsage: "TORRENT|URL",
		Description: "Hashes every piece and reports each file that is missing or wrong. A piece that two files share and that is\n" +
			"wrong speaks against both. Nothing is written.\n\n" + exitCodes,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "data", Value: ".", Usage: "`DIR` that holds the torrent's file or directory"},
			storageFlag(),
			&cli.BoolFlag{Name: "json", Usage: "print the result as a JSON object"},
		},
		Action: verify,
	}
}

func verify(ctx context.Context, cmd *cli.Command) error {
	if cmd.Args().Len() != 1 {
		return usageErrorf("name one torrent; see braid verify --help")
	}
	s, err := client.OpenSource(ctx, cmd.Args().First())
	if err != nil {
		return err
	}
	if s.IsMagnet() {
		return usageErrorf("a magnet link does not say what the data should be: name the .torrent file")
	}
	out := newDisplay(cmd, false)
	kind, err := storageKind(cmd)
	if err != nil {
		return err
	}
	r, err := check(ctx, out, storage.Stored{Kind: kind, Dir: cmd.String("data"), Hash: s.InfoHash, Layout: s.Layout})
	if err != nil {
		return err
	}
	bad := 0
	for _, f := range r.Files {
		if f.State != storage.FileOK {
			bad++
		}
	}
	if !out.json {
		printReport(out.results, r)
		for _, path := range s.Layout.Symlinks {
			out.results.printf("%-9s  %s (a symbolic link, which braid does not make)\n", "left out", path)
		}
	} else {
		out.emit(struct {
			Complete   bool                 `json:"complete"`
			Pieces     int                  `json:"pieces"`
			GoodPieces int                  `json:"good_pieces"`
			Files      []storage.FileReport `json:"files"`
		}{r.Complete(), len(r.Good), r.GoodPieces(), r.Files})
	}
	if bad > 0 {
		return codedError{fmt.Errorf("%s: %d of %s and %d of %s are missing or wrong", s.Name,
			bad, plural(len(r.Files), "file"), len(r.Good)-r.GoodPieces(), plural(len(r.Good), "piece")), exitData}
	}
	if !out.json {
		what := "the file is"
		if n := len(r.Files); n != 1 {
			what = fmt.Sprintf("all %d files are", n)
		}
		out.results.printf("%s: %s right\n", s.Name, what)
	}
	return nil
}

func printReport(out *printer, r storage.Report) {
	for _, f := range r.Files {
		out.printf("%-9s  %s\n", f.State, describeFile(f))
	}
}

func describeFile(f storage.FileReport) string {
	s := f.Path
	if f.BadPieces > 0 {
		s += fmt.Sprintf(" (%s)", plural(f.BadPieces, "piece"))
	}
	if f.Error != "" {
		s += ": " + f.Error
	}
	return s
}
