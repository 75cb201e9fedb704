package pathsel

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Estimate is a measured rate and its uncertainty.
type Estimate struct {
	// Rate is the median rate of useful payload over the slots, in bytes per second.
	Rate float64 `json:"rate"`
	// Err is the standard error of Rate.
	Err float64 `json:"err"`
	// Slots is the number of slots it is computed from; 0 means that nothing is known.
	Slots int `json:"slots"`
}

// String writes the rate in Mbit/s.
func (e Estimate) String() string { return mbit(e.Rate) }

func mbit(bytesPerSecond float64) string { return fmt.Sprintf("%.2f Mbit/s", bytesPerSecond*8/1e6) }

// estimate computes an Estimate from the rates of single slots. It uses the median and the median
// absolute deviation, which ignore a slot in which the machine stalled. The spread is at least
// floor: a handful of equal slots does not predict the next one.
func estimate(rates []float64) Estimate {
	const floor = 0.03
	if len(rates) == 0 {
		return Estimate{}
	}
	mid := median(rates)
	var room [maxSlots]float64
	off := room[:0]
	for _, r := range rates {
		off = append(off, math.Abs(r-mid))
	}
	// For a normal distribution, 1.48 turns the median deviation into the standard deviation, and
	// the median's standard error is 1.25 times that of the mean.
	spread := max(1.48*median(off), floor*mid)
	return Estimate{mid, 1.25 * spread / math.Sqrt(float64(len(rates))), len(rates)}
}

// median sorts a copy on the stack. Selectors ask for it thousands of times a second.
func median(x []float64) float64 {
	var room [maxSlots]float64
	s := append(room[:0], x...)
	slices.Sort(s)
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// EstimateOf returns the estimate from the last n slots that began at or after since.
func EstimateOf(slots []Slot, since time.Time, n int) Estimate {
	var room [maxSlots]float64
	rates := room[:0]
	for i := len(slots) - 1; i >= 0 && len(rates) < n && !slots[i].Start.Before(since); i-- {
		rates = append(rates, slots[i].Rate())
	}
	return estimate(rates)
}

// Latest returns the estimate by which selectors judge, and when its last slot ended. It is zero if
// there are no slots.
func Latest(slots []Slot) (e Estimate, until time.Time) {
	if len(slots) > 0 {
		until = slots[len(slots)-1].Start.Add(SlotLength)
	}
	return EstimateOf(slots, time.Time{}, window), until
}

// Joint estimates the total rate of several connections from the last n slots, at or after since,
// in which all of them could receive data. It adds up the rates slot by slot. Adding separate
// estimates would be less exact, since one connection's loss is often another's gain.
func Joint(members [][]Slot, since time.Time, n int) Estimate {
	var last time.Time
	for _, slots := range members {
		if len(slots) > 0 && slots[len(slots)-1].Start.After(last) {
			last = slots[len(slots)-1].Start
		}
	}
	var sum [maxSlots]float64 // indexed by the slot's age in slots
	var seen [maxSlots]int
	for _, slots := range members {
		for i := len(slots) - 1; i >= 0 && !slots[i].Start.Before(since); i-- {
			ago := (last.Sub(slots[i].Start) + SlotLength/2) / SlotLength
			if ago < 0 || ago >= maxSlots {
				continue // from before the clock was set back, or too old
			}
			sum[ago] += slots[i].Rate()
			seen[ago]++
		}
	}
	var room [maxSlots]float64
	rates := room[:0]
	for ago, k := range seen {
		if k > 0 && k == len(members) && len(rates) < n {
			rates = append(rates, sum[ago])
		}
	}
	return estimate(rates)
}
