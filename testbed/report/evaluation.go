package report

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"braid/testbed/figure"
	"braid/testbed/scenario"
)

// Evaluated says what Evaluate did.
type Evaluated struct {
	Document string `json:"document"`
	// Made are the scenarios whose blocks were made anew, Kept those whose blocks stay as they
	// were, since no run directory has them, Unplaced those that were run and have no block.
	Made     []string `json:"made"`
	Kept     []string `json:"kept"`
	Unplaced []string `json:"unplaced"`
	Figures  int      `json:"figures"`
}

// String describes what Evaluate did, in a line for each kind of scenario.
func (e Evaluated) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d blocks made, with %d figures\n", e.Document, len(e.Made), e.Figures)
	if len(e.Kept) > 0 {
		fmt.Fprintf(&b, "as they were: %s\n", strings.Join(e.Kept, ", "))
	}
	if len(e.Unplaced) > 0 {
		fmt.Fprintf(&b, "run, but without a block: %s\n", strings.Join(e.Unplaced, ", "))
	}
	return b.String()
}

// Evaluate regenerates the blocks of a document and of its chapters from run directories, and keeps
// the prose. Chapters are the Markdown files in the folder beside the document that has its name.
// If several directories have a scenario, the last one counts.
func Evaluate(name string, runs []scenario.RunDir) (Evaluated, error) {
	e := Evaluated{Document: name}
	chapters, err := filepath.Glob(filepath.Join(figuresOf(name), "*.md"))
	if err != nil {
		return e, fmt.Errorf("find the chapters of %s: %w", name, err)
	}
	for _, file := range append([]string{name}, chapters...) {
		if err := e.evaluate(file, runs); err != nil {
			return e, err
		}
	}
	for _, run := range runs {
		for _, s := range run.Scenarios {
			if !slices.Contains(e.Made, s.Name) && !slices.Contains(e.Unplaced, s.Name) {
				e.Unplaced = append(e.Unplaced, s.Name)
			}
		}
	}
	return e, nil
}

// figuresOf returns the folder beside a document that has its name. It holds the document's figures
// and chapters.
func figuresOf(document string) string { return strings.TrimSuffix(document, filepath.Ext(document)) }

// evaluate regenerates the blocks of one file.
func (e *Evaluated) evaluate(file string, runs []scenario.RunDir) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the evaluation: %w", err)
	}
	d, err := parseDocument(string(text))
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	for i := range d.blocks {
		b := &d.blocks[i]
		if b.Missed {
			b.made = "\n" + missedTable(runs).markdown()
			continue
		}
		run, s, ok := lastOf(runs, b.Scenario)
		if !ok {
			e.Kept = append(e.Kept, b.Scenario)
			continue
		}
		n, err := b.make(run, s, file)
		if err != nil {
			return fmt.Errorf("evaluate %s of %s: %w", b.Scenario, run.Dir, err)
		}
		e.Made, e.Figures = append(e.Made, b.Scenario), e.Figures+n
	}
	if made := d.String(); made != string(text) {
		err := os.WriteFile(file+".new", []byte(made), 0o644)
		if err == nil {
			err = os.Rename(file+".new", file)
		}
		if err != nil {
			return fmt.Errorf("write the evaluation: %w", err)
		}
	}
	return nil
}

func lastOf(runs []scenario.RunDir, name string) (scenario.RunDir, scenario.Scenario, bool) {
	for _, run := range slices.Backward(runs) {
		for _, s := range run.Scenarios {
			if s.Name == name {
				return run, s, true
			}
		}
	}
	return scenario.RunDir{}, scenario.Scenario{}, false
}

