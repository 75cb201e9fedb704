package knowledgebench

import (
	"context"
	"errors"
	"testing"
)

// In one world, with few downloads: hints lead to the best paths, and lies cost little.
func TestRun(t *testing.T) {
	got := map[[3]string]Row{}
	if err := Run(t.Context(), Config{Worlds: 1, Seed: 1, rounds: 1, pairs: 2}, func(r Row) {
		got[[3]string{r.Experiment, r.Order + r.Hints, r.Nth}] = r
		if r.Runs == 0 || r.First.P50 <= 0 || r.First.P90 < r.First.P50 || r.Done.P50 <= r.First.P50 || r.Early.P50 <= 0 {
			t.Errorf("%+v", r)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if len(got) != 3*2+3*5 {
		t.Errorf("%d rows", len(got))
	}
	without, with, lies := got[[3]string{"paths", "off", "10"}], got[[3]string{"paths", "on", "10"}], got[[3]string{"paths", "lies", "10"}]
	if with.Done.P50 > 0.9*without.Done.P50 || with.BestSet.P50 >= without.BestSet.P50 {
		t.Errorf("with hints %+v, without %+v", with, without)
	}
	if lies.Done.P50 > 1.5*without.Done.P50 {
		t.Errorf("with lies %+v, without %+v", lies, without)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Run(ctx, Config{Worlds: 1}, func(Row) {}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestRegions(t *testing.T) {
	r := readRegions()
	if len(r.names) != 16 || len(r.delay) != 16 {
		t.Fatalf("%d regions, %d rows", len(r.names), len(r.delay))
	}
	for i, row := range r.delay {
		if len(row) != 16 {
			t.Errorf("%s: %d delays", r.names[i], len(row))
		}
		for k, d := range row {
			if d <= 0 || (i == k) != (d < r.delay[i][(k+1)%16]/2 && d.Milliseconds() < 1) {
				t.Errorf("%s to %s: %v", r.names[i], r.names[k], d)
			}
		}
	}
}

// Of an even number of values, the median is the mean of the two in the middle. The 90th percentile
// of ten values is the ninth.
func TestRow(t *testing.T) {
	var of []sample
	for n := range 10 {
		of = append(of, sample{done: float64(10 - n)})
	}
	if got, want := row(Row{}, of).Done, (Spread{P50: 5.5, P90: 9}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := row(Row{}, of[:1]).Done; got != (Spread{10, 10}) {
		t.Errorf("of one value: %+v", got)
	}
}
