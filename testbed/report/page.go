package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	markdown "text/template"

	"golang.org/x/sync/errgroup"

	"braid/testbed/figure"
	"braid/testbed/linkemu"
	"braid/testbed/scenario"
)

//go:embed page.html
var pageHTML string

//go:embed page.md.tmpl
var pageMarkdown string

//go:embed page.css
var pageCSS string

// page is a report, before it is written as HTML or Markdown.
type page struct {
	Title    string
	Bound    string // a warning above everything
	Reserve  string // the beginning of each section's Bound
	Facts    []fact
	Summary  table
	Sections []section
}

type fact struct{ Name, Value string }

const longTime = "2 January 2006, 15:04 MST"

func buildPage(run scenario.RunDir, o Options) page {
	p := page{Reserve: "CPU-bound", Title: "Runs of " + run.Began.Format(longTime), Facts: factsOf(run)}
	for _, s := range run.Scenarios {
		p.Sections = append(p.Sections, buildSection(run, s, o))
	}
	p.Summary = summaryTable(p.Sections)
	busy := 0
	for _, r := range run.Results {
		if len(r.CPUBound) > 0 {
			busy++
		}
	}
	if busy > 0 {
		p.Bound = fmt.Sprintf("In %d of %d runs the machine and not a link was the limit. "+
			"Their figures say little about braid; they are marked CPU-bound.", busy, len(run.Results))
	}
	return p
}

func factsOf(run scenario.RunDir) []fact {
	a := run.About
	facts := []fact{
		{"directory", filepath.Base(filepath.Clean(run.Dir))},
		{"commit", orUnknown(a.Commit)},
		{"program (SHA-256)", a.Program},
		{"machine", fmt.Sprintf("%d × %s, %s", a.CPUs, a.CPU, a.Kernel)},
		{"congestion control of TCP", orUnknown(a.TCP)},
	}
	if strings.HasSuffix(a.Commit, "+") {
		facts[1].Value += ", with uncommitted changes"
	}
	if a.Memory > 0 {
		memory := fmt.Sprintf("%.1f GiB; %.2f", float64(a.Memory)/(1<<30), a.Load)
		facts = append(facts, fact{"memory; load before", memory})
	}
	var modules []string
	for name, version := range a.Modules {
		modules = append(modules, name+" "+version)
	}
	slices.Sort(modules)
	facts = append(facts, fact{"built with", strings.Join(append([]string{a.Go}, modules...), ", ")})
	if a.Emulator != (linkemu.Settings{}) {
		facts = append(facts, fact{"link emulator", fmt.Sprintf(
			"collects packets for at most %v; a packet is late after %v",
			a.Emulator.Quantum, a.Emulator.LateAfter)})
	}
	return facts
}

func orUnknown(s string) string { return cmp.Or(s, "unknown") }

// again returns the command that repeats the runs of a scenario.
func again(f scenario.ScenarioFile, vs []scenario.Summary) string {
	most := 0
	for _, v := range vs {
		for _, r := range v.Results {
			most = max(most, r.Run)
		}
	}
	name := f.Name
	if text, err := scenario.ShippedText(name + ".yaml"); err != nil || string(text) != f.Text {
		name += ".yaml" // a file of the user, or the shipped one as it was
	}
	c := fmt.Sprintf("braid-testbed run %s --runs %d", name, most)
	if whole, err := f.Scenario(); err != nil || len(whole.Variants) > len(vs) {
		for _, v := range vs {
			c += " --variant " + v.Variant
		}
	}
	switch {
	case f.Leechers > 0:
		c += " --smoke" // only it bounds the leechers, and it scales
	case f.Scale != 1:
		c += fmt.Sprintf(" --scale %g", f.Scale)
	}
	return c + " -o DIR"
}

