package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/urfave/cli/v3"
)

// benchRows writes what a benchmark finds: with --json one object for each case, at once, else one table in the end.
type benchRows struct {
	encoder *json.Encoder // nil without --json
	table   *tabwriter.Writer
	err     error
}

// newBenchRows begins a table with these heads of columns, each with a tab behind it.
func newBenchRows(cmd *cli.Command, heads string) *benchRows {
	out := stdout(cmd)
	if cmd.Bool("json") {
		return &benchRows{encoder: json.NewEncoder(out)}
	}
	b := &benchRows{table: tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)}
	fmt.Fprintln(b.table, heads)
	return b
}

// add writes a case: the value itself, or a row of the table.
func (b *benchRows) add(v any, format string, cells ...any) {
	if b.encoder != nil {
		b.err = errors.Join(b.err, b.encoder.Encode(v))
		return
	}
	fmt.Fprintf(b.table, format+"\n", cells...)
}

// end writes the table, and returns what went wrong in the benchmark or in writing.
func (b *benchRows) end(err error) error {
	if b.table != nil {
		b.err = errors.Join(b.err, b.table.Flush())
	}
	return errors.Join(err, b.err)
}
