package main

import (
	"slices"

	"log/slog"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/node"
	"braid/tracker"
	"braid/tracker/wire"
)

// announceFlags are common to the commands that let peers find them.
func announceFlags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		&cli.StringSliceFlag{
			Name: "tracker",
			Usage: "ask the tracker at `URL` too, beside those of the torrent: http, https, udp " +
				"or scion (repeatable)",
			Config: cli.StringConfig{TrimSpace: true},
		},
		&cli.BoolFlag{Name: "no-trackers", Usage: "ask no tracker of the torrent"},
	}, dhtFlags(), knowledgeFlags())
}

// dhtFlags say in which DHTs a node takes part.
func dhtFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{
			Name: "dht",
			Usage: "take part in the DHT, where peers find each other without a tracker: " +
				"`WHERE` is on (over SCION and IP) or off (default: over SCION only)",
		},
		dhtNodeFlag(),
		dhtItemFlag(),
	}
}

// knowledgeFlags say what trackers on SCION may know and say about paths.
func knowledgeFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{
			Name:  "peer-order",
			Value: "mixed",
			Usage: "ask trackers on SCION for peers in `ORDER`: random, nearest, or mixed (half " +
				"of each)",
		},
		&cli.StringFlag{
			Name:  "path-knowledge",
			Value: "share",
			Usage: "`HOW` trackers on SCION help to choose paths: share (try first what they " +
				"name, and tell them what was measured of paths), use (tell them nothing), or " +
				"off",
		},
	}
}

// trackers returns the tiers of trackers to ask for a torrent: those of the command line, in which
// a wrong URL is an error, and those of the torrent.
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
			"--peer-order asks trackers for what --path-knowledge off declines; give one of them")
	default:
		f.wrong("--path-knowledge %q: want share, use or off", how)
	}
	return node.Knowledge{}
}
