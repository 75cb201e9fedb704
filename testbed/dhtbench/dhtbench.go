// Package dhtbench measures the DHT in simulations, and draws what it found by the number of nodes.
package dhtbench

import (
	"context"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"braid/dht"
	"braid/dht/sim"
	"braid/testbed/bench"
	"braid/testbed/figure"
)

// Case is a kind of network.
type Case struct {
	Name, About string
	change      func(*sim.Config)
}

// Cases are the kinds of networks that are simulated.
var Cases = []Case{
	{"calm", "nodes stay, and all are honest", func(*sim.Config) {}},
	{"churn", "a fifth of the nodes is replaced each minute", func(c *sim.Config) { c.Churn = 0.2 }},
	{"attack", "one AS has half of all nodes, with IDs of its choice next to the torrents", attack},
	{"unlimited", "the same attack on nodes without limits by AS and without disjoint branches", func(c *sim.Config) {
		attack(c)
		c.Limits = dht.Limits{Branches: 1}
	}},
}

// attack is worse than what nodes allow: the attackers' IDs need not follow from their addresses.
func attack(c *sim.Config) { c.Attackers, c.Limits.Bound = 0.5, false }

// Row is a measurement.
type Row struct {
	Case string `json:"case"`
	sim.Result
	Seconds float64 `json:"seconds"` // of the simulation's own time
}

// maxMemory is what the largest networks may take, in bytes.
const maxMemory = 5 << 30

// Measure simulates a network of that size, of about 30 kB for each node. Networks above 20 000
// nodes live for three minutes instead of seven, to bound the time that it takes.
func Measure(ctx context.Context, c Case, nodes int, seed uint64) (Row, error) {
	cfg := sim.Default(nodes)
	cfg.Seed = seed
	c.change(&cfg)
	if cfg.Churn > 0 {
		cfg.Keeping = 4 * time.Minute
	}
	if nodes > 20_000 {
		cfg.Joining, cfg.Settling, cfg.Keeping, cfg.Searching = time.Minute, time.Minute, 30*time.Second, 30*time.Second
	}
	// Almost all memory lives as long as the run. Without a limit, half of it would be garbage.
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(maxMemory))
	began := time.Now()
	r, err := sim.Run(ctx, cfg)
	return Row{c.Name, r, time.Since(began).Seconds()}, err
}

// A panel is one value by size.
type panel struct {
	title string
	top   float64 // of the scale; 0: that of the values
	of    func(Row) float64
}

var panels = []panel{
	{"hops of a search (mean)", 0, func(r Row) float64 { return r.HopsMean }},
	{"searches that found the peer, %", 100, func(r Row) float64 { return 100 * r.Found }},
	{"time to the peer, p95 s", 0, func(r Row) float64 { return r.P95 }},
	{"load of a node, B/s", 0, func(r Row) float64 { return r.LoadMean }},
}

const (
	panelWidth, panelHeight = 230.0, 150.0
	left, above, between    = 44.0, 40.0, 56.0
	labelWidth              = 48.0 // room for 100000
)

// Draw draws the measurements: one panel for each value, one line for each case.
func Draw(rows []Row) figure.Figure {
	f := figure.Figure{
		Name: "dht-by-size", Title: "The DHT by size",
		Text: "Hops, success, time and load of searches by the number of nodes, " +
			"in simulations with round trips of 100 ms.",
		W: left + 2*panelWidth + between + 100, H: above + 2*(panelHeight+between) + 10,
	}
	f.Data.Head = []string{
		"case", "nodes", "found", "hops mean", "hops p95", "p50 s", "p95 s", "queries",
		"B/s mean", "B/s p99", "table",
	}
	for _, r := range rows {
		f.Data.Plot(r.Case, float64(r.Nodes), r.Found, r.HopsMean, r.HopsP95, r.P50, r.P95, r.Queries,
			r.LoadMean, r.LoadP99, r.Table)
	}
	for i, p := range panels {
		x := left + float64(i%2)*(panelWidth+between)
		y := above + float64(i/2)*(panelHeight+between)
		f.Add(p.draw(x, y, rows)...)
	}
	for i, name := range casesOf(rows) {
		ink, dash := figure.SeriesInk(i)
		x, y := left+2*panelWidth+between+14, above+20*float64(i)+10
		f.Add(figure.Segment(x, y, x+18, y, ink).Wide(2).Dashed(dash...),
			figure.Words(x+24, y+4, name, figure.Text, figure.Start))
	}
	return f
}

// casesOf lists the cases in the order of their first rows.
func casesOf(rows []Row) (names []string) {
	for _, r := range rows {
		if !slices.Contains(names, r.Case) {
			names = append(names, r.Case)
		}
	}
	return names
}

// draw draws the panel with its upper left corner at a place. Sizes have a logarithmic scale.
func (p panel) draw(x, y float64, rows []Row) []figure.Mark {
	lo, hi, top := math.Inf(1), 0.0, p.top
	for _, r := range rows {
		lo, hi = min(lo, math.Log10(float64(r.Nodes))), max(hi, math.Log10(float64(r.Nodes)))
		if p.top == 0 {
			top = max(top, p.of(r))
		}
	}
	if hi <= lo {
		hi = lo + 1
	}
	frame := figure.Frame{
		X: figure.Scale{Min: lo, Max: hi, From: x, To: x + panelWidth},
		Y: figure.Scale{Min: 0, Max: figure.RoundUp(max(top, 0.1), 4), From: y + panelHeight, To: y},
	}
	marks := append(frame.AxisY(4), figure.Words(x, y-10, p.title, figure.Text, figure.Start))
	marks = append(marks, figure.Segment(x, y+panelHeight, x+panelWidth, y+panelHeight, figure.Muted))
	last := math.Inf(-1) // label
	for _, n := range bench.Figures(rows, func(r Row) float64 { return float64(r.Nodes) }) {
		if at := frame.X.At(math.Log10(n)); at > last+labelWidth {
			last = at
			size := strconv.FormatFloat(n, 'f', 0, 64)
			label := figure.Words(at, y+panelHeight+16, size, figure.Muted, figure.Middle)
			marks = append(marks, label)
		}
	}
	for i, name := range casesOf(rows) {
		ink, dash := figure.SeriesInk(i)
		line := figure.Mark{Shape: figure.Line, Ink: ink, Dash: dash, Width: 2}
		for _, r := range rows {
			if r.Case == name {
				at := frame.Place(math.Log10(float64(r.Nodes)), p.of(r))
				line.Points = append(line.Points, at)
				tip := fmt.Sprintf("%s, %d nodes: %.3g", name, r.Nodes, p.of(r))
				marks = append(marks, figure.Disc(at.X, at.Y, 3, ink).WithTip(tip))
			}
		}
		marks = append(marks, line)
	}
	return marks
}
