package report

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/aclements/go-moremath/stats"
	"gonum.org/v1/gonum/stat/combin"

	"braid/testbed/figure"
	"braid/testbed/scenario"
)

// Comparison is two run directories side by side.
type Comparison struct {
	First  Side `json:"first"`
	Second Side `json:"second"`
	// Doubts weaken the whole comparison: different machines, uncommitted changes.
	Doubts []string `json:"doubts"`
	// Rows are the figures that both have, by scenario and variant. Missing are scenarios and
	// variants of one side only.
	Rows    []Compared `json:"rows"`
	Missing []string   `json:"missing"`
	// Tested counts the tested figures. ByChance of them would differ without any cause.
	Tested   int     `json:"tested"`
	ByChance float64 `json:"by_chance"`
}

// Side describes a run directory.
type Side struct {
	Dir     string `json:"dir"`
	Commit  string `json:"commit,omitempty"`
	Program string `json:"program"`
	CPU     string `json:"cpu"`
	CPUs    int    `json:"cpus"`
	Kernel  string `json:"kernel"`
}

// Compared is a figure on both sides.
type Compared struct {
	Scenario string         `json:"scenario"`
	Variant  string         `json:"variant"`
	Figure   string         `json:"figure"`
	First    scenario.Range `json:"first"`
	Second   scenario.Range `json:"second"`
	// Difference is that of the medians, second minus first. Relative is Difference divided by the
	// first; nil if that is 0.
	Difference float64  `json:"difference"`
	Relative   *float64 `json:"relative,omitempty"`
	// CI are the ends of the 95 % confidence interval of the difference; nil unless both sides have
	// two runs.
	CI      []float64 `json:"ci95,omitempty"`
	P       float64   `json:"p"`
	Verdict Verdict   `json:"verdict"`
	// Why says why the sides are not comparable.
	Why []string `json:"why,omitempty"`

	first, second []float64
}

// Compare compares two run directories.
func Compare(a, b scenario.RunDir) Comparison {
	c := Comparison{
		First: sideOf(a), Second: sideOf(b), Doubts: doubts(a.About, b.About),
		Missing: []string{}, Rows: []Compared{},
	}
	machine := otherMachine(a.About, b.About)
	sa, sb := scenario.Summarise(a.Scenarios, a.Results), scenario.Summarise(b.Scenarios, b.Results)
	find := func(in []scenario.Summary, x scenario.Summary) int {
		return slices.IndexFunc(in, func(y scenario.Summary) bool {
			return y.Scenario == x.Scenario && y.Variant == x.Variant
		})
	}
	for _, y := range sb {
		if find(sa, y) < 0 {
			c.Missing = append(c.Missing, fmt.Sprintf("%s %s is only in the second", y.Scenario, y.Variant))
		}
	}
	for _, x := range sa {
		i := find(sb, x)
		if i < 0 {
			c.Missing = append(c.Missing, fmt.Sprintf("%s %s is only in the first", x.Scenario, x.Variant))
			continue
		}
		why := append(slices.Clone(machine), obstacles(a.File(x.Scenario), b.File(x.Scenario), x, sb[i])...)
		for _, name := range scenario.FigureNames(x, sb[i]) {
			row := Compared{
				Scenario: x.Scenario, Variant: x.Variant, Figure: name, Why: why,
				first: x.Values(name), second: sb[i].Values(name),
			}
			if row.compare() {
				c.Rows = append(c.Rows, row)
				if row.Verdict == Higher || row.Verdict == Lower || row.Verdict == NotShown {
					c.Tested++
				}
			}
		}
	}
	c.ByChance = alpha * float64(c.Tested)
	return c
}

// compare compares the values of both sides, and tells whether there are some.
func (row *Compared) compare() bool {
	if len(row.first) == 0 || len(row.second) == 0 {
		return false
	}
	row.First, row.Second = scenario.RangeOf(row.first), scenario.RangeOf(row.second)
	row.Difference, row.CI = row.Second.Median-row.First.Median, scenario.Interval(row.first, row.second)
	if row.First.Median != 0 {
		r := row.Difference / math.Abs(row.First.Median)
		row.Relative = &r
	}
	row.P, row.Verdict = compareSamples(row.first, row.second)
	if len(row.Why) > 0 {
		row.P, row.Verdict = 1, NotComparable
	}
	return true
}

