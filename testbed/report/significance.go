package report

import (
	"errors"

	"github.com/aclements/go-moremath/stats"
	"gonum.org/v1/gonum/stat/combin"
)

// Verdict says whether two sides differ in a figure.
type Verdict string

// Whether higher or lower is better depends on the figure.
const (
	Higher        Verdict = "higher" // of the second side; chance alone rarely does that
	Lower         Verdict = "lower"
	NotShown      Verdict = "no difference shown" // there may still be one
	Same          Verdict = "same"                // all values are equal
	TooFew        Verdict = "too few runs"        // so few runs cannot show a difference
	NotComparable Verdict = "not comparable"
)

// alpha is how often chance is taken for a difference.
const alpha = 0.05

// compareSamples tests whether one side tends to be higher. It compares ranks (Mann and Whitney
// 1947, exact for few values), because times and rates are not normally distributed. p is the
// probability that chance alone causes such a difference; 1 if nothing was tested.
func compareSamples(a, b []float64) (p float64, v Verdict) {
	if leastP(len(a), len(b)) > alpha {
		return 1, TooFew
	}
	r, err := stats.MannWhitneyUTest(a, b, stats.LocationDiffers)
	switch {
	case errors.Is(err, stats.ErrSamplesEqual):
		return 1, Same
	case err != nil: // a sample is empty, which leastP has seen
		return 1, TooFew
	case r.P > alpha:
		return r.P, NotShown
	case r.U < float64(len(a)*len(b))/2: // pairs in which the first side is higher
		return r.P, Higher
	}
	return r.P, Lower
}

// leastP returns p for two sides that do not overlap at all.
func leastP(n, m int) float64 {
	return 2 / combin.GeneralizedBinomial(float64(n+m), float64(n))
}
