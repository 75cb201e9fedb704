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

// begin begins a figure: its title, a caption, and a warning if the machine was the limit. The
// warning is also the first sentence of the figure's text. y is where the drawing can begin.
func begin(name, title, of string, bound []string, columns ...string) (f figure.Figure, y float64) {
	f = figure.Figure{Name: name, Title: title, W: width, Data: figure.Data{Head: columns}}
	t := figure.Words(0, 16, figure.Fit(title, 14, width), figure.Text, figure.Start)
	f.Add(t.Sized(14).InBold(), note(0, 33, figure.Fit(of, figure.Small, width), figure.Muted))
	if len(bound) == 0 {
		return f, 44
	}
	text := "CPU-bound, the machine was the limit: " + strings.Join(bound, "; ")
	f.Text = text + ". "
	w := note(14, 50, figure.Fit(text, figure.Small, width-14), figure.Warn)
	f.Add(figure.Box(0, 41, 9, 9, figure.Warn), w.InBold().WithTip(text))
	return f, 60
}

func note(x, y float64, text string, ink figure.Ink) figure.Mark {
	return figure.Words(x, y, text, ink, figure.Start).Sized(figure.Small)
}

// bands marks the times in which something was different. With names, it also marks moments, and
// writes the names above the plot in as few rows as possible.
func bands(f *figure.Figure, at figure.Frame, spans []span, named bool) {
	rows := bandRows(at, spans)
	for i, s := range spans {
		if s.from > at.X.Max || s.to < at.X.Min {
			continue
		}
		x0, x1 := at.X.Clamp(s.from), at.X.Clamp(s.to)
		switch {
		case s.moment() && named:
			f.Add(figure.Segment(x0, at.Y.From, x0, at.Y.To, figure.Muted).Dashed(3, 3).WithTip(s.String()))
		case !s.moment() && x1-x0 < .98*(at.X.To-at.X.From): // what is always so needs no mark
			b := figure.Box(x0, at.Y.To, max(1, x1-x0), at.Y.From-at.Y.To, figure.Band)
			f.Add(b.WithTip(s.String()))
		}
		if row := rows[i]; row >= 0 && named {
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
			continue // events that repeat are named three times
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

// bandHeight returns the height of the bands' names above the plot.
func bandHeight(at figure.Frame, spans []span) float64 {
	return 13*float64(1+slices.Max(append(bandRows(at, spans), -1))) + 6
}

// line is a curve with a name at its right end.
type line struct {
	name, more string // more stands below the name in small letters
	ink        figure.Ink
	dash       []float64
	width      float64
	values     []figure.Point // in the units of the axes
	typical    float64        // the name stands beside this value of y
}

// follow adds values at regular steps.
func (l *line) follow(v []float64, from, to, step float64) {
	for i, r := range v {
		l.values = append(l.values, figure.Point{X: min(from+(float64(i)+.5)*step, to), Y: r})
	}
	// The name stands beside the median of the second half.
	if late := slices.Sorted(slices.Values(v[len(v)/2:])); len(late) > 0 {
		l.typical = late[len(late)/2]
	}
}

const mostPaths = 8 // in a panel; the others are summed

// ratesFigure draws how fast each leecher got data over each of its paths: a large panel of all
// leechers, and a small one of each if there are several.
func (c *course) ratesFigure() figure.Figure {
	f, y := begin("rates", "Rate of each path over time", c.of, c.result.CPUBound,
		"leecher", "curve", "s", "Mbit/s")
	f.Text += c.ratesText()
	width, columns := width, 1
	step := c.step()
	top := c.panel(&f, panel{of: c.leechers, large: true, right: width - 168, y: y, high: c.highest()})
	y = top
	if len(c.leechers) > 4 {
		columns, width = 2, width/2
	}
	var high float64
	for _, l := range c.leechers {
		high = max(high, slices.Max(append(l.Payload.Rates(c.from(), c.to(), step), 0)))
		for _, q := range l.paths {
			high = max(high, slices.Max(append(q.Read.Rates(c.from(), c.to(), step), 0)))
		}
	}
	for i, l := range c.leechers {
		if len(c.leechers) == 1 {
			break
		}
		if i%columns == 0 {
			y = top + 6
		}
		x := width * float64(i%columns)
		p := panel{
			of: []*leecher{l}, left: x, right: x + width - 168, y: y, high: high,
			last: i >= len(c.leechers)-columns,
		}
		if columns > 1 {
			p.right = x + width - 70
		}
		top = c.panel(&f, p)
	}
	f.H = top + 8 + figure.TitleHeight
	return f
}

// panel is a plot of rates.
type panel struct {
	of             []*leecher
	large, last    bool    // it has a title, an axis title
	left, right, y float64 // of the plot, its labels included
	high           float64 // the highest rate
}

// panel draws a plot, and returns where the next one can begin.
func (c *course) panel(f *figure.Figure, p panel) (bottom float64) {
	const left = 44.0
	ticks, above, height := 3, 18.0, 92.0
	if p.large {
		ticks, height = 5, 210
	}
	at := figure.Frame{
		X: figure.Scale{Min: c.from(), Max: c.to(), From: p.left + left, To: p.right},
		Y: figure.Scale{Max: figure.RoundUp(p.high, ticks)},
	}
	if p.large {
		above = 24 + bandHeight(at, c.spans) // the title of the axis stands above the names of the bands
	}
	at.Y.To, at.Y.From = p.y+above, p.y+above+height
	bands(f, at, c.spans, p.large)
	who, title := "all leechers", ""
	if len(p.of) == 1 {
		who = p.of[0].Name
	}
	if p.large {
		f.Add(figure.Words(0, p.y+16, "rate (Mbit/s)", figure.Muted, figure.Start))
	} else {
		name := figure.Fit(who, figure.Small, p.right-p.left-left)
		f.Add(note(p.left+left+4, at.Y.To-6, name, figure.Text).InBold())
	}
	if p.last || len(c.leechers) == 1 {
		title = overTime
	}
	f.Add(at.AxisY(ticks)...)
	f.Add(at.AxisX(6, title)...)
	var lines []line
	if p.large {
		lines = append(c.limitLine(), c.flowLines()...)
	}
	drawLines(f, at, append(lines, c.panelLines(p.of, p.large)...), p.right-p.left > width/2, who)
	return at.Y.From + 20
}

// step is the time between two values of a curve.
func (c *course) step() float64 { return max(0.5, (c.to()-c.from())/120) }

// overTime is the title of axes of time.
const overTime = "time after the first payload byte (s)"

// sumOf returns the sum of the rates of several series.
func (c *course) sumOf(all []*scenario.Series) (sum []float64) {
	for _, s := range all {
		for i, v := range s.Rates(c.from(), c.to(), c.step()) {
			if i == len(sum) {
				sum = append(sum, 0)
			}
			sum[i] += v
		}
	}
	return sum
}

func payloads(leechers []*leecher) (all []*scenario.Series) {
	for _, l := range leechers {
		all = append(all, &l.Payload)
	}
	return all
}

// highest returns the highest of the payload's rate, the limit, and competing flows.
func (c *course) highest() float64 {
	all := append(c.sumOf(payloads(c.leechers)), 0)
	for _, s := range c.result.Limit {
		all = append(all, s.MbitS)
	}
	for _, f := range c.Flows {
		all = append(all, f.Received.Rates(c.from(), c.to(), max(1, c.step()))...)
	}
	return slices.Max(all)
}

// panelLines returns the paths of a leecher and the sum of its payload; of several leechers only
// the sum of all.
func (c *course) panelLines(of []*leecher, large bool) (lines []line) {
	step := c.step()
	add := func(l line, values []float64) {
		l.follow(values, c.from(), c.to(), step)
		lines = append(lines, l)
	}
	if len(of) == 1 {
		shown := min(len(of[0].paths), mostPaths)
		for i, q := range of[0].paths[:shown] {
			ink, dash := figure.SeriesInk(i)
			add(line{name: q.name, more: q.via, ink: ink, dash: dash, width: 1.5}, q.Read.Rates(c.from(), c.to(), step))
		}
		var rest []*scenario.Series
		for _, q := range of[0].paths[shown:] {
			rest = append(rest, &q.Read)
		}
		if len(rest) > 0 {
			add(line{name: fmt.Sprintf("%d more", len(rest)), ink: figure.Muted, width: 1.5}, c.sumOf(rest))
			lines[len(lines)-1].typical = 0 // most of them are there
		}
	}
	if len(of) > 0 && (large || len(lines) != 1) {
		l := line{name: "payload", more: "over all paths", ink: figure.Text, width: 2.25}
		if len(of) > 1 {
			l.more = fmt.Sprintf("of %d leechers", len(of))
		}
		add(l, c.sumOf(payloads(of)))
	}
	return lines
}

func (c *course) limitLine() []line {
	limit := c.result.Limit
	if len(limit) == 0 {
		return nil
	}
	l := line{name: "limit", ink: figure.Limit, dash: []float64{5, 3}, width: 1.5}
	for i, s := range limit {
		to := c.to()
		if i+1 < len(limit) {
			to = min(to, limit[i+1].T)
		}
		l.values = append(l.values,
			figure.Point{X: max(s.T, c.from()), Y: s.MbitS}, figure.Point{X: max(to, c.from()), Y: s.MbitS})
		if s.T < c.to() {
			l.typical = s.MbitS
		}
	}
	l.more = fmt.Sprintf("of payload, %.1f", l.typical)
	return []line{l}
}

func (c *course) flowLines() (lines []line) {
	step := max(1, c.step()) // flows are sampled twice a second
	for _, f := range c.Flows {
		l := line{name: f.Name, more: "competing traffic", ink: figure.Muted, dash: []float64{2, 2}, width: 1.5}
		l.follow(f.Received.Rates(c.from(), c.to(), step), c.from(), c.to(), step)
		lines = append(lines, l)
	}
	return lines
}

// drawLines draws curves, with names that do not overlap. Each point also becomes a row of the
// figure's data, after the given names.
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
		if math.Abs(places[i]-wishes[i]) > 4 {
			f.Add(figure.Segment(at.X.To+1, min(max(wishes[i], at.Y.To), at.Y.From), x-2, places[i], l.ink).Wide(.75))
		}
		f.Add(figure.Words(x, places[i]+4, l.name, l.ink, figure.Start).InBold())
		if more && l.more != "" {
			f.Add(note(x, places[i]+17, figure.Fit(l.more, figure.Small, width-x), figure.Muted))
		}
	}
}

// ratesText describes the figure for people who cannot see it.
func (c *course) ratesText() string {
	var s []string
	for _, l := range c.leechers {
		var parts []string
		for _, q := range l.paths {
			parts = append(parts, fmt.Sprintf("%s (%s) %.1f MB", q.name, q.via, q.got/1e6))
		}
		s = append(s, fmt.Sprintf("%s got %.1f MB of payload by %.1f s: %s",
			l.Name, l.Payload.At(c.End)/1e6, c.End, strings.Join(parts, ", ")))
	}
	for _, f := range c.Flows {
		s = append(s, fmt.Sprintf("Traffic %s got %.1f MB", f.Name, f.Received.At(c.End)/1e6))
	}
	if e, ok := c.result.Figures["e"]; ok {
		s = append(s, fmt.Sprintf("Together %.1f %% of what the links could carry", 100*e))
	}
	return strings.Join(s, ". ") + "."
}
