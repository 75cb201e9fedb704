package storagebench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// go test -bench Storage ./testbed/storagebench; braid-testbed bench storage prints the same as a table.
func BenchmarkStorage(b *testing.B) {
	for _, c := range Cases(128 << 20) {
		b.Run(fmt.Sprintf("%s/%s/%dKiB", c.Storage, c.Order, c.PieceLength>>10), func(b *testing.B) {
			b.SetBytes(c.Bytes)
			for b.Loop() {
				r, err := Measure(b.Context(), c, b.TempDir())
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(r.WriteMBs, "write-MB/s")
				b.ReportMetric(r.ReadMBs, "read-MB/s")
				b.ReportMetric(r.CPUPerGB, "cpu-s/GB")
				b.ReportMetric(r.PeakAnonMiB, "peak-MiB")
			}
		})
	}
}

// A comparison that is interrupted keeps the results that it has.
func TestCompareInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cases := Cases(1 << 20)[:3]
	var got []string
	c := Comparison{Cases: cases, Runs: 2, Dir: t.TempDir(), Progress: func(next string) {
		if strings.HasPrefix(next, "run 2 of 2") {
			cancel()
		}
	}}
	err := c.Run(ctx, func(r Result) { got = append(got, r.Storage) })
	if !errors.Is(err, context.Canceled) || !slices.Equal(got, []string{"limit", "file", "mmap"}) {
		t.Errorf("results of %q, %v", got, err)
	}
}

func TestMeasure(t *testing.T) {
	for _, kind := range []string{"limit", "file", "mmap", "bolt"} {
		r, err := Measure(t.Context(), Case{kind, "random", 256 << 10, 4 << 20}, t.TempDir())
		if err != nil || r.WriteMBs <= 0 || r.ReadMBs <= 0 || r.CPUPerGB <= 0 {
			t.Errorf("%s: %+v, %v", kind, r, err)
		}
	}
}

// A case has whole pieces, since nothing else is written; and at least one.
func TestCases(t *testing.T) {
	for _, bytes := range []int64{1, 17 << 20} {
		for _, c := range Cases(bytes) {
			if c.Bytes%c.PieceLength != 0 || c.Bytes > max(bytes, c.PieceLength) || c.Bytes == 0 {
				t.Errorf("%s of %d bytes: %d", c, bytes, c.Bytes)
			}
		}
	}
}
