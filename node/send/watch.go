package send

import (
	"context"
	"time"
)

// rest is how long nothing must have changed before files are published: a file that is being
// written changes its size or its time.
const rest = 2 * time.Second

// AtRest waits until the files have another stamp than that, and rest. The error is that of the
// context. complain gets errors of looking at the files, such as a directory that is gone; nil once
// it works.
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
