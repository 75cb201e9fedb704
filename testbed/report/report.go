// Package report makes a report of a run directory: a self-contained HTML page, each of its figures
// as SVG, PNG, PDF and PGF with its numbers as CSV, and its tables as Markdown. It also compares
// two run directories, and keeps the results in a document up to date.
//
// It owns the presentation. It measures nothing: it draws the record and the results of runs. A run
// directory may come from elsewhere, so names are escaped, and the sizes of files are bounded.
//
//	course.go                              what happened in a run
//	rates.go, timeline.go, cpu.go, network.go, overview.go   figures
//	table.go                               tables
//	report.go, page.go                     all of it together, and the files
//	document.go, evaluation.go             the generated blocks of a document; its text stays
//	compare.go                             two run directories
package report

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	"braid/testbed/figure"
	"braid/testbed/scenario"
)

// Options say what to make.
type Options struct {
	// Dir gets the files.
	Dir string
	// EveryRun draws all runs instead of each variant's run with the median time.
	EveryRun bool
}

// Made says what was made.
type Made struct {
	HTML     string   `json:"html"`
	Markdown string   `json:"markdown"`
	Figures  []string `json:"figures"` // each with .svg, .png, .pdf, .pgf and .csv, in Dir
	Dir      string   `json:"dir"`
	Runs     int      `json:"runs"`
	CPUBound int      `json:"cpu_bound"` // runs
	Missed   int      `json:"missed"`    // expectations
	// Missing are the runs that are not drawn, since their samples cannot be read, and why.
	Missing  []string           `json:"missing,omitempty"`
	Scenario []scenario.Summary `json:"scenarios"`
}

// Make writes the report of a run directory.
func Make(run scenario.RunDir, o Options) (Made, error) {
	p := buildPage(run, o)
	m, err := p.write(o.Dir)
	m.Runs, m.Missing = len(run.Results), p.missing()
	for _, s := range p.Sections {
		for _, v := range s.variants {
			m.Scenario = append(m.Scenario, v)
			m.CPUBound += v.CPUBound
			m.Missed += len(v.Missed())
		}
	}
	return m, err
}

// placed is a figure in a folder.
type placed struct {
	folder string
	figure.Figure
}

func (p placed) File() string { return filepath.ToSlash(filepath.Join(p.folder, p.Figure.File())) }

// section is a scenario in the page.
type section struct {
	ID       string
	Name     string
	About    string
	Text     string // of the file
	Again    string // the command that repeats the runs
	Bound    []string
	Figures  []placed
	Tables   []table
	Runs     []runSection
	variants []scenario.Summary
}

// runSection is one run in detail.
type runSection struct {
	ID      string
	Title   string
	Why     string // this run is shown
	Failed  string
	Missing string // why it is not drawn
	Bound   []string
	Events  []string
	Figures []placed
	Tables  []table
	Folded  []table // long ones
}

func buildSection(run scenario.RunDir, s scenario.Scenario, o Options) section {
	file := run.File(s.Name)
	sec := section{ID: "s-" + slugOf(s.Name), Name: s.Name, About: s.About, Text: file.Text, variants: variantsOf(run, s)}
	sec.Again, sec.Bound = again(file, sec.variants), bound(sec.variants)
	folder := filepath.Join("figures", slugOf(s.Name))
	of := scaleNote(file, s.Name)
	for _, f := range []figure.Figure{
		reachedFigure(s, sec.variants, of), cdfFigure(s, sec.variants, of),
		componentsFigure(sec.variants, of),
	} {
		f.Name = s.Name + "-" + f.Name
		sec.Figures = append(sec.Figures, placed{folder, f})
	}
	sec.Tables = []table{timesTable(s.Name, sec.variants), figuresTable(s, sec.variants)}
	for _, v := range sec.variants {
		shown := v.Results
		why := ""
		if !o.EveryRun && len(shown) > 1 {
			shown = []scenario.Result{medianRun(v.Results)}
			why = fmt.Sprintf("the run with the median time of %d", len(v.Results))
		}
		for _, r := range shown {
			sec.Runs = append(sec.Runs, buildRun(run, s, r, why, of))
		}
	}
	return sec
}

// variantsOf returns the variants of a scenario that were run, in its order.
func variantsOf(run scenario.RunDir, s scenario.Scenario) []scenario.Summary {
	return scenario.Summarise([]scenario.Scenario{s}, run.Results)
}

// medianRun returns the run with the median time; of an even number of runs the faster one in the
// middle.
func medianRun(results []scenario.Result) scenario.Result {
	sorted := slices.Clone(results)
	slices.SortStableFunc(sorted, func(a, b scenario.Result) int {
		return cmp.Compare(a.Figures["seconds"], b.Figures["seconds"])
	})
	return sorted[(len(sorted)-1)/2]
}

func buildRun(run scenario.RunDir, s scenario.Scenario, r scenario.Result, why, scale string) runSection {
	title := fmt.Sprintf("%s, run %d", r.Variant, r.Run)
	rs := runSection{
		ID:    fmt.Sprintf("r-%s-%s-%d", slugOf(s.Name), slugOf(r.Variant), r.Run),
		Title: title, Why: why, Failed: r.Failed, Bound: r.CPUBound,
	}
	c, err := courseOf(run, r, scale)
	if err != nil {
		rs.Missing = err.Error()
		return rs
	}
	for _, x := range c.spans {
		rs.Events = append(rs.Events, x.String())
	}
	for _, f := range c.figures() {
		f.Name = fmt.Sprintf("%s-%s-%d-%s", s.Name, r.Variant, r.Run, f.Name)
		rs.Figures = append(rs.Figures, placed{filepath.Join("figures", slugOf(s.Name)), f})
	}
	label := fmt.Sprintf("%s, %s", s.Name, title)
	rs.Tables = []table{c.pathsTable(label), c.linksTable(label)}
	if len(r.Peers) > 1 {
		rs.Tables = append([]table{c.leechersTable(label)}, rs.Tables...)
	}
	rs.Folded = []table{c.processesTable(label), c.decisionsTable(label)}
	return rs
}

// scaleNote returns the name of the scenario, with the scale of its runs.
func scaleNote(f scenario.ScenarioFile, name string) string {
	if f.Scale != 1 {
		return fmt.Sprintf("%s at %g of its data and times", name, f.Scale)
	}
	return name
}
