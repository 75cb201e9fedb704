package main

import (
	"context"
	"reflect"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"

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
			stringFlag("name", "", "show the torrent as `NAME` in lists; empty: its own name. "+
				"braid rename renames its files"),
			stringFlag("priority", "", "`LEVEL` in the queue: low, normal or high"),
			intFlag("position", 0, "place `N` in the queue, from 0"),
			stringFlag("labels", "", "`WORDS` with commas between them; empty: no labels"),
			listFlag("file", "`NUMBER=LEVEL`: download that file (see braid show --files) first "+
				"(high), normal, last (low), or not (skip) (repeatable)"),
			boolFlag("sequential", "download in the order of the data; --sequential=false: rare "+
				"pieces first"),
			stringFlag("upload-rate", "", "send at most `RATE`, such as 10Mbit/s; 0: no limit"),
			stringFlag("download-rate", "", "receive at most `RATE`; 0: no limit"),
			boolFlag("honour-global", "obey the limits of all torrents together, too; "+
				"--honour-global=false: only its own"),
			floatFlag("ratio", "stop serving when `N` times the size is sent; 0: as the daemon's "+
				"settings say; -1: never"),
			timeFlag("seed-time", 0, "serve it for `TIME` after it is complete"),
			timeFlag("idle-time", 0, "stop serving when nothing was sent for `TIME`"),
			listFlag("tracker", "replace its trackers by `URL` (repeatable)"),
			intFlag("peer-limit", 0, "dial at most `N` peers; 0: as the daemon's settings say"),
			listFlag("peer", "try the peer at `ADDR`, too (repeatable)"),
			stringFlag("sequence", "", "only paths whose hops match `SEQUENCE`; empty: any"),
			stringFlag("acl", "", "allow and deny paths by `ENTRIES`, such as '- 1-ff00:0:110#2, "+
				"+'; empty: any"),
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
		return usageErrorf("nothing to change: give a setting; see braid set --help")
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
		Name:          ifSet(cmd, "name", cmd.String),
		Labels:        ifSet(cmd, "labels", words),
		Priority:      ifSet(cmd, "priority", cmd.String),
		QueuePosition: ifSet(cmd, "position", cmd.Int),
		Sequential:    ifSet(cmd, "sequential", cmd.Bool),
		HonourGlobal:  ifSet(cmd, "honour-global", cmd.Bool),
		PeerLimit:     ifSet(cmd, "peer-limit", cmd.Int),
	}
	for _, text := range cmd.StringSlice("file") {
		number, level, ok := strings.Cut(text, "=")
		if _, err := strconv.Atoi(number); err != nil || !ok {
			return c, usageErrorf("--file %q: want NUMBER=LEVEL, such as 3=skip", text)
		}
		if c.Files == nil {
			c.Files = map[string]string{}
		}
		c.Files[number] = level
	}
	f := &flags{Command: cmd}
	if f.anySet("upload-rate", "download-rate") {
		c.Limits = &old.Limits
		override(cmd, "upload-rate", &c.Limits.UploadMbitS, f.mbitS)
		override(cmd, "download-rate", &c.Limits.DownloadMbitS, f.mbitS)
	}
	if f.anySet("ratio", "seed-time", "idle-time") {
		seconds := func(flag string) float64 { return cmd.Duration(flag).Seconds() }
		c.Goal = &old.Goal
		override(cmd, "ratio", &c.Goal.Ratio, cmd.Float)
		override(cmd, "seed-time", &c.Goal.TimeS, seconds)
		override(cmd, "idle-time", &c.Goal.IdleS, seconds)
	}
	if f.anySet("sequence", "acl") {
		c.Policy = &old.Policy
		override(cmd, "sequence", &c.Policy.Sequence, cmd.String)
		override(cmd, "acl", &c.Policy.ACL, cmd.String)
	}
	if cmd.IsSet("tracker") {
		tier := func(url string) []string { return []string{url} }
		c.Trackers = new(lists.Map(cmd.StringSlice("tracker"), tier))
	}
	return c, f.err
}

// mbitS reads a rate in Mbit/s; 0 is no limit.
func (f *flags) mbitS(flag string) float64 {
	text := f.String(flag)
	if text == "0" {
		return 0
	}
	rate, err := units.ParseRate(text)
	if err == nil {
		err = checkLimit(rate)
	}
	if err != nil {
		f.wrong("--%s %q: %w", flag, text, err)
	}
	return float64(rate) / mega
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
		return printObjects(stdout(cmd), paths...)
	}
	w := newTable(stdout(cmd))
	w.printf("%s: %s\n", t.Name, plural(len(paths), "path"))
	for _, p := range paths {
		w.printf("  %s\t%s\t%s\t%s down\t%s up\t%.1f ms\t%.1f%% lost\t%.0f%%\t%s\n",
			p.Peer, hopsText(p), stateText(p), rateCell(p.DownMbitS), rateCell(p.UpMbitS),
			p.RTTMs, 100*p.Loss, 100*p.Share, fromText(p.Source))
		if cmd.Count("verbose") > 0 {
			if why := oneLine(strings.TrimSpace(p.Reason + " " + p.Error)); why != "" {
				w.printf("    %s\n", why)
			}
		}
	}
	w.flush()
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
	hop := func(h v1.Hop) string { return hopText(h.ISDAS, h.Ingress, h.Egress) }
	return strings.Join(lists.Map(p.Hops, hop), pathArrow)
}
