package report

import (
	"fmt"
	"strings"

	"braid/testbed/figure"
	"braid/testbed/scenario"
)

const mostRows = 120 // of a timeline

// timelineFigure draws when each path of each leecher was connecting, in use, parked or tried, with the reasons.
func timelineFigure(c *course, res scenario.Result, spans []span, of string) figure.Figure {
	f := figure.Figure{Name: "selection", Data: figure.Data{Head: []string{"leecher", "path", "state", "from s", "to s", "reason"}}}
	f.Text = timelineText(c)
	y := head(&f, "Selection of paths over time", of, res.CPUBound)
	y = legend(&f, y+12)
	const left, right, rowHeight = 168.0, width - 24, 20.0
	from, end := startOf(c), max(c.end, startOf(c)+1e-3)
	at := figure.NewFrame(left, 0, right, 1, from, end, 0, 1)
	at.Y.To = y + bandHeight(at, spans)
	bottom := at.Y.To + 4
	rows, hidden := 0, 0
	for _, p := range c.leechers() {
		if len(c.leechers()) > 1 {
			bottom += 18
		}
		for range p.paths {
			if rows++; rows > mostRows {
				hidden++
				continue
			}
			bottom += rowHeight
		}
	}
	at.Y.From = bottom + 4
	bands(&f, at, spans)
	f.Add(at.AxisX(8, overTime)...)
	y = at.Y.To + 4
	rows = 0
	for _, p := range c.leechers() {
		if len(c.leechers()) > 1 {
			name := note(0, y+14, figure.Fit(p.name, figure.Small, left-8), figure.Text)
			name.Bold = true
			f.Add(name)
			y += 18
		}
		for i, q := range p.paths {
			if rows++; rows > mostRows {
				break
			}
			drawLife(&f, at, p, q, i, y+rowHeight/2, end)
			y += rowHeight
		}
	}
	if hidden > 0 {
		f.Add(note(0, at.Y.From+16, fmt.Sprintf("%d more paths", hidden), figure.Muted))
	}
	f.H = at.Y.From + 26 + figure.TitleHeight
	return f
}

// legend explains the bars; shape and not colour says what a path was doing.
func legend(f *figure.Figure, y float64) float64 {
	x := 0.0
	for _, l := range []struct {
		draw func(x float64) []figure.Mark
		text string
	}{
		{func(x float64) []figure.Mark { return bar(x, x+24, y-4, inUse, figure.Series) }, "in use"},
		{func(x float64) []figure.Mark { return bar(x, x+24, y-4, connecting, figure.Series) }, "connecting"},
		{func(x float64) []figure.Mark { return bar(x, x+24, y-4, parked, figure.Series) }, "parked"},
		{func(x float64) []figure.Mark { return bar(x, x+24, y-4, probed, figure.Series) }, "parked, tried for a moment"},
		{func(x float64) []figure.Mark { return cross(x+12, y-4) }, "failed"},
		{func(x float64) []figure.Mark { return []figure.Mark{figure.Disc(x+12, y-4, 3, figure.Muted)} }, "closed"},
	} {
		f.Add(l.draw(x)...)
		f.Add(note(x+30, y, l.text, figure.Muted))
		x += 30 + figure.TextWidth(l.text, figure.Small, false) + 18
	}
	return y + 10
}

// bar is a stay from x0 to x1 around y.
func bar(x0, x1, y float64, s state, ink figure.Ink) []figure.Mark {
	w := max(x1-x0, 1)
	switch s {
	case inUse:
		return []figure.Mark{figure.Box(x0, y-6, w, 12, ink)}
	case connecting:
		m := figure.Box(x0, y-2, w, 4, ink)
		m.Opacity = .55
		return []figure.Mark{m}
	case probed:
		m := figure.Box(x0, y-6, w, 12, ink)
		m.Opacity = .4
		return []figure.Mark{m}
	}
	m := figure.Segment(x0, y, x0+w, y, ink, 1.5)
	m.Dash = []float64{2, 3}
	// A line is hard to point at: there is an area without colour of its own around it.
	a := figure.Box(x0, y-6, w, 12, ink)
	a.Opacity = .08
	return []figure.Mark{a, m}
}

func cross(x, y float64) []figure.Mark {
	return []figure.Mark{figure.Segment(x-4, y-4, x+4, y+4, figure.Bad, 2.25), figure.Segment(x-4, y+4, x+4, y-4, figure.Bad, 2.25)}
}

func drawLife(f *figure.Figure, at figure.Frame, p *peer, q *path, i int, y, end float64) {
	ink, _ := figure.SeriesInk(i)
	name := figure.Words(0, y+4, q.name, ink, figure.Start)
	name.Bold, name.Tip = true, q.via
	via := note(48, y+4, figure.Fit(q.via, figure.Small, at.X.From-56), figure.Muted)
	via.Tip = q.via
	f.Add(name, via, figure.Segment(at.X.From, y+10, at.X.To, y+10, figure.Grid, 1))
	stays, exits := staysOf(p.choices, q, end)
	for _, s := range stays {
		f.Data.Plot(p.name, q.name, s.state, s.from, s.to, s.reason)
		marks := bar(at.X.Clamp(s.from), at.X.Clamp(s.to), y, s.state, ink)
		tip := fmt.Sprintf("%s %s, %.2f to %.2f s: %s", q.name, s.state, s.from, s.to, s.reason)
		for k := range marks {
			marks[k].Tip = tip
		}
		f.Add(marks...)
	}
	for _, e := range exits {
		what, marks := "closed", []figure.Mark{figure.Disc(at.X.Clamp(e.t), y, 3, figure.Muted)}
		if e.failed {
			what, marks = "failed", cross(at.X.Clamp(e.t), y)
			// Crosses are thin: the disc behind them is what a pointer hits.
			hit := figure.Disc(at.X.Clamp(e.t), y, 7, figure.Bad)
			hit.Opacity = .12
			marks = append([]figure.Mark{hit}, marks...)
		}
		f.Data.Plot(p.name, q.name, what, e.t, e.t, e.reason)
		for k := range marks {
			marks[k].Tip = fmt.Sprintf("%s %s at %.2f s: %s", q.name, what, e.t, e.reason)
		}
		f.Add(marks...)
	}
}

func timelineText(c *course) string {
	var s []string
	for _, p := range c.leechers() {
		for _, q := range p.paths {
			stays, exits := staysOf(p.choices, q, c.end)
			var used float64
			for _, x := range stays {
				if x.state == inUse {
					used += x.to - x.from
				}
			}
			s = append(s, fmt.Sprintf("%s %s (%s) was in use for %.1f s and ended %d times", p.name, q.name, q.via, used, len(exits)))
		}
	}
	return strings.Join(s, "; ") + ". The table of decisions has the reasons."
}
