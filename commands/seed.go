package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/commands/flags"
	"braid/commands/program"
	"braid/node"
	"braid/tracker"
)

func seedCommand() *cli.Command {
	return &cli.Command{
		Name:      "seed",
		Usage:     "serve torrents whose data is complete",
		ArgsUsage: "TORRENT|URL|DIR|MAGNET...",
		Description: "Checks the data, then serves it until interrupted, or until --ratio or " +
			"--seed-time. It trusts data that braid has downloaded and that has not changed " +
			"since. A directory stands for the .torrent files in it; those whose data is not " +
			"complete are skipped. For a magnet link, braid reads the description that its " +
			"download has kept, or asks peers for it. braid seed writes no files. When it is " +
			"ready it says so on standard error, and with --json as " +
			`{"event":"ready","listen":[...]}.` + "\n\n" + program.ExitCodes,
		Flags: append([]cli.Flag{
			flags.File("data", ".", "`DIR` that holds the torrents' files or directories"),
			storageFlag(),
			flags.String("super-seeding", "off", "offer each piece to one peer first, so that "+
				"each is sent once before one is sent twice: `WHEN` is auto (until another peer "+
				"has everything), on or off. Use it if many peers know each other; a single peer "+
				"downloads more slowly"),
			recheckFlag(),
			debugFlag(),
		}, slices.Concat(seedGoalFlags("no limit"), sessionFlags())...),
		Action: session(true, seed),
	}
}

func seed(ctx context.Context, t *task) error {
	torrents, err := t.seeds(ctx)
	if err != nil {
		return err
	}
	n, err := t.openNode(ctx, torrents)
	if err != nil {
		return err
	}
	if err := describeSeeds(ctx, t.out, n, torrents); err != nil {
		return err
	}
	added, err := t.addAll(ctx, n, torrents)
	if err != nil {
		return err
	}
	t.out.ready(n.Listening())
	t.tellReach(n, torrents)
	t.out.watch(ctx, added)
	return nil // an interrupted seed has ended as expected
}

// seeds returns the torrents that the command line names and whose data is complete.
func (t *task) seeds(ctx context.Context) ([]node.Options, error) {
	named, err := t.sources(ctx)
	if err != nil {
		return nil, err
	}
	t.Wantf(t.IsSet("listen") || t.transports().rtc != nil,
		"no listen address: give --listen ISD-AS,[IP]:PORT (see --help)")
	o := node.Options{
		Goal:         t.seedGoal(),
		SuperSeeding: flags.Read(&t.Reader, "super-seeding", client.ParseSuperSeeding),
		Storage: node.Storage{
			Kind:     t.storageKind(),
			Dir:      t.String("data"),
			Complete: true,
			Recheck:  t.Bool("recheck"),
		},
	}
	if t.Err != nil {
		return nil, t.Err
	}
	var all []node.Options
	for _, s := range named {
		o.Source = s.WithKept(o.Storage.Dir)
		err := checkComplete(ctx, t.out, o)
		switch {
		case program.HasCode(err) && s.listed:
			t.log.Warn("torrent skipped: its data is incomplete or wrong",
				"torrent", s.Name, "data", o.Storage.Dir)
			continue
		case err != nil:
			return nil, err
		}
		o.Trackers = t.trackers(o.Source, t.log)
		forBrowsers := slices.ContainsFunc(slices.Concat(o.Trackers...), tracker.URL.WebSocket)
		t.Wantf(t.IsSet("listen") || forBrowsers, "nobody can reach a seed of %s: "+
			"give --listen, or --tracker ws://HOST:PORT, through which browsers find it", s.Name)
		if t.Err != nil {
			return nil, t.Err
		}
		all = append(all, o)
	}
	if len(all) == 0 {
		err := fmt.Errorf("none of the torrents is complete, with the right data, in %s",
			o.Storage.Dir)
		return nil, program.WithCode(err, program.Data)
	}
	return all, nil
}

// checkComplete returns an error with the exit code program.Data if the data of a torrent is not
// complete. It accepts magnet links, whose data is not known yet.
func checkComplete(ctx context.Context, out *display, o node.Options) error {
	if o.Source.IsMagnet() {
		return nil
	}
	c, stop := out.counting("checking "+o.Source.Name, o.Source.Layout.Length)
	ok, err := node.IsComplete(ctx, o.Source, o.Storage, c.done.Store)
	stop()
	if err == nil && !ok {
		err = program.WithCode(fmt.Errorf("%s in %s is not complete, or parts of it are wrong: "+
			"braid verify says what is wrong, braid download completes it",
			o.Source.Name, o.Storage.Dir), program.Data)
	}
	return err
}

// describeSeeds asks peers for the descriptions of magnet links, and checks that their data is
// complete.
func describeSeeds(
	ctx context.Context, out *display, n *node.Node, torrents []node.Options,
) (err error) {
	for i := range torrents {
		o := &torrents[i]
		if !o.Source.IsMagnet() {
			continue
		}
		name := cmp.Or(o.Source.Name, o.Source.InfoHash.HexString())
		if len(o.Source.Peers)+len(o.Trackers) == 0 {
			return program.UsageErrorf("nobody to ask what is in the magnet link of %s: "+
				"name a tracker with --tracker, or the .torrent file", name)
		}
		out.say("asking peers for the description of " + name)
		ask := *o
		ask.MustFind = len(o.Source.Peers) == 0
		if o.Source, err = n.Describe(ctx, ask); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := checkComplete(ctx, out, *o); err != nil {
			return err
		}
	}
	return nil
}

