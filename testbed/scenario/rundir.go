package scenario

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// RunDir is the content of a run directory. Its files are checked, since they may come from
// elsewhere.
type RunDir struct {
	Dir string
	About
	// Scenarios of run.json, each with the variants of which there is a run.
	Scenarios []Scenario
	Results   []Result // by scenario, variant in the scenario's order, and run
}

// Bounds of the files of a run directory.
const (
	maxRunFile    = 16 << 20
	maxResultFile = 4 << 20
)

// OpenRunDir reads the scenarios and results of a run directory. Unfinished runs are left out; at
// least one must be finished.
func OpenRunDir(dir string) (RunDir, error) {
	r := RunDir{Dir: dir}
	if err := readJSON(filepath.Join(dir, runFile), maxRunFile, &r.About); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return r, fmt.Errorf("%s is no run directory: it has no %s", dir, runFile)
		}
		return r, fmt.Errorf("read run directory %s: %w", dir, err)
	}
	for _, f := range r.About.Scenarios {
		if f.Name == "" || !filepath.IsLocal(f.Name) || filepath.Base(f.Name) != f.Name {
			return r, fmt.Errorf("read run directory %s: scenario %q has no name for a folder", dir, f.Name)
		}
		s, err := f.Scenario()
		if err != nil {
			return r, fmt.Errorf("read run directory %s: %w", dir, err)
		}
		variants := s.Variants
		s.Variants = nil
		for _, v := range variants {
			results, err := readResults(dir, s.Name, v.Name)
			if err != nil {
				return r, fmt.Errorf("read run directory %s: %w", dir, err)
			}
			if len(results) > 0 {
				s.Variants = append(s.Variants, v)
				r.Results = append(r.Results, results...)
			}
		}
		if len(s.Variants) > 0 {
			r.Scenarios = append(r.Scenarios, s)
		}
	}
	if len(r.Results) == 0 {
		return r, fmt.Errorf("no run in %s is finished yet", dir)
	}
	return r, nil
}

func readResults(dir, scenario, variant string) ([]Result, error) {
	entries, err := os.ReadDir(filepath.Join(dir, scenario, variant))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var results []Result
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil || n <= 0 || strconv.Itoa(n) != e.Name() {
			continue // not a run
		}
		res, err := readResult(dir, scenario, variant, n)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		results = append(results, res)
	}
	slices.SortFunc(results, func(a, b Result) int { return cmp.Compare(a.Run, b.Run) })
	return results, nil
}

// check returns an error for numbers that no run can have. All others can be drawn and summed.
func (r Result) check() error {
	const most = 1e9
	numbers := []float64{1e3 * r.ZeroS, r.CPU, r.OwnCPU, float64(r.Leechers), float64(r.Verified)}
	for _, f := range r.Figures {
		numbers = append(numbers, f)
	}
	for i, l := range r.Limit {
		numbers = append(numbers, 1e3*l.T, l.MbitS)
		if l.MbitS < 0 || i > 0 && l.T < r.Limit[i-1].T {
			return errors.New("the limit is not one over time")
		}
	}
	for _, p := range r.Peers {
		numbers = append(numbers, 1e3*p.Start, 1e3*p.End) // times of less than 12 days
	}
	for _, v := range numbers {
		if !(v > -most && v < most) {
			return fmt.Errorf("the number %g is out of bounds", v)
		}
	}
	return nil
}

// File is the kept description of one of the scenarios.
func (r RunDir) File(name string) ScenarioFile {
	i := slices.IndexFunc(r.About.Scenarios, func(f ScenarioFile) bool { return f.Name == name })
	if i < 0 {
		return ScenarioFile{}
	}
	return r.About.Scenarios[i]
}

// Record reads the samples of a run.
func (r RunDir) Record(res Result) (*Record, error) {
	i := slices.IndexFunc(r.Scenarios, func(s Scenario) bool { return s.Name == res.Scenario })
	if i < 0 {
		return nil, fmt.Errorf("no scenario %s in the run directory", res.Scenario)
	}
	s, err := r.Scenarios[i].In(res.Variant)
	if err != nil {
		return nil, err
	}
	samples, err := os.Open(filepath.Join(runIn(r.Dir, res.Scenario, res.Variant, res.Run), samplesFile))
	if err != nil {
		return nil, fmt.Errorf("read samples: %w", err)
	}
	defer samples.Close()
	return ReadRecord(s, samples)
}

// ReadRecord reads the samples of a run of a scenario, as it is in its variant.
func ReadRecord(s Scenario, samples io.Reader) (*Record, error) {
	f := newFold(s)
	if err := ReadSamples(samples, f.add); err != nil {
		return nil, err
	}
	return f.record()
}

// runIn returns the folder of a run.
func runIn(dir, scenario, variant string, run int) string {
	return filepath.Join(dir, scenario, variant, strconv.Itoa(run))
}

func readResult(dir, scenario, variant string, run int) (r Result, err error) {
	name := filepath.Join(runIn(dir, scenario, variant, run), resultFile)
	if err = readJSON(name, maxResultFile, &r); err == nil {
		err = r.check()
	}
	if err != nil {
		return r, fmt.Errorf("read %s: %w", name, err)
	}
	if r.Scenario != scenario || r.Variant != variant || r.Run != run {
		return r, fmt.Errorf("%s is not the result of %s, %s, run %d", name, scenario, variant, run)
	}
	return r, nil
}

func readJSON(name string, most int64, to any) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return err
	}
	if int64(len(b)) > most {
		return fmt.Errorf("larger than %d bytes", most)
	}
	return json.Unmarshal(b, to)
}
