package dhtbench

import (
	"strings"
	"testing"
)

func TestMeasureAndDraw(t *testing.T) {
	var rows []Row
	for _, c := range Cases[:2] {
		for _, nodes := range []int{20, 40} {
			r, err := Measure(t.Context(), c, nodes, 1)
			if err != nil {
				t.Fatal(err)
			}
			if r.Found < 0.95 {
				t.Errorf("%s: %+v", c.Name, r)
			}
			rows = append(rows, r)
		}
	}
	f := Draw(rows)
	if len(f.Data.Rows) != 4 || !strings.Contains(f.Inline(), "churn") {
		t.Errorf("%d rows, or no line for a case", len(f.Data.Rows))
	}
}
