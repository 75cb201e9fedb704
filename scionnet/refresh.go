package scionnet

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"braid/pathsel"
)

const (
	// lookupTimeout bounds one question to the control plane, which answers within 25 ms or, under
	// load, seconds.
	lookupTimeout = 5 * time.Second
	// refreshEvery keeps the set of paths current: a new link is used this long after its beacons
	// at the latest.
	refreshEvery = 30 * time.Second
	// retryFirst and retryMost are the pauses while there is no path: short at first, since a host
	// is often started together with its network, then longer, since a destination may be gone for
	// good.
	retryFirst, retryMost = time.Second, 10 * time.Second
	// settles is how long after a change more changes are looked for, more and more seldom: a
	// control service's first answer may lack paths, and it leaves out one whose link was down a
	// moment ago, which is back as suddenly.
	unsettledFor = 2 * time.Minute
	// refreshBefore is how long before the first hop field ends a new one is asked for. Shorter,
	// and a control service that is down for a moment would cost a connection; the shortest
	// lifetime there is, is 5.6 minutes.
	refreshBefore = 2 * time.Minute
	// forgetAfter is how long a destination is kept fresh that nobody asks for and no connection
	// uses.
	forgetAfter = 10 * time.Minute
	// parallelLookups keeps one slow lookup from delaying all, and many from flooding the control
	// service.
	parallelLookups = 4
	// maxDestinations bounds the table: a peer list can name any number of ASes.
	maxDestinations = 4096
)

// lookup is the table of paths, by destination, and its refresher.
type lookup struct {
	query       func(ctx context.Context, dst pathsel.IA, refresh bool) ([]found, error)
	afterLookup func(dst pathsel.IA, paths []found)
	inUse       func(dst pathsel.IA) bool
	log         *slog.Logger
	wake        chan struct{} // the earliest due time may have changed
	stop        context.CancelFunc
	workers     sync.WaitGroup

	mu           sync.Mutex
	closed       bool
	destinations map[pathsel.IA]*destination
	revoked      map[pathsel.Interface]time.Time // until when
}

// destination is what is known of the paths to one AS. Its fields are guarded by lookup.mu.
type destination struct {
	paths     []found
	links     links     // of the paths
	failures  int       // lookups in a row that gave no path
	changed   time.Time // when an answer last was about other paths than the one before
	lastAsked time.Time
	due       time.Time
	underWay  chan struct{} // closed when the lookup under way ends; nil if there is none
	err       error         // of the last lookup
	watchers  map[chan struct{}]struct{}
}

func newLookup(query func(context.Context, pathsel.IA, bool) ([]found, error), applied func(pathsel.IA, []found),
	inUse func(pathsel.IA) bool, log *slog.Logger) *lookup {
	ctx, stop := context.WithCancel(context.Background())
	l := &lookup{
		query: query, afterLookup: applied, inUse: inUse, log: log, stop: stop,
		wake:         make(chan struct{}, 1),
		destinations: map[pathsel.IA]*destination{},
		revoked:      map[pathsel.Interface]time.Time{},
	}
	l.workers.Go(func() { l.run(ctx) })
	return l
}

func (l *lookup) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.stop()
	l.workers.Wait()
}

// spawn runs f, for which close waits, unless the lookup is closed.
func (l *lookup) spawn(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.workers.Go(f)
	}
}

// run is the refresher.
func (l *lookup) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		case <-timer.C:
		}
		var g errgroup.Group
		g.SetLimit(parallelLookups)
		for _, dst := range l.takeDue(time.Now()) {
			g.Go(func() error {
				return l.lookUp(ctx, dst, false)
			})
		}
		g.Wait()
		timer.Reset(time.Until(l.nextDue()))
	}
}

// takeDue lists the destinations to look up now, and drops those that nobody needs.
func (l *lookup) takeDue(now time.Time) []pathsel.IA {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, until := range l.revoked {
		if !now.Before(until) {
			delete(l.revoked, i)
		}
	}
	var due []pathsel.IA
	for ia, d := range l.destinations {
		switch {
		case now.Before(d.due) || d.underWay != nil:
		case now.Sub(d.lastAsked) > forgetAfter && len(d.watchers) == 0 && !l.inUse(ia):
			delete(l.destinations, ia)
		default:
			due = append(due, ia)
		}
	}
	return due
}

func (l *lookup) nextDue() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := time.Now().Add(refreshEvery)
	for _, d := range l.destinations {
		if d.underWay == nil && d.due.Before(next) {
			next = d.due
		}
	}
	return next
}

// paths gives the known paths that have not expired. It asks the control plane only if there has
// been no answer yet.
func (l *lookup) paths(ctx context.Context, dst pathsel.IA) ([]found, error) {
	d, known, err := l.ensure(dst)
	for !known { // again if somebody else was asking and gave up
		if err != nil {
			return nil, err
		}
		if err := l.lookUp(ctx, dst, false); err != nil {
			return nil, err
		}
		d, known, err = l.ensure(dst)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	live := unexpired(d.paths, time.Now())
	if len(live) > 0 {
		return live, nil
	}
	if d.err != nil {
		return nil, fmt.Errorf("%w to %s: %w", ErrNoPath, dst, d.err)
	}
	return nil, fmt.Errorf("%w to %s", ErrNoPath, dst)
}

// want notes that dst is needed, and tells whether its paths have been asked for before.
func (l *lookup) ensure(dst pathsel.IA) (d *destination, known bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d = l.destinations[dst]
	if d == nil {
		if len(l.destinations) >= maxDestinations {
			return nil, false, fmt.Errorf("paths to %s: already looking after %d ASes", dst, maxDestinations)
		}
		d = &destination{watchers: map[chan struct{}]struct{}{}, due: time.Now().Add(refreshEvery)}
		l.destinations[dst] = d
	}
	d.lastAsked = time.Now()
	return d, len(d.paths) > 0 || d.failures > 0, nil
}

// lookUp asks the control plane for the paths to dst and stores the answer. If somebody else is
// asking already, it waits for that answer instead. The error is the context's.
func (l *lookup) lookUp(ctx context.Context, dst pathsel.IA, refresh bool) error {
	l.mu.Lock()
	d := l.destinations[dst]
	if d == nil {
		l.mu.Unlock()
		return nil
	}
	if other := d.underWay; other != nil {
		l.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
		}
	} else {
		d.underWay = make(chan struct{})
		l.mu.Unlock()
		l.ask(ctx, dst, d, refresh)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("look up paths to %s: %w", dst, err)
	}
	return nil
}

