package announce

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"braid/tracker"
	"braid/tracker/wire"
)

// source is one tracker of a tier. It belongs to the tier's goroutine.
type source struct {
	url tracker.URL
	ask asker
	// From the last answer: the ID to repeat, the peers, and the warning.
	trackerID   string
	lastPeers   []wire.Addr
	lastWarning string
	registered  bool // it has answered, and remembers the peer
	complete    bool // it has answered an announce that the download is complete
	plain       bool // it has refused the event of a partial seed, which not all know
	failures    int  // in a row
	notBefore   time.Time
	closed      time.Time // notBefore, if the tracker itself has asked for that
	refused     bool      // it must not be asked again, except when the user wants it
	paths       reporting
}

// tier asks its trackers until one answers (BEP 12).
type tier struct {
	announcer *Announcer
	trackers  []*source
	wake      chan struct{}
	now       atomic.Bool // the user wants an announce as soon as a tracker allows it
	broken    atomic.Bool // the open connection to the tracker that answered last has ended
	fruitless int         // announces in a row that found no new peer while there were too few
	sibling   bool        // a tracker of another tier has named these
	adopted   bool        // a tracker of this tier has named siblings
}

// level is the level of a log record, lowered for siblings, which the user did not name.
func (t *tier) level(usual slog.Level) slog.Level {
	if t.sibling {
		return min(usual-4, slog.LevelInfo)
	}
	return usual
}

// event is the reason of the next announce. A partial seed says each time that it is one, unless the
// tracker has refused that, and is never complete (BEP 21).
func (s *source) event(completed bool, p Progress) wire.Event {
	switch {
	case p.Partial && !s.plain:
		return wire.Paused
	case !s.registered:
		return wire.Started
	case completed && !s.complete && !p.Partial:
		return wire.Completed
	}
	return wire.Periodic
}

func (t *tier) run() {
	a := t.announcer
	for a.ctx.Err() == nil {
		t.broken.Store(false)
		s, answer, began := t.round()
		if a.ctx.Err() != nil {
			break // an announce that was cut off is no refusal
		}
		next, soon := t.nextTry(), time.Time{}
		if s != nil {
			next = began.Add(regular(answer))
			soon = began.Add(early(answer, t.fruitless))
			next = s.paths.first(a, began, next, answer)
		}
		if next.IsZero() {
			a.log.Log(a.ctx, t.level(slog.LevelError), "all trackers of a tier have refused; not asking them again",
				"torrent", hex.EncodeToString(a.cfg.InfoHash[:4]))
		}
		t.wait(s, next, soon, began.Add(max(answer.MinInterval, leastHungry)))
	}
	t.goodbye()
}

// wait returns when it is time for the next announce. That is the time next (zero: never); or soon,
// while there are too few peers; or least, if the user wants it; or now, once the download is
// complete. s is the tracker that has answered; nil: none has.
func (t *tier) wait(s *source, next, soon, least time.Time) {
	a := t.announcer
	defer t.now.Store(false)
	for a.ctx.Err() == nil {
		until := next
		if t.now.Load() && s == nil {
			t.forgive()
			return
		}
		if t.now.Load() && least.Before(until) {
			until = least
		}
		if again := least.Add(leastInterval); s != nil && t.broken.Load() && again.Before(until) {
			until = again
		}
		if a.hungry.Load() && !soon.IsZero() && soon.Before(until) {
			until = soon
		}
		if s != nil && a.completed.Load() && !s.complete {
			return
		}
		var due <-chan time.Time
		if !until.IsZero() {
			due = time.After(time.Until(until))
		}
		select {
		case <-due:
			return
		case <-t.wake:
		case <-a.ctx.Done():
		}
	}
}

// again has the tier announce before the regular time, since a tracker has ended its connection.
func (t *tier) again() {
	t.broken.Store(true)
	t.wakeUp()
}

func (t *tier) wakeUp() {
	select {
	case t.wake <- struct{}{}:
	default: // awake already
	}
}

// forgive allows announces to trackers that have failed, unless they have asked for a pause. A
// tracker that has refused for good may have changed its mind: the user may know.
func (t *tier) forgive() {
	for _, s := range t.trackers {
		s.notBefore, s.refused = s.closed, false
	}
}

