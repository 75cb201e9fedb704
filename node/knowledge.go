package node

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"braid/client"
	"braid/pathsel"
	"braid/tracker/announce"
	"braid/tracker/wire"
)

// Knowledge says how a node exchanges path knowledge with trackers on SCION.
type Knowledge struct {
	Peers wire.Order // how trackers choose peers for us
	Use   bool       // try the paths first that trackers recommend
	Share bool       // send measurements of paths to trackers
}

// apply configures the announcer of a torrent.
func (k Knowledge) apply(cfg *announce.Config, s Swarm) {
	cfg.Peers = k.Peers
	if k.Use {
		cfg.Hinted = s.Hint
	}
	if k.Share {
		cfg.Reports = func() []wire.PathReport { return reportsOf(s.Progress(), time.Now()) }
	}
}

// enoughBytes is how much a connection must have carried before its measurements say something
// about the path.
const enoughBytes = 256 << 10

// meanRate is the mean rate in bytes per second of a connection that ended before the selector
// judged it. Such connections were slow; without a figure, every peer would try their paths again.
// It is 0 if too little data came.
func meanRate(x client.PathProgress) float64 {
	const long = 5 * time.Second
	lasted := x.LastRead.Sub(x.FirstRead)
	if x.Carried.Slots > 0 || x.BytesRead < enoughBytes || lasted < long {
		return 0
	}
	return float64(x.BytesRead) / lasted.Seconds()
}

// reportsOf returns a transfer's measurements of each path. Paths that carried most data come
// first.
//
// Several connections over one path count as one path. For an accepted connection, it reports only
// round trips and losses of our packets, and only if there were many packets: the peer reports the
// rate of what we have sent.
func reportsOf(p client.Progress, now time.Time) []wire.PathReport {
	type measured struct {
		report  wire.PathReport
		flowing float64 // bytes per second, of all connections that carry data now
		best    float64 // bytes per second, of the best of the others
		seen    time.Time
		carried uint64
	}
	byPath := map[pathsel.Fingerprint]*measured{}
	for _, x := range p.Paths {
		seen := later(x.CarriedUntil, x.LastRead)
		switch n := len(x.Path.Interfaces); {
		case x.Accepted && x.BytesWritten < enoughBytes, x.MinRTT <= 0, seen.IsZero():
			continue // too little was measured
		case n == 0, n > wire.MaxInterfaces,
			x.MinRTT > wire.MaxReportRTT, now.Sub(seen) > wire.MaxReportAge:
			continue // no tracker accepts it
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
			m.best = max(m.best, x.Carried.Rate, meanRate(x))
		}
		m.seen = later(m.seen, seen)
		m.carried += x.BytesRead
	}
	most := func(a, b *measured) int { return cmp.Compare(b.carried, a.carried) }
	var out []wire.PathReport
	for _, m := range slices.SortedFunc(maps.Values(byPath), most) {
		m.report.Rate = int64(max(m.flowing, m.best))
		m.report.Age = max(0, now.Sub(m.seen))
		out = append(out, m.report)
	}
	return out[:min(len(out), wire.MaxReports)]
}
