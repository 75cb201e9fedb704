package scenario

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"

	"braid/testbed"
)

// Options say how scenarios are run.
type Options struct {
	// Dir is the run directory. If it has some of the runs already, only the others are run.
	Dir string
	// Runs of each scenario and variant; 0: what each scenario says.
	Runs int
	// Braid is the program that the peers run, and Lab the program braid-testbed, which runs fast
	// routers and prepares hosts on IP. SCIONBin is the directory of the SCION programs ("": as
	// testbed.Options).
	Braid, Lab, SCIONBin string
	// Commit is the one that Braid was built from, with + if there were changes; "" if unknown.
	Commit string
	// RouterCommand, if not empty, is the border router of every scenario.
	RouterCommand []string
	// Say is called with a line for each step.
	Say func(string)
	Hooks
}

// Hooks show a run while it happens. Those that are nil are not called.
type Hooks struct {
	Network  func(testbed.Progress)                    // while the network starts
	Heard    func(v Variant, peer string, message any) // a peer's event, a type of node/event
	Finished func(Result)
}

// The run directory:
//
//	run.json                             what was run, on what
//	SCENARIO/VARIANT/RUN/samples.jsonl   all samples
//	SCENARIO/VARIANT/RUN/PEER.log        a peer's standard error
//	SCENARIO/VARIANT/RUN/result.json     its figures; written last, so an interrupted run has none
//	SCENARIO/network.log                 the testbed's own log
//	SCENARIO/network-logs                logs of the processes of a network that did not start
//	summary.csv                          every figure of every run
//	lock                                 locked while a runner is at work here
const (
	runFile    = "run.json"
	resultFile = "result.json"
	csvFile    = "summary.csv"
	dataName   = "data" // the file that is transferred
)

// Run makes the runs that are not in the run directory yet, and returns the results of all.
// Variants take turns (see turns), so changes on the machine affect all of them.
func Run(ctx context.Context, scenarios []Scenario, o Options) (all []Result, err error) {
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("create run directory: %w", err)
	}
	claimed, err := claim(o.Dir)
	if err != nil {
		return nil, err
	}
	defer claimed.Close()
	if err := writeRun(o, scenarios); err != nil {
		return nil, err
	}
	_ = testbed.RaisePriority() // without it, the links have no priority over peers
	h, err := newFixtures()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	var errs []error
	for _, s := range scenarios {
		if o.Runs > 0 {
			s.Runs = o.Runs
		}
		results, err := runScenario(ctx, s, o, h)
		all = append(all, results...)
		if err != nil {
			errs = append(errs, fmt.Errorf("scenario %s: %w", s.Name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	// Runs that this command did not ask for, or did not reach, stay in the table.
	written := all
	if there, err := OpenRunDir(o.Dir); err == nil {
		written = there.Results
	}
	// Return what there is, even if the rest failed.
	return all, errors.Join(append(errs, writeCSV(filepath.Join(o.Dir, csvFile), written))...)
}

// mostInRow is how many runs of a scenario may fail one after another before the rest is left out.
// An experiment of hours survives one mishap, but does not repeat a permanent failure hundreds of
// times.
const mostInRow = 2

// runScenario makes the missing runs of a scenario. A run that fails, such as one without any
// payload, has no result, so the next command repeats it.
func runScenario(ctx context.Context, s Scenario, o Options, h *fixtures) (results []Result, err error) {
	turns, err := s.turns()
	if err != nil {
		return nil, err
	}
	var wrong []error
	row := 0
	for run := 1; run <= s.Runs; run++ {
		for _, t := range turns {
			res, err := readResult(o.Dir, s.Name, t.variant.Name, run)
			if err == nil {
				results = append(results, res)
				continue
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return results, err
			}
			if c := t.missing(); c != "" {
				o.Say(fmt.Sprintf("%s %s: left out, because %s is not installed; run ./scripts/install-deps",
					s.Name, t.variant.Name, c))
				continue
			}
			if res, err = h.run(ctx, t, run, runIn(o.Dir, s.Name, t.variant.Name, run), o); err == nil {
				o.Say(res.line())
				if o.Finished != nil {
					o.Finished(res)
				}
				results, row = append(results, res), 0
				continue
			}
			err = fmt.Errorf("variant %s, run %d: %w", t.variant.Name, run, err)
			// The next run starts with a new network.
			wrong = append(wrong, err, h.closeNetwork())
			if ctx.Err() != nil {
				return results, errors.Join(wrong...)
			}
			o.Say(fmt.Sprintf("%s: %v", s.Name, err))
			if row++; row == mostInRow {
				return results, errors.Join(wrong...)
			}
		}
	}
	return results, errors.Join(wrong...)
}

// run makes one run, and removes what its peers have written.
func (h *fixtures) run(ctx context.Context, t turn, run int, dir string, o Options) (res Result, err error) {
	a := &attempt{
		Scenario: t.Scenario, fixtures: h, braid: o.Braid, lab: o.Lab, hooks: o.Hooks, variant: t.variant, dir: dir,
		messages: make(chan message), done: make(chan struct{}),
	}
	if len(t.Traffic) > 0 {
		defer h.closeHosts()
	}
	if a.data, err = h.dataset(ctx, t.Scenario); err != nil {
		return res, err
	}
	if err := h.open(ctx, t, o); err != nil {
		return res, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return res, err
	}
	if a.scratch, err = os.MkdirTemp(h.scratch, "run-"); err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(a.scratch)) }()
	if res, err = a.run(ctx); err != nil {
		return res, err
	}
	res.Run = run
	return res, testbed.WriteJSON(filepath.Join(dir, resultFile), res)
}

// writeRun writes run.json. Once a run is finished, it checks instead that the run directory is of
// the same scenarios and program.
func writeRun(o Options, scenarios []Scenario) error {
	name := filepath.Join(o.Dir, runFile)
	now := about(o.Braid, scenarios)
	now.Commit = o.Commit
	var before About
	err := readJSON(name, maxRunFile, &before)
	finished, _ := fs.Glob(os.DirFS(o.Dir), "*/*/*/"+resultFile) // the pattern is right
	if errors.Is(err, fs.ErrNotExist) || len(finished) == 0 {
		if err := testbed.WriteJSON(name, now); err != nil {
			return fmt.Errorf("write run directory: %w", err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("read run directory %s: %w", o.Dir, err)
	}
	sameBraid := before.Commit == now.Commit && before.Program == now.Program
	if !sameBraid || !reflect.DeepEqual(before.Scenarios, now.Scenarios) {
		return fmt.Errorf("%s has runs of other scenarios, with another scale, or of another "+
			"version of braid; choose another directory", o.Dir)
	}
	return nil
}
