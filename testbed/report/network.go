package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"braid/pathsel"
	"braid/testbed"
	"braid/testbed/figure"
	"braid/testbed/scenario"
)

// use is the load of a link's busier direction.
type use struct {
	link     testbed.Link
	from, to pathsel.Interface     // the busier direction
	mbitS    float64               // mean, from the first payload byte to the end
	part     float64               // of the rate at the start; 0 without one
	sender   *scenario.LinkSamples // nil: no samples
}

func (c *course) uses() (out []use) {
	for _, l := range c.Scenario.Network().Links {
		u := use{link: l, from: l.A.Interface, to: l.B.Interface}
		for _, d := range [][2]pathsel.Interface{{u.from, u.to}, {u.to, u.from}} {
			s := c.Links[d[0].String()]
			if s == nil || c.End <= 0 {
				continue
			}
			if v := (s.Sent.At(c.End) - s.Sent.At(0)) * 8 / 1e6 / c.End; u.sender == nil || v > u.mbitS {
				u.from, u.to, u.mbitS, u.sender = d[0], d[1], v, s
			}
		}
		if l.Config.Rate > 0 {
			u.part = u.mbitS * 1e6 / float64(l.Config.Rate)
		}
		out = append(out, u)
	}
	return out
}

const (
	nodeHeight    = 40.0
	mostLinkNames = 12
)

// networkFigure draws ASes and links. The width of a link shows its rate, and the filling its use.
func (c *course) networkFigure() figure.Figure {
	f, y := begin("network", "Network, and how far its links were used", c.of, c.result.CPUBound,
		"from", "to", "Mbit/s", "part of the rate")
	s, n := c.Scenario, c.names
	t := s.Network()
	uses := c.uses()
	places, bottom := place(t, y+10)
	f.H = bottom + 10
	var most float64
	for _, l := range t.Links {
		most = max(most, float64(l.Config.Rate))
	}
	named := busiest(uses)
	lanes := lanesOf(t)
	var words []string
	var labels []label
	for i, u := range uses {
		way := linkLine(places[u.from.IA], places[u.to.IA], lanes[i][0], lanes[i][1])
		pipe := 3.0
		if most > 0 && u.link.Config.Rate > 0 {
			pipe = max(3, 16*math.Sqrt(float64(u.link.Config.Rate)/most))
		}
		text := fmt.Sprintf("%s to %s: %s", n.at(u.from), n.at(u.to), u)
		words = append(words, text)
		f.Data.Plot(n.at(u.from), n.at(u.to), u.mbitS, u.part)
		tip := text + "; at the start " + u.link.Config.String()
		line := figure.Mark{Shape: figure.Line, Points: way, Tip: tip}
		whole, used := line, line
		whole.Ink, whole.Width = figure.Grid, pipe
		used.Ink, used.Width = figure.Series, max(1, pipe*min(1, u.part))
		f.Add(whole, used)
		if named[i] {
			text := fmt.Sprintf("%s → %s  %s", n.at(u.from), n.at(u.to), u)
			labels = append(labels, linkLabel(way, text, pipe, lanes[i][1]))
		}
	}
	var taken []label
	for _, as := range t.ASes {
		w, p := nodeWidth(as.IA, s, n), places[as.IA]
		taken = append(taken, label{left: p.X - w/2, top: p.Y - nodeHeight/2, w: w, h: nodeHeight})
	}
	for _, l := range apart(labels, taken) {
		paper := figure.Box(l.left-2, l.top, l.w+4, l.h, figure.Paper).Pale(.85)
		f.Add(paper, note(l.left, l.top+10, l.text, figure.Text))
	}
	for _, as := range t.ASes {
		p := places[as.IA]
		w := nodeWidth(as.IA, s, n)
		peers := figure.Fit(peersIn(as.IA, s, as.Core), figure.Small, 150)
		left, top, tip := p.X-w/2, p.Y-nodeHeight/2, as.IA.String()
		f.Add(figure.Box(left, top, w, nodeHeight, figure.Text).WithTip(tip),
			figure.Box(left+1.25, top+1.25, w-2.5, nodeHeight-2.5, figure.Paper).WithTip(tip),
			figure.Words(p.X, p.Y-2, n.as(as.IA), figure.Text, figure.Middle).InBold(),
			figure.Words(p.X, p.Y+12, peers, figure.Muted, figure.Middle).Sized(figure.Small))
	}
	f.Text += strings.Join(words, "; ") + "."
	return f
}

