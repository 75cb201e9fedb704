package pathsel

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"iter"
)

// Step is a view and the selector's plan for it: one line of a trace, as JSON.
type Step struct {
	Selector string `json:"selector"`
	View     View   `json:"view"`
	Plan     Plan   `json:"plan"`
}

// WriteStep appends one line to a trace.
func WriteStep(w io.Writer, s Step) error {
	if err := json.NewEncoder(w).Encode(s); err != nil {
		return fmt.Errorf("write path-selection trace: %w", err)
	}
	return nil
}

// maxStep bounds a line of a trace in memory, since a trace may come from a stranger. A view of a
// hundred peers with a hundred paths each takes some megabytes.
const maxStep = 64 << 20

// Steps reads a trace line by line and stops after the first error.
func Steps(r io.Reader) iter.Seq2[Step, error] {
	return func(yield func(Step, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, maxStep)
		n := 0
		for lines.Scan() {
			n++
			var s Step
			err := json.Unmarshal(lines.Bytes(), &s)
			if err == nil {
				err = s.View.check()
			}
			if err != nil {
				yield(s, fmt.Errorf("read path-selection trace, step %d: %w", n, err))
				return
			}
			if !yield(s, nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(Step{}, fmt.Errorf("read path-selection trace, step %d: %w", n+1, err))
		}
	}
}

// check refuses views that no client makes and that selectors need not handle.
func (v View) check() error {
	if v.MaxPaths < 1 {
		return fmt.Errorf("max_paths %d: want at least 1", v.MaxPaths)
	}
	seen := make(map[Key]bool, len(v.Candidates))
	for _, c := range v.Candidates {
		if seen[c.Key] {
			return fmt.Errorf("candidate %q twice; if it is a further connection on a path, "+
				"which braid no longer opens, braid 0.2 can replay this trace", c.Key)
		}
		seen[c.Key] = true
		if len(c.Path.Interfaces)%2 != 0 {
			return fmt.Errorf("candidate %q: %d interfaces", c.Key, len(c.Path.Interfaces))
		}
	}
	return nil
}

// Replay returns a function that makes a selector's plan for one recorded view after another, with
// a memory of its own. The views stay as recorded, since the effects of other decisions are
// unknown. For a whole trace and its own selector, the plans are the recorded ones.
func Replay(s Selector) func(View) Plan {
	var memory Memory
	return func(v View) Plan {
		v.Memory = memory
		plan := s.Decide(v)
		memory = plan.Memory
		return plan
	}
}
