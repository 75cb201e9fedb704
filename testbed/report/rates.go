package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"braid/testbed/figure"
	"braid/testbed/scenario"
)

const width = 760.0 // of figures

// head draws what every figure has above: title, what of, and the mark of runs in which the machine was the limit. It
// returns where the drawing can begin.
func head(f *figure.Figure, title, of string, bound []string) float64 {
	f.Title, f.W = title, width
	t := figure.Words(0, 16, figure.Fit(title, 14, width), figure.Text, figure.Start)
	t.Bold, t.Size = true, 14
	f.Add(t, note(0, 33, figure.Fit(of, figure.Small, width), figure.Muted))
	if len(bound) == 0 {
		return 44
	}
	text := "CPU-bound, the machine was the limit: " + strings.Join(bound, "; ")
	f.Text = text + ". " + f.Text
	w := note(14, 50, figure.Fit(text, figure.Small, width-14), figure.Warn)
	w.Bold, w.Tip = true, text
	f.Add(figure.Box(0, 41, 9, 9, figure.Warn), w)
	return 60
}

func note(x, y float64, text string, ink figure.Ink) figure.Mark {
	m := figure.Words(x, y, text, ink, figure.Start)
	m.Size = figure.Small
	return m
}

// bands draws the scenario's doings over the plot, with their names above it in as few rows as there is room for.
func bands(f *figure.Figure, at figure.Frame, spans []span) {
	rowEnds := bandRows(at, spans)
	for i, s := range spans {
		if s.from > at.X.Max || s.to < at.X.Min {
			continue
		}
		x0, x1 := at.X.Clamp(s.from), at.X.Clamp(s.to)
		if s.moment() {
			l := figure.Segment(x0, at.Y.From, x0, at.Y.To, figure.Muted, 1)
			l.Dash, l.Tip = []float64{3, 3}, s.String()
			f.Add(l)
		} else if x1-x0 < .98*(at.X.To-at.X.From) { // what is always so needs no mark
			b := figure.Box(x0, at.Y.To, max(1, x1-x0), at.Y.From-at.Y.To, figure.Band)
			b.Tip = s.String()
			f.Add(b)
		}
		if row := rowEnds[i]; row >= 0 {
			f.Add(note(x0+2, at.Y.To-4-13*float64(row), s.text, figure.Muted))
		}
	}
}

const mostBandRows = 3

// bandRows gives the label of each span a row, from 0 up; -1 where there is no room.
func bandRows(at figure.Frame, spans []span) []int {
	rows := make([]int, len(spans))
	var ends []float64
	said := map[string]int{}
	for i, s := range spans {
		rows[i] = -1
		if s.from > at.X.Max || s.to < at.X.Min {
			continue
		}
		if said[s.text]++; said[s.text] > 3 {
			continue // what happens again and again is said thrice
		}
		x := at.X.Clamp(s.from) + 2
		end := x + figure.TextWidth(s.text, figure.Small, false) + 8
		r := slices.IndexFunc(ends, func(e float64) bool { return e <= x })
		if r < 0 && len(ends) < mostBandRows {
			r, ends = len(ends), append(ends, 0)
		}
		if r >= 0 && end < width {
			rows[i], ends[r] = r, end
		}
	}
	return rows
}

// bandHeight is what the names of the bands need above the plot.
func bandHeight(at figure.Frame, spans []span) float64 {
	return 13*float64(1+slices.Max(append(bandRows(at, spans), -1))) + 6
}

// line is a curve with a name at its right end.
type line struct {
	name, more string // more stands below the name, smaller
	ink        figure.Ink
	dash       []float64
	width      float64
	values     []figure.Point // in the units of the axes
	typical    float64        // a value of y: the name stands beside it
}

// follow gives the line values that follow each other by step.
func (l *line) follow(v []float64, from, to, step float64) {
	for i, r := range v {
		l.values = append(l.values, figure.Point{X: min(from+(float64(i)+.5)*step, to), Y: r})
	}
	// The name stands where the curve is for long, not where it ends.
	if late := slices.Sorted(slices.Values(v[len(v)/2:])); len(late) > 0 {
		l.typical = late[len(late)/2]
	}
}

const mostPaths = 8 // in a panel; the others are summed