func (u use) String() string {
	if u.link.Config.Rate == 0 {
		return fmt.Sprintf("%.1f Mbit/s", u.mbitS)
	}
	return fmt.Sprintf("%.1f of %g Mbit/s", u.mbitS, float64(u.link.Config.Rate)/1e6)
}

// busiest returns the links that get a label: in a small network all of them, in a large one the
// busiest.
func busiest(uses []use) map[int]bool {
	if len(uses) > 2*mostLinkNames {
		return nil // the table of links has them
	}
	order := make([]int, len(uses))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(uses[b].mbitS, uses[a].mbitS) })
	named := map[int]bool{}
	for _, i := range order[:min(len(order), mostLinkNames)] {
		named[i] = true
	}
	return named
}

func peersIn(ia pathsel.IA, s scenario.Scenario, core bool) string {
	var in []string
	for _, p := range s.Peers {
		if p.AS == ia {
			in = append(in, p.Name)
		}
	}
	switch {
	case len(in) > 3:
		return fmt.Sprintf("%s and %d more", strings.Join(in[:2], ", "), len(in)-2)
	case len(in) > 0:
		return strings.Join(in, ", ")
	case core:
		return "core"
	}
	return ""
}

func nodeWidth(ia pathsel.IA, s scenario.Scenario, n names) float64 {
	name := figure.TextWidth(n.as(ia), figure.TextSize, true)
	peers := figure.TextWidth(peersIn(ia, s, true), figure.Small, false)
	return max(64, min(160, 18+max(name, peers)))
}

// lanesOf returns for each link its number among parallel links, and how many there are.
func lanesOf(t testbed.Topology) [][2]int {
	pair := func(l testbed.Link) [2]pathsel.IA {
		a, b := l.A.Interface.IA, l.B.Interface.IA
		return [2]pathsel.IA{min(a, b), max(a, b)}
	}
	count := map[[2]pathsel.IA]int{}
	lanes := make([][2]int, len(t.Links))
	for i, l := range t.Links {
		lanes[i][0] = count[pair(l)]
		count[pair(l)]++
	}
	for i, l := range t.Links {
		lanes[i][1] = count[pair(l)]
	}
	return lanes
}

const (
	laneAcross = 46.0  // between parallel links that run from left to right: a line of text fits
	laneAlong  = 172.0 // between those that run downwards: a label fits
)

// linkLine returns the points of one of several parallel links, which leave a node together and run
// side by side.
func linkLine(a, b figure.Point, lane, of int) []figure.Point {
	off := float64(lane) - float64(of-1)/2
	if off == 0 {
		return []figure.Point{a, b}
	}
	dx, dy := b.X-a.X, b.Y-a.Y
	length := max(math.Hypot(dx, dy), 1)
	gap := laneAcross
	if math.Abs(dy) > math.Abs(dx) {
		gap = laneAlong
	}
	// A lane lies on the same side whichever direction was busier.
	if dx < 0 || dx == 0 && dy < 0 {
		off = -off
	}
	side := func(part float64) figure.Point {
		return figure.Point{X: a.X + dx*part - dy/length*off*gap, Y: a.Y + dy*part + dx/length*off*gap}
	}
	return []figure.Point{a, side(.24), side(.76), b}
}

// label is a text and its rectangle.
type label struct {
	text            string
	left, top, w, h float64
}

func (a label) touches(b label) bool {
	return a.left < b.left+b.w && b.left < a.left+a.w && a.top < b.top+b.h && b.top < a.top+a.h
}