func sideOf(r scenario.RunDir) Side {
	return Side{r.Dir, r.Commit, r.Program, r.CPU, r.CPUs, r.Kernel}
}

// otherMachine returns how the machines differ.
func otherMachine(a, b scenario.About) (why []string) {
	if a.CPU != b.CPU || a.CPUs != b.CPUs {
		why = append(why, fmt.Sprintf("different processors: %d × %s, %d × %s", a.CPUs, a.CPU, b.CPUs, b.CPU))
	}
	if a.Kernel != b.Kernel {
		why = append(why, fmt.Sprintf("different kernels: %s, %s", a.Kernel, b.Kernel))
	}
	if a.TCP != b.TCP && a.TCP != "" && b.TCP != "" {
		why = append(why, fmt.Sprintf("different congestion control of TCP: %s, %s", a.TCP, b.TCP))
	}
	if a.Emulator != b.Emulator {
		why = append(why, "different settings of the link emulator")
	}
	return why
}

// doubts returns reasons to doubt the whole comparison.
func doubts(a, b scenario.About) []string {
	out := append([]string{}, otherMachine(a, b)...)
	for i, x := range []scenario.About{a, b} {
		which := [...]string{"first", "second"}[i]
		switch {
		case x.Commit == "":
			out = append(out, "the commit of the "+which+" is unknown")
		case strings.HasSuffix(x.Commit, "+"):
			out = append(out, "the "+which+" was built with uncommitted changes, so it cannot be repeated")
		}
	}
	if a.Program == b.Program {
		out = append(out, "both ran the same program, so differences come from chance or the machine")
	}
	return out
}

// obstacles returns why the runs of a scenario and variant cannot be compared.
func obstacles(fa, fb scenario.ScenarioFile, a, b scenario.Summary) (why []string) {
	if fa.Text != fb.Text {
		why = append(why, "the scenario's file differs")
	}
	if differ(fa.Links, fb.Links) || differ(fa.ASes, fb.ASes) || differ(fa.Topology, fb.Topology) {
		why = append(why, "the network differs")
	}
	if fa.Seed != fb.Seed {
		why = append(why, fmt.Sprintf("different data: seeds %d and %d", fa.Seed, fb.Seed))
	}
	if fa.Scale != fb.Scale {
		why = append(why, fmt.Sprintf("different scales: %g and %g", fa.Scale, fb.Scale))
	}
	if fa.Leechers != fb.Leechers {
		why = append(why, "different numbers of leechers")
	}
	for i, s := range []scenario.Summary{a, b} {
		which := [...]string{"first", "second"}[i]
		if s.CPUBound > 0 {
			why = append(why, fmt.Sprintf("the machine was the limit in %d of %d runs of the %s",
				s.CPUBound, s.Runs, which))
		}
		if s.Failed > 0 || !s.Verified {
			why = append(why, fmt.Sprintf("downloads of the %s failed", which))
		}
	}
	return why
}

// differ compares what both sides have recorded.
func differ[T comparable](a, b []T) bool { return len(a) > 0 && len(b) > 0 && !slices.Equal(a, b) }

