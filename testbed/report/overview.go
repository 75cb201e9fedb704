package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"braid/testbed/figure"
	"braid/testbed/scenario"
)

// bound says how many runs of these variants are CPU-bound; nil if none is.
func bound(vs []scenario.Summary) []string {
	var runs, all int
	var names []string
	for _, v := range vs {
		all += v.Runs
		if v.CPUBound > 0 {
			runs += v.CPUBound
			names = append(names, fmt.Sprintf("%d of %d of %s", v.CPUBound, v.Runs, v.Variant))
		}
	}
	if runs == 0 {
		return nil
	}
	return []string{fmt.Sprintf("in %d of %d runs (%s)", runs, all, strings.Join(names, ", "))}
}

// timesOf returns the sorted times that leechers took in all runs, in seconds, and how many leechers
// should have become complete.
func timesOf(v scenario.Summary) (times []float64, all int) {
	for _, r := range v.Results {
		all += max(0, r.Leechers-r.Verified) // those that failed
		for _, p := range r.Peers {
			if p.Complete {
				times = append(times, p.End-p.Start)
			}
		}
	}
	slices.Sort(times)
	return times, all + len(times)
}

// cdfFigure draws the distribution of completion times.
func cdfFigure(s scenario.Scenario, vs []scenario.Summary, of string) figure.Figure {
	f, y := begin("completion", "Completion times", of, bound(vs), "variant", "s", "part done")
	lo, hi := math.Inf(1), 0.0
	var words []string
	for _, v := range vs {
		times, all := timesOf(v)
		if len(times) == 0 {
			continue
		}
		lo, hi = min(lo, times[0]), max(hi, times[len(times)-1])
		r := scenario.RangeOf(times)
		words = append(words, fmt.Sprintf("%s: %s downloads in %.1f to %.1f s, median %.1f s",
			v.Variant, outOf(r.Runs, all), r.Min, r.Max, r.Median))
	}
	var stars []star
	// T* counts from the start of the first leecher, these times from the own start of each.
	apart := func(p scenario.Peer) bool {
		return p.Role == scenario.Leech && p.Start != (scenario.When{})
	}
	if !slices.ContainsFunc(s.Peers, apart) {
		stars = starsOf(vs)
	}
	for _, s := range stars {
		lo, hi = min(lo, s.at), max(hi, s.at)
		words = append(words, fmt.Sprintf("%s = %.1f s", s.name, s.at))
	}
	f.Text += strings.Join(words, "; ") + "."
	if math.IsInf(lo, 1) {
		f.H = y + 20
		f.Add(note(0, y+12, "No download was completed.", figure.Bad))
		return f
	}
	// The axis starts at 0, unless the differences would be too small.
	if lo > 0.5*hi {
		lo = max(0, lo-max(.25*(hi-lo), .05*hi))
	} else {
		lo = 0
	}
	hi += .04 * (hi - lo)
	at := figure.Frame{
		X: figure.Scale{Min: lo, Max: hi, From: 44, To: width - 168},
		Y: figure.Scale{Max: 1, From: y + 226, To: y + 36}, // the limit has its name above the plot
	}
	title := "part of the downloads that are complete"
	if len(stars) > 1 {
		title += "; dashed: T* of each variant"
	}
	f.Add(figure.Words(0, y+14, title, figure.Muted, figure.Start))
	f.Add(at.AxisY(4)...)
	f.Add(at.AxisX(8, "time since a leecher's start (s)")...)
	for _, s := range stars {
		x := at.X.At(s.at)
		tip := fmt.Sprintf("%s: the last download cannot be complete before %.2f s", s.name, s.at)
		f.Add(figure.Segment(x, at.Y.From, x, at.Y.To, s.ink).Wide(1.5).Dashed(5, 3).WithTip(tip))
		if len(stars) == 1 {
			label := figure.Words(x, at.Y.To-5, fmt.Sprintf("T* %.1f s", s.at), s.ink, figure.Middle)
			f.Add(label.Sized(figure.Small).InBold())
		}
	}
	var lines []line
	for i, v := range vs {
		if times, all := timesOf(v); len(times) > 0 {
			l := cdfLine(v.Variant, times, all, hi)
			l.ink, l.dash = figure.SeriesInk(i)
			lines = append(lines, l)
		}
	}
	drawLines(&f, at, lines, true)
	f.H = at.Y.From + 28 + figure.TitleHeight
	return f
}

// cdfLine climbs a step of all downloads at each time, and goes on to the end of the axis.
func cdfLine(name string, times []float64, all int, end float64) line {
	r, n := scenario.RangeOf(times), float64(all)
	done := float64(len(times)) / n
	l := line{
		name: name, more: fmt.Sprintf("median %.1f s, n = %s", r.Median, outOf(r.Runs, all)), width: 2, typical: done,
	}
	for k, t := range times {
		l.values = append(l.values,
			figure.Point{X: t, Y: float64(k) / n}, figure.Point{X: t, Y: float64(k+1) / n})
	}
	l.values = append(l.values, figure.Point{X: end, Y: done})
	return l
}

