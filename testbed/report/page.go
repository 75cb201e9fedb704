package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"path/filepath"
	"slices"
	"strings"

	"braid/testbed/figure"
	"braid/testbed/linkemu"
	"braid/testbed/scenario"
)

//go:embed page.html
var pageHTML string

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

func buildPage(run scenario.RunDir, o Options) (page, error) {
	p := page{Reserve: "CPU-bound", Title: "Runs of " + run.Began.Format("2 January 2006, 15:04 MST"), Facts: factsOf(run)}
	for _, s := range run.Scenarios {
		sec, err := buildSection(run, s, o)
		if err != nil {
			return p, err
		}
		p.Sections = append(p.Sections, sec)
	}
	p.Summary = summaryTable(p.Sections)
	busy := 0
	for _, r := range run.Results {
		if len(r.CPUBound) > 0 {
			busy++
		}
	}
	if busy > 0 {
		p.Bound = fmt.Sprintf("In %d of %d runs the machine and not a link was the limit. Their figures say little about braid; they are marked CPU-bound.", busy, len(run.Results))
	}
	return p, nil
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
		facts = append(facts, fact{"memory; load before", fmt.Sprintf("%.1f GiB; %.2f", float64(a.Memory)/(1<<30), a.Load)})
	}
	var modules []string
	for name, version := range a.Modules {
		modules = append(modules, name+" "+version)
	}
	slices.Sort(modules)
	facts = append(facts, fact{"built with", strings.Join(append([]string{a.Go}, modules...), ", ")})
	if a.Emulator != (linkemu.Settings{}) {
		facts = append(facts, fact{"link emulator", fmt.Sprintf("collects packets for at most %v; a packet is late after %v", a.Emulator.Quantum, a.Emulator.LateAfter)})
	}
	return facts
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// again returns the command that repeats the scenario.
func again(f scenario.ScenarioFile, s scenario.Scenario, run scenario.RunDir) string {
	most := 0
	variants := map[string]bool{}
	for _, r := range run.Results {
		if r.Scenario == s.Name {
			most = max(most, r.Run)
			variants[r.Variant] = true
		}
	}
	name := f.Name
	if !slices.Contains(scenario.Shipped(), name) {
		name += ".yaml"
	}
	c := fmt.Sprintf("braid testbed run %s --runs %d", name, most)
	if whole, err := f.Scenario(); err != nil || len(whole.Variants) > len(variants) {
		for _, v := range s.Variants {
			if variants[v.Name] {
				c += " --variant " + v.Name
			}
		}
	}
	if f.Scale != 0 && f.Scale != 1 {
		c += fmt.Sprintf(" --scale %g", f.Scale)
	}
	return c + " -o DIR"
}

// summaryTable summarises the report.
func summaryTable(sections []section) table {
	t := table{
		Caption: "All scenarios: medians", Head: []string{"scenario", "variant", "expectations", "runs", "time s", "± sd", "T*/T", "efficiency (e)", "longest gap s", "CPU-bound"}, Names: 3,
		Note: ofIntervals,
	}
	for _, s := range sections {
		for _, v := range s.variants {
			x := v.summary
			expected := cell{"none", ""}
			if x.Baseline {
				expected.Text = "none, a baseline"
			}
			if n := len(x.Expected); n > 0 {
				var missed []string
				for _, e := range x.Expected {
					if !e.Met {
						missed = append(missed, e.Figure+" "+e.Want)
					}
				}
				expected = cell{fmt.Sprintf("%d of %d met", n-len(missed), n), "met"}
				if len(missed) > 0 {
					expected = cell{expected.Text + "; not " + strings.Join(missed, ", "), "missed"}
				}
			}
			median := func(name string) string {
				if f, ok := x.Figures[name]; ok {
					return spread(f)
				}
				return "-"
			}
			row := append(cells(s.Name, v.name), expected)
			row = append(row, cells(fmt.Sprint(x.Runs), median("seconds"), "-", "-", median("e"), median("gap"))...)
			if f := x.Figures["seconds"]; f.Runs > 1 {
				row[5].Text = value(f.SD)
			}
			if f, ok := x.Figures["over-t-star"]; ok {
				row[6].Text = value(1 / f.Median)
			}
			busy := cell{"no", ""}
			if x.CPUBound > 0 {
				busy = cell{fmt.Sprintf("%d of %d", x.CPUBound, x.Runs), "bound"}
			}
			t.Rows = append(t.Rows, append(row, busy))
		}
	}
	return t
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

var page1 = template.Must(template.New("page").Funcs(template.FuncMap{
	// Figures escape their texts; the template escapes everything else.
	"draw":   func(p placed) template.HTML { return template.HTML(p.Inline()) },
	"styles": func() template.CSS { return template.CSS(pageCSS + figure.CSS()) },
	"number": func(t table, i int) bool { return t.Number(i) },
}).Parse(pageHTML))

func (p page) html() ([]byte, error) {
	var b bytes.Buffer
	if err := page1.Execute(&b, p); err != nil {
		return nil, fmt.Errorf("write the page: %w", err)
	}
	return b.Bytes(), nil
}

// markdown returns all tables, with links to the figures.
func (p page) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n", plain(p.Title))
	if p.Bound != "" {
		fmt.Fprintf(&b, "**%s**\n\n", plain(p.Bound))
	}
	for _, f := range p.Facts {
		fmt.Fprintf(&b, "- %s: %s\n", plain(f.Name), plain(f.Value))
	}
	b.WriteString("\n" + p.Summary.markdown())
	for _, s := range p.Sections {
		fmt.Fprintf(&b, "## %s\n\n", plain(s.Name))
		if s.About != "" {
			fmt.Fprintf(&b, "%s\n\n", plain(s.About))
		}
		if s.Again != "" {
			fmt.Fprintf(&b, "Again: `%s`\n\n", strings.ReplaceAll(s.Again, "`", ""))
		}
		if len(s.Bound) > 0 {
			fmt.Fprintf(&b, "**%s %s**\n\n", p.Reserve, plain(strings.Join(s.Bound, "; ")))
		}
		pictures(&b, s.Figures)
		for _, t := range s.Tables {
			b.WriteString(t.markdown())
		}
		for _, r := range s.Runs {
			fmt.Fprintf(&b, "### %s\n\n", plain(s.Name+", "+r.Title))
			if len(r.Bound) > 0 {
				fmt.Fprintf(&b, "**CPU-bound: %s**\n\n", plain(strings.Join(r.Bound, "; ")))
			}
			for _, e := range r.Events {
				fmt.Fprintf(&b, "- %s\n", plain(e))
			}
			if len(r.Events) > 0 {
				b.WriteByte('\n')
			}
			pictures(&b, r.Figures)
			for _, t := range append(slices.Clone(r.Tables), r.Folded...) {
				b.WriteString(t.markdown())
			}
		}
	}
	return b.String()
}

func pictures(b *strings.Builder, figures []placed) {
	for _, f := range figures {
		fmt.Fprintf(b, "![%s](%s.svg)\n\n", plain(f.Title), f.File())
	}
}

func slugOf(s string) string { return figure.Figure{Name: s}.File() }
