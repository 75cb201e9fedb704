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

// Steps reads a trace line by line and stops after the first error. A line may have at most most
// bytes, since a trace may come from a stranger.
func Steps(r io.Reader, most int) iter.Seq2[Step, error] {
	return func(yield func(Step, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, most)
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

// ReadTrace reads a whole trace.
func ReadTrace(r io.Reader) ([]Step, error) {
	const most = 64 << 20 // bytes of a line
	var out []Step
	for s, err := range Steps(r, most) {
		if err != nil {
			return out, err
		}
		out = append(out, s)
	}
	return out, nil
}

// Replay returns the plans of a selector for recorded views, with a memory of its own. The views
// stay as recorded, since the effects of other decisions are unknown. For a whole trace and its own
// selector, the plans are the recorded ones.
func Replay(steps []Step, s Selector) []Plan {
	var memory Memory
	plans := make([]Plan, len(steps))
	for i, step := range steps {
		step.View.Memory = memory
		plans[i] = s.Decide(step.View)
		memory = plans[i].Memory
	}
	return plans
}
