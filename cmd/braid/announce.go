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
		stringFlag("dht", "", "take part in the DHT, where peers find each other without a "+
			"tracker: `WHERE` is on (over SCION and IP) or off (default: over SCION only)"),
		dhtNodeFlag(),
		dhtItemFlag(),
		stringFlag("peer-order", "mixed", "ask trackers on SCION for peers in `ORDER`: random, "+
			"nearest, or mixed (half of each)"),
		stringFlag("path-knowledge", "share", "`HOW` to use the path knowledge of trackers on "+
			"SCION: share (try the paths first that trackers recommend, and send them "+
			"measurements of paths), use (send no measurements), or off"),
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
	order, err := wire.ParseOrder(f.String("peer-order"))
	f.want(err == nil, "--peer-order %q: want random, nearest or mixed", f.String("peer-order"))
	switch how := f.String("path-knowledge"); how {
	case "share", "use":
		return node.Knowledge{Peers: order, Use: true, Share: how == "share"}
	case "off":
		f.want(!f.IsSet("peer-order"),
			"--peer-order has no effect with --path-knowledge off: give only one of them")
	default:
		f.wrong("--path-knowledge %q: want share, use or off", how)
	}
	return node.Knowledge{}
}
