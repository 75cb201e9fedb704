package announce

import (
	"errors"
	"time"

	"braid/tracker/wire"
)

const (
	// usualInterval is that of trackers that name none.
	usualInterval = 30 * time.Minute
	// leastInterval and leastHungry keep a tracker that asks for it from being asked all the time.
	leastInterval = 30 * time.Second
	leastHungry   = 5 * time.Second
	// firstRetry doubles with every failure up to lastRetry.
	firstRetry = 5 * time.Second
	lastRetry  = 30 * time.Minute
)

// regular is when to announce again to a tracker that has answered.
func regular(a wire.Answer) time.Duration {
	if a.Interval <= 0 {
		return usualInterval
	}
	return max(a.Interval, a.MinInterval, leastInterval)
}

// early is when to announce again if there are too few peers. Each announce after the first that was made for this and brought nobody
// new doubles it, up to the regular time: a tracker that knows nobody else has nothing to say.
func early(a wire.Answer, fruitless int) time.Duration {
	least := a.MinInterval
	if least <= 0 {
		least = time.Minute
	}
	return min(double(max(least, leastHungry), fruitless-1), regular(a))
}

// retry is when to try a tracker again that has failed so many times in a row, and whether ever. spread is a random
// number from 0 to 1: peers whose tracker was away do not come back in step.
func retry(err error, failures int, spread float64) (wait time.Duration, ever bool) {
	wait = min(double(firstRetry, failures-1), lastRetry)
	wait = time.Duration(float64(wait) * (0.75 + 0.5*spread))
	var f *wire.Failure
	if errors.As(err, &f) {
		if f.RetryIn == wire.Never {
			return 0, false
		}
		wait = max(wait, f.RetryIn)
	}
	return wait, true
}

func double(d time.Duration, times int) time.Duration { return d << min(max(times, 0), 12) }
