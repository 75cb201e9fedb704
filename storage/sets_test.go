package storage

import (
	"math/rand/v2"
	"testing"
)

func TestExtents(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 4))
		var x extents
		var held [40]bool
		for range 30 {
			from := r.IntN(40)
			to := from + 1 + r.IntN(min(12, 40-from))
			want := 0
			for i := from; i < to; i++ {
				if !held[i] {
					held[i], want = true, want+1
				}
			}
			var grown int
			if x, grown = x.with(from, to); grown != want {
				t.Fatalf("seed %d: [%d,%d) grew %v by %d, want %d", seed, from, to, x, grown, want)
			}
			var got [40]bool
			for i, e := range x {
				if i > 0 && x[i-1].to >= e.from {
					t.Fatalf("seed %d: %v are not apart", seed, x)
				}
				for j := e.from; j < e.to; j++ {
					got[j] = true
				}
			}
			if got != held {
				t.Fatalf("seed %d: %v after [%d,%d)", seed, x, from, to)
			}
			if !x.holds(from, to) {
				t.Fatalf("seed %d: %v does not hold [%d,%d)", seed, x, from, to)
			}
		}
	}
}
