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

// reportsOf is what a transfer has measured of each path, those that carried most first. Connections that the peer has made
// are left out: it reports them. Several connections over one path, to one peer or several, are one path.
func reportsOf(p client.Progress, now time.Time) []wire.PathReport {
	type measured struct {
		report  wire.PathReport
		flowing float64 // of those that carry now, bytes per second
		once    float64 // the most that one of the others had
		seen    time.Time
		read    uint64
	}
	byPath := map[pathsel.Fingerprint]*measured{}
	for _, x := range p.Paths {
		seen := x.CarriedUntil
		if x.LastRead.After(seen) {
			seen = x.LastRead
		}
		switch n := len(x.Path.Interfaces); {
		case x.Accepted, x.MinRTT <= 0, seen.IsZero():
			continue // not ours, or nothing was measured
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
		if x.State.Carries() {
			m.flowing += x.Carried.Rate
		} else {
			m.once = max(m.once, x.Carried.Rate)
		}
		if seen.After(m.seen) {
			m.seen = seen
		}
		m.read += x.BytesRead
	}
	var out []wire.PathReport
	for _, m := range slices.SortedFunc(maps.Values(byPath), func(a, b *measured) int { return cmp.Compare(b.read, a.read) }) {
		m.report.Rate = int64(max(m.flowing, m.once))
		m.report.Age = max(0, now.Sub(m.seen))
		out = append(out, m.report)
	}
	return out[:min(len(out), wire.MaxReports)]
}
