package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"braid/testbed/scenario"
)

// table is a table of a report. The first Names columns have words, the others numbers.
type table struct {
	Caption string
	Head    []string
	Names   int
	Rows    [][]cell
	Note    string
}

// cell is a text with a mark: met, missed, bound, or none.
type cell struct{ Text, Mark string }

func cells(texts ...string) (row []cell) {
	for _, t := range texts {
		row = append(row, cell{Text: t})
	}
	return row
}

// Number tells whether a column has numbers.
func (t table) Number(i int) bool { return i >= t.Names }

// markdown writes the table for GitHub. Texts are escaped.
func (t table) markdown() string { return filledIn(asMarkdown, "table", t) }

var markup = strings.NewReplacer(
	"\n", " ", "\r", " ", "<", "&lt;",
	`\`, `\\`, "|", `\|`, "*", `\*`, "_", `\_`, "`", "\\`", "[", `\[`, "]", `\]`,
)

func plain(s string) string { return markup.Replace(s) }

var codeMarkup = strings.NewReplacer("\n", " ", "\r", " ", "`", "")

// code makes a text safe between backticks.
func code(s string) string { return codeMarkup.Replace(s) }

// value formats a number with three significant digits and at most three decimals.
func value(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "-"
	case v == math.Trunc(v) && a < 1e6:
		return fmt.Sprintf("%.0f", v+0) // a count
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// spread formats a median with its confidence interval, if there is one.
func spread(r scenario.Range) string {
	if r.CI == nil || r.CI[0] == r.CI[1] {
		return value(r.Median)
	}
	return fmt.Sprintf("%s [%s, %s]", value(r.Median), value(r.CI[0]), value(r.CI[1]))
}

// ofIntervals explains confidence intervals below a table.
const ofIntervals = "Brackets hold the 95 % confidence interval of the median, by bootstrap over the runs. " +
	"With five runs or fewer it is the range of their values, in which the true median lies less " +
	"often: with 94, 88, 75 and 50 % for five, four, three and two runs. One run has none."

// columns is a table with a row for each variant, which is made column by column.
type columns struct {
	table
	of []scenario.Summary
}

func (t *columns) add(head string, of func(scenario.Summary) cell) {
	t.Head = append(t.Head, head)
	if t.Rows == nil {
		t.Rows = make([][]cell, len(t.of))
	}
	for i, v := range t.of {
		t.Rows[i] = append(t.Rows[i], of(v))
	}
}

// figure adds a figure, in a form such as spread or mean.
func (t *columns) figure(head, name string, form func(scenario.Range) string) {
	t.add(head, func(v scenario.Summary) cell {
		f, ok := v.Figures[name]
		if !ok {
			return cell{Text: "-"}
		}
		return cell{Text: form(f)}
	})
}

func mean(r scenario.Range) string   { return value(r.Mean) }
func median(r scenario.Range) string { return value(r.Median) }

func deviation(r scenario.Range) string {
	if r.Runs < 2 {
		return "-"
	}
	return value(r.SD)
}

// ofLimit turns time in parts of T* into the part of the limit that was reached.
func ofLimit(r scenario.Range) string { return value(1 / r.Median) }

func nameCell(v scenario.Summary) cell { return cell{Text: v.Variant} }

// busyCell shows in how many runs the machine was the limit.
func busyCell(v scenario.Summary) cell {
	if v.CPUBound == 0 {
		return cell{Text: "no"}
	}
	return cell{fmt.Sprintf("%d of %d", v.CPUBound, v.Runs), "bound"}
}

// timesTable shows how long downloads took.
func timesTable(name string, vs []scenario.Summary) table {
	t := columns{of: vs, table: table{
		Caption: name + ": time until the last leecher was done, in seconds", Names: 1,
		Note: "sd is the standard deviation of a sample. T* is the least time in which the links could " +
			"have carried the payload, and T*/T compares it with the time taken. " + ofIntervals,
	}}
	t.add("variant", nameCell)
	t.add("runs", func(v scenario.Summary) cell { return cell{Text: fmt.Sprint(v.Runs)} })
	t.figure("mean", "seconds", mean)
	t.figure("± sd", "seconds", deviation)
	t.figure("median [95 % CI]", "seconds", spread)
	t.figure("min", "seconds", func(r scenario.Range) string { return value(r.Min) })
	t.figure("max", "seconds", func(r scenario.Range) string { return value(r.Max) })
	t.figure("T*", "t-star", median)
	t.figure("T*/T", "over-t-star", ofLimit)
	t.add("data right", func(v scenario.Summary) cell {
		if !v.Verified || v.Failed > 0 {
			return cell{fmt.Sprintf("%d of %d failed", v.Failed, v.Runs), "missed"}
		}
		return cell{"all", "met"}
	})
	t.add("CPU-bound", busyCell)
	return t.table
}

// figuresTable shows every figure, with the scenario's expectation.
func figuresTable(s scenario.Scenario, vs []scenario.Summary) table {
	t := table{
		Caption: s.Name + ": figures, median [95 % confidence interval]; mean ± standard deviation",
		Head:    []string{"figure", "meaning", "expected"}, Names: 3, Note: ofIntervals,
	}
	for _, v := range vs {
		name := v.Variant
		if v.Baseline {
			name += " (baseline)"
		}
		t.Head = append(t.Head, name)
	}
	names := scenario.FigureNames(vs...)
	for n := range s.Expect {
		if !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	slices.Sort(names[len(scenario.FigureNames(vs...)):])
	for _, n := range names {
		row := cells(n, s.Meaning(n), s.Expect[n])
		for _, v := range vs {
			row = append(row, figureCell(v, n))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func figureCell(s scenario.Summary, name string) cell {
	c := cell{Text: "-"}
	if f, ok := s.Figures[name]; ok {
		c.Text = spread(f)
		if f.Runs > 1 {
			c.Text += fmt.Sprintf("; %s ± %s", value(f.Mean), value(f.SD))
		}
		if f.Runs < s.Runs {
			c.Text += fmt.Sprintf("; in %d of %d", f.Runs, s.Runs)
		}
	}
	for _, e := range s.Expected {
		if e.Figure == name {
			c.Mark = map[bool]string{true: "met", false: "missed"}[e.Met]
		}
	}
	return c
}

func (c *course) leechersTable(label string) table {
	t := table{
		Caption: label + ": leechers", Names: 1,
		Head: []string{"leecher", "start s", "end s", "took s", "MB", "Mbit/s", "done"},
	}
	for _, p := range c.result.Peers {
		took, done := p.End-p.Start, map[bool]string{true: "yes", false: "no"}[p.Complete]
		mb := float64(p.Bytes) / 1e6
		rate := mb * 8 / max(took, 1e-3)
		t.Rows = append(t.Rows,
			cells(p.Name, value(p.Start), value(p.End), value(took), value(mb), value(rate), done))
	}
	return t
}

func (c *course) pathsTable(label string) table {
	t := table{
		Caption: label + ": paths", Names: 4,
		Head: []string{
			"leecher", "path", "interfaces", "fingerprint", "MB", "part", "Mbit/s", "handshake ms",
			"round trip ms, last (least)", "packets sent", "of these lost",
		},
		Note: "MB and Mbit/s count all bytes of the path, protocol included. " +
			"The leecher's QUIC counts round trips and packets.",
	}
	for _, l := range c.leechers {
		var all float64
		for _, q := range l.paths {
			all += q.got
		}
		for _, q := range l.paths {
			part := fmt.Sprintf("%.1f %%", 100*q.got/max(all, 1))
			rate := q.got * 8 / 1e6 / max(l.End-max(l.Start, 0), 1e-3)
			rtt := fmt.Sprintf("%s (%s)", value(q.RTT), value(q.MinRTT))
			t.Rows = append(t.Rows, cells(
				l.Name, q.name, q.via, q.Key.Path.Short(), value(q.got/1e6), part, value(rate),
				value(q.Handshake), rtt, fmt.Sprint(q.Sent), fmt.Sprint(q.Lost)))
		}
	}
	return t
}

func (c *course) linksTable(label string) table {
	t := table{
		Caption: label + ": links, busier direction", Names: 3,
		Head: []string{
			"from", "to", "at the start", "Mbit/s", "use", "dropped: queue", "loss", "down", "late packets",
		},
		Note: "From the first payload byte to the end; drops and late packets from the start of the run.",
	}
	for _, u := range c.uses() {
		row := cells(c.names.at(u.from), c.names.at(u.to), u.link.Config.String(), "-", "-", "-", "-", "-", "-")
		if u.sender != nil {
			l := u.sender.Counted()
			late := fmt.Sprintf("%.1f %%", 100*float64(l.Late)/float64(max(1, l.Packets)))
			row = append(row[:3], cells(
				value(u.mbitS), "-", fmt.Sprint(l.DroppedQueue), fmt.Sprint(l.DroppedLoss),
				fmt.Sprint(l.DroppedDown), late)...)
			if u.link.Config.Rate > 0 {
				row[4].Text = fmt.Sprintf("%.0f %%", 100*u.part)
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func (c *course) processesTable(label string) table {
	t := table{
		Caption: label + ": processes", Names: 1,
		Head: []string{"process", "CPU s", "processors", "CPU s/GB of payload", "peak memory MiB"},
		Note: "From the first payload byte to the end. The runner has the emulated links and competing " +
			"traffic. Memory that processes share is divided among them.",
	}
	for _, l := range c.loads() {
		t.Rows = append(t.Rows, cells(l.name, value(l.cpu), value(l.cores), value(l.perGB), value(l.peak/(1<<20))))
	}
	return t
}

const mostDecisions = 1000

func (c *course) decisionsTable(label string) table {
	t := table{
		Caption: label + ": decisions of path selection", Names: 5,
		Head: []string{"s", "leecher", "path", "what", "why"},
	}
	for _, l := range c.leechers {
		names := map[*scenario.Path]string{}
		for _, q := range l.paths {
			names[q.Path] = q.name
		}
		for _, x := range l.Choices {
			t.Rows = append(t.Rows, cells(fmt.Sprintf("%.2f", x.T), l.Name, names[x.Path], x.Event, x.Reason))
		}
	}
	if n := len(t.Rows) - mostDecisions; n > 0 {
		t.Rows, t.Note = t.Rows[:mostDecisions], fmt.Sprintf("%d more are in samples.jsonl.", n)
	}
	return t
}
