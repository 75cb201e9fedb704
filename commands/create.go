package commands

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/commands/flags"
	"braid/commands/program"
	"braid/commands/terminal"
	"braid/node"
	"braid/scionnet"
	"braid/tracker"
	"braid/tracker/announce"
	"braid/tracker/wire"
)

func createCommand() *cli.Command {
	return &cli.Command{
		Name:         "create",
		Usage:        "make a torrent of a file or directory",
		ArgsUsage:    "PATH",
		ArgValidator: flags.Arguments(1, 1, "name one file or directory; see braid create --help"),
		Description: "The same data gives the same torrent. Symbolic links and other special " +
			"files are left out. Other programs make the same info hash of the same data, if " +
			"name, piece length, private and source are equal.\n\n" + program.ExitCodes,
		Flags: append([]cli.Flag{
			flags.File("output", "", "write the torrent to `FILE` (default: the name of PATH with "+
				".torrent)", "o"),
			flags.Size("piece-length", 0, "`SIZE` of a piece, a power of two such as 256KiB "+
				"(default: chosen from the size)"),
			flags.List("tracker", "announce `URL[,URL...]`: one tier, of which a client uses the "+
				"first that works (repeatable; each is a tier)"),
			flags.List("web-seed", "`URL` of an HTTP server with the same data: http, https, or "+
				"on SCION scion://1-ff00:0:110,[127.0.0.1]:31080/PATH/; for other clients also "+
				"ftp (repeatable)"),
			flags.String("comment", "", "`TEXT` for people"),
			flags.Bool("private", "peers come from the trackers only (BEP 27)", "p"),
			flags.String("source", "", "`TEXT` that says where the torrent is published: the same "+
				"data gets another info hash there"),
			flags.String("name", "", "`NAME` of the file or directory that downloads make "+
				"(default: that of PATH)"),
			flags.Pattern("exclude", "leave out files and directories that match `GLOB`, such as "+
				"'*.tmp' or 'docs/draft' (repeatable)"),
			flags.Bool("offline", "do not ask the trackers whether they are also on the other "+
				"kind of network (IP, SCION)"),
			flags.Bool("json", "print the result as a JSON object"),
		}, scionFlags()...),
		Action: program.EndOnHangup(working(false, create)),
	}
}

func create(ctx context.Context, t *task) error {
	root := envOf(t.Command).Path(t.Args().First())
	if root == "" { // as a variable of a script that is not set
		return program.UsageErrorf("the path is empty: name a file or directory, or . for this one")
	}
	opts := client.CreateOptions{
		WebSeeds:    t.StringSlice("web-seed"),
		Comment:     t.String("comment"),
		PieceLength: t.Int64("piece-length"),
		Private:     t.Bool("private"),
		Source:      t.String("source"),
		Name:        t.String("name"),
		Exclude:     t.StringSlice("exclude"),
		Skipped:     t.out.leftOut,
	}
	for _, text := range t.StringSlice("tracker") {
		tier := splitURLs(text)
		for _, u := range tier {
			if _, err := tracker.ParseURL(u); err != nil {
				return program.UsageErrorf("--tracker: %w", err)
			}
		}
		opts.Trackers = append(opts.Trackers, tier)
	}
	if err := opts.Check(); err != nil {
		t.Wrongf("%w", err)
	}
	t.Check("web-seed", checkWebSeed)
	for _, pattern := range opts.Exclude {
		t.Wantf(strings.Trim(pattern, "/") != "",
			"--exclude: %q matches nothing below %s", pattern, root)
	}
	if t.Err != nil {
		return t.Err
	}
	if opts.Private && len(opts.Trackers) == 0 {
		t.out.people.Printf("a private torrent without --tracker: clients find no peers for it\n")
	}
	name := t.String("output")
	if name == "" {
		abs, err := filepath.Abs(root)
		if err != nil {
			return err
		}
		name = envOf(t.Command).Path(filepath.Base(abs) + ".torrent")
	}
	if old, err := os.Lstat(name); err == nil {
		listed := client.CreateOptions{Exclude: opts.Exclude}
		_ = client.EachFile(ctx, root, listed, func(_ string, st fs.FileInfo) {
			t.Wantf(!os.SameFile(st, old), "%s belongs to the data: name another file for the "+
				"torrent with --output, or leave this one out with --exclude", name)
		}) // Create reports the error
		if t.Err != nil {
			return t.Err
		}
	}
	if err := node.CheckReplace(name); err != nil { // now, since hashing may take hours
		return err
	}
	count, stop := t.out.counting("hashing "+root, 0)
	opts.Progress = count.of
	c, err := client.Create(ctx, root, opts)
	stop()
	if err != nil {
		return err
	}
	if err := node.ReplaceFile(name, c.Torrent, true); err != nil {
		return err
	}
	if !t.Bool("offline") {
		nameSiblings(ctx, t.Command, c.Source)
	}
	magnet, _ := publicMagnet(c.Source)
	l := c.Source.Layout
	t.out.result(describeSource(c.Source), "%s: %s in %s, %s of %s\n%s\n",
		name, terminal.BytesText(l.Length), terminal.Plural(len(l.Files), "file"),
		terminal.Plural(l.Pieces(), "piece"), terminal.BytesText(l.PieceLength), magnet)
	return nil
}

