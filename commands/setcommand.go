package commands

import (
	"context"
	"reflect"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"

	"braid/commands/flags"
	"braid/commands/program"
	"braid/commands/terminal"
	v1 "braid/node/web/v1"
	"braid/units"
	"braid/units/lists"
)

func setCommand() *cli.Command {
	return onTorrents(&cli.Command{
		Name:        "set",
		Usage:       "change settings of torrents of the daemon",
		Description: "Only the given settings change. Changes take effect at once, and last.",
		Flags: []cli.Flag{
			allFlag(),
			flags.String("name", "", "show the torrent as `NAME` in lists; empty: its own name. "+
				"braid rename renames its files"),
			flags.String("priority", "", "`LEVEL` in the queue: low, normal or high"),
			flags.Int("position", 0, "place `N` in the queue, from 0"),
			flags.String("labels", "", "`WORDS` with commas between them; empty: no labels"),
			flags.List("file", "`NUMBER=LEVEL`: download that file (see braid show --files) first "+
				"(high), normal, last (low), or not (skip) (repeatable)"),
			flags.Bool("sequential", "download in the order of the data; --sequential=false: rare "+
				"pieces first"),
			flags.String("upload-rate", "", "send at most `RATE`, such as 10Mbit/s; 0: no limit"),
			flags.String("download-rate", "", "receive at most `RATE`; 0: no limit"),
			flags.Bool("honour-global", "obey the limits of all torrents together, too; "+
				"--honour-global=false: only its own"),
			flags.Float("ratio", "stop serving when `N` times the size is sent; 0: as the "+
				"daemon's settings say; -1: never"),
			flags.Time("seed-time", 0, "serve it for `TIME` after it is complete"),
			flags.Time("idle-time", 0, "stop serving when nothing was sent for `TIME`"),
			flags.List("tracker", "replace its trackers by `URL` (repeatable)"),
			flags.Int("peer-limit", 0, "dial at most `N` peers; 0: as the daemon's settings say"),
			flags.List("peer", "try the peer at `ADDR`, too (repeatable)"),
			flags.String("sequence", "", "only paths whose hops match `SEQUENCE`; empty: any"),
			flags.String("acl", "", "allow and deny paths by `ENTRIES`, such as '- "+
				"1-ff00:0:110#2, +'; empty: any"),
		},
	}, "changed", set)
}

func set(ctx context.Context, cmd *cli.Command, d *v1.Client, t v1.Torrent) error {
	before, err := d.Show(ctx, t.InfoHash)
	if err != nil {
		return err
	}
	c, err := parseChange(cmd, before.Settings)
	if err != nil {
		return err
	}
	peers := cmd.StringSlice("peer")
	if len(peers) == 0 && reflect.ValueOf(c).IsZero() {
		return program.UsageErrorf("nothing to change: give a setting; see braid set --help")
	}
	if len(peers) > 0 {
		if err := d.AddPeers(ctx, t.InfoHash, v1.AddPeers{Peers: peers}); err != nil {
			return err
		}
	}
	return d.Set(ctx, t.InfoHash, c)
}