// tellReach prints which peers can connect.
func (t *task) tellReach(n *node.Node, torrents []node.Options) {
	over := t.transports()
	if listening := n.Listening(); len(listening) > 0 {
		for _, line := range reach(listening, over.ip, torrents) {
			t.out.people.Printf("%s\n", line)
		}
	}
	if over.rtc != nil {
		t.out.people.Printf("peers in browsers, through trackers at ws:// and wss://\n")
	}
}

// listedSource is a torrent that the command line names.
type listedSource struct {
	client.Source
	listed bool // it was found in a directory; braid seed skips it if its data is incomplete
}

// readSources reads the named torrents, and all torrents in the named directories.
func readSources(ctx context.Context, names []string, log *slog.Logger) ([]listedSource, error) {
	var out []listedSource
	add := func(s listedSource) bool {
		if slices.ContainsFunc(out, func(o listedSource) bool { return o.InfoHash == s.InfoHash }) {
			return false
		}
		out = append(out, s)
		return true
	}
	for _, name := range names {
		if st, err := os.Stat(name); err == nil && st.IsDir() {
			files, err := os.ReadDir(name)
			if err != nil {
				return nil, fmt.Errorf("list torrents: %w", err)
			}
			files = slices.DeleteFunc(files, func(f os.DirEntry) bool {
				return !strings.EqualFold(filepath.Ext(f.Name()), ".torrent")
			})
			if len(files) == 0 {
				return nil, program.UsageErrorf(
					"%s: there is no .torrent file in this directory", name)
			}
			for _, f := range files {
				s, err := client.OpenSource(ctx, filepath.Join(name, f.Name()))
				if err != nil {
					log.Warn("torrent skipped", "error", err)
				} else if !add(listedSource{s, true}) {
					log.Warn("torrent skipped: it is there twice", "file", f.Name())
				}
			}
			continue
		}
		s, err := openNamed(ctx, name)
		if err != nil {
			return nil, err
		}
		if !add(listedSource{s, false}) {
			return nil, program.UsageErrorf("%s: the same torrent is named twice", name)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("none of the torrents can be read")
	}
	return out, nil
}

// seedGoalFlags say when to stop serving. limit is the default, in words.
func seedGoalFlags(limit string) []cli.Flag {
	return []cli.Flag{
		flags.Float("ratio", "stop serving a torrent when `N` times its size has been sent "+
			"(default: "+limit+")"),
		flags.Period("seed-time", 0, "serve a complete torrent for `TIME`, such as 30m or 24h "+
			"(default: "+limit+")"),
	}
}

func (f *cmdline) seedGoal() node.Goal {
	g := node.Goal{Ratio: f.Float("ratio"), Time: f.Duration("seed-time")}
	f.Wantf(!f.IsSet("ratio") || g.Ratio > 0,
		"--ratio %v: want a number above 0, such as 1.5", g.Ratio)
	return g
}

// orUntil continues a sentence about serving until interrupted.
func orUntil(g node.Goal) string {
	var out string
	if g.Ratio > 0 {
		out += fmt.Sprintf(", or %v times the size is sent", g.Ratio)
	}
	if g.Time > 0 {
		out += fmt.Sprintf(", or for %v", g.Time)
	}
	return out
}

// reach says which peers can connect to a seed, and on which network no tracker names it. ip is the
// transport on IP.
func reach(listen []client.Peer, ip client.IPTransport, torrents []node.Options) []string {
	onIP := "TCP"
	if ip == client.QUIC {
		onIP = "QUIC"
	}
	isIP := func(p client.Peer) bool { return !onSCION(p) }
	var out []string
	switch {
	case !slices.ContainsFunc(listen, isIP):
		out = append(out, "SCION peers only: other clients cannot connect (add --listen HOST:PORT)")
	case !anyOnSCION(listen):
		out = append(out,
			onIP+" peers only: SCION peers cannot connect (add --listen ISD-AS,[IP]:PORT)")
	default:
		out = append(out, "peers on SCION and on "+onIP)
	}
	for _, u := range node.FindUnheard(listen, torrents) {
		of := "this seed"
		if len(torrents) > 1 {
			of = listed(u.Torrents)
		}
		network := map[bool]string{true: "SCION", false: "IP"}[u.SCION]
		if u.Through == "" {
			out = append(out, fmt.Sprintf("no tracker on %s is named: nobody hears there of %s",
				network, of))
		} else {
			out = append(out, fmt.Sprintf("no tracker on %s is named: peers there hear of %s "+
				"only if the tracker %s is on %s, too", network, of, u.Through, network))
		}
	}
	return out
}

// listed returns the first names, and the number of the others.
func listed(names []string) string {
	const shown = 2
	if more := len(names) - shown; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), more)
	}
	return strings.Join(names, " and ")
}