// outOf writes how many of all there are.
func outOf(n, all int) string {
	if n == all {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d of %d", n, all)
}

// star is T* of a variant, or of all.
type star struct {
	name string
	at   float64 // the median over runs
	ink  figure.Ink
}

// starsOf returns T* of each variant that has one; a single one if they are equal.
func starsOf(vs []scenario.Summary) (stars []star) {
	for i, v := range vs {
		if r, ok := v.Figures["t-star"]; ok {
			ink, _ := figure.SeriesInk(i)
			stars = append(stars, star{"T* of " + v.Variant, r.Median, ink})
		}
	}
	differs := func(s star) bool { return math.Abs(s.at-stars[0].at) >= 0.05 }
	if len(stars) > 0 && !slices.ContainsFunc(stars, differs) {
		stars = []star{{"T*", stars[0].at, figure.Limit}}
	}
	return stars
}

// dots are the values of a figure in the runs of one variant or side.
type dots struct {
	name   string
	ink    figure.Ink
	values []float64
}

// dotsOf returns a row for each variant, with the values that the figure has in its runs. medians
// is a text with the median of each row.
func dotsOf(vs []scenario.Summary, name string, format func(float64) string) (rows []dots, medians string) {
	var words []string
	for i, v := range vs {
		ink, _ := figure.SeriesInk(i)
		values := v.Values(name)
		if len(values) > 0 {
			words = append(words, v.Variant+" "+format(scenario.RangeOf(values).Median))
		}
		rows = append(rows, dots{v.Variant, ink, values})
	}
	return rows, "Medians: " + strings.Join(words, ", ")
}

func allValues(rows []dots) (all []float64) {
	for _, d := range rows {
		all = append(all, d.values...)
	}
	return all
}

// dotPlot compares the runs of several things, with an axis of that title.
type dotPlot struct {
	rows     []dots
	title    string
	from, to float64
	limits   []limit // to compare with
}

// limit is a value with a name.
type limit struct {
	name  string
	value float64
}

// draw draws a row for each: every run, the median and its confidence interval. It begins at y.
func (d dotPlot) draw(f figure.Figure, y float64) figure.Figure {
	const left, rowHeight = 168.0, 24.0
	at := figure.Frame{
		X: figure.Scale{Min: d.from, Max: d.to, From: left, To: width - 120},
		Y: figure.Scale{Max: 1, From: y + 22 + rowHeight*float64(len(d.rows)), To: y + 18},
	}
	f.Add(at.GridX(6)...)
	for _, limit := range d.limits {
		x := at.X.At(limit.value)
		f.Add(figure.Segment(x, at.Y.To-2, x, at.Y.From, figure.Limit).Wide(1.5).Dashed(5, 3),
			figure.Words(x, at.Y.To-7, limit.name, figure.Limit, figure.Middle).Sized(figure.Small))
	}
	f.Add(at.AxisX(6, d.title)...)
	for i, d := range d.rows {
		row := at.Y.To + 4 + rowHeight*(float64(i)+.5)
		name := figure.Fit(d.name, figure.TextSize, left-8)
		f.Add(figure.Words(left-8, row+4, name, d.ink, figure.End).InBold().WithTip(d.name))
		if len(d.values) == 0 {
			f.Add(note(left+6, row+4, "not measured", figure.Muted))
			continue
		}
		r := scenario.RangeOf(d.values)
		f.Add(figure.Segment(at.X.Clamp(r.Min), row, at.X.Clamp(r.Max), row, d.ink))
		if r.CI != nil {
			tip := fmt.Sprintf("%s: 95 %% confidence interval of the median, %.4g to %.4g", d.name, r.CI[0], r.CI[1])
			lo, hi := at.X.Clamp(r.CI[0]), at.X.Clamp(r.CI[1])
			f.Add(figure.Box(lo, row-6, hi-lo, 12, d.ink).Pale(.2).WithTip(tip))
		}
		for _, v := range d.values {
			f.Data.Plot(d.name, v)
			f.Add(figure.Disc(at.X.Clamp(v), row, 4, d.ink).Pale(.6).WithTip(fmt.Sprintf("%s: %.4g", d.name, v)))
		}
		f.Add(figure.Segment(at.X.Clamp(r.Median), row-9, at.X.Clamp(r.Median), row+9, d.ink).Wide(2.5),
			note(at.X.To+10, row+4, fmt.Sprintf("%.3g  (n = %d)", r.Median, r.Runs), figure.Muted))
	}
	f.H = at.Y.From + 26 + figure.TitleHeight
	return f
}

// reachedFigure draws the efficiency of each run.
func reachedFigure(s scenario.Scenario, vs []scenario.Summary, of string) figure.Figure {
	f, y := begin("reached", "Part of the computed limit that was reached (e)", of, bound(vs),
		"variant", "e")
	rows, medians := dotsOf(vs, "e", func(e float64) string { return fmt.Sprintf("%.3f", e) })
	f.Text += medians + "; 1 is the limit."
	limits := []limit{{"limit", 1}}
	from := 0.0
	if lowest := slices.Min(append(allValues(rows), 1)); lowest > .5 {
		from = math.Floor(lowest*10-.5) / 10
	}
	if want, ok := s.Expectation("e"); ok && want < .995 && want > from {
		limits = append(limits, limit{"expected", want})
	}
	return dotPlot{rows, "e, part of the limit", from, 1.02, limits}.draw(f, y)
}

// valuesFigure draws a figure's value of each run.
func valuesFigure(s scenario.Scenario, vs []scenario.Summary, name, of string) figure.Figure {
	f, y := begin(name, name+" of each run", of, bound(vs), "variant", name)
	rows, medians := dotsOf(vs, name, value)
	f.Text += medians + "."
	with0 := append(allValues(rows), 0)
	lo, hi := slices.Min(with0), slices.Max(with0)
	if hi == lo {
		hi = lo + 1
	}
	return dotPlot{rows, s.Meaning(name), lo, hi + .02*(hi-lo), nil}.draw(f, y)
}