// make generates the block's text, and writes its figures beside the document. It returns the
// number of figures.
func (b *block) make(run scenario.RunDir, s scenario.Scenario, document string) (figures int, err error) {
	file := run.File(s.Name)
	whole, err := file.Scenario()
	if err == nil {
		err = b.check(whole)
	}
	if err != nil {
		return 0, err
	}
	vs := variantsOf(run, s)
	var out strings.Builder
	fmt.Fprintf(&out, "\n*%s*\n\n", plain(s.About))
	fmt.Fprintf(&out, "`%s`\n\n", code(again(file, vs)))
	fmt.Fprintf(&out, "%s\n\n", plain(originOf(run, file)))
	if why := bound(vs); why != nil {
		fmt.Fprintf(&out, "**CPU-bound %s: their times depend on the machine.**\n\n", plain(strings.Join(why, "; ")))
	}
	out.WriteString(b.table(s, vs).markdown())
	if left := without(whole, s); len(left) > 0 {
		fmt.Fprintf(&out, "Not run: %s.\n\n", plain(strings.Join(left, ", ")))
	}
	drawn, err := b.figures(run, s, vs, scaleNote(file, s.Name))
	if err != nil {
		return 0, err
	}
	stem := figuresOf(document)
	dir := filepath.Join(stem, slugOf(s.Name))
	if err := os.RemoveAll(dir); err != nil { // old figures
		return 0, err
	}
	for _, f := range drawn {
		if err := f.Write(dir, ".svg"); err != nil {
			return 0, err
		}
		link := filepath.Join(filepath.Base(stem), filepath.Base(dir), f.File()+".svg")
		fmt.Fprintf(&out, "![%s](%s)\n\n", plain(f.Title), filepath.ToSlash(link))
	}
	b.made = out.String()
	return len(drawn), nil
}

// originOf says which runs the results come from.
func originOf(run scenario.RunDir, f scenario.ScenarioFile) string {
	commit, dirty := strings.CutSuffix(orUnknown(run.Commit), "+")
	commit = commit[:min(len(commit), 12)]
	if dirty {
		commit += " with changes"
	}
	s := fmt.Sprintf("Run directory %s of %s; commit %s; %d × %s",
		filepath.Base(filepath.Clean(run.Dir)), run.Began.Format(longTime), commit, run.CPUs, run.CPU)
	if run.TCP != "" {
		s += fmt.Sprintf("; TCP is %s", run.TCP)
	}
	if run.Load > 0 {
		s += fmt.Sprintf("; load before %.1f", run.Load)
	}
	if f.Scale != 1 {
		s += fmt.Sprintf("; at %.3g of data and times", f.Scale)
	}
	return s + "."
}

// without returns the variants of a scenario that were not run.
func without(whole, run scenario.Scenario) (names []string) {
	for _, v := range whole.Variants {
		if !slices.ContainsFunc(run.Variants, func(x scenario.Variant) bool { return x.Name == v.Name }) {
			names = append(names, v.Name)
		}
	}
	return names
}

// table returns the block's table: a line for each variant, with our results and the original's.
func (b *block) table(s scenario.Scenario, vs []scenario.Summary) table {
	t := columns{of: vs, table: table{Caption: s.Name, Names: 1, Note: "CPU in seconds for each GB of payload."}}
	if slices.ContainsFunc(vs, func(v scenario.Summary) bool { return v.Runs > 1 }) {
		t.Note = "Means ± standard deviation; " + t.Note
	}
	t.add("variant", nameCell)
	t.add("runs", func(v scenario.Summary) cell {
		if v.Failed > 0 || !v.Verified {
			return cell{fmt.Sprintf("%d, %d failed", v.Runs, v.Failed), "missed"}
		}
		return cell{Text: fmt.Sprint(v.Runs)}
	})
	t.add("time s", func(v scenario.Summary) cell { return meanCell(v, "seconds") })
	t.figure("at best s", "t-star", mean)
	t.add("of the limit", func(v scenario.Summary) cell {
		if _, ok := v.Figures["e"]; ok {
			return meanCell(v, "e")
		}
		if f, ok := v.Figures["over-t-star"]; ok {
			return cell{value(1 / f.Mean), meanCell(v, "over-t-star").Mark}
		}
		return cell{Text: "-"}
	})
	for _, c := range scenario.Components {
		t.figure("CPU "+c, "cpu-"+c, mean)
	}
	t.add("CPU-bound", busyCell)
	figures := slices.Clone(b.Figures)
	for _, v := range vs {
		for _, e := range v.Expected {
			if e.Figure != "e" && e.Figure != "over-t-star" && !slices.Contains(figures, e.Figure) {
				figures = append(figures, e.Figure)
			}
		}
	}
	for _, name := range figures {
		head := name
		if want := s.Expect[name]; want != "" {
			head += " (wanted: " + want + ")"
		}
		t.add(head, func(v scenario.Summary) cell { return meanCell(v, name) })
	}
	if b.Against != "" {
		var base float64
		if i := slices.IndexFunc(vs, func(v scenario.Summary) bool { return v.Variant == b.Against }); i >= 0 {
			base = vs[i].Figures["seconds"].Mean
		}
		t.figure("time, × "+b.Against, "seconds", func(r scenario.Range) string { return ratioOf(r.Mean, base) })
	}
	if len(b.Original) > 0 {
		t.add("original, "+cmp.Or(b.OriginalIs, "s"), func(v scenario.Summary) cell {
			return cell{Text: cmp.Or(b.Original[v.Variant], "-")}
		})
		if b.Against != "" {
			t.add("original, × "+b.Against, func(v scenario.Summary) cell {
				x, _ := strconv.ParseFloat(b.Original[v.Variant], 64)
				y, _ := strconv.ParseFloat(b.Original[b.Against], 64)
				return cell{Text: ratioOf(x, y)}
			})
		}
	}
	return t.table
}

