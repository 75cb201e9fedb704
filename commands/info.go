package commands

import (
	"context"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/commands/flags"
	"braid/commands/terminal"
	"braid/storage"
	"braid/tracker"
)

func infoCommand() *cli.Command {
	return &cli.Command{
		Name:      "info",
		Usage:     "show what a torrent or magnet link says",
		ArgsUsage: "TORRENT|URL|MAGNET",
		Description: "Hides the key that a private tracker has put into its announce URL, so " +
			"that you can show the output to others. --json hides nothing.",
		Flags: []cli.Flag{
			flags.Bool("show-keys", "show announce URLs with their keys"),
			flags.Bool("json", "print a JSON object"),
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			s, err := openSource(ctx, cmd)
			if err != nil {
				return err
			}
			if cmd.Bool("json") {
				return terminal.PrintObjects(terminal.Stdout(cmd), describeSource(s))
			}
			printInfo(terminal.Stdout(cmd), s, cmd.Bool("show-keys"))
			return nil
		},
	}
}

type description struct {
	Name        string         `json:"name"`
	InfoHash    string         `json:"info_hash"`
	InfoHashV2  string         `json:"info_hash_v2,omitempty"` // of a hybrid
	Magnet      string         `json:"magnet"`
	Length      int64          `json:"length,omitempty"`
	PieceLength int64          `json:"piece_length,omitempty"`
	Pieces      int            `json:"pieces,omitempty"`
	Private     bool           `json:"private,omitempty"`
	Source      string         `json:"source,omitempty"`
	Comment     string         `json:"comment,omitempty"`
	Trackers    [][]string     `json:"trackers,omitempty"`
	WebSeeds    []string       `json:"web_seeds,omitempty"`
	Peers       []client.Peer  `json:"peers,omitempty"`
	Files       []storage.File `json:"files,omitempty"`
	// Symlinks are symbolic links in the torrent, which braid does not make.
	Symlinks []string `json:"symlinks,omitempty"`
}

func describeSource(s client.Source) description {
	d := description{
		Name:        s.Name,
		InfoHash:    s.InfoHash.HexString(),
		InfoHashV2:  s.HashV2,
		Magnet:      s.Magnet(s.Peers...),
		Comment:     s.Comment,
		Length:      s.Layout.Length,
		PieceLength: s.Layout.PieceLength,
		Pieces:      s.Layout.Pieces(),
		Trackers:    s.Trackers,
		WebSeeds:    s.WebSeeds,
		Peers:       s.Peers,
		Files:       s.Layout.Files,
		Symlinks:    s.Layout.Symlinks,
	}
	if s.Info != nil {
		d.Private = s.Info.Private != nil && *s.Info.Private
		d.Source = s.Info.Source
	}
	return d
}

func printInfo(out *terminal.Printer, s client.Source, keys bool) {
	d := describeSource(s)
	magnet, complete := d.Magnet, true
	if !keys {
		magnet, complete = publicMagnet(s)
	}
	w := terminal.NewTable(out)
	row := func(what, value string) {
		if value != "" {
			w.Printf("%s\t%s\n", what, value)
		}
	}
	row("name", d.Name)
	row("info hash", d.InfoHash)
	if d.InfoHashV2 != "" {
		w.Printf("v2 info hash\t%s\tnot used: braid downloads the v1 half\n", d.InfoHashV2)
	}
	if s.IsMagnet() {
		row("files", "known when a peer has sent them")
	} else {
		w.Printf("size\t%s in %s of %s\n",
			terminal.BytesText(d.Length), terminal.Plural(d.Pieces, "piece"),
			terminal.BytesText(d.PieceLength))
	}
	if d.Private {
		row("private", "yes")
	}
	row("source", d.Source)
	row("comment", d.Comment)
	for i, tier := range d.Trackers {
		for _, t := range tier {
			if !keys {
				t = tracker.RedactURL(t)
			}
			w.Printf("tracker %d\t%s\n", i+1, t)
		}
	}
	for _, u := range d.WebSeeds {
		note := "not used"
		s.WebSeeds = []string{u}
		if _, usable := s.WebSeedErrors(); usable {
			note = ""
		}
		w.Printf("web seed\t%s\t%s\n", u, note)
	}
	for _, p := range d.Peers {
		w.Printf("peer\t%s\n", p)
	}
	w.Printf("magnet\t%s\n", magnet)
	if !complete {
		w.Printf("\tWithout the trackers that might know you by a key; " +
			"--show-keys shows them whole.\n")
	}
	for _, f := range d.Files {
		w.Printf("file\t%s\t%s\n", f.Path, terminal.BytesText(f.Length))
	}
	for _, path := range d.Symlinks {
		w.Printf("symbolic link\t%s\tnot made\n", path)
	}
	w.Flush()
}

// publicMagnet returns a magnet link to pass on. It leaves out announce URLs into which a private
// tracker may have put the user's key. complete tells that none was left out.
func publicMagnet(s client.Source) (link string, complete bool) {
	complete = true
	var tiers [][]string
	for _, tier := range s.Trackers {
		var public []string
		for _, t := range tier {
			if tracker.RedactURL(t) == t {
				public = append(public, t)
			}
		}
		tiers, complete = append(tiers, public), complete && len(public) == len(tier)
	}
	s.Trackers = tiers
	return s.Magnet(s.Peers...), complete
}
