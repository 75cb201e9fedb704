package server

import (
	"context"
	_ "embed"
	"encoding/json"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"braid/tracker/swarm"
)

// metrics are the tracker's counters, in a registry of its own.
type metrics struct {
	announces, scrapes, refusals *prometheus.CounterVec
	unlisted                     prometheus.Counter
	handler                      http.Handler
	// of are the counters of each transport: to find them by its name takes longer than to count.
	of [len(transportNames)]transportCounters
}

type transportCounters struct{ announces, scrapes, refusals prometheus.Counter }

func newMetrics(store swarm.Store, p *paths) *metrics {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "braid_tracker", Name: name, Help: help}, []string{"transport"})
	}
	m := &metrics{
		announces: counter("announces_total", "Announces that were understood."),
		scrapes:   counter("scrapes_total", "Scrapes that were understood."),
		refusals:  counter("refusals_total", "Requests that were answered with a failure."),
		unlisted: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "braid_tracker", Name: "unlisted_total", Help: "Announces of peers that a quota kept out.",
		}),
	}
	r := prometheus.NewRegistry()
	r.MustRegister(m.announces, m.scrapes, m.refusals, m.unlisted, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), &storeCollector{store}, p)
	for i, t := range transportNames {
		m.of[i] = transportCounters{m.announces.WithLabelValues(t), m.scrapes.WithLabelValues(t), m.refusals.WithLabelValues(t)}
	}
	m.handler = promhttp.HandlerFor(r, promhttp.HandlerOpts{})
	return m
}

// storeCollector counts the store's members when it is asked.
type storeCollector struct{ store swarm.Store }

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("braid_tracker_"+name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (c *storeCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c *storeCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	t, err := c.store.Totals(context.Background())
	up := 0
	if err == nil && well(c.store) {
		up = 1
	}
	gauge(describe("store_up", "Whether the store works: 1, or 0 with a problem."), up)
	if err != nil { // the rest is not known; the other metrics are
		return
	}
	gauge(describe("swarms", "Torrents with peers."), t.Swarms)
	gauge(describe("seeds", "Addresses of seeds."), t.Seeds)
	peers := describe("peers", "Addresses of peers.", "network")
	gauge(peers, t.IPv4, "ipv4")
	gauge(peers, t.IPv6, "ipv6")
	gauge(peers, t.SCION, "scion")
}

// healthy is implemented by stores that can be in trouble while they serve.
type healthy interface{ Healthy() error }

func well(store swarm.Store) bool {
	h, ok := store.(healthy)
	return !ok || h.Healthy() == nil
}

// operatorHandler answers those who run the tracker. It has a listener of its own, so that nobody else sees their pages: a
// proxy on this host that passes everything on to the tracker looks like a local user.
func (s *Server) operatorHandler() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { s.serveHealth(w) })
	m.HandleFunc("GET /stats", s.serveStats)
	m.Handle("GET /metrics", s.metrics.handler)
	return m
}

func (s *Server) serveHealth(w http.ResponseWriter) {
	if !well(s.store) {
		http.Error(w, "the store has a problem", http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

// Stats are what /stats shows.
type Stats struct {
	UptimeSeconds float64           `json:"uptime_seconds"`
	Totals        swarm.Totals      `json:"totals"`
	Announces     map[string]uint64 `json:"announces"` // by transport
	Scrapes       map[string]uint64 `json:"scrapes"`
	Refusals      map[string]uint64 `json:"refusals"`
	Unlisted      uint64            `json:"unlisted"`
	Paths         PathStats         `json:"path_knowledge"`
}

// Stats are of now.
func (s *Server) Stats(ctx context.Context) (Stats, error) {
	t, err := s.store.Totals(ctx)
	return Stats{
		UptimeSeconds: time.Since(s.began).Seconds(), Totals: t,
		Announces: values(s.metrics.announces), Scrapes: values(s.metrics.scrapes), Refusals: values(s.metrics.refusals),
		Unlisted: value(s.metrics.unlisted), Paths: s.pathStats(),
	}, err
}

func value(c prometheus.Metric) uint64 {
	var m dto.Metric
	if c.Write(&m) != nil {
		return 0
	}
	return uint64(m.GetCounter().GetValue())
}

func values(v *prometheus.CounterVec) map[string]uint64 {
	out := map[string]uint64{}
	for _, t := range transportNames {
		out[t] = value(v.WithLabelValues(t))
	}
	return out
}

//go:embed stats.html
var statsPage string

// serveStats answers with JSON, and browsers with a page.
func (s *Server) serveStats(w http.ResponseWriter, r *http.Request) {
	st, err := s.Stats(r.Context())
	if err != nil {
		s.log.Error("the store could not be counted", "error", err)
		http.Error(w, "the store has a problem", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		page, err := template.New("stats").Parse(statsPage)
		if err != nil {
			panic(err) // ours
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		if err := page.Execute(w, st); err != nil {
			s.log.Debug("the page was not sent", "error", err)
		}
		return
	}
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(st) // as above
}
