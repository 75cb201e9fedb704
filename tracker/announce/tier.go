package announce

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"braid/tracker"
	"braid/tracker/wire"
)

// source is one tracker of a tier. It belongs to the tier's goroutine.
type source struct {
	url    tracker.URL
	ask    asker
	id     string // what it wants to be told the next time
	warned string // what it warned of last
	told   []wire.Addr
	// known: it has answered, and remembers the peer. told of the completion: finished.
	known, finished bool
	failures        int
	notBefore       time.Time // after a failure
	given           bool      // up, for good
	paths           reporting
}

// tier asks one of its trackers, the first that answers (BEP 12).
type tier struct {
	announcer *Announcer
	trackers  []*source
	wake      chan struct{}
	fruitless int // announces in a row with too few peers that brought nobody new
	// sibling: another tier's tracker has named these. adopted: one of this tier has named some.
	sibling, adopted bool
}

// event is why the tracker is asked now. A partial seed says each time that it is one, and is never complete (BEP 21).
func (s *source) event(completed bool, p Progress) wire.Event {
	switch {
	case p.Partial:
		return wire.Paused
	case !s.known:
		return wire.Started
	case completed && !s.finished:
		return wire.Completed
	}
	return wire.Periodic
}

func (t *tier) run() {
	a := t.announcer
	for a.ctx.Err() == nil {
		began := time.Now()
		s, answer := t.round()
		if a.ctx.Err() != nil {
			break // nobody has refused
		}
		next, soon := t.nextTry(), time.Time{}
		if s != nil {
			next = began.Add(regular(answer))
			soon = began.Add(early(answer, t.fruitless))
			next = s.paths.first(a, began, next, answer)
		}
		if next.IsZero() {
			level := slog.LevelError
			if t.sibling { // the user does not know of it
				level = slog.LevelInfo
			}
			a.log.Log(a.ctx, level, "all trackers of a tier have refused; not asking again", "torrent", a.title())
			<-a.ctx.Done()
			break
		}
		t.wait(s, next, soon)
	}
	t.goodbye()
}

// wait returns when it is time for the next announce: at next, or when peers are too few at soon, or when the download
// has become complete, of which the tracker is told at once.
func (t *tier) wait(s *source, next, soon time.Time) {
	a := t.announcer
	for {
		until := next
		if a.hungry.Load() && !soon.IsZero() && soon.Before(next) {
			until = soon
		}
		if s != nil && a.completed.Load() && !s.finished {
			return
		}
		timer := time.NewTimer(time.Until(until))
		select {
		case <-timer.C:
			return
		case <-t.wake:
		case <-a.ctx.Done():
		}
		timer.Stop()
		if a.ctx.Err() != nil {
			return
		}
	}
}

// round asks the trackers in turn until one answers, which moves to the front; nil if none has.
func (t *tier) round() (*source, wire.Answer) {
	a := t.announcer
	for i, s := range t.trackers {
		if s.given || time.Now().Before(s.notBefore) {
			continue
		}
		completed, p := a.completed.Load(), a.cfg.Progress()
		event := s.event(completed, p)
		ctx, cancel := context.WithTimeout(a.ctx, announceTimeout)
		reports := s.paths.due(a, completed && !s.finished)
		if !s.known && s.failures == 0 {
			a.tellAsked(s, false, nil)
		}
		answer, err := s.ask.announce(ctx, a.announceOf(s, event, p), reports)
		s.paths.sent(reports, answer, err)
		cancel()
		if a.ctx.Err() != nil {
			// It may have arrived: say goodbye to be sure.
			s.known = s.known || err == nil || errors.Is(err, context.Canceled)
			return nil, wire.Answer{}
		}
		if err != nil {
			t.failed(s, err)
			a.tellAsked(s, false, err)
			continue
		}
		s.failures, s.known, s.notBefore = 0, true, time.Time{}
		s.finished = completed && event != wire.Started || s.finished
		if answer.TrackerID != "" {
			s.id = answer.TrackerID
		}
		a.adopt(t, s, answer.Siblings)
		if fresh := a.found(s, answer); fresh || !a.hungry.Load() {
			t.fruitless = 0
		} else {
			t.fruitless++
		}
		a.tellAsked(s, true, nil) // after its peers
		copy(t.trackers[1:i+1], t.trackers[:i])
		t.trackers[0] = s
		return s, answer
	}
	return nil, wire.Answer{}
}

func (t *tier) failed(s *source, err error) {
	s.failures++
	wait, ever := retry(err, s.failures, rand.Float64())
	s.given, s.notBefore = !ever, time.Now().Add(wait)
	log := t.announcer.log.Debug
	if s.failures == 1 || !ever { // once is enough to know
		log = t.announcer.log.Warn
		if t.sibling {
			log = t.announcer.log.Info
		}
	}
	if ever {
		log("tracker failed", "tracker", s.url, "error", s.url.Hide(err.Error()), "again_in", wait.Round(time.Second))
	} else {
		log("tracker refused for good", "tracker", s.url, "error", s.url.Hide(err.Error()))
	}
}

// nextTry is when the first of the trackers may be asked again; zero: never.
func (t *tier) nextTry() (next time.Time) {
	for _, s := range t.trackers {
		if !s.given && (next.IsZero() || s.notBefore.Before(next)) {
			next = s.notBefore
		}
	}
	return next
}

// goodbye tells the trackers that know the peer that it leaves.
func (t *tier) goodbye() {
	ctx, cancel := context.WithTimeout(context.Background(), goodbyeTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, s := range t.trackers {
		if s.known {
			all.Go(func() {
				var err error
				completed, p := t.announcer.completed.Load() && !s.finished, t.announcer.cfg.Progress()
				tell := func(e wire.Event) error {
					reports := s.paths.due(t.announcer, e == wire.Completed)
					answer, err := s.ask.announce(ctx, t.announcer.announceOf(s, e, p), reports)
					s.paths.sent(reports, answer, err)
					return err
				}
				if completed && !p.Partial { // it came with the end
					err = tell(wire.Completed)
				}
				if e := tell(wire.Stopped); e != nil {
					err = e
				}
				if err != nil {
					t.announcer.log.Debug("tracker not told of the end", "tracker", s.url, "error", s.url.Hide(err.Error()))
				}
			})
		}
	}
	all.Wait()
}
