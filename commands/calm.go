package commands

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// calm is a log handler that bounds the lines of each message in an hour, and logs how many it left
// out. Otherwise strangers could fill the log: a banned peer comes back with another key, or a
// tracker answers nonsense each time.
type calm struct {
	slog.Handler
	kinds *kinds
}

// linesPerHour bounds the lines of each message. With it, all messages together write at most half
// a megabyte a day.
const linesPerHour = 20

func newCalm(h slog.Handler) calm { return calm{h, &kinds{byMessage: map[string]*kind{}}} }

func (c calm) Handle(ctx context.Context, r slog.Record) error {
	take, last, missed := c.kinds.count(r.Message, r.Time)
	if !take {
		return nil
	}
	r = r.Clone()
	if missed > 0 {
		r.AddAttrs(slog.Int("left_out", missed))
	}
	if last {
		r.AddAttrs(slog.String("more", "left out for the rest of the hour"))
	}
	return c.Handler.Handle(ctx, r)
}

func (c calm) WithAttrs(as []slog.Attr) slog.Handler {
	return calm{c.Handler.WithAttrs(as), c.kinds}
}

func (c calm) WithGroup(name string) slog.Handler {
	return calm{c.Handler.WithGroup(name), c.kinds}
}

// kinds counts the lines of each message.
type kinds struct {
	mu        sync.Mutex
	byMessage map[string]*kind
}

// kind is one message in the hour that began with its first line.
type kind struct {
	began  time.Time
	lines  int
	missed int // lines left out since the last logged one
}

// maxKinds bounds the number of kinds. braid has about a hundred messages. Should one contain a
// stranger's text, all messages beyond the bound count as one kind.
const maxKinds = 1000

// count tells whether to log a line, whether it is the last one in this hour, and how many lines
// were left out before it.
func (k *kinds) count(message string, now time.Time) (take, last bool, missed int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	x := k.byMessage[message]
	if x == nil && len(k.byMessage) >= maxKinds {
		message = ""
		x = k.byMessage[message]
	}
	if x == nil {
		x = new(kind)
		k.byMessage[message] = x
	}
	if now.Sub(x.began) >= time.Hour {
		x.began, x.lines = now, 0
	}
	if x.lines >= linesPerHour {
		x.missed++
		return false, false, 0
	}
	x.lines++
	missed, x.missed = x.missed, 0
	return true, x.lines == linesPerHour, missed
}
