package report

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"braid/testbed/scenario"
)

// A document is prose with blocks that are made from run directories. Prose is somebody's and never touched; a block is
//
//	<!-- runs
//	scenario: candidates-cpu
//	original: {single: 107.2, multi: 82}
//	-->
//	made, and made again
//	<!-- end of runs -->
type document struct {
	blocks []block
	tail   string // prose after the last
}

// block is a place for results, and what they shall be. It stands in YAML in the comment that begins it.
type block struct {
	prose     string // before it
	directive string // the comment, as it stands
	made      string

	Scenario string `yaml:"scenario"`
	// Missed, in place of a scenario, lists every expectation that is not met.
	Missed bool `yaml:"missed"`
	// Original has the figures of somebody else's system by variant, OriginalIs what they are: by default seconds.
	Original   map[string]string `yaml:"original"`
	OriginalIs string            `yaml:"original_is"`
	// Against is a variant whose time those of the others are divided by, ours and the original's.
	Against string `yaml:"against"`
	// Figures are more columns; those of which something is expected have one anyway.
	Figures []string `yaml:"figures"`
	// Draw names figures: reached, completion, components, a figure of which each run is a dot, or "rates", "selection",
	// "network" or "cpu" with the variant whose median run is drawn.
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
	for {
		prose, rest, found := cutAtLine(text, blockBegins)
		if !found {
			d.tail = text
			return d, nil
		}
		n := strings.Count(text[:len(prose)], "\n") + 1
		inside, rest, found := strings.Cut(rest, directiveEnds)
		if !found {
			return d, fmt.Errorf("the comment of a block, %d lines after the block before, does not end with %q on a line", n, strings.TrimSpace(directiveEnds))
		}
		b := block{prose: prose, directive: blockBegins + inside + directiveEnds}
		decoder := yaml.NewDecoder(strings.NewReader(inside))
		decoder.KnownFields(true)
		if err := decoder.Decode(&b); err != nil {
			return d, fmt.Errorf("a block, %d lines after the block before: %w", n, err)
		}
		if b.Missed == (b.Scenario != "") {
			return d, fmt.Errorf("a block, %d lines after the block before, is to be either of a scenario or of what is missed", n)
		}
		if b.made, text, found = cutAtLine(rest, blockEnds); !found || strings.Contains("\n"+b.made, "\n"+blockBegins) {
			return d, fmt.Errorf("the block of %s does not end with %q on a line", b.name(), blockEnds)
		}
		if slices.ContainsFunc(d.blocks, func(x block) bool { return x.name() == b.name() }) {
			return d, fmt.Errorf("there are two blocks of %s", b.name())
		}
		d.blocks = append(d.blocks, b)
	}
}

func (b block) name() string {
	if b.Missed {
		return "what is missed"
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

// check tells what a block asks of a scenario that it does not have.
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
	for _, d := range b.Draw {
		if _, v, ok := strings.Cut(d, " "); ok {
			need("draw", v)
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}
