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

	"braid/tracker/knowledge"
	"braid/tracker/swarm"
)

// metrics are the tracker's counters, in a registry of its own.
type metrics struct {
	// of are the counters of each transport. Looking one up by name takes longer than counting.
	of                            [len(transportNames)]transportCounters
	unlisted, reports, passedOver prometheus.Counter
	handler                       http.Handler
	registry                      *prometheus.Registry
}

// Register adds figures of the program around the tracker to /metrics. Call it before the first
// Serve.
func (s *Server) Register(c prometheus.Collector) error { return s.metrics.registry.Register(c) }

type transportCounters struct{ announces, scrapes, refusals prometheus.Counter }

func newMetrics(store swarm.Store, base *knowledge.Base) *metrics {
	r := prometheus.NewRegistry()
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "braid_tracker", Name: name, Help: help}
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(opts(name, help))
		r.MustRegister(c)
		return c
	}
	byTransport := func(name, help string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(opts(name, help), []string{"transport"})
		r.MustRegister(v)
		return v
	}
	announces := byTransport("announces_total", "Announces that were understood.")
	scrapes := byTransport("scrapes_total", "Scrapes that were understood.")
	refusals := byTransport("refusals_total", "Requests that were answered with a failure.")
	m := &metrics{
		unlisted: counter("unlisted_total", "Announces of peers that were not registered because of a quota."),
		reports:  counter("path_reports_total", "Path reports that were accepted."),
		passedOver: counter("path_reports_passed_over_total",
			"Path reports that were ignored: too frequent, or about other ASes."),
		registry: r,
		handler:  promhttp.HandlerFor(r, promhttp.HandlerOpts{}),
	}
	for i, t := range transportNames {
		m.of[i] = transportCounters{
			announces.WithLabelValues(t), scrapes.WithLabelValues(t), refusals.WithLabelValues(t),
		}
	}
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.CollectorFunc(func(ch chan<- prometheus.Metric) { collect(ch, store, base) }))
	return m
}

// collect counts the members of the store and the path knowledge.
func collect(ch chan<- prometheus.Metric, store swarm.Store, base *knowledge.Base) {
	gauge := func(name, help string, n int) {
		d := prometheus.NewDesc("braid_tracker_"+name, help, nil, nil)
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n))
	}
	k := base.Known()
	gauge("known_pairs", "Path knowledge: known pairs of ASes.", k.Pairs)
	gauge("known_paths", "Path knowledge: known paths.", k.Paths)
	gauge("known_links", "Path knowledge: known links.", k.Links)
	t, err := store.Totals(context.Background())
	up := 0
	if err == nil && healthy(store) {
		up = 1
	}
	gauge("store_up", "Whether the store works: 1, or 0 with a problem.", up)
	if err != nil { // the numbers of members are unknown
		return
	}
	gauge("swarms", "Torrents with peers.", t.Swarms)
	gauge("seeds", "Addresses of seeds.", t.Seeds)
	peers := prometheus.NewDesc("braid_tracker_peers", "Addresses of peers.", []string{"network"}, nil)
	for network, n := range map[string]int{"ipv4": t.IPv4, "ipv6": t.IPv6, "scion": t.SCION} {
		ch <- prometheus.MustNewConstMetric(peers, prometheus.GaugeValue, float64(n), network)
	}
}

// healthy reports whether the store works. Some stores can have a problem while they serve.
func healthy(store swarm.Store) bool {
	s, ok := store.(interface{ Healthy() error })
	return !ok || s.Healthy() == nil
}

// operatorHandler serves the pages for those who run the tracker. It needs a listener of its own,
// to keep the pages private: behind a proxy on this host every client of the tracker looks like a
// local user.
func (s *Server) operatorHandler() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { s.serveHealth(w) })
	m.HandleFunc("GET /stats", s.serveStats)
	m.Handle("GET /metrics", s.metrics.handler)
	return m
}

func (s *Server) serveHealth(w http.ResponseWriter) {
	if !healthy(s.store) {
		http.Error(w, "the store has a problem", http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

// Stats is the content of /stats.
type Stats struct {
	UptimeSeconds float64           `json:"uptime_seconds"`
	Totals        swarm.Totals      `json:"totals"`
	Announces     map[string]uint64 `json:"announces"` // by transport
	Scrapes       map[string]uint64 `json:"scrapes"`
	Refusals      map[string]uint64 `json:"refusals"`
	Unlisted      uint64            `json:"unlisted"`
	Paths         PathStats         `json:"path_knowledge"`
}

// PathStats is the part of Stats about path knowledge.
type PathStats struct {
	Enabled bool `json:"enabled"`
	knowledge.Sizes
	Reports    uint64 `json:"reports"`
	PassedOver uint64 `json:"passed_over"`
}

// Stats are the current numbers.
func (s *Server) Stats(ctx context.Context) (Stats, error) {
	t, err := s.store.Totals(ctx)
	m := s.metrics
	out := Stats{
		UptimeSeconds: time.Since(s.began).Seconds(), Totals: t,
		Announces: map[string]uint64{}, Scrapes: map[string]uint64{}, Refusals: map[string]uint64{},
		Unlisted: value(m.unlisted),
		Paths: PathStats{
			Enabled: s.admission.Load().cfg.Paths, Sizes: s.paths.base.Known(),
			Reports: value(m.reports), PassedOver: value(m.passedOver),
		},
	}
	for i, name := range transportNames {
		c := m.of[i]
		out.Announces[name], out.Scrapes[name] = value(c.announces), value(c.scrapes)
		out.Refusals[name] = value(c.refusals)
	}
	return out, err
}

func value(c prometheus.Metric) uint64 {
	var m dto.Metric
	if c.Write(&m) != nil {
		return 0
	}
	return uint64(m.GetCounter().GetValue())
}

//go:embed stats.html
var statsPage string

// serveStats answers with JSON, and browsers with a page.
func (s *Server) serveStats(w http.ResponseWriter, r *http.Request) {
	st, err := s.Stats(r.Context())
	if err != nil {
		s.log.Error("the store could not count its members", "error", err)
		http.Error(w, "the store has a problem", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		page := template.Must(template.New("stats").Parse(statsPage))
		if err := page.Execute(w, st); err != nil {
			s.log.Debug("the page of /stats was not sent", "error", err)
		}
		return
	}
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(st) // it fails only if the client has gone
}