// ratesFigure draws how fast each leecher got data over each of its paths.
func ratesFigure(c *course, res scenario.Result, spans []span, of string) figure.Figure {
	f := figure.Figure{Name: "rates", Data: figure.Data{Head: []string{"leecher", "curve", "s", "Mbit/s"}}}
	leechers := c.leechers()
	f.Text = ratesText(c, res)
	y := head(&f, "Rate of each path over time", of, res.CPUBound)
	from, end := startOf(c), max(c.end, startOf(c)+1e-3)
	step := max(0.5, (end-from)/120)
	top := highest(c, res, from, end, step)

	type panel struct {
		title string
		of    []*peer
	}
	var panels []panel
	if len(leechers) == 1 {
		panels = []panel{{"", leechers}}
	} else {
		panels = append(panels, panel{"all leechers", leechers})
		for _, l := range leechers {
			panels = append(panels, panel{l.name, []*peer{l}})
		}
	}
	const left, margin = 44.0, 168.0
	for i, p := range panels {
		height, columns := 210.0, 1
		if i > 0 {
			height = 92
			if len(leechers) > 4 {
				columns = 2
			}
		}
		k := max(0, i-1) // in the grid of single leechers
		w := width / float64(columns)
		x := w * float64(k%columns)
		right := x + w - margin
		if columns > 1 {
			right = x + w - 70
		}
		if i > 0 && k%columns == 0 {
			y += 6
		}
		high := top
		if i > 0 {
			high = highestOf(leechers, from, end, step)
		}
		ticks := 5
		if i > 0 {
			ticks = 3
		}
		at := figure.NewFrame(x+left, 0, right, 1, from, end, 0, figure.RoundUp(high, ticks))
		head := 14 + bandHeight(at, spans) // the axis has its title above the names of the bands
		if i > 0 {
			head = 8
		}
		at.Y.To, at.Y.From = y+head+10, y+head+10+height
		if i == 0 {
			bands(&f, at, spans)
			f.Add(figure.Words(0, y+16, "rate (Mbit/s)", figure.Muted, figure.Start))
		} else {
			bandsOnly(&f, at, spans)
			title := note(x+left+4, at.Y.To-6, figure.Fit(p.title, figure.Small, w-left-8), figure.Text)
			title.Bold = true
			f.Add(title)
		}
		f.Add(at.AxisY(ticks)...)
		f.Add(at.AxisX(6, map[bool]string{true: overTime}[i >= len(panels)-columns])...)
		var lines []line
		if i == 0 {
			lines = append(lines, limitLine(res, from, end)...)
			lines = append(lines, flowLines(c, from, end)...)
		}
		lines = append(lines, panelLines(p.of, from, end, step, i == 0)...)
		who := "all leechers"
		if len(p.of) == 1 {
			who = p.of[0].name
		}
		drawLines(&f, at, lines, columns == 1, who)
		if k%columns == columns-1 || i == len(panels)-1 || i == 0 {
			y = at.Y.From + 20
		}
	}
	f.H = y + 8 + figure.TitleHeight
	return f
}

// overTime is the title of axes of time.
const overTime = "time after the first payload byte (s)"

// bandsOnly marks times without saying of what.
func bandsOnly(f *figure.Figure, at figure.Frame, spans []span) {
	for _, s := range spans {
		if x0, x1 := at.X.Clamp(s.from), at.X.Clamp(s.to); !s.moment() && x1 > x0 && x1-x0 < .98*(at.X.To-at.X.From) {
			b := figure.Box(x0, at.Y.To, x1-x0, at.Y.From-at.Y.To, figure.Band)
			b.Tip = s.String()
			f.Add(b)
		}
	}
}

func startOf(c *course) float64 {
	from := 0.0
	for _, p := range c.leechers() {
		if len(p.payload.t) > 0 {
			from = min(from, p.payload.t[0])
		}
	}
	return from
}

func payloads(peers []*peer) (all []*series) {
	for _, p := range peers {
		all = append(all, &p.payload)
	}
	return all
}

func sumOf(all []*series, from, end, step float64) []float64 {
	var sum []float64
	for _, s := range all {
		for i, v := range s.rates(from, end, step) {
			if i == len(sum) {
				sum = append(sum, 0)
			}
			sum[i] += v
		}
	}
	return sum
}

func highest(c *course, res scenario.Result, from, end, step float64) (top float64) {
	for _, v := range sumOf(payloads(c.leechers()), from, end, step) {
		top = max(top, v)
	}
	for _, s := range res.Limit {
		top = max(top, s.MbitS)
	}
	for _, s := range c.flows {
		for _, v := range s.rates(from, end, max(1, step)) {
			top = max(top, v)
		}
	}
	return top
}

func highestOf(peers []*peer, from, end, step float64) (top float64) {
	for _, p := range peers {
		for _, v := range p.payload.rates(from, end, step) {
			top = max(top, v)
		}
		for _, q := range p.paths {
			for _, v := range q.read.rates(from, end, step) {
				top = max(top, v)
			}
		}
	}
	return top
}