// summaryTable summarises the report.
func summaryTable(sections []section) table {
	t := columns{table: table{Caption: "All scenarios: medians", Names: 3, Note: ofIntervals}}
	for _, s := range sections {
		t.of = append(t.of, s.variants...)
	}
	t.add("scenario", func(v scenario.Summary) cell { return cell{Text: v.Scenario} })
	t.add("variant", nameCell)
	t.add("expectations", expectationsCell)
	t.add("runs", func(v scenario.Summary) cell { return cell{Text: fmt.Sprint(v.Runs)} })
	t.figure("time s", "seconds", spread)
	t.figure("± sd", "seconds", deviation)
	t.figure("T*/T", "over-t-star", ofLimit)
	t.figure("efficiency (e)", "e", spread)
	t.figure("longest gap s", "gap", spread)
	t.add("CPU-bound", busyCell)
	return t.table
}

// expectationsCell says how many expectations are met, and which are not.
func expectationsCell(s scenario.Summary) cell {
	var missed []string
	for _, e := range s.Missed() {
		missed = append(missed, e.Figure+" "+e.Want)
	}
	met := fmt.Sprintf("%d of %d met", len(s.Expected)-len(missed), len(s.Expected))
	switch {
	case len(missed) > 0:
		return cell{met + "; not " + strings.Join(missed, ", "), "missed"}
	case len(s.Expected) > 0:
		return cell{met, "met"}
	case s.Baseline:
		return cell{Text: "none, a baseline"}
	}
	return cell{Text: "none"}
}

func (p page) figures() (all []placed) {
	for _, s := range p.Sections {
		all = append(all, s.Figures...)
		for _, r := range s.Runs {
			all = append(all, r.Figures...)
		}
	}
	return all
}

// missing lists the runs that are not drawn, and why.
func (p page) missing() (all []string) {
	for _, s := range p.Sections {
		for _, r := range s.Runs {
			if r.Missing != "" {
				all = append(all, fmt.Sprintf("%s, %s: %s", s.Name, r.Title, r.Missing))
			}
		}
	}
	return all
}

// functions are those of the templates. The HTML template escapes all texts but figures, which
// escape their own; the Markdown template must call plain.
var functions = template.FuncMap{
	"draw":   func(p placed) template.HTML { return template.HTML(p.Inline()) },
	"styles": func() template.CSS { return template.CSS(pageCSS + figure.CSS()) },
	"plain":  plain,
	"code":   code,
	"join":   func(s []string) string { return strings.Join(s, "; ") },
}

var (
	asHTML     = template.Must(template.New("page").Funcs(functions).Parse(pageHTML))
	asMarkdown = markdown.Must(markdown.New("page").Funcs(functions).Parse(pageMarkdown))
)

func (p page) html() string { return filledIn(asHTML, "page", p) }

// markdown returns all tables, with links to the figures.
func (p page) markdown() string { return filledIn(asMarkdown, "page", p) }

// templates are asHTML or asMarkdown.
type templates interface {
	ExecuteTemplate(w io.Writer, name string, values any) error
}

// filledIn returns a template with the values of a page or a table.
func filledIn(t templates, name string, values any) string {
	var b strings.Builder
	if err := t.ExecuteTemplate(&b, name, values); err != nil {
		panic(err) // the template is ours, and tested
	}
	return b.String()
}

// write writes page, tables and figures into a directory. Figures are written in all formats, in
// parallel.
func (p page) write(dir string) (m Made, err error) {
	m = Made{Dir: dir, HTML: filepath.Join(dir, "index.html"), Markdown: filepath.Join(dir, "tables.md")}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return m, fmt.Errorf("create the report's directory: %w", err)
	}
	for name, text := range map[string]string{m.HTML: p.html(), m.Markdown: p.markdown()} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return m, fmt.Errorf("write the report: %w", err)
		}
	}
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, f := range p.figures() {
		m.Figures = append(m.Figures, f.File())
		g.Go(func() error { return f.Write(filepath.Join(dir, f.folder), figure.AllFormats...) })
	}
	return m, g.Wait()
}

func slugOf(s string) string { return figure.Figure{Name: s}.File() }
