package report

import (
	"errors"
	"math"

	"github.com/aclements/go-moremath/stats"
)

// Verdict is what the runs of two sides say about a figure.
type Verdict string

// Verdicts. Which way is better depends on the figure.
const (
	Higher        Verdict = "higher" // the second side, and chance alone would rarely do that
	Lower         Verdict = "lower"
	NotShown      Verdict = "no difference shown" // which does not mean that there is none
	Same          Verdict = "same"                // every value
	TooFew        Verdict = "too few runs"        // whatever they had been, nothing could be shown
	NotComparable Verdict = "not comparable"
)

// alpha is how often a difference is called one though it is chance.
const alpha = 0.05

// compareSamples tests whether one side tends to be higher, by ranks (Mann and Whitney 1947, exact for few values), for times
// and rates are not normally distributed. p is how often chance alone gives as much of a difference; 1 if nothing was tested.
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
	case r.U < float64(len(a)*len(b))/2: // of the first side, in pairs in which it is the higher one
		return r.P, Higher
	}
	return r.P, Lower
}

// leastP is the p of two sides that do not overlap at all: two of all ways to share out the ranks.
func leastP(n, m int) float64 {
	if n == 0 || m == 0 {
		return 1
	}
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(m + 1))
	c, _ := math.Lgamma(float64(n + m + 1))
	return min(1, 2*math.Exp(a+b-c))
}
