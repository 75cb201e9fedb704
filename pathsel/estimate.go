package pathsel

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Estimate is a rate and how sure it is.
type Estimate struct {
	// Rate is the median of useful payload in bytes per second over the slots.
	Rate float64 `json:"rate"`
	// Err is the standard error of Rate.
	Err float64 `json:"err"`
	// Slots is how many slots it rests on; 0: nothing is known.
	Slots int `json:"slots"`
}

// String writes the rate in Mbit/s.
func (e Estimate) String() string { return mbit(e.Rate) }

func mbit(bytesPerSecond float64) string { return fmt.Sprintf("%.2f Mbit/s", bytesPerSecond*8/1e6) }

// estimate makes one of the rates of single slots. The median ignores a slot in which the machine
// stalled, and the spread is the median deviation for the same reason. A spread below floor is not
// believed: a handful of equal slots says nothing about the next.
func estimate(rates []float64) Estimate {
	const floor = 0.03
	if len(rates) == 0 {
		return Estimate{}
	}
	mid := median(rates)
	off := make([]float64, len(rates))
	for i, r := range rates {
		off[i] = math.Abs(r - mid)
	}
	// 1.48 makes the median deviation of a normal distribution its standard deviation, 1.25 is what the
	// median's error exceeds the mean's by.
	spread := max(1.48*median(off), floor*mid)
	return Estimate{mid, 1.25 * spread / math.Sqrt(float64(len(rates))), len(rates)}
}

func median(x []float64) float64 {
	s := slices.Sorted(slices.Values(x))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// EstimateOf is the estimate from the last n slots that began at or after since.
func EstimateOf(slots []Slot, since time.Time, n int) Estimate {
	var rates []float64
	for i := len(slots) - 1; i >= 0 && len(rates) < n && !slots[i].Start.Before(since); i-- {
		rates = append(rates, slots[i].Rate())
	}
	return estimate(rates)
}

// Latest is the estimate that selectors judge by, and when the last slot in it ended; zero without slots.
func Latest(slots []Slot) (e Estimate, until time.Time) {
	if len(slots) > 0 {
		until = slots[len(slots)-1].Start.Add(SlotLength)
	}
	return EstimateOf(slots, time.Time{}, window), until
}

// Joint is the estimate of the sum of several connections, from the last n slots since then in which every
// one of them could flow. Sums of slots, not a sum of estimates: what one loses to the other cancels out.
func Joint(members [][]Slot, since time.Time, n int) Estimate {
	var last time.Time
	for _, slots := range members {
		if len(slots) > 0 && slots[len(slots)-1].Start.After(last) {
			last = slots[len(slots)-1].Start
		}
	}
	var sum [maxSlots]float64 // by how many slots ago
	var seen [maxSlots]int
	for _, slots := range members {
		for i := len(slots) - 1; i >= 0 && !slots[i].Start.Before(since); i-- {
			ago := last.Sub(slots[i].Start) / SlotLength
			if ago >= maxSlots {
				break
			}
			sum[ago] += slots[i].Rate()
			seen[ago]++
		}
	}
	var rates []float64
	for ago, k := range seen {
		if k > 0 && k == len(members) && len(rates) < n {
			rates = append(rates, sum[ago])
		}
	}
	return estimate(rates)
}
