package main

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/pathsel"
	"braid/tracker/announce"
	"braid/tracker/wire"
)

func peerOrderFlag() cli.Flag {
	return &cli.StringFlag{Name: "peer-order", Value: "mixed", Usage: "ask trackers on SCION for peers in `ORDER`: random, nearest, or mixed (half of each)"}
}

func pathKnowledgeFlag() cli.Flag {
	return &cli.StringFlag{Name: "path-knowledge", Value: "share", Usage: "`HOW` trackers on SCION help to choose paths: share (try first what they name, and tell them what was measured of paths), use (tell them nothing), or off"}
}

// pathKnowledge is what the user lets trackers know, and say, about paths.
type pathKnowledge struct {
	order      wire.Order
	use, share bool
}

func parsePathKnowledge(cmd *cli.Command) (pathKnowledge, error) {
	order, err := wire.ParseOrder(cmd.String("peer-order"))
	if err != nil {
		return pathKnowledge{}, usageErrorf("--peer-order %q: want random, nearest or mixed", cmd.String("peer-order"))
	}
	switch how := cmd.String("path-knowledge"); how {
	case "share":
		return pathKnowledge{order, true, true}, nil
	case "use":
		return pathKnowledge{order, true, false}, nil
	case "off":
		if cmd.IsSet("peer-order") {
			return pathKnowledge{}, usageErrorf("--peer-order asks trackers for what --path-knowledge off declines; give one of them")
		}
		return pathKnowledge{}, nil
	default:
		return pathKnowledge{}, usageErrorf("--path-knowledge %q: want share, use or off", how)
	}
}

// apply sets up the announcer of a transfer.
func (k pathKnowledge) apply(cfg *announce.Config, t *client.Transfer) {
	cfg.Peers = k.order
	if k.use {
		cfg.Hinted = t.Hint
	}
	if k.share {
		cfg.Reports = func() []wire.PathReport { return reportsOf(t.Progress(), time.Now()) }
	}
}

// enough is how many bytes a connection must have carried for its figures to say something of the path.
const enough = 256 << 10

// overall is the mean rate in bytes per second of a connection that was never judged, because it was too slow for that before
// it had to leave. Without a figure it would be taken for unknown, and tried by everybody. 0 if too little came to tell.
func overall(x client.PathProgress) float64 {
	const long = 5 * time.Second
	took := x.LastRead.Sub(x.FirstRead)
	if x.Carried.Slots > 0 || x.BytesRead < enough || took < long {
		return 0
	}
	return float64(x.BytesRead) / took.Seconds()
}

// reportsOf is what a transfer has measured of each path, those that carried most first. Of connections that the peer has made
// it is how the packets fared that were sent to it, if these were many; what came over them the peer reports itself. Several
// connections over one path, to one peer or several, are one path.
func reportsOf(p client.Progress, now time.Time) []wire.PathReport {
	type measured struct {
		report  wire.PathReport
		flowing float64 // of those that carry now, bytes per second
		once    float64 // the most that one of the others had
		seen    time.Time
		carried uint64
	}
	byPath := map[pathsel.Fingerprint]*measured{}
	for _, x := range p.Paths {
		seen := x.CarriedUntil
		if x.LastRead.After(seen) {
			seen = x.LastRead
		}
		switch n := len(x.Path.Interfaces); {
		case x.Accepted && x.BytesWritten < enough, x.MinRTT <= 0, seen.IsZero():
			continue // nothing was measured, or too little
		case n == 0, n > wire.MaxInterfaces, x.MinRTT > wire.MaxReportRTT, now.Sub(seen) > wire.MaxReportAge:
			continue // no tracker would take it
		}
		m := byPath[x.Path.Fingerprint]
		if m == nil {
			m = &measured{report: wire.PathReport{Interfaces: x.Path.Interfaces, RTT: x.MinRTT}}
			byPath[x.Path.Fingerprint] = m
		}
		m.report.RTT = min(m.report.RTT, x.MinRTT)
		m.report.Sent += int64(x.PacketsSent)
		m.report.Lost += int64(min(x.PacketsLost, x.PacketsSent))
		switch {
		case x.Accepted:
			m.carried += x.BytesWritten
		case x.State.Carries() && x.Carried.Slots > 0:
			m.flowing += x.Carried.Rate
		default:
			m.once = max(m.once, x.Carried.Rate, overall(x))
		}
		if seen.After(m.seen) {
			m.seen = seen
		}
		m.carried += x.BytesRead
	}
	var out []wire.PathReport
	for _, m := range slices.SortedFunc(maps.Values(byPath), func(a, b *measured) int { return cmp.Compare(b.carried, a.carried) }) {
		m.report.Rate = int64(max(m.flowing, m.once))
		m.report.Age = max(0, now.Sub(m.seen))
		out = append(out, m.report)
	}
	return out[:min(len(out), wire.MaxReports)]
}