// askPatience bounds the time in which all trackers together may name their other addresses.
const askPatience = 4 * time.Second

// nameSiblings asks the trackers of a new torrent whether they are on the other kind of network as
// well. If the torrent names no such address, it prints a warning: peers on that network would not
// find the tracker. Errors are printed only, since the torrent is valid without the answers.
func nameSiblings(ctx context.Context, cmd *cli.Command, s client.Source) {
	log := slog.New(slog.DiscardHandler)
	var named []tracker.URL
	for _, text := range slices.Concat(s.Trackers...) {
		if u, err := tracker.ParseURL(text); err == nil { // checked before
			named = append(named, u.OfUser())
		}
	}
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	var scion *scionnet.HTTP
	var noSCION error
	if slices.ContainsFunc(named, func(u tracker.URL) bool { _, ok := u.SCION(); return ok }) {
		host, err := openHost(ctx, cmd, log)
		if noSCION = err; err == nil {
			defer host.Close()
			if scion, noSCION = host.OpenHTTP(ctx, 0); noSCION == nil {
				defer scion.Close()
			}
		}
	}
	out := terminal.Stderr(cmd)
	var all sync.WaitGroup
	for _, u := range named {
		if !node.MayKnowSiblings(u) {
			continue
		}
		all.Go(func() {
			siblings, err := announce.Siblings(ctx, u, scion, wire.InfoHash(s.InfoHash))
			if _, on := u.SCION(); on && noSCION != nil {
				err = noSCION
			}
			isNamed := func(x tracker.URL) bool { return slices.ContainsFunc(named, x.Same) }
			switch {
			case err != nil:
				out.Printf("could not ask %s whether it has other addresses: %s\n",
					u, u.Hide(err.Error()))
			case len(siblings) > 0 && !slices.ContainsFunc(siblings, isNamed):
				out.Printf("warning: the tracker %s is also at %s, "+
					"which the torrent does not name:\n"+
					"clients that reach it only there do not find it; add --tracker '%s'\n",
					u, siblings[0], siblings[0])
			}
		})
	}
	all.Wait()
}

// splitURLs reads URL,URL. A comma ends a URL only where another one begins: SCION addresses have
// one, too.
func splitURLs(s string) []string {
	var out []string
	for _, part := range strings.Split(s, ",") {
		if len(out) > 0 && !strings.Contains(part, "://") {
			out[len(out)-1] += "," + part
			continue
		}
		out = append(out, strings.TrimSpace(part))
	}
	return out
}

func checkWebSeed(s string) error {
	if _, ok, err := scionnet.ParseServerURL(s); ok {
		return err
	}
	u, err := url.Parse(s)
	if err != nil {
		return err
	}
	if u.Host == "" || !slices.Contains([]string{"http", "https", "ftp"}, u.Scheme) {
		return fmt.Errorf("%q: want a URL with http, https, scion or ftp", s)
	}
	return nil
}
