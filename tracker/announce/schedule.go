package announce

import (
	"cmp"
	"errors"
	"time"

	"braid/tracker/wire"
)

const (
	// usualInterval is for trackers that name no interval.
	usualInterval = 30 * time.Minute
	// leastInterval and leastHungry bound how often we announce, even if a tracker wants more.
	leastInterval = 30 * time.Second
	leastHungry   = 5 * time.Second
	// firstRetry doubles with every failure up to lastRetry.
	firstRetry = 5 * time.Second
	lastRetry  = 30 * time.Minute
)

// regular is the time until the next announce to a tracker that answered.
func regular(a wire.Answer) time.Duration {
	return max(cmp.Or(a.Interval, usualInterval), a.MinInterval, leastInterval)
}

// early is the time until the next announce while there are too few peers. Each fruitless announce
// after the first doubles it, up to the regular time, since a tracker that knows no other peers is
// of no help.
func early(a wire.Answer, fruitless int) time.Duration {
	least := a.MinInterval
	if least <= 0 {
		least = time.Minute
	}
	return min(double(max(least, leastHungry), fruitless-1), regular(a))
}

// retry is the time until the next attempt after a number of failures in a row. ever is false if
// there is none. spread is a random number from 0 to 1, which keeps the peers of a restarted
// tracker from all coming back at once.
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
