package scenario

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"gonum.org/v1/gonum/stat"
)

// Summary summarises the runs of a scenario in one variant.
type Summary struct {
	Scenario string           `json:"scenario"`
	Variant  string           `json:"variant"`
	Runs     int              `json:"runs"`
	Figures  map[string]Range `json:"figures"`
	// Verified: in every run, each leecher that stayed to the end had the right data.
	Verified bool `json:"verified"`
	// Failed counts the runs in which a download or a competing flow did not succeed.
	Failed int `json:"failed"`
	// CPUBound counts the runs in which the machine and not a link was the limit; Why are the
	// reasons.
	CPUBound int      `json:"cpu_bound"`
	Why      []string `json:"cpu_bound_why,omitempty"`
	// Baseline: the variant is there for comparison; nothing is expected of it.
	Baseline bool `json:"baseline,omitempty"`
	// Expected are the scenario's expectations of medians.
	Expected []Expected `json:"expected,omitempty"`

	Results []Result `json:"-"` // of the runs
}

// Values returns the values of a figure in the runs that have it.
func (s Summary) Values(figure string) (v []float64) {
	for _, r := range s.Results {
		if f, ok := r.Figures[figure]; ok {
			v = append(v, f)
		}
	}
	return v
}

// Range is a figure over the runs that have it.
type Range struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Mean   float64 `json:"mean"`
	// SD is the standard deviation of a sample (n - 1); 0 for one run.
	SD float64 `json:"sd"`
	// CI are the ends of the 95 % confidence interval of the median; nil for one run.
	CI   []float64 `json:"ci95,omitempty"`
	Runs int       `json:"runs"`
}

// Expected is an expectation and whether it is met. A run that fails or lacks the figure misses it.
type Expected struct {
	Figure string `json:"figure"`
	Want   string `json:"want"`
	Met    bool   `json:"met"`
}

// Missed returns the expectations that are not met.
func (s Summary) Missed() []Expected {
	return slices.DeleteFunc(slices.Clone(s.Expected), func(e Expected) bool { return e.Met })
}

// Summarise summarises the results by scenario and variant, in the order of the scenarios.
func Summarise(scenarios []Scenario, results []Result) []Summary {
	var out []Summary
	for _, s := range scenarios {
		all := map[string]Summary{} // by variant
		for _, v := range s.Variants {
			all[v.Name] = summarise(s, v, results)
		}
		for _, v := range s.Variants {
			x := all[v.Name]
			if x.Runs == 0 {
				continue
			}
			if x.Baseline = v.baseline(); !x.Baseline {
				x.Expected = s.expected(v, all)
			}
			out = append(out, x)
		}
	}
	return out
}

func summarise(s Scenario, v Variant, results []Result) Summary {
	x := Summary{Scenario: s.Name, Variant: v.Name, Figures: map[string]Range{}, Verified: true}
	values := map[string][]float64{}
	for _, r := range results {
		if r.Scenario != s.Name || r.Variant != v.Name {
			continue
		}
		x.Runs++
		x.Results = append(x.Results, r)
		x.Verified = x.Verified && r.Verified == r.Leechers
		if r.Failed != "" {
			x.Failed++
		}
		if len(r.CPUBound) > 0 {
			x.CPUBound++
			x.Why = append(x.Why, r.CPUBound...)
		}
		for n, f := range r.Figures {
			values[n] = append(values[n], f)
		}
	}
	slices.Sort(x.Why)
	x.Why = slices.Compact(x.Why)
	for n, f := range values {
		x.Figures[n] = RangeOf(f)
	}
	return x
}

// expected compares a variant with what is expected of it. An expectation that names a variant
// without runs is left out, as after a smoke run of the others.
func (s Scenario) expected(v Variant, all map[string]Summary) (out []Expected) {
	wants := maps.Clone(s.Expect)
	if wants == nil {
		wants = map[string]string{}
	}
	maps.Copy(wants, v.Expect)
	x := all[v.Name]
	for _, n := range slices.Sorted(maps.Keys(wants)) {
		c, err := parseComparison(wants[n])
		f, ok := x.Figures[n]
		met := err == nil && ok && f.Runs == x.Runs && x.Failed == 0
		if c.of != "" {
			other := all[c.of]
			if other.Runs == 0 {
				continue
			}
			base, ok := other.Figures[n]
			met = met && ok && other.Failed == 0
			c.value *= base.Median
		}
		out = append(out, Expected{n, wants[n], met && c.holds(f.Median)})
	}
	return out
}

// Expectation returns the bound that the scenario expects for a figure's median, if there is one.
func (s Scenario) Expectation(figure string) (value float64, ok bool) {
	c, err := parseComparison(s.Expect[figure])
	return c.value, err == nil && c.of == ""
}

// RangeOf summarises at least one value.
func RangeOf(v []float64) Range {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	r := Range{Median: median(v), Min: v[0], Max: v[n-1], CI: Interval(v), Runs: n}
	if r.Mean, r.SD = stat.MeanStdDev(v, nil); n == 1 {
		r.SD = 0
	}
	return r
}

// median returns the median of sorted values.
func median(v []float64) float64 { return (v[(len(v)-1)/2] + v[len(v)/2]) / 2 }

// resamples is large enough that the ends of intervals hardly depend on chance.
const resamples = 2000