// ask does the work of lookUp, while d.underWay holds others back.
func (l *lookup) ask(ctx context.Context, dst pathsel.IA, d *destination, refresh bool) {
	qctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	answer, err := l.query(qctx, dst, refresh)
	cancel()

	l.mu.Lock()
	now := time.Now()
	before := d.paths
	d.paths = merge(before, answer, now)
	d.links = linksOf(d.paths)
	d.err = err
	if len(answer) > 0 {
		d.failures = 0
	} else if ctx.Err() == nil { // a caller who gave up says nothing of the destination
		d.failures++
	}
	d.due = dueAfter(now, d.paths, d.failures)
	changed := !samePaths(before, d.paths)
	if changed && len(answer) > 0 {
		d.changed = now
	}
	if again := now.Add(max(retryFirst, now.Sub(d.changed)/2)); now.Sub(d.changed) < unsettledFor && again.Before(d.due) {
		d.due = again
	}
	for i, until := range l.revoked {
		if until.Before(d.due) && uses(before, i) {
			d.due = until // it may be back then
		}
	}
	close(d.underWay)
	d.underWay = nil
	if changed {
		notify(d.watchers)
	}
	paths, failures := d.paths, d.failures
	l.mu.Unlock()

	if err != nil && ctx.Err() == nil {
		l.log.Debug("path lookup failed", "destination", dst, "failures", failures, "error", err)
	}
	if changed {
		l.log.Debug("paths changed", "destination", dst, "paths", len(paths))
	}
	l.afterLookup(dst, paths)
	l.wakeUp()
}

func (l *lookup) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// merge takes an answer in. No answer, for whatever reason, changes nothing about the paths that
// are known: a control plane that is down does not stop the data plane. Of a path that is in both,
// the one that lasts longer is kept.
func merge(before, answer []found, now time.Time) []found {
	if len(answer) == 0 {
		return unexpired(before, now)
	}
	known := make(map[trail]found, len(before))
	for _, f := range before {
		known[f.trail] = f
	}
	out := make([]found, 0, len(answer))
	seen := make(map[trail]bool, len(answer))
	for _, f := range answer {
		if seen[f.trail] {
			continue
		}
		seen[f.trail] = true
		if k, ok := known[f.trail]; ok && k.way.outlasts(&f.way) {
			f = k
		}
		out = append(out, f)
	}
	return unexpired(out, now)
}

func unexpired(paths []found, now time.Time) []found {
	return slices.DeleteFunc(slices.Clone(paths), func(f found) bool { return !now.Before(f.path.Expiry) })
}

// dueAfter is when to look up again, after an answer that left these paths.
func dueAfter(now time.Time, paths []found, failures int) time.Time {
	if len(paths) == 0 {
		pause := retryFirst
		for i := 1; i < failures && pause < retryMost; i++ {
			pause *= 2
		}
		return now.Add(min(pause, retryMost))
	}
	due := now.Add(refreshEvery)
	for _, f := range paths {
		if early := f.path.Expiry.Add(-refreshBefore); early.Before(due) {
			due = early
		}
	}
	// A path that is about to end although it has just been looked up cannot be had any newer.
	if soon := now.Add(retryMost); due.Before(soon) {
		due = soon
	}
	return due
}

// samePaths tells whether a and b are the same paths in the same order. New hop fields are not a
// change.
func samePaths(a, b []found) bool {
	return slices.EqualFunc(a, b, func(x, y found) bool { return x.trail == y.trail })
}

func uses(paths []found, i pathsel.Interface) bool {
	return slices.ContainsFunc(paths, func(f found) bool { return slices.Contains(f.path.Interfaces, i) })
}

// notify leaves a note for each watcher, unless one is still lying there. The caller holds
// lookup.mu, which a send that cannot block may.
func notify(watchers map[chan struct{}]struct{}) {
	for w := range watchers {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// find is the path to dst with that trail, if it is known.
func (l *lookup) find(dst pathsel.IA, t trail) (found, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.destinations[dst]; d != nil {
		for _, f := range d.paths {
			if f.trail == t {
				return f, true
			}
		}
	}
	return found{}, false
}

// walk lists the interfaces on a trail that goes from one AS to the other over links of the paths
// known to the other.
func (l *lookup) walk(from, to pathsel.IA, t trail) ([]pathsel.Interface, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.destinations[to]
	if d == nil {
		return nil, false
	}
	return d.links.walk(from, to, t)
}

// adopt takes in an answer about a destination that nobody has asked for yet: from now on it is
// looked after.
func (l *lookup) add(dst pathsel.IA, answer []found) {
	d, known, err := l.ensure(dst)
	if err == nil && !known {
		now := time.Now()
		l.mu.Lock()
		d.paths = merge(d.paths, answer, now)
		d.links = linksOf(d.paths)
		d.changed, d.due = now, now.Add(retryFirst) // a first answer may lack paths
		l.mu.Unlock()
		l.wakeUp()
	}
	l.afterLookup(dst, answer)
}
