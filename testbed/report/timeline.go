package report

import (
	"fmt"
	"strings"

	"braid/testbed/figure"
	"braid/testbed/scenario"
)

const mostRows = 120 // of a timeline

// timelineFigure draws when each path of each leecher was connecting, in use, parked or tried, with
// the reasons.
func (c *course) timelineFigure() figure.Figure {
	f, y := begin("selection", "Selection of paths over time", c.of, c.result.CPUBound,
		"leecher", "path", "state", "from s", "to s", "reason")
	f.Text += c.timelineText()
	y = legend(&f, y+12)
	const left, right, rowHeight, nameHeight = 168.0, width - 24, 20.0, 18.0
	paths := 0
	for _, l := range c.leechers {
		paths += len(l.paths)
	}
	at := figure.Frame{X: figure.Scale{Min: c.from(), Max: c.to(), From: left, To: right}, Y: figure.Scale{Max: 1}}
	at.Y.To = y + bandHeight(at, c.spans)
	at.Y.From = at.Y.To + 8 + rowHeight*float64(min(paths, mostRows))
	if len(c.leechers) > 1 {
		at.Y.From += nameHeight * float64(len(c.leechers))
	}
	bands(&f, at, c.spans, true)
	f.Add(at.AxisX(8, overTime)...)
	y = at.Y.To + 4
	row := 0
	for _, l := range c.leechers {
		if len(c.leechers) > 1 {
			f.Add(note(0, y+14, figure.Fit(l.Name, figure.Small, left-8), figure.Text).InBold())
			y += nameHeight
		}
		for i, q := range l.paths[:min(len(l.paths), mostRows-row)] {
			q.drawLife(&f, at, l.Name, y+rowHeight/2, i)
			y += rowHeight
			row++
		}
	}
	if paths > mostRows {
		f.Add(note(0, at.Y.From+16, fmt.Sprintf("%d more paths", paths-mostRows), figure.Muted))
	}
	f.H = at.Y.From + 26 + figure.TitleHeight
	return f
}

// legend explains the bars. Their shape, not their colour, shows what a path was doing.
func legend(f *figure.Figure, y float64) float64 {
	x := 0.0
	explain := func(text string, marks ...figure.Mark) {
		f.Add(marks...)
		f.Add(note(x+30, y, text, figure.Muted))
		x += 30 + figure.TextWidth(text, figure.Small, false) + 18
	}
	explain("in use", bar(x, x+24, y-4, scenario.InUse, figure.Series)...)
	explain("connecting", bar(x, x+24, y-4, scenario.Connecting, figure.Series)...)
	explain("parked", bar(x, x+24, y-4, scenario.Parked, figure.Series)...)
	explain("parked, tried for a moment", bar(x, x+24, y-4, scenario.Probed, figure.Series)...)
	explain("failed", cross(x+12, y-4)...)
	explain("closed", figure.Disc(x+12, y-4, 3, figure.Muted))
	return y + 10
}

// bar draws a stay from x0 to x1 around y.
func bar(x0, x1, y float64, state string, ink figure.Ink) []figure.Mark {
	w := max(x1-x0, 1)
	box := figure.Box(x0, y-6, w, 12, ink)
	switch state {
	case scenario.InUse:
		return []figure.Mark{box}
	case scenario.Connecting:
		return []figure.Mark{figure.Box(x0, y-2, w, 4, ink).Pale(.55)}
	case scenario.Probed:
		return []figure.Mark{box.Pale(.4)}
	}
	// A line is hard to point at, so it gets a pale area around it.
	return []figure.Mark{box.Pale(.08), figure.Segment(x0, y, x0+w, y, ink).Wide(1.5).Dashed(2, 3)}
}

func cross(x, y float64) []figure.Mark {
	return []figure.Mark{
		figure.Segment(x-4, y-4, x+4, y+4, figure.Bad).Wide(2.25),
		figure.Segment(x-4, y+4, x+4, y-4, figure.Bad).Wide(2.25),
	}
}

// drawLife draws the row of the nth path of a leecher.
func (q *path) drawLife(f *figure.Figure, at figure.Frame, leecher string, y float64, nth int) {
	ink, _ := figure.SeriesInk(nth)
	via := figure.Fit(q.via, figure.Small, at.X.From-56)
	f.Add(figure.Words(0, y+4, q.name, ink, figure.Start).InBold().WithTip(q.via),
		note(48, y+4, via, figure.Muted).WithTip(q.via),
		figure.Segment(at.X.From, y+10, at.X.To, y+10, figure.Grid))
	add := func(marks []figure.Mark, s scenario.Stay) {
		f.Data.Plot(leecher, q.name, s.What, s.From, s.To, s.Reason)
		when := fmt.Sprintf(", %.2f to %.2f s", s.From, s.To)
		if s.From == s.To {
			when = fmt.Sprintf(" at %.2f s", s.From)
		}
		for k := range marks {
			marks[k].Tip = fmt.Sprintf("%s %s%s: %s", q.name, s.What, when, s.Reason)
		}
		f.Add(marks...)
	}
	for _, s := range q.stays {
		add(bar(at.X.Clamp(s.From), at.X.Clamp(s.To), y, s.What, ink), s)
	}
	for _, e := range q.exits {
		x := at.X.Clamp(e.From)
		marks := []figure.Mark{figure.Disc(x, y, 3, figure.Muted)}
		if e.What == "failed" {
			// Crosses are thin: the disc behind them is what a pointer hits.
			marks = append([]figure.Mark{figure.Disc(x, y, 7, figure.Bad).Pale(.12)}, cross(x, y)...)
		}
		add(marks, e)
	}
}

func (c *course) timelineText() string {
	var s []string
	for _, l := range c.leechers {
		for _, q := range l.paths {
			var used float64
			for _, x := range q.stays {
				if x.What == scenario.InUse {
					used += x.To - x.From
				}
			}
			s = append(s, fmt.Sprintf("%s %s (%s) was in use for %.1f s and ended %d times",
				l.Name, q.name, q.via, used, len(q.exits)))
		}
	}
	if len(s) == 0 {
		return "No leecher had a path."
	}
	return strings.Join(s, "; ") + ". The table of decisions has the reasons."
}
