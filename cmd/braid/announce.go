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
		&cli.StringSliceFlag{Name: "tracker", Usage: "ask the tracker at `URL` too, beside those of the torrent: http, https, udp or scion (repeatable)", Config: cli.StringConfig{TrimSpace: true}},
		&cli.BoolFlag{Name: "no-trackers", Usage: "ask no tracker of the torrent"},
	}, dhtFlags(), knowledgeFlags())
}

// dhtFlags say in which DHTs a node takes part.
func dhtFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "dht", Usage: "take part in the DHT, where peers find each other without a tracker: `WHERE` is on (over SCION and IP) or off (default: over SCION only)"},
		dhtNodeFlag(),
		dhtItemFlag(),
	}
}

// knowledgeFlags say what trackers on SCION may know and say about paths.
func knowledgeFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "peer-order", Value: "mixed", Usage: "ask trackers on SCION for peers in `ORDER`: random, nearest, or mixed (half of each)"},
		&cli.StringFlag{Name: "path-knowledge", Value: "share", Usage: "`HOW` trackers on SCION help to choose paths: share (try first what they name, and tell them what was measured of paths), use (tell them nothing), or off"},
	}
}

// parseTrackers returns the tiers of trackers to ask for a torrent: those of the command line, in
// which a wrong URL is an error, and those of the torrent.
func parseTrackers(cmd *cli.Command, s client.Source, log *slog.Logger) ([][]tracker.URL, error) {
	var out [][]tracker.URL
	for _, text := range cmd.StringSlice("tracker") {
		u, err := tracker.ParseURL(text)
		if err != nil {
			return nil, usageErrorf("--tracker: %w", err)
		}
		out = append(out, []tracker.URL{u.OfUser()})
	}
	if cmd.Bool("no-trackers") {
		return out, nil
	}
	return append(out, node.ParseTrackers(s, log)...), nil
}

// parseKnowledge reads --peer-order and --path-knowledge.
func parseKnowledge(cmd *cli.Command) (node.Knowledge, error) {
	order, err := wire.ParseOrder(cmd.String("peer-order"))
	if err != nil {
		return node.Knowledge{}, usageErrorf("--peer-order %q: want random, nearest or mixed", cmd.String("peer-order"))
	}
	switch how := cmd.String("path-knowledge"); how {
	case "share":
		return node.Knowledge{Peers: order, Use: true, Share: true}, nil
	case "use":
		return node.Knowledge{Peers: order, Use: true}, nil
	case "off":
		if cmd.IsSet("peer-order") {
			return node.Knowledge{}, usageErrorf("--peer-order asks trackers for what --path-knowledge off declines; give one of them")
		}
		return node.Knowledge{}, nil
	default:
		return node.Knowledge{}, usageErrorf("--path-knowledge %q: want share, use or off", how)
	}
}
