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

func figure(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("braid_"+name, help, labels, nil)
}

func pathFigure(name, help string) *prometheus.Desc {
	return figure("path_"+name, help, "torrent", "peer", "path")
}

var (
	torrentsFigure = figure("torrents", "Torrents by state.", "state")
	peersFigure    = figure("peers",
		"Peers with a connection that carries data; a peer counts for each torrent.")
	pathsFigure    = figure("paths", "Connections that carry data, by transport.", "transport")
	receivedFigure = figure("received_bytes_total",
		"Payload received, also by earlier daemons with the same state.")
	sentFigure = figure("sent_bytes_total",
		"Payload sent, also by earlier daemons with the same state.")

	torrentInfo     = figure("torrent_info", "A torrent and its name.", "torrent", "name")
	torrentSize     = figure("torrent_size_bytes", "Size of the wanted data.", "torrent")
	torrentHave     = figure("torrent_have_bytes", "Wanted data that is there.", "torrent")
	torrentReceived = figure("torrent_received_bytes_total",
		"Payload received for a torrent.", "torrent")
	torrentSent = figure("torrent_sent_bytes_total", "Payload sent for a torrent.", "torrent")

	pathReceived = pathFigure("received_bytes_total", "Bytes read over a path in use.")
	pathSent     = pathFigure("sent_bytes_total", "Bytes written over a path in use.")
	pathRTT      = pathFigure("rtt_seconds", "Round-trip time of a path in use.")
	pathPackets  = pathFigure("packets_sent_total", "Packets sent over a path in use.")
	pathLost     = pathFigure("packets_lost_total", "Packets lost on a path in use.")
)

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
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	stats := n.Stats()
	for _, state := range states {
		gauge(torrentsFigure, float64(stats.Torrents[state]), string(state))
	}
	gauge(peersFigure, float64(stats.Peers))
	totals := n.Totals()
	counter(receivedFigure, float64(totals.Fetched))
	counter(sentFigure, float64(totals.Sent))
	var all []shown
	for _, t := range n.Torrents() {
		all = append(all, shown{t.InfoHash(), t.Progress()})
	}
	slices.SortStableFunc(all, func(a, b shown) int { return cmp.Compare(b.rate(), a.rate()) })
	for _, t := range all[:min(len(all), maxTorrentSeries)] {
		p := t.progress
		gauge(torrentInfo, 1, t.hash, label(p.Name))
		gauge(torrentSize, float64(p.Total), t.hash)
		gauge(torrentHave, float64(p.Have), t.hash)
		counter(torrentReceived, float64(p.Fetched), t.hash)
		counter(torrentSent, float64(p.Sent), t.hash)
	}
	paths, open := pathsOf(all)
	for transport, count := range open {
		gauge(pathsFigure, float64(count), transport)
	}
	for _, p := range paths {
		p.collect(gauge, counter)
	}
}

func (p *pathFigures) collect(gauge, counter func(*prometheus.Desc, float64, ...string)) {
	counter(pathReceived, float64(p.read), p.labels[:]...)
	counter(pathSent, float64(p.written), p.labels[:]...)
	if p.rtt > 0 { // otherwise it is unknown
		gauge(pathRTT, p.rtt, p.labels[:]...)
	}
	counter(pathPackets, float64(p.packets), p.labels[:]...)
	counter(pathLost, float64(p.lost), p.labels[:]...)
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