// panelLines are the paths of a leecher and the sum of its payload; of several leechers only the sum of all.
func panelLines(peers []*peer, from, end, step float64, large bool) (lines []line) {
	if len(peers) == 1 {
		p := peers[0]
		for i, q := range p.paths[:min(len(p.paths), mostPaths)] {
			ink, dash := figure.SeriesInk(i)
			l := line{name: q.name, more: q.via, ink: ink, dash: dash, width: 1.5}
			l.follow(q.read.rates(from, end, step), from, end, step)
			lines = append(lines, l)
		}
		if rest := p.paths[min(len(p.paths), mostPaths):]; len(rest) > 0 {
			var all []*series
			for _, q := range rest {
				all = append(all, &q.read)
			}
			l := line{name: fmt.Sprintf("%d more", len(rest)), ink: figure.Muted, width: 1.5}
			l.follow(sumOf(all, from, end, step), from, end, step)
			l.typical = 0 // most of them are there
			lines = append(lines, l)
		}
	}
	if large || len(lines) != 1 {
		l := line{name: "payload", more: "over all paths", ink: figure.Text, width: 2.25}
		if len(peers) > 1 {
			l.more = fmt.Sprintf("of %d leechers", len(peers))
		}
		l.follow(sumOf(payloads(peers), from, end, step), from, end, step)
		lines = append(lines, l)
	}
	return lines
}

func limitLine(res scenario.Result, from, end float64) []line {
	if len(res.Limit) == 0 {
		return nil
	}
	l := line{name: "limit", ink: figure.Limit, dash: []float64{5, 3}, width: 1.5}
	for i, s := range res.Limit {
		to := end
		if i+1 < len(res.Limit) {
			to = min(end, res.Limit[i+1].T)
		}
		l.values = append(l.values, figure.Point{X: max(s.T, from), Y: s.MbitS}, figure.Point{X: max(to, from), Y: s.MbitS})
		if s.T < end {
			l.typical = s.MbitS
		}
	}
	l.more = fmt.Sprintf("of payload, %.1f", l.typical)
	return []line{l}
}

func flowLines(c *course, from, end float64) (lines []line) {
	step := max(1, (end-from)/120) // flows are sampled twice a second
	for _, s := range c.flows {
		l := line{name: s.name, more: "competing traffic", ink: figure.Muted, dash: []float64{2, 2}, width: 1.5}
		l.follow(s.rates(from, end, step), from, end, step)
		lines = append(lines, l)
	}
	return lines
}

// drawLines draws curves, and their names where they do not stand on each other. Each point is also a row of the figure's
// data, after the names given.
func drawLines(f *figure.Figure, at figure.Frame, lines []line, more bool, names ...any) {
	gap := 13.0
	if more {
		gap = 27
	}
	var wishes []float64
	for _, l := range lines {
		wishes = append(wishes, at.Y.At(l.typical))
	}
	bottom := at.Y.From + 4
	if more {
		bottom -= 13
	}
	places := figure.Spread(wishes, gap, at.Y.To, bottom)
	for i, l := range lines {
		if len(l.values) > 0 {
			m := figure.Mark{Shape: figure.Line, Ink: l.ink, Width: l.width, Dash: l.dash}
			for _, v := range l.values {
				m.Points = append(m.Points, at.Place(v.X, v.Y))
				f.Data.Plot(append(slices.Clone(names), l.name, v.X, v.Y)...)
			}
			m.Tip = strings.TrimSpace(l.name + " " + l.more)
			f.Add(m)
		}
		x := at.X.To + 10
		if abs(places[i]-wishes[i]) > 4 {
			f.Add(figure.Segment(at.X.To+1, min(max(wishes[i], at.Y.To), at.Y.From), x-2, places[i], l.ink, .75))
		}
		name := figure.Words(x, places[i]+4, l.name, l.ink, figure.Start)
		name.Bold = true
		f.Add(name)
		if more && l.more != "" {
			f.Add(note(x, places[i]+17, figure.Fit(l.more, figure.Small, width-x), figure.Muted))
		}
	}
}

func abs(v float64) float64 { return math.Abs(v) }

// ratesText says what the figure shows, for who does not see it.
func ratesText(c *course, res scenario.Result) string {
	var s []string
	for _, p := range c.leechers() {
		var parts []string
		for _, q := range p.paths {
			parts = append(parts, fmt.Sprintf("%s (%s) %.1f MB", q.name, q.via, q.read.at(c.end)/1e6))
		}
		s = append(s, fmt.Sprintf("%s got %.1f MB of payload by %.1f s: %s", p.name, p.payload.at(c.end)/1e6, c.end, strings.Join(parts, ", ")))
	}
	if e, ok := res.Figures["e"]; ok {
		s = append(s, fmt.Sprintf("Together %.1f %% of what the links could carry", 100*e))
	}
	return strings.Join(s, ". ") + "."
}
