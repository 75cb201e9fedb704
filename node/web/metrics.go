package web

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"braid/client"
	"braid/node"
	"braid/pathsel"
	"braid/units/lists"
)

// Strangers choose names, peers and paths. These limits bound the memory that they can take on a
// Prometheus server. The torrents and paths with the highest rates are shown.
const (
	maxTorrentSeries = 1000
	maxPathSeries    = 500
	maxNameLabel     = 100 // bytes
)

// metrics answers with the figures of a node, in Prometheus' text format. Each request collects
// them anew.
func metrics(n *node.Node) http.Handler {
	r := prometheus.NewRegistry()
	process := collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})
	figures := prometheus.CollectorFunc(func(out chan<- prometheus.Metric) { collect(n, out) })
	r.MustRegister(figures, collectors.NewGoCollector(), process)
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// put writes a figure. labels are names and values in turn.
type put func(name, help string, value float64, labels ...string)

// writing returns the put of one kind of figure.
func writing(out chan<- prometheus.Metric, kind prometheus.ValueType) put {
	return func(name, help string, value float64, labels ...string) {
		var names, values []string
		for pair := range slices.Chunk(labels, 2) {
			names, values = append(names, pair[0]), append(values, pair[1])
		}
		what := prometheus.NewDesc("braid_"+name, help, names, nil)
		out <- prometheus.MustNewConstMetric(what, kind, value, values...)
	}
}

// states are the states that are always shown, so that a sum or an alert has a value.
var states = []node.State{
	node.Queued, node.Starting, node.Running, node.Paused, node.Served, node.Failed, node.Moving,
}

// shown is a torrent as it is when the figures are collected.
type shown struct {
	hash     string
	progress client.Progress
}

func (s shown) rate() float64 { return s.progress.ReadRate + s.progress.WriteRate }

// collect looks at all torrents.
func collect(n *node.Node, out chan<- prometheus.Metric) {
	gauge, counter := writing(out, prometheus.GaugeValue), writing(out, prometheus.CounterValue)
	stats := n.Stats()
	for _, state := range states {
		gauge("torrents", "Torrents by state.",
			float64(stats.Torrents[state]), "state", string(state))
	}
	gauge("peers", "Peers with a connection that carries data; a peer counts for each torrent.",
		float64(stats.Peers))
	counter("received_bytes_total",
		"Payload received, also by earlier daemons with the same state.",
		float64(stats.Ever.Fetched))
	counter("sent_bytes_total",
		"Payload sent, also by earlier daemons with the same state.", float64(stats.Ever.Sent))
	all := lists.Map(n.Torrents(), func(t *node.Torrent) shown {
		return shown{t.InfoHash(), t.Progress()}
	})
	slices.SortStableFunc(all, func(a, b shown) int { return cmp.Compare(b.rate(), a.rate()) })
	for _, t := range all[:min(len(all), maxTorrentSeries)] {
		p, of := t.progress, []string{"torrent", t.hash}
		gauge("torrent_info", "A torrent and its name.", 1, append(of, "name", label(p.Name))...)
		gauge("torrent_size_bytes", "Size of the wanted data.", float64(p.Total), of...)
		gauge("torrent_have_bytes", "Wanted data that is there.", float64(p.Have), of...)
		counter("torrent_received_bytes_total",
			"Payload received for a torrent.", float64(p.Fetched), of...)
		counter("torrent_sent_bytes_total", "Payload sent for a torrent.", float64(p.Sent), of...)
	}
	paths, open := pathsOf(all)
	for transport, count := range open {
		gauge("paths", "Connections that carry data, by transport.",
			float64(count), "transport", transport)
	}
	for _, p := range paths {
		p.collect(gauge, counter)
	}
}

func (p *pathFigures) collect(gauge, counter put) {
	of := []string{"torrent", p.labels[0], "peer", p.labels[1], "path", p.labels[2]}
	counter("path_received_bytes_total", "Bytes read over a path in use.", float64(p.read), of...)
	counter("path_sent_bytes_total", "Bytes written over a path in use.", float64(p.written), of...)
	if p.rtt > 0 { // otherwise it is unknown
		gauge("path_rtt_seconds", "Round-trip time of a path in use.", p.rtt, of...)
	}
	counter("path_packets_sent_total",
		"Packets sent over a path in use.", float64(p.packets), of...)
	counter("path_packets_lost_total", "Packets lost on a path in use.", float64(p.lost), of...)
}

// pathFigures are the sums over the connections between us and a peer over one path.
type pathFigures struct {
	labels                       [3]string // torrent, peer, path
	read, written, packets, lost uint64
	rtt, rate                    float64
}

// pathsOf returns the paths in use with the highest rates, and counts the connections by transport.
func pathsOf(all []shown) (paths []*pathFigures, open map[string]int) {
	byLabels, open := map[[3]string]*pathFigures{}, map[string]int{}
	for _, t := range all {
		for _, x := range t.progress.Paths {
			if x.State != pathsel.Active && x.State != pathsel.Probing {
				continue
			}
			open[x.Transport]++
			path := "ip"
			if x.Path.Src != 0 {
				path = x.Path.Fingerprint.Short()
			}
			key := [3]string{t.hash, label(x.Peer), path}
			p := byLabels[key]
			if p == nil {
				p = &pathFigures{labels: key}
				byLabels[key] = p
				paths = append(paths, p)
			}
			p.read, p.written = p.read+x.BytesRead, p.written+x.BytesWritten
			p.packets, p.lost = p.packets+x.PacketsSent, p.lost+x.PacketsLost
			p.rtt, p.rate = max(p.rtt, x.RTT.Seconds()), p.rate+x.ReadRate+x.WriteRate
		}
	}
	slices.SortStableFunc(paths, func(a, b *pathFigures) int { return cmp.Compare(b.rate, a.rate) })
	return paths[:min(len(paths), maxPathSeries)], open
}

// label makes the value of a label of a stranger's text.
func label(s string) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) > maxNameLabel {
		s = strings.ToValidUTF8(s[:maxNameLabel], "") + "…"
	}
	return s
}
