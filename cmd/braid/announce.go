package main

import (
	"log/slog"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/node"
	"braid/tracker"
	"braid/tracker/wire"
)

// announceFlags are common to the commands that let peers find them.
func announceFlags() []cli.Flag {
	return []cli.Flag{
		listFlag("tracker", "ask the tracker at `URL`, too, in addition to the torrent's own "+
			"trackers: http, https, udp or scion (repeatable)"),
		boolFlag("no-trackers", "ask no tracker of the torrent"),
		choiceFlag("dht", "", "take part in the DHT, where peers find each other without a "+
			"tracker: `WHERE` is on (over SCION and IP) or off (default: over SCION only)",
			"on", "off"),
		dhtNodeFlag(),
		dhtItemFlag(),
		choiceFlag("peer-order", "mixed", "ask trackers on SCION for peers in `ORDER`: random, "+
			"nearest, or mixed (half of each)", "random", "nearest", "mixed"),
		choiceFlag("path-knowledge", "share", "`HOW` to use the path knowledge of trackers on "+
			"SCION: share (try the paths first that trackers recommend, and send them "+
			"measurements of paths), use (send no measurements), or off", "share", "use", "off"),
	}
}

// trackers returns the tiers of trackers to ask for a torrent: first those of the command line,
// then those of the torrent. Wrong URLs of the command line are errors; those of the torrent are
// logged.
func (f *flags) trackers(s client.Source, log *slog.Logger) (out [][]tracker.URL) {
	for _, u := range readAll(f, "tracker", tracker.ParseURL) {
		out = append(out, []tracker.URL{u.OfUser()})
	}
	if f.Bool("no-trackers") {
		return out
	}
	return append(out, node.ParseTrackers(s, log)...)
}

// knowledge reads --peer-order and --path-knowledge.
func (f *flags) knowledge() node.Knowledge {
	how := f.String("path-knowledge")
	if how == "off" {
		f.want(!f.IsSet("peer-order"),
			"--peer-order has no effect with --path-knowledge off: give only one of them")
		return node.Knowledge{}
	}
	order := read(f, "peer-order", wire.ParseOrder)
	return node.Knowledge{Peers: order, Use: true, Share: how == "share"}
}