// parseChange reads the flags. Parts of limits, goals and policies that no flag names stay.
func parseChange(cmd *cli.Command, old v1.TorrentSettings) (c v1.Change, err error) {
	words := func(flag string) []string { return lists.Split(cmd.String(flag), ",") }
	c = v1.Change{
		Name:          flags.IfSet(cmd, "name", cmd.String),
		Labels:        flags.IfSet(cmd, "labels", words),
		Priority:      flags.IfSet(cmd, "priority", cmd.String),
		QueuePosition: flags.IfSet(cmd, "position", cmd.Int),
		Sequential:    flags.IfSet(cmd, "sequential", cmd.Bool),
		HonourGlobal:  flags.IfSet(cmd, "honour-global", cmd.Bool),
		PeerLimit:     flags.IfSet(cmd, "peer-limit", cmd.Int),
	}
	for _, text := range cmd.StringSlice("file") {
		number, level, ok := strings.Cut(text, "=")
		if _, err := strconv.Atoi(number); err != nil || !ok {
			return c, program.UsageErrorf("--file %q: want NUMBER=LEVEL, such as 3=skip", text)
		}
		if c.Files == nil {
			c.Files = map[string]string{}
		}
		c.Files[number] = level
	}
	f := newCmdline(cmd)
	if f.AnySet("upload-rate", "download-rate") {
		c.Limits = &old.Limits
		flags.Override(cmd, "upload-rate", &c.Limits.UploadMbitS, f.mbitS)
		flags.Override(cmd, "download-rate", &c.Limits.DownloadMbitS, f.mbitS)
	}
	if f.AnySet("ratio", "seed-time", "idle-time") {
		seconds := func(flag string) float64 { return cmd.Duration(flag).Seconds() }
		c.Goal = &old.Goal
		flags.Override(cmd, "ratio", &c.Goal.Ratio, cmd.Float)
		flags.Override(cmd, "seed-time", &c.Goal.TimeS, seconds)
		flags.Override(cmd, "idle-time", &c.Goal.IdleS, seconds)
	}
	if f.AnySet("sequence", "acl") {
		c.Policy = &old.Policy
		flags.Override(cmd, "sequence", &c.Policy.Sequence, cmd.String)
		flags.Override(cmd, "acl", &c.Policy.ACL, cmd.String)
	}
	if cmd.IsSet("tracker") {
		tier := func(url string) []string { return []string{url} }
		c.Trackers = new(lists.Map(cmd.StringSlice("tracker"), tier))
	}
	return c, f.Err
}

// mbitS reads a rate in Mbit/s; 0 is no limit.
func (f *cmdline) mbitS(flag string) float64 {
	text := f.String(flag)
	if text == "0" {
		return 0
	}
	rate, err := units.ParseRate(text)
	if err == nil {
		err = checkLimit(rate)
	}
	if err != nil {
		f.Wrongf("--%s %q: %w", flag, text, err)
	}
	return float64(rate) / terminal.Mega
}

// torrentPaths shows the paths of torrents of the daemon, for braid paths --torrent.
func torrentPaths(ctx context.Context, cmd *cli.Command, d *v1.Client) error {
	t, err := theTorrent(ctx, d, cmd.String("torrent"))
	if err != nil {
		return err
	}
	paths, err := d.Paths(ctx, t.InfoHash)
	if err != nil {
		return err
	}
	if cmd.Bool("json") {
		return terminal.PrintObjects(terminal.Stdout(cmd), paths...)
	}
	w := terminal.NewTable(terminal.Stdout(cmd))
	w.Printf("%s: %s\n", t.Name, terminal.Plural(len(paths), "path"))
	for _, p := range paths {
		w.Printf("  %s\t%s\t%s\t%s down\t%s up\t%.1f ms\t%.1f%% lost\t%.0f%%\t%s\n",
			p.Peer, hopsText(p), stateText(p), rateCell(p.DownMbitS), rateCell(p.UpMbitS),
			p.RTTMs, 100*p.Loss, 100*p.Share, fromText(p.Source))
		if cmd.Count("verbose") > 0 {
			if why := terminal.OneLine(strings.TrimSpace(p.Reason + " " + p.Error)); why != "" {
				w.Printf("    %s\n", why)
			}
		}
	}
	w.Flush()
	return nil
}

func stateText(p v1.Path) string {
	if p.Refused != "" {
		return "forbidden by " + p.Refused
	}
	return p.State
}

// hopsText is a path's interfaces, such as 1-ff00:0:111#1 > 1-ff00:0:110#2.
func hopsText(p v1.Path) string {
	if len(p.Hops) == 0 {
		return p.Transport
	}
	hop := func(h v1.Hop) string { return terminal.HopText(h.ISDAS, h.Ingress, h.Egress) }
	return strings.Join(lists.Map(p.Hops, hop), terminal.PathArrow)
}
