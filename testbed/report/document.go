package report

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"braid/testbed/scenario"
)

// A document is prose with blocks that are generated from run directories. The prose never changes.
// A block is
//
//	<!-- runs
//	scenario: candidates-cpu
//	original: {single: 107.2, multi: 82}
//	-->
//	generated text
//	<!-- end of runs -->
type document struct {
	blocks []block
	tail   string // prose after the last
}

// block is a place for results. The comment that begins it describes them in YAML.
type block struct {
	prose     string // before it
	directive string // the comment
	made      string

	Scenario string `yaml:"scenario"`
	// Missed lists all missed expectations, in place of a scenario.
	Missed bool `yaml:"missed"`
	// Original are results of the original system by variant, OriginalIs their unit (default:
	// seconds).
	Original   map[string]string `yaml:"original"`
	OriginalIs string            `yaml:"original_is"`
	// Against is the variant by whose time all times are divided, ours and the original's.
	Against string `yaml:"against"`
	// Figures are additional columns. Figures with an expectation always have one.
	Figures []string `yaml:"figures"`
	// Draw names figures: reached, completion, components; a figure of runs, drawn as dots; or
	// rates, selection, network or cpu with a variant, whose median run is drawn.
	Draw []string `yaml:"draw"`
}

const (
	blockBegins   = "<!-- runs\n"
	directiveEnds = "-->\n"
	blockEnds     = "<!-- end of runs -->"
	maxDocument   = 4 << 20
)

// parseDocument finds the blocks, which begin and end at the beginning of a line.
func parseDocument(text string) (d document, err error) {
	if len(text) > maxDocument {
		return d, fmt.Errorf("the document is larger than %d bytes", maxDocument)
	}
	whole := text
	for {
		prose, rest, found := cutAtLine(text, blockBegins)
		if !found {
			d.tail = text
			return d, nil
		}
		n := 1 + strings.Count(whole[:len(whole)-len(text)+len(prose)], "\n")
		inside, rest, found := strings.Cut(rest, directiveEnds)
		if !found {
			return d, fmt.Errorf("line %d: the comment does not end with %q on a line",
				n, strings.TrimSpace(directiveEnds))
		}
		b := block{prose: prose, directive: blockBegins + inside + directiveEnds}
		decoder := yaml.NewDecoder(strings.NewReader(inside))
		decoder.KnownFields(true)
		if err := decoder.Decode(&b); err != nil {
			return d, fmt.Errorf("line %d: the comment of a block: %w", n, err)
		}
		if b.Missed == (b.Scenario != "") {
			return d, fmt.Errorf("line %d: a block needs either a scenario or missed", n)
		}
		if b.made, text, found = cutAtLine(rest, blockEnds); !found || strings.Contains("\n"+b.made, "\n"+blockBegins) {
			return d, fmt.Errorf("line %d: the block of %s does not end with %q on a line", n, b.name(), blockEnds)
		}
		if slices.ContainsFunc(d.blocks, func(x block) bool { return x.name() == b.name() }) {
			return d, fmt.Errorf("line %d: there are two blocks of %s", n, b.name())
		}
		d.blocks = append(d.blocks, b)
	}
}

func (b block) name() string {
	if b.Missed {
		return "missed expectations"
	}
	return b.Scenario
}

// cutAtLine cuts a text around the first line that begins with a mark.
func cutAtLine(text, mark string) (before, after string, found bool) {
	if after, found = strings.CutPrefix(text, mark); found {
		return "", after, true
	}
	before, after, found = strings.Cut(text, "\n"+mark)
	if found {
		before += "\n"
	}
	return before, after, found
}

func (d document) String() string {
	var b strings.Builder
	for _, x := range d.blocks {
		b.WriteString(x.prose + x.directive + x.made + blockEnds)
	}
	return b.String() + d.tail
}

// check returns an error for variants and figures in the block that the scenario does not have.
func (b block) check(s scenario.Scenario) error {
	has := func(v string) bool {
		return slices.ContainsFunc(s.Variants, func(x scenario.Variant) bool { return x.Name == v })
	}
	var errs []error
	need := func(what, v string) {
		if !has(v) {
			errs = append(errs, fmt.Errorf("%s: scenario %s has no variant %q", what, s.Name, v))
		}
	}
	for v := range b.Original {
		need("original", v)
	}
	if b.Against != "" {
		need("against", b.Against)
	}
	figures := slices.Clone(b.Figures)
	for _, d := range b.Draw {
		if _, v, ok := strings.Cut(d, " "); ok {
			need("draw", v)
		} else if d != "reached" && d != "completion" && d != "components" {
			figures = append(figures, d)
		}
	}
	for _, f := range figures {
		if s.Meaning(f) == "" {
			errs = append(errs, fmt.Errorf("scenario %s has no figure %q", s.Name, f))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}