// round asks the trackers in turn until one answers, and moves that one to the front. It returns
// that tracker (nil: none has answered), its answer, and when the announce to it began.
func (t *tier) round() (*source, wire.Answer, time.Time) {
	a := t.announcer
	for i, s := range t.trackers {
		if s.refused || time.Now().Before(s.notBefore) {
			continue
		}
		if !s.registered && s.failures == 0 {
			a.reportAsked(Asked{URL: s.url})
		}
		completed, p := a.completed.Load(), a.cfg.Progress()
		event, began := s.event(completed, p), time.Now()
		ctx, cancel := context.WithTimeout(a.ctx, announceTimeout)
		answer, err := t.announce(ctx, s, event, p, completed && !s.complete)
		cancel()
		if a.ctx.Err() != nil {
			// The announce may have arrived, so say goodbye.
			s.registered = s.registered || err == nil || errors.Is(err, context.Canceled)
			return nil, wire.Answer{}, began
		}
		if err != nil {
			s.plain = s.plain || event == wire.Paused && isRefusal(err)
			t.failed(s, err)
			a.reportAsked(Asked{URL: s.url, Err: s.url.HideIn(err), Next: s.notBefore})
			continue
		}
		s.failures, s.registered, s.notBefore = 0, true, time.Time{}
		s.complete = completed && event != wire.Started || s.complete
		if answer.TrackerID != "" {
			s.trackerID = answer.TrackerID
		}
		a.adopt(t, s, answer.Siblings)
		if fresh := a.found(s, answer); fresh || !a.hungry.Load() {
			t.fruitless = 0
		} else {
			t.fruitless++
		}
		a.reportAsked(Asked{ // after its peers
			URL: s.url, Answered: true, Warning: answer.Warning, Next: time.Now().Add(regular(answer)),
			Seeds: answer.Complete, Leechers: answer.Incomplete, Peers: len(answer.Peers),
		})
		copy(t.trackers[1:i+1], t.trackers[:i])
		t.trackers[0] = s
		return s, answer, began
	}
	return nil, wire.Answer{}, time.Time{}
}

// announce makes one announce, with reports if they are due. end says that it tells the end of the
// download.
func (t *tier) announce(ctx context.Context, s *source, e wire.Event, p Progress, end bool) (wire.Answer, error) {
	reports := s.paths.due(t.announcer, end)
	answer, err := s.ask.announce(ctx, t.announcer.announceOf(s, e, p), reports)
	s.paths.sent(reports, answer, err)
	return answer, err
}

func (t *tier) failed(s *source, err error) {
	s.failures++
	wait, ever := retry(err, s.failures, rand.Float64())
	if s.notBefore = time.Now().Add(wait); !ever {
		s.refused, s.notBefore = true, time.Time{}
	}
	if f := (*wire.Failure)(nil); errors.As(err, &f) && f.RetryIn > 0 {
		s.closed = s.notBefore
	}
	level := slog.LevelDebug
	if s.failures == 1 || !ever { // more failures in a row are no news
		level = t.level(slog.LevelWarn)
	}
	log := t.announcer.log.With("tracker", s.url, "error", s.url.Hide(err.Error()))
	if ever {
		log.Log(t.announcer.ctx, level, "tracker failed", "again_in", wait.Round(time.Second))
	} else {
		log.Log(t.announcer.ctx, level, "tracker refused for good")
	}
}

// nextTry is when the first of the trackers may be asked again; zero: never.
func (t *tier) nextTry() (next time.Time) {
	for _, s := range t.trackers {
		if !s.refused && (next.IsZero() || s.notBefore.Before(next)) {
			next = s.notBefore
		}
	}
	return next
}

// goodbye tells the trackers that know the peer that it leaves.
func (t *tier) goodbye() {
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(t.announcer.cfg.goodbye, goodbyeTimeout))
	defer cancel()
	var all sync.WaitGroup
	for _, s := range t.trackers {
		if !s.registered {
			continue
		}
		all.Go(func() {
			var early, err error
			p := t.announcer.cfg.Progress()
			if t.announcer.completed.Load() && !s.complete && !p.Partial { // the download completed just now
				_, early = t.announce(ctx, s, wire.Completed, p, true)
			}
			if _, err = t.announce(ctx, s, wire.Stopped, p, false); err == nil {
				err = early
			}
			if err != nil {
				t.announcer.log.Debug("goodbye to a tracker failed",
					"tracker", s.url, "error", s.url.HideIn(err))
			}
		})
	}
	all.Wait()
}
