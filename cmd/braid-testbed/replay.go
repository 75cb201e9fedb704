package main

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"braid/commands/flags"
	"braid/commands/program"
	"braid/commands/terminal"
	"braid/pathsel"
)

func replayCommand() *cli.Command {
	return &cli.Command{
		Name:         "replay",
		Usage:        "replay a recorded trace with another selector",
		ArgsUsage:    "TRACE",
		ArgValidator: flags.Arguments(1, 1, "name one trace; see braid-testbed replay --help"),
		Description: "TRACE is a file of braid download --trace; if its name ends in .gz, it is " +
			"decompressed. The selector sees the recorded situations, so the effects of its own " +
			"decisions do not show. Prints a line for each step at which the selectors decide " +
			"differently, and then a comparison.",
		Flags: append(flags.Selector(), flags.Bool("json", "print one JSON object for "+
			"each differing step, and one at the end")),
		Action: replayTrace,
	}
}

// replayStep is a step at which the selectors decide differently.
type replayStep struct {
	Event    string             `json:"event"` // step
	Step     int                `json:"step"`  // from 1
	T        float64            `json:"t"`     // seconds after the first step
	Recorded []pathsel.Decision `json:"recorded"`
	Replayed []pathsel.Decision `json:"replayed"`
}

// replayEnd compares the selectors over the whole trace.
type replayEnd struct {
	Event     string     `json:"event"` // end
	Steps     int        `json:"steps"`
	Seconds   float64    `json:"seconds"`
	Different int        `json:"different_steps"`
	Recorded  replaySide `json:"recorded"`
	Replayed  replaySide `json:"replayed"`
}

type replaySide struct {
	Selector  string `json:"selector"`
	Decisions int    `json:"decisions"`
	// Selected are the decisions that put a path-level peer to work, Dropped those that took it
	// from it.
	Selected int `json:"selected"`
	Dropped  int `json:"dropped"`
}

func (s *replaySide) count(p pathsel.Plan) {
	s.Decisions += len(p.Decisions)
	for _, d := range p.Decisions {
		switch d.Action {
		case pathsel.Open, pathsel.Return:
			s.Selected++
		case pathsel.Close, pathsel.Park, pathsel.Fail:
			s.Dropped++
		}
	}
}

func replayTrace(_ context.Context, c *cli.Command) error {
	reader := &flags.Reader{Command: c}
	selector := flags.ReadSelector(reader)
	if reader.Err != nil {
		return reader.Err
	}
	f, err := openTrace(program.EnvOf(c).Path(c.Args().First()))
	if err != nil {
		return err
	}
	defer f.Close()
	return replay(f, selector, terminal.Stdout(c), c.Bool("json"))
}

// replay reads a trace step by step, since that of a long download does not fit into memory.
func replay(trace io.Reader, selector pathsel.Selector, out *terminal.Printer, asJSON bool) error {
	end := replayEnd{Event: "end", Replayed: replaySide{Selector: selector.Name()}}
	decide := pathsel.Replay(selector)
	var first time.Time
	for s, err := range pathsel.Steps(trace) {
		if err != nil {
			return err
		}
		if end.Steps++; end.Steps == 1 {
			first, end.Recorded.Selector = s.View.Now, s.Selector
		}
		plan := decide(s.View)
		end.Recorded.count(s.Plan)
		end.Replayed.count(plan)
		end.Seconds = s.View.Now.Sub(first).Seconds()
		if sameActions(s.Plan.Decisions, plan.Decisions) {
			continue
		}
		end.Different++
		step := replayStep{"step", end.Steps, end.Seconds, s.Plan.Decisions, plan.Decisions}
		if asJSON {
			err = terminal.PrintObjects(out, step)
		} else {
			out.Printf("%8.1f s  %s: %s\n            %s: %s\n",
				step.T, s.Selector, decisions(step.Recorded),
				selector.Name(), decisions(step.Replayed))
		}
		if err := cmp.Or(err, out.LostOutput()); err != nil {
			return err
		}
	}
	if end.Steps == 0 {
		return errors.New("the trace has no step")
	}
	if asJSON {
		return terminal.PrintObjects(out, end)
	}
	out.Printf("%d steps in %.1f s, %d decided differently\n",
		end.Steps, end.Seconds, end.Different)
	for _, s := range []replaySide{end.Recorded, end.Replayed} {
		out.Printf("%-10s %4d decisions, %4d put a path to work, %4d took one from it\n",
			s.Selector, s.Decisions, s.Selected, s.Dropped)
	}
	return nil
}

// sameActions tells whether two lists of decisions are equal, apart from their reasons.
func sameActions(a, b []pathsel.Decision) bool {
	return slices.EqualFunc(a, b, func(x, y pathsel.Decision) bool {
		return x.Key == y.Key && x.Action == y.Action
	})
}

func decisions(list []pathsel.Decision) string {
	if len(list) == 0 {
		return "-"
	}
	var s []string
	for _, d := range list {
		s = append(s, fmt.Sprintf("%s %s (%s)", d.Action, d.Key, d.Reason))
	}
	return strings.Join(s, "; ")
}

// openTrace opens a trace for reading.
func openTrace(name string) (io.ReadCloser, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open the trace: %w", err)
	}
	if !strings.HasSuffix(name, ".gz") {
		return f, nil
	}
	z, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open the trace %s: %w", name, err)
	}
	return struct {
		io.Reader
		io.Closer
	}{z, f}, nil
}