// apart moves labels up or down until they touch neither each other nor the taken rectangles. If
// there is no room nearby, a label stays.
func apart(labels, taken []label) []label {
	placed := slices.Clone(taken)
	for _, l := range labels {
		wish := l.top
		for try := range 12 {
			l.top = wish + float64((try+1)/2)*l.h*float64(1-2*(try%2)) // 0, up, down, further up ...
			if l.top >= 0 && !slices.ContainsFunc(placed, l.touches) {
				break
			}
			l.top = wish
		}
		placed = append(placed, l)
	}
	return placed[len(taken):]
}

// linkLabel places a label above the middle of a horizontal link, else beside it: for parallel
// links on the outer side.
func linkLabel(way []figure.Point, text string, pipe float64, of int) label {
	p, q := way[len(way)/2-1], way[len(way)/2]
	x, y := (p.X+q.X)/2, (p.Y+q.Y)/2
	w := figure.TextWidth(text, figure.Small, false)
	left, base := x-w/2, y-pipe/2-5
	if rise := math.Abs(q.Y - p.Y); rise > 30 {
		// This is the nearest place at which the text does not touch the line.
		beside := pipe/2*math.Hypot(q.X-p.X, q.Y-p.Y)/rise + 8 + 6*math.Abs(q.X-p.X)/rise
		base = y + 4
		first := way[0].X + way[len(way)-1].X
		switch middle := 2 * x; {
		case middle < first-1:
			left = x - beside - w
		case middle > first+1 || of == 1:
			left = x + beside
		}
	}
	return label{text: text, left: min(max(left, 0), width-w), top: base - 10, w: w, h: 13}
}

// place puts ASes in rows: core ASes on top, then their customers. A single row of many becomes a
// circle.
func place(t testbed.Topology, top float64) (places map[pathsel.IA]figure.Point, bottom float64) {
	places = map[pathsel.IA]figure.Point{}
	rows := rowsOf(t)
	if len(rows) == 1 && len(rows[0]) > 3 {
		n := float64(len(rows[0]))
		radius := min(300, 90+14*n)
		for i, ia := range rows[0] {
			turn := 2*math.Pi*float64(i)/n - math.Pi/2
			places[ia] = figure.Point{
				X: width/2 + radius*1.1*math.Cos(turn), Y: top + 24 + radius + radius*math.Sin(turn),
			}
		}
		return places, top + 48 + 2*radius
	}
	y := top
	for i, row := range rows {
		lanes := 1
		for k, l := range t.Links {
			if slices.Contains(row, l.A.Interface.IA) && slices.Contains(row, l.B.Interface.IA) {
				lanes = max(lanes, lanesOf(t)[k][1])
			}
		}
		half := max(nodeHeight/2, laneAcross*float64(lanes-1)/2+24)
		if i > 0 {
			y += 110
		}
		y += half
		for k, ia := range row {
			x := width / 2
			if n := float64(len(row)); n > 1 {
				edge := max(82, .8*width/2/n)
				x = edge + (width-2*edge)*float64(k)/(n-1)
			}
			places[ia] = figure.Point{X: x, Y: y}
		}
		y += half
	}
	return places, y
}

// rowsOf returns the ASes by their distance from the core.
func rowsOf(t testbed.Topology) [][]pathsel.IA {
	depth := map[pathsel.IA]int{}
	for _, a := range t.ASes {
		if a.Core {
			depth[a.IA] = 0
		} else {
			depth[a.IA] = len(t.ASes)
		}
	}
	for range t.ASes {
		for _, l := range t.Links {
			if l.Type == testbed.Child {
				depth[l.B.Interface.IA] = min(depth[l.B.Interface.IA], depth[l.A.Interface.IA]+1)
			}
		}
	}
	var rows [][]pathsel.IA
	for d := range len(t.ASes) + 1 {
		var row []pathsel.IA
		for _, a := range t.ASes {
			if depth[a.IA] == d {
				row = append(row, a.IA)
			}
		}
		if len(row) > 0 {
			rows = append(rows, row)
		}
	}
	return rows
}
