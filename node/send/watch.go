package send

import (
	"context"
	"time"
)

// rest is how long files must not change before they are published. While a file is being written,
// its size or time changes.
const rest = 2 * time.Second

// AtRest waits until the files have another stamp and no longer change. It returns only the
// context's error. complain gets errors of reading the files, such as a missing directory, and nil
// once it works again.
func (f Files) AtRest(
	ctx context.Context, not string, complain func(error),
) (stamp string, err error) {
	var since time.Time
	for {
		began := time.Now()
		now, err := f.Stamp(ctx)
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		complain(err)
		switch {
		case err != nil || now != stamp:
			stamp, since = now, began
		case stamp != not && began.Sub(since) >= rest:
			return stamp, nil
		}
		// Many files take long to look at: most of the time is left to others.
		pause := max(rest/4, 10*time.Since(began))
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}
