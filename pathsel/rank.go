package pathsel

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Spearman returns the rank correlation of two lists of equal length: 1 if they order alike, -1 if
// one is the reverse of the other, 0 if they are unrelated. Equal values share their mean rank. ok
// is false if there are fewer than two values, or if all values in one list are equal.
func Spearman(a, b []float64) (rho float64, ok bool) {
	if len(a) != len(b) || len(a) < 2 {
		return 0, false
	}
	ra, rb := ranks(a), ranks(b)
	mean := float64(len(a)+1) / 2
	var ab, aa, bb float64
	for i := range ra {
		x, y := ra[i]-mean, rb[i]-mean
		ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
	}
	if aa == 0 || bb == 0 {
		return 0, false
	}
	return ab / math.Sqrt(aa*bb), true
}

func ranks(x []float64) []float64 {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(x[i], x[j]) })
	out := make([]float64, len(x))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && x[order[j]] == x[order[i]] {
			j++
		}
		for _, k := range order[i:j] {
			out[k] = float64(i+j+1) / 2
		}
		i = j
	}
	return out
}

// HandshakeCorrelation returns how well the handshake times (shortest first) predicted the measured
// rates (highest first) of the n paths that have both; 1 is a perfect prediction. ok is as in
// Spearman.
func HandshakeCorrelation(v View) (rho float64, n int, ok bool) {
	var quick, rate []float64
	for _, c := range v.Candidates {
		if e := EstimateOf(c.Slots, time.Time{}, maxSlots); c.Handshake > 0 && e.Slots > 0 {
			quick = append(quick, -c.Handshake.Seconds())
			rate = append(rate, e.Rate)
		}
	}
	rho, ok = Spearman(quick, rate)
	return rho, len(rate), ok
}