// Table writes the comparison for people.
func (c Comparison) Table(w io.Writer) error {
	fmt.Fprintf(w, "first:  %s  %s\n", c.First.Dir, orUnknown(c.First.Commit))
	fmt.Fprintf(w, "second: %s  %s\n", c.Second.Dir, orUnknown(c.Second.Commit))
	for _, d := range c.Doubts {
		fmt.Fprintf(w, "Beware: %s.\n", d)
	}
	for _, m := range c.Missing {
		fmt.Fprintf(w, "%s.\n", m)
	}
	for _, rows := range c.groups() {
		fmt.Fprintf(w, "\n%s, %s\n", rows[0].Scenario, rows[0].Variant)
		for _, why := range rows[0].Why {
			fmt.Fprintf(w, "  Not comparable: %s.\n", why)
		}
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "  figure\tfirst, median [95 % CI]\tsecond\tdifference\tp\t")
		for _, r := range rows {
			fmt.Fprintf(t, "  %s\n", strings.Join(r.cells(), "\t"))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\n%s\n", c.Explained())
	return err
}

// groups are the rows of each scenario and variant, which follow each other.
func (c Comparison) groups() (groups [][]Compared) {
	for i, r := range c.Rows {
		if i == 0 || r.Scenario != c.Rows[i-1].Scenario || r.Variant != c.Rows[i-1].Variant {
			groups = append(groups, nil)
		}
		last := &groups[len(groups)-1]
		*last = append(*last, r)
	}
	return groups
}

// cells returns figure, first, second, difference, p and verdict.
func (r Compared) cells() []string {
	side := func(x scenario.Range) string {
		return fmt.Sprintf("%s n=%d", spread(x), x.Runs)
	}
	difference := fmt.Sprintf("%+.3g", r.Difference)
	if r.CI != nil {
		difference += fmt.Sprintf(" [%+.3g, %+.3g]", r.CI[0], r.CI[1])
	}
	if r.Relative != nil {
		difference += fmt.Sprintf(" (%+.1f %%)", 100**r.Relative)
	}
	p := "-"
	if r.Verdict == Higher || r.Verdict == Lower || r.Verdict == NotShown {
		p = fmt.Sprintf("%.3f", r.P)
	}
	return []string{r.Figure, side(r.First), side(r.Second), difference, p, string(r.Verdict)}
}

// Explained explains the verdicts.
func (c Comparison) Explained() string {
	s := "Higher and lower are said of the second side if chance alone would cause such a difference " +
		"in at most 1 of 20 comparisons (Mann-Whitney test, two-sided). " +
		"If no difference is shown, there may still be one; " +
		"three runs or fewer on each side cannot show any. " +
		"Brackets hold 95 % confidence intervals, by bootstrap over the runs; " +
		"with five runs or fewer they are too short."
	if c.Tested > 0 {
		s += fmt.Sprintf(" %d figures were tested; chance alone would make about %.1f of them differ.",
			c.Tested, c.ByChance)
	}
	return s
}

// Make writes the comparison as a page with figures and tables.
func (c Comparison) Make(dir string) (Made, error) {
	p := page{Reserve: "Not comparable:", Title: "Comparison of two runs", Facts: []fact{
		{"first", describeSide(c.First)}, {"second", describeSide(c.Second)}, {"how to read it", c.Explained()},
	}}
	if len(c.Doubts) > 0 {
		p.Bound = "Beware: " + strings.Join(c.Doubts, "; ") + "."
	}
	p.Summary = table{
		Caption: "All figures for which a difference is shown",
		Head:    comparedHead("scenario", "variant"), Names: 3,
		Note: strings.Join(c.Missing, "; "),
	}
	for _, r := range c.Rows {
		if r.Verdict == Higher || r.Verdict == Lower {
			p.Summary.Rows = append(p.Summary.Rows, append(cells(r.Scenario, r.Variant), cells(r.cells()...)...))
		}
	}
	for _, rows := range c.groups() {
		p.Sections = append(p.Sections, comparedSection(rows))
	}
	return p.write(dir)
}

func comparedHead(before ...string) []string {
	return append(before, "figure", "first, median [95 % CI]", "second", "difference", "p", "second is")
}

func describeSide(s Side) string {
	return fmt.Sprintf("%s: commit %s, program %.12s, %d × %s, %s",
		filepath.Base(filepath.Clean(s.Dir)), orUnknown(s.Commit), s.Program, s.CPUs, s.CPU, s.Kernel)
}

func comparedSection(rows []Compared) section {
	name := rows[0].Scenario + ", " + rows[0].Variant
	s := section{ID: "c-" + slugOf(rows[0].Scenario+"-"+rows[0].Variant), Name: name, Bound: rows[0].Why}
	t := table{Caption: name + ": figures", Head: comparedHead(), Names: 1}
	for _, r := range rows {
		row := cells(r.cells()...)
		if r.Verdict == NotComparable {
			row[5].Mark = "bound"
		}
		t.Rows = append(t.Rows, row)
		if r.Figure == "e" || r.Figure == "seconds" {
			s.Figures = append(s.Figures, placed{filepath.Join("figures", slugOf(r.Scenario)), comparedFigure(r)})
		}
	}
	s.Tables = []table{t}
	return s
}

func comparedFigure(r Compared) figure.Figure {
	title := map[string]string{
		"e":       "Part of the computed limit that was reached (e)",
		"seconds": "Time until the last leecher was done",
	}[r.Figure]
	sub := fmt.Sprintf("%s, %s: second is %s", r.Scenario, r.Variant, r.Verdict)
	if r.Verdict == TooFew || r.Verdict == NotComparable || r.Verdict == NotShown {
		sub = fmt.Sprintf("%s, %s: %s", r.Scenario, r.Variant, r.Verdict)
	}
	var busy []string
	for _, w := range r.Why {
		if strings.Contains(w, "the machine was the limit") {
			busy = append(busy, strings.TrimPrefix(w, "the machine was the limit "))
		}
	}
	name := fmt.Sprintf("%s-%s-%s", r.Scenario, r.Variant, r.Figure)
	f, y := begin(name, title, sub, busy, "side", r.Figure)
	f.Text += fmt.Sprintf("Medians %s and %s; second is %s.",
		value(r.First.Median), value(r.Second.Median), r.Verdict)
	first, _ := figure.SeriesInk(0)
	second, _ := figure.SeriesInk(1)
	rows := []dots{{"first", first, r.first}, {"second", second, r.second}}
	if r.Figure == "e" {
		from := max(0, math.Floor(min(r.First.Min, r.Second.Min)*10-.5)/10)
		return dotPlot{rows, "e, part of the limit", from, 1.02, []limit{{"limit", 1}}}.draw(f, y)
	}
	lo, hi := min(r.First.Min, r.Second.Min), max(r.First.Max, r.Second.Max)
	room := max(.1*(hi-lo), .05*hi, .1)
	return dotPlot{rows, "time (s)", max(0, lo-room), hi + room, nil}.draw(f, y)
}

// Verdict says whether two sides differ in a figure.
type Verdict string

// Whether higher or lower is better depends on the figure.
const (
	Higher        Verdict = "higher" // of the second side; chance alone rarely does that
	Lower         Verdict = "lower"
	NotShown      Verdict = "no difference shown" // there may still be one
	Same          Verdict = "same"                // all values are equal
	TooFew        Verdict = "too few runs"        // so few runs cannot show a difference
	NotComparable Verdict = "not comparable"
)

// alpha is how often chance is taken for a difference.
const alpha = 0.05

// compareSamples tests whether one side tends to be higher. It compares ranks (Mann and Whitney
// 1947, exact for few values), because times and rates are not normally distributed. p is the
// probability that chance alone causes such a difference; 1 if nothing was tested.
func compareSamples(a, b []float64) (p float64, v Verdict) {
	if leastP(len(a), len(b)) > alpha {
		return 1, TooFew
	}
	r, err := stats.MannWhitneyUTest(a, b, stats.LocationDiffers)
	switch {
	case err != nil: // stats.ErrSamplesEqual; leastP has seen samples that are too small
		return 1, Same
	case r.P > alpha:
		return r.P, NotShown
	case r.U < float64(len(a)*len(b))/2: // pairs in which the first side is higher
		return r.P, Higher
	}
	return r.P, Lower
}

// leastP returns p for two sides that do not overlap at all.
func leastP(n, m int) float64 {
	return 2 / combin.GeneralizedBinomial(float64(n+m), float64(n))
}
