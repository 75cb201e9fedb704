package pathsel

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Step is one view and what a selector made of it: a line of a trace, as JSON.
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

// ReadTrace reads the lines of a trace until its end.
func ReadTrace(r io.Reader) ([]Step, error) {
	var out []Step
	for d := json.NewDecoder(r); ; {
		var s Step
		if err := d.Decode(&s); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return out, fmt.Errorf("read path-selection trace, step %d: %w", len(out)+1, err)
		}
		out = append(out, s)
	}
}

// Replay asks a selector what it makes of recorded views, with a memory of its own. The views stay as
// they were recorded: what would have become of its decisions cannot be known, only what they would have been
// in the same situations. Given the selector of the trace, and the whole of it, the plans are the recorded ones.
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
