// Package bench has what braid's benchmarks share: processes whose CPU time is known (process.go),
// data and a seeder for whole downloads (payload.go), the turns of cases, medians over runs, rows
// as a table or as JSON, and an AS that needs no process. It measures nothing itself; the
// benchmarks are the packages dhtbench to transportbench beside it, and linkemu.
package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
)

// Figures returns the value of a figure in each run, in increasing order.
func Figures[T any](runs []T, figure func(T) float64) []float64 {
	v := make([]float64, len(runs))
	for i, r := range runs {
		v[i] = figure(r)
	}
	slices.Sort(v)
	return v
}

// Median returns the median of a figure over some runs; NaN if there is none.
func Median[T any](runs []T, figure func(T) float64) float64 {
	v := Figures(runs, figure)
	if len(v) == 0 {
		return math.NaN()
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// Range returns the least and the greatest value of a figure over at least one run.
func Range[T any](runs []T, figure func(T) float64) [2]float64 {
	v := Figures(runs, figure)
	return [2]float64{v[0], v[len(v)-1]}
}

// Turns calls do for each of so many cases once in every run, so that changes on the machine affect
// all cases alike. It stops at the first error, or when ctx ends. In any case it calls emit at the
// end for each case that has results.
func Turns[R any](
	ctx context.Context, runs, cases int, do func(run, i int) (R, error), emit func(i int, results []R),
) error {
	results := make([][]R, cases)
	defer func() {
		for i, r := range results {
			if len(r) > 0 {
				emit(i, r)
			}
		}
	}()
	for run := range runs {
		for i := range cases {
			r, err := do(run, i)
			if ctx.Err() != nil { // a process that was killed says nothing
				err = ctx.Err()
			}
			if err != nil {
				return err
			}
			results[i] = append(results[i], r)
		}
	}
	return nil
}

// Rows writes results: as JSON each one at once, as a table all of them at the end.
type Rows struct {
	encoder *json.Encoder // nil for a table
	table   *tabwriter.Writer
	err     error
}

// NewRows starts a table with these column heads, or JSON. A tab ends each head.
func NewRows(w io.Writer, asJSON bool, heads string) *Rows {
	if asJSON {
		return &Rows{encoder: json.NewEncoder(w)}
	}
	r := &Rows{table: tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)}
	fmt.Fprintln(r.table, heads)
	return r
}

// Add writes a result: the value itself as JSON, or the cells as a row of the table.
func (r *Rows) Add(v any, format string, cells ...any) {
	if r.encoder != nil {
		r.err = errors.Join(r.err, r.encoder.Encode(v))
		return
	}
	fmt.Fprintf(r.table, format+"\n", cells...)
}

// End writes the table. It returns err, which ended the benchmark, joined with errors of writing.
func (r *Rows) End(err error) error {
	if r.table != nil {
		r.err = errors.Join(r.err, r.table.Flush())
	}
	return errors.Join(err, r.err)
}

// IA is the AS that [OneAS] describes.
const IA = "1-ff00:0:110"

// OneAS writes the configuration of an AS whose hosts are all on this machine. Such an AS has no
// routers, and nobody asks its control service, so it needs no process.
func OneAS(dir string, mtu int) error {
	const services = `{"cs1":{"addr":"127.0.0.1:30252"}}`
	topology := fmt.Sprintf(`{"isd_as":%q,"mtu":%d,"dispatched_ports":"1024-65535","attributes":["core"],`+
		`"control_service":%s,"discovery_service":%s}`, IA, mtu, services, services)
	return errors.Join(os.MkdirAll(filepath.Join(dir, "certs"), 0o700),
		os.WriteFile(filepath.Join(dir, "topology.json"), []byte(topology), 0o600))
}
