package sim

import (
	"testing"
	"time"

	"braid/pathsel"
)

// Two of ten paths may be used. Good hints name the best two, which are used from the start. False
// hints name the worst two; they cost no more than the usual tries.
func TestHints(t *testing.T) {
	t.Parallel()
	links, paths := direct(4, 5, 12, 10, 7, 15, 25, 60, 3, 5, 16, 20, 9, 10, 2, 2, 30, 40, 6, 8)
	for i := range paths {
		paths[i].Bandwidth, paths[i].Latency, paths[i].LatencyKnown = 0, 0, false // nothing is announced
	}
	const length = 4 * time.Minute
	run := func(hints ...int) ClientResult {
		c := one("adaptive", paths, 2)
		c.Hints = pathsel.Hints{}
		for _, i := range hints {
			c.Hints[paths[i].Dst] = append(c.Hints[paths[i].Dst], pathsel.Hint{Path: paths[i].Fingerprint})
		}
		return Run(Scenario{Links: links, Clients: []Client{c}, Duration: length, Seed: 1})[0]
	}
	none, good, lies := run(), run(8, 3), run(7, 4)
	best := limit(30, 25)
	atLeast(t, "best ones named, first half minute", good.Rate(0, 30*time.Second)/best, 0.6)
	atLeast(t, "worst ones named, last minute", lies.Rate(length-time.Minute, length)/best, 0.85)
	atLeast(t, "worst ones named, the whole time against none named", lies.Rate(0, length)/none.Rate(0, length), 0.85)
	t.Logf("of the best two paths' %.1f Mbit/s: without hints %.2f, with %.2f, with lies %.2f; first half minute %.2f, %.2f, %.2f", best/1e6,
		none.Rate(0, length)/best, good.Rate(0, length)/best, lies.Rate(0, length)/best,
		none.Rate(0, 30*time.Second)/best, good.Rate(0, 30*time.Second)/best, lies.Rate(0, 30*time.Second)/best)
}
