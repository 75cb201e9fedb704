package main

import (
	"context"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/storage"
)

func infoCommand() *cli.Command {
	return &cli.Command{
		Name:      "info",
		Usage:     "show what a torrent or magnet link says",
		ArgsUsage: "TORRENT|MAGNET",
		Flags:     []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print it as a JSON object"}},
		Action: func(_ context.Context, cmd *cli.Command) error {
			if cmd.Args().Len() != 1 {
				return usageErrorf("name one torrent; see braid info --help")
			}
			s, err := client.OpenSource(cmd.Args().First())
			if err != nil {
				return err
			}
			if cmd.Bool("json") {
				newDisplay(true, false).emit(describeSource(s))
				return nil
			}
			return printInfo(s)
		},
	}
}

type description struct {
	Name        string         `json:"name"`
	InfoHash    string         `json:"info_hash"`
	Magnet      string         `json:"magnet"`
	Length      int64          `json:"length,omitempty"`
	PieceLength int64          `json:"piece_length,omitempty"`
	Pieces      int            `json:"pieces,omitempty"`
	Private     bool           `json:"private,omitempty"`
	Comment     string         `json:"comment,omitempty"`
	Trackers    [][]string     `json:"trackers,omitempty"`
	Peers       []client.Peer  `json:"peers,omitempty"`
	Files       []storage.File `json:"files,omitempty"`
}

func describeSource(s client.Source) description {
	d := description{
		Name: s.Name, InfoHash: s.InfoHash.HexString(), Magnet: s.Magnet(s.Peers...), Comment: s.Comment,
		Length: s.Layout.Length, PieceLength: s.Layout.PieceLength, Pieces: s.Layout.Pieces(),
		Trackers: s.Trackers, Peers: s.Peers, Files: s.Layout.Files,
	}
	d.Private = s.Info != nil && s.Info.Private != nil && *s.Info.Private
	return d
}

func printInfo(s client.Source) error {
	d := describeSource(s)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	// A name comes from a stranger, and may hold what a terminal obeys.
	fmt.Fprintf(w, "name\t%s\ninfo hash\t%s\n", plain(d.Name), d.InfoHash)
	if s.IsMagnet() {
		fmt.Fprintf(w, "files\tknown when a peer has sent them\n")
	} else {
		fmt.Fprintf(w, "size\t%s in %d pieces of %s\n", bytesText(d.Length), d.Pieces, bytesText(d.PieceLength))
	}
	if d.Private {
		fmt.Fprintf(w, "private\tyes\n")
	}
	if d.Comment != "" {
		fmt.Fprintf(w, "comment\t%s\n", plain(d.Comment))
	}
	for i, tier := range d.Trackers {
		for _, t := range tier {
			fmt.Fprintf(w, "tracker %d\t%s\n", i+1, plain(t))
		}
	}
	for _, p := range d.Peers {
		fmt.Fprintf(w, "peer\t%s\n", p)
	}
	fmt.Fprintf(w, "magnet\t%s\n", d.Magnet)
	for _, f := range d.Files {
		fmt.Fprintf(w, "file\t%s\t%s\n", plain(f.Path), bytesText(f.Length))
	}
	return w.Flush()
}