func ratioOf(x, base float64) string {
	if !(x > 0 && base > 0) {
		return "-"
	}
	return fmt.Sprintf("%.2f", x/base)
}

// meanCell shows a figure's mean and deviation, and marks a missed expectation.
func meanCell(s scenario.Summary, name string) cell {
	f, ok := s.Figures[name]
	c := cell{Text: "-"}
	if ok {
		c.Text = value(f.Mean)
	}
	if f.Runs > 1 {
		c.Text += " ± " + value(f.SD)
	}
	if ok && f.Runs < s.Runs {
		c.Text += fmt.Sprintf(" in %d", f.Runs)
	}
	for _, e := range s.Missed() {
		if e.Figure == name {
			c.Mark = "missed"
		}
	}
	return c
}

// figures draws the block's figures, without those of variants that were not run.
func (b *block) figures(
	run scenario.RunDir, s scenario.Scenario, vs []scenario.Summary, of string,
) (all []figure.Figure, err error) {
	for _, d := range b.Draw {
		kind, name, ofRun := strings.Cut(d, " ")
		var f figure.Figure
		switch {
		case ofRun:
			i := slices.IndexFunc(vs, func(v scenario.Summary) bool { return v.Variant == name })
			if i < 0 {
				continue
			}
			if f, err = runFigure(run, medianRun(vs[i].Results), kind, of); err != nil {
				return nil, err
			}
			f.Name = kind + "-" + name
		case kind == "reached":
			f = reachedFigure(s, vs, of)
		case kind == "completion":
			f = cdfFigure(s, vs, of)
		case kind == "components":
			f = componentsFigure(vs, of)
		default:
			f = valuesFigure(s, vs, kind, of)
		}
		all = append(all, f)
	}
	return all, nil
}

// runFigure draws one run.
func runFigure(run scenario.RunDir, r scenario.Result, kind, of string) (figure.Figure, error) {
	c, err := courseOf(run, r, of)
	if errors.Is(err, fs.ErrNotExist) {
		return figure.Figure{}, fmt.Errorf("the samples of %s, run %d, are gone: %w", r.Variant, r.Run, err)
	}
	if err != nil {
		return figure.Figure{}, err
	}
	for _, f := range c.figures() {
		if f.Name == kind {
			return f, nil
		}
	}
	return figure.Figure{}, fmt.Errorf("draw: there is no figure %q of a run", kind)
}

// missedTable lists all missed expectations, of the last directory that has each scenario.
func missedTable(runs []scenario.RunDir) table {
	t := table{
		Caption: "Expectations that are missed", Names: 4,
		Head: []string{"scenario", "variant", "figure", "wanted", "median", "runs", "CPU-bound"},
	}
	met := 0
	var seen, dirs []string
	for _, run := range slices.Backward(runs) {
		dirs = append(dirs, filepath.Base(filepath.Clean(run.Dir)))
		for _, s := range run.Scenarios {
			if slices.Contains(seen, s.Name) {
				continue
			}
			seen = append(seen, s.Name)
			for _, v := range variantsOf(run, s) {
				missed := v.Missed()
				met += len(v.Expected) - len(missed)
				for _, e := range missed {
					got := "-"
					if f, ok := v.Figures[e.Figure]; ok {
						got = value(f.Median)
					}
					busy := fmt.Sprintf("%d of %d", v.CPUBound, v.Runs)
					row := cells(v.Scenario, v.Variant, e.Figure, e.Want, got, strconv.Itoa(v.Runs), busy)
					t.Rows = append(t.Rows, row)
				}
			}
		}
	}
	slices.SortStableFunc(t.Rows, func(a, b []cell) int { return strings.Compare(a[0].Text, b[0].Text) })
	slices.Reverse(dirs)
	t.Note = fmt.Sprintf("%d others are met. Run directories: %s.", met, strings.Join(dirs, ", "))
	return t
}
