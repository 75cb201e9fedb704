package gateway

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"braid/client"
	"braid/node/event"
	"braid/pathsel"
)

// traffic counts the bytes of a gateway on the connections of one kind of network.
type traffic struct{ received, sent uint64 }

// tally adds the bytes that the connections of a torrent have carried since the last look to scion
// and ip. It returns the counters of this look, for the next call. The sum of the counters would
// not do: it shrinks when a transfer forgets a peer.
func tally(
	last map[pathsel.Key]traffic, paths []client.PathProgress, scion, ip *traffic,
) map[pathsel.Key]traffic {
	next := make(map[pathsel.Key]traffic, len(paths))
	for _, p := range paths {
		side := ip
		if p.Transport == "scion" || p.Path.Src != 0 {
			side = scion
		}
		key := pathsel.Key{Peer: pathsel.PeerID(p.Peer), Path: p.Path.Fingerprint}
		is, was := traffic{p.BytesRead, p.BytesWritten}, last[key]
		if is.received < was.received || is.sent < was.sent {
			was = traffic{} // the peer was forgotten, and has come back
		}
		side.received += is.received - was.received
		side.sent += is.sent - was.sent
		next[key] = is
	}
	return next
}

// count adds the bytes that a torrent has carried since the last look. The caller holds the lock.
func (g *Gateway) count(t *torrent, p client.Progress) {
	t.carried = tally(t.carried, p.Paths, &g.scion, &g.ip)
	t.complete = p.Phase == client.Complete
}

// Figures are the gateway's counters since its start.
func (g *Gateway) Figures() event.Gateway {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := event.Gateway{
		Event: "gateway", Allowed: len(g.torrents), Hits: g.hits, Misses: g.misses,
		FromSCION: g.scion.received, ToSCION: g.scion.sent, FromIP: g.ip.received, ToIP: g.ip.sent,
	}
	if asked := g.hits + g.misses; asked > 0 {
		e.HitRate = float64(g.hits) / float64(asked)
	}
	for _, t := range g.torrents {
		if t.state == here {
			e.Joined++
		}
		if t.kept || t.state != away {
			e.Cached += t.Source.Layout.Length
		}
	}
	for _, f := range g.fellows {
		if f.alive(time.Now()) {
			e.Fellows++
		}
	}
	return e
}

// Collector has the figures for Prometheus.
func (g *Gateway) Collector() prometheus.Collector {
	figure := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("braid_gateway_"+name, help, labels, nil)
	}
	received := figure("received_bytes_total",
		"Bytes read on connections with peers, by network.", "network")
	sent := figure("sent_bytes_total",
		"Bytes written on connections with peers, by network.", "network")
	asked := figure("requests_total",
		"Announces of clients: hit if all of the torrent was in the cache.", "result")
	torrents := figure("torrents", "Torrents that the gateway may join, and has joined.", "state")
	cached := figure("cache_bytes", "Size of the torrents in the cache.")
	fellows := figure("fellows", "Other gateways that answer.")
	return prometheus.CollectorFunc(func(out chan<- prometheus.Metric) {
		e := g.Figures()
		put := func(d *prometheus.Desc, kind prometheus.ValueType, v uint64, labels ...string) {
			out <- prometheus.MustNewConstMetric(d, kind, float64(v), labels...)
		}
		put(received, prometheus.CounterValue, e.FromSCION, "scion")
		put(received, prometheus.CounterValue, e.FromIP, "ip")
		put(sent, prometheus.CounterValue, e.ToSCION, "scion")
		put(sent, prometheus.CounterValue, e.ToIP, "ip")
		put(asked, prometheus.CounterValue, e.Hits, "hit")
		put(asked, prometheus.CounterValue, e.Misses, "miss")
		put(torrents, prometheus.GaugeValue, uint64(e.Allowed), "allowed")
		put(torrents, prometheus.GaugeValue, uint64(e.Joined), "joined")
		put(cached, prometheus.GaugeValue, uint64(e.Cached))
		put(fellows, prometheus.GaugeValue, uint64(e.Fellows))
	})
}