// Interval returns the 95 % confidence interval of the median, or of the difference between two
// sides' medians (second minus first), by the percentile bootstrap (Efron 1979). It is nil unless
// each side has two runs. The same values give the same interval.
//
// Of one side with n < 6 runs it is the range of their values. The range holds the median of their
// distribution with a probability of 1 - 2^(1-n), which is less than 95 %.
func Interval(sides ...[]float64) []float64 {
	for _, v := range sides {
		if len(v) < 2 {
			return nil
		}
	}
	chance := rand.New(rand.NewPCG(1, uint64(len(sides))))
	drawn := make([]float64, resamples)
	for i := range drawn {
		for side, v := range sides {
			again := make([]float64, len(v))
			for k := range again {
				again[k] = v[chance.IntN(len(v))]
			}
			slices.Sort(again)
			if side < len(sides)-1 {
				drawn[i] -= median(again)
			} else {
				drawn[i] += median(again)
			}
		}
	}
	slices.Sort(drawn)
	return []float64{drawn[resamples*25/1000], drawn[resamples*975/1000-1]}
}

// Table writes the summaries for people: a block for each scenario, a line for each figure, a
// column for each variant.
func Table(w io.Writer, summaries []Summary) error {
	for len(summaries) > 0 {
		n := 1
		for n < len(summaries) && summaries[n].Scenario == summaries[0].Scenario {
			n++
		}
		if err := table(w, summaries[:n]); err != nil {
			return err
		}
		summaries = summaries[n:]
	}
	return nil
}

func table(w io.Writer, variants []Summary) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name string, cell func(Summary) string) {
		cells := []string{name}
		for _, v := range variants {
			cells = append(cells, cell(v))
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	row(variants[0].Scenario, func(v Summary) string { return v.Variant })
	for _, n := range FigureNames(variants...) {
		wants := map[string]bool{} // what all variants expect stands beside the name
		for _, v := range variants {
			for _, e := range v.Expected {
				if e.Figure == n {
					wants[e.Want] = true
				}
			}
		}
		head := "  " + n
		if len(wants) == 1 {
			head += " " + list(wants)
		}
		row(head, func(v Summary) string {
			s := "-"
			if f, ok := v.Figures[n]; ok {
				s = fmt.Sprintf("%.3f", f.Median)
				if f.CI != nil {
					s += fmt.Sprintf(" [%.3f, %.3f]", f.CI[0], f.CI[1])
				}
				if f.Runs < v.Runs {
					s += fmt.Sprintf(" in %d", f.Runs)
				}
			}
			for _, e := range v.Expected {
				if e.Figure != n {
					continue
				}
				if len(wants) > 1 {
					s += " " + e.Want
				}
				if !e.Met {
					s += " missed"
				}
			}
			return s
		})
	}
	row("  runs", func(v Summary) string {
		s := strconv.Itoa(v.Runs)
		if v.Baseline {
			s += ", baseline"
		}
		if v.Failed > 0 {
			s += fmt.Sprintf(", %d failed", v.Failed)
		}
		if v.CPUBound > 0 {
			s += fmt.Sprintf(", %d CPU-bound", v.CPUBound)
		}
		return s
	})
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}

// FigureNames are the names of all figures of some summaries, measured or expected, in the order in
// which they are shown.
func FigureNames(summaries ...Summary) []string {
	names := map[string]bool{}
	for _, v := range summaries {
		for n := range v.Figures {
			names[n] = true
		}
		for _, e := range v.Expected {
			names[e.Figure] = true
		}
	}
	return slices.SortedFunc(maps.Keys(names), byImportance)
}

// byImportance puts the figures of every run first, in the order of measuredAlways.
func byImportance(a, b string) int {
	rank := func(n string) int {
		if i := rankAlways(n); i >= 0 {
			return i
		}
		return len(measuredAlways)
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
}

func (r Result) line() string {
	s := fmt.Sprintf("%s %s: %.1f s", r.Scenario, r.Variant, r.Figures["seconds"])
	for _, n := range []string{"e", "gap"} {
		if v, ok := r.Figures[n]; ok {
			s += fmt.Sprintf(", %s %.3f", n, v)
		}
	}
	s += fmt.Sprintf(", CPU %.0f %% of the machine (experiment: %.0f %%)", 100*r.CPU, 100*r.OwnCPU)
	if r.Failed != "" {
		s += ", failed: " + r.Failed
	}
	if len(r.CPUBound) > 0 {
		s += ", CPU-bound: " + strings.Join(r.CPUBound, "; ")
	}
	return s
}

// writeCSV writes a line for every figure of every run.
func writeCSV(name string, results []Result) error {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	w := csv.NewWriter(f)
	rows := [][]string{{"scenario", "variant", "run", "cpu_bound", "figure", "value"}}
	for _, r := range results {
		for _, n := range slices.SortedFunc(maps.Keys(r.Figures), byImportance) {
			rows = append(rows, []string{
				r.Scenario, r.Variant, strconv.Itoa(r.Run), strconv.FormatBool(len(r.CPUBound) > 0), n,
				strconv.FormatFloat(r.Figures[n], 'g', 6, 64),
			})
		}
	}
	if err := errors.Join(w.WriteAll(rows), f.Close()); err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}
