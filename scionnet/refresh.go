package scionnet

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"braid/pathsel"
)

const (
	// lookupTimeout bounds one question to the control plane, which answers within 25 ms or, under
	// load, seconds. If a question has at most five seconds, scionproto's daemon asks the control
	// service twice, at the same time.
	lookupTimeout = 6 * time.Second
	// refreshEvery keeps the paths current: it is the longest time before a new path is used.
	refreshEvery = 30 * time.Second
	// retryFirst and retryMost are the pauses while there is no path. They are short at first,
	// since a host often starts together with its network, and longer later, since a destination
	// may be gone for good.
	retryFirst, retryMost = time.Second, 10 * time.Second
	// unsettledFor is how long after a change the next changes are looked for more often. A control
	// service's first answer may lack paths, and it leaves out a path whose link was just down,
	// which may soon be back.
	unsettledFor = 2 * time.Minute
	// refreshBefore is how long before the first hop field expires a new path is requested. If it
	// were shorter, a short outage of the control service would cost connections; the shortest
	// lifetime is 5.6 minutes.
	refreshBefore = 2 * time.Minute
	// forgetAfter is how long a destination that nobody uses is still refreshed.
	forgetAfter = 10 * time.Minute
	// parallelLookups is above one so that a slow lookup does not delay the others, and small so
	// that they do not flood the control service.
	parallelLookups = 4
	// maxDestinations bounds the table, since a peer list can name any number of ASes. maxGlanced
	// bounds the ASes that only get single messages: strangers cause these. An AS takes some kB for
	// each path.
	maxDestinations, maxGlanced = 4096, 256
	// glanceAge is how long paths for single messages are kept. If one of them is gone by then, the
	// message is lost and sent again along another one.
	glanceAge = 5 * time.Minute
)

// lookup is the table of paths by destination, with a goroutine that refreshes it.
type lookup struct {
	// query returns paths together with an error if a part of the answer is missing.
	query       func(ctx context.Context, dst pathsel.IA, refresh bool) ([]found, error)
	afterLookup func(dst pathsel.IA, paths []found)
	inUse       func(dst pathsel.IA) bool
	log         *slog.Logger
	wake        chan struct{}   // the earliest due time may have changed
	ctx         context.Context // ends with close
	stop        context.CancelFunc
	workers     sync.WaitGroup

	mu           sync.Mutex
	closed       bool
	destinations map[pathsel.IA]*destination
	glanced      map[pathsel.IA]glance           // for single messages; not refreshed
	revoked      map[pathsel.Interface]time.Time // until then
}

// destination holds the paths to one AS. Its fields are guarded by lookup.mu.
type destination struct {
	paths     []found
	links     links     // of the paths
	failures  int       // consecutive lookups without a path
	changed   time.Time // when an answer last had other paths than the one before
	lastAsked time.Time
	due       time.Time
	underWay  chan struct{} // closed when the current lookup ends; nil if there is none
	refresh   bool          // the current lookup bypasses the control plane's cache
	err       error         // of the last lookup, if it has found no path
	watchers  map[chan struct{}]struct{}
	told      []found // the paths when watchers were last told of a change
}

// glance is the answer about an AS that gets single messages.
type glance struct {
	paths []found
	at    time.Time
}

func newLookup(query func(context.Context, pathsel.IA, bool) ([]found, error), afterLookup func(pathsel.IA, []found),
	inUse func(pathsel.IA) bool, log *slog.Logger) *lookup {
	ctx, stop := context.WithCancel(context.Background())
	l := &lookup{
		query: query, afterLookup: afterLookup, inUse: inUse, log: log, ctx: ctx, stop: stop,
		wake:         make(chan struct{}, 1),
		destinations: map[pathsel.IA]*destination{},
		glanced:      map[pathsel.IA]glance{},
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

// spawn runs f, for which close waits, unless the lookup is closed. The context of f ends with
// close.
func (l *lookup) spawn(f func(context.Context)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.workers.Go(func() { f(l.ctx) })
	}
}

// run refreshes the paths until ctx ends.
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

// takeDue lists the destinations to look up now, and forgets unused ones.
func (l *lookup) takeDue(now time.Time) []pathsel.IA {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, until := range l.revoked {
		if !now.Before(until) {
			delete(l.revoked, i)
		}
	}
	maps.DeleteFunc(l.glanced, func(_ pathsel.IA, g glance) bool { return now.Sub(g.at) > glanceAge })
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

// paths returns the known paths that have not expired. It asks the control plane only if it has not
// answered yet, or if all paths have expired.
func (l *lookup) paths(ctx context.Context, dst pathsel.IA) ([]found, error) {
	d, lookedUp, err := l.ensure(dst)
	if err == nil && !lookedUp {
		err = l.lookUp(ctx, dst, false)
	}
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	live := unexpired(d.paths, time.Now())
	if len(live) > 0 {
		return live, nil
	}
	return nil, noPath(dst, d.err)
}

func noPath(dst pathsel.IA, why error) error {
	if why != nil {
		return fmt.Errorf("%w to %s: %w", ErrNoPath, dst, why)
	}
	return fmt.Errorf("%w to %s", ErrNoPath, dst)
}

// ensure adds dst to the table if necessary, and tells whether its paths have been looked up
// before. That does not count if all of them have expired since, as on a computer that has slept.
func (l *lookup) ensure(dst pathsel.IA) (d *destination, lookedUp bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if d = l.destinations[dst]; d == nil {
		if len(l.destinations) >= maxDestinations {
			return nil, false, fmt.Errorf("paths to %s: the table of paths already has %d ASes", dst, maxDestinations)
		}
		d = &destination{watchers: map[chan struct{}]struct{}{}, due: now.Add(refreshEvery)}
		l.destinations[dst] = d
	}
	d.lastAsked = now
	return d, len(unexpired(d.paths, now)) > 0 || len(d.paths) == 0 && d.failures > 0, nil
}

// want has the paths to dst looked up now, unless they have been before, and then refreshed.
func (l *lookup) want(dst pathsel.IA) {
	d, lookedUp, err := l.ensure(dst)
	if err == nil && !lookedUp {
		l.mu.Lock()
		d.due = time.Now()
		l.mu.Unlock()
		l.wakeUp()
	}
}

// glance returns the paths to dst for a single message, as far as they are known.
func (l *lookup) glance(dst pathsel.IA) []found {
	l.mu.Lock()
	defer l.mu.Unlock()
	return unexpired(l.known(dst), time.Now())
}

// known returns the paths to dst that are refreshed. If there are none, it returns those of the last
// lookup for single messages. The caller holds l.mu.
func (l *lookup) known(dst pathsel.IA) []found {
	if d := l.destinations[dst]; d != nil && len(d.paths) > 0 {
		return d.paths
	}
	return l.glanced[dst].paths
}

// once asks the control plane for the paths to dst, for single messages.
func (l *lookup) once(ctx context.Context, dst pathsel.IA) ([]found, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	answer, err := l.query(ctx, dst, false)
	if answer = unexpired(answer, time.Now()); len(answer) == 0 {
		return nil, noPath(dst, err)
	}
	l.afterLookup(dst, answer)
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, again := l.glanced[dst]; !again && len(l.glanced) >= maxGlanced {
		delete(l.glanced, slices.MinFunc(slices.Collect(maps.Keys(l.glanced)), func(a, b pathsel.IA) int {
			return l.glanced[a].at.Compare(l.glanced[b].at)
		}))
	}
	l.glanced[dst] = glance{answer, time.Now()}
	return answer, nil
}

// lookUp asks the control plane for the paths to dst, unless a question is open, and waits until
// the answer is stored. With refresh, an open question counts only if it bypasses the cache, too.
// The error is the context's.
func (l *lookup) lookUp(ctx context.Context, dst pathsel.IA, refresh bool) error {
	for {
		l.mu.Lock()
		d := l.destinations[dst]
		if d == nil || l.closed {
			l.mu.Unlock()
			return nil
		}
		if d.underWay == nil {
			d.underWay, d.refresh = make(chan struct{}), refresh
			l.workers.Go(func() { l.ask(dst, d, refresh) })
		}
		answered, enough := d.underWay, d.refresh || !refresh
		l.mu.Unlock()
		select {
		case <-answered:
		case <-ctx.Done():
			return fmt.Errorf("look up paths to %s: %w", dst, ctx.Err())
		}
		if enough {
			return nil
		}
	}
}

// ask asks the control plane and stores the answer.
func (l *lookup) ask(dst pathsel.IA, d *destination, refresh bool) {
	ctx, cancel := context.WithTimeout(l.ctx, lookupTimeout)
	answer, err := l.query(ctx, dst, refresh)
	cancel()

	l.mu.Lock()
	now := time.Now()
	answer = unexpired(answer, now)
	before := d.paths
	gone := l.isDown
	if refresh { // the caller wants the present answer
		gone = func(found) bool { return true }
	}
	d.paths = merge(before, answer, err == nil, now, gone)
	d.links = linksOf(d.paths)
	d.err = err
	if len(answer) > 0 {
		d.failures, d.err = 0, nil
	} else {
		d.failures++
	}
	d.due = dueAfter(now, d.paths, d.failures)
	changed := !samePaths(before, d.paths)
	lacking := slices.ContainsFunc(d.paths, func(f found) bool { return f.lacking })
	if (changed || lacking) && len(answer) > 0 {
		d.changed = now
	}
	if age := now.Sub(d.changed); age < unsettledFor {
		if again := now.Add(max(retryFirst, age/2)); again.Before(d.due) {
			d.due = again
		}
	}
	for i, until := range l.revoked {
		if until.Before(d.due) && uses(before, i) {
			d.due = until // the path may be back then
		}
	}
	d.tell(now)
	paths, failures := d.paths, d.failures
	l.mu.Unlock()

	if err != nil && l.ctx.Err() == nil {
		l.log.Debug("path lookup failed",
			"destination", dst, "answer", len(answer), "failures", failures, "error", err)
	}
	if changed {
		l.log.Debug("paths changed", "destination", dst, "paths", len(paths))
	}
	l.afterLookup(dst, paths)
	l.mu.Lock()
	close(d.underWay)
	d.underWay = nil
	l.mu.Unlock()
	l.wakeUp()
}

func (l *lookup) wakeUp() { notify(l.wake) }

// merge combines the known paths with an answer. An answer that is empty, for whatever reason, or
// of which a part is missing, keeps the known paths: an outage in the control plane must not stop
// the data plane. A whole answer may lack a path, too, when the control service is busy. So a path
// goes only if two whole answers in a row lack it, or if gone says that one is enough. Of a path
// that is in both, it keeps the version that expires later.
func merge(before, answer []found, whole bool, now time.Time, gone func(found) bool) []found {
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
		if k, ok := known[f.trail]; ok && k.way.outlasts(f.way) {
			f = k
		}
		f.lacking = false
		out = append(out, f)
	}
	for _, f := range before {
		if seen[f.trail] || whole && (f.lacking || gone(f)) {
			continue
		}
		f.lacking = f.lacking || whole
		out = append(out, f)
	}
	sortFound(out)
	return unexpired(out, now)
}

func unexpired(paths []found, now time.Time) []found {
	return slices.DeleteFunc(slices.Clone(paths), func(f found) bool { return !now.Before(f.path.Expiry) })
}

// replaceWays replaces the way of each known path by what f returns for it.
func (l *lookup) replaceWays(f func(trail, *way) *way) {
	replace := func(paths []found) []found {
		paths = slices.Clone(paths)
		for i, p := range paths {
			paths[i].way = f(p.trail, p.way)
		}
		return paths
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.destinations {
		d.paths = replace(d.paths)
	}
	for ia, g := range l.glanced {
		l.glanced[ia] = glance{replace(g.paths), g.at}
	}
}

// dueAfter is the time of the next lookup after an answer with these paths.
func dueAfter(now time.Time, paths []found, failures int) time.Time {
	if len(paths) == 0 {
		return now.Add(min(retryFirst<<min(max(failures-1, 0), 10), retryMost))
	}
	due := now.Add(refreshEvery)
	for _, f := range paths {
		if early := f.path.Expiry.Add(-refreshBefore); early.Before(due) {
			due = early
		}
	}
	// If a path that was just looked up expires soon, asking again at once would give nothing
	// newer.
	if soon := now.Add(retryMost); due.Before(soon) {
		due = soon
	}
	return due
}

// samePaths tells whether a and b are the same paths in the same order. New hop fields do not
// count.
func samePaths(a, b []found) bool {
	return slices.EqualFunc(a, b, func(x, y found) bool { return x.trail == y.trail })
}

func uses(paths []found, i pathsel.Interface) bool {
	return slices.ContainsFunc(paths, func(f found) bool { return slices.Contains(f.path.Interfaces, i) })
}

// tell notifies the watchers if their paths are outdated: there are others, announced properties
// have changed, or the expiry that they know is near. The caller holds lookup.mu.
func (d *destination) tell(now time.Time) {
	if !slices.EqualFunc(d.told, d.paths, func(old, f found) bool {
		x, y := old.path, f.path
		return old.trail == f.trail && x.MTU == y.MTU && x.Bandwidth == y.Bandwidth &&
			x.Latency == y.Latency && x.LatencyKnown == y.LatencyKnown &&
			(x.Expiry.Equal(y.Expiry) || now.Before(x.Expiry.Add(-refreshBefore)))
	}) {
		d.told = d.paths
		d.notify()
	}
}

// notify tells each watcher that something has changed. The caller holds lookup.mu.
func (d *destination) notify() {
	for w := range d.watchers {
		notify(w)
	}
}

// notify sends a value, unless one still waits to be received. It never blocks.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// find returns the known path to dst with that trail, unless it has expired.
func (l *lookup) find(dst pathsel.IA, t trail) (found, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.known(dst) {
		if f.trail == t && time.Now().Before(f.path.Expiry) {
			return f, true
		}
	}
	return found{}, false
}

// walk lists the interfaces on a trail from one AS to the other, if the links of known paths to the
// other lead along it.
func (l *lookup) walk(from, to pathsel.IA, t trail) ([]pathsel.Interface, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.destinations[to]
	if d == nil {
		return nil, false
	}
	return d.links.walk(from, to, t)
}

// add stores an answer about a destination that is not in the table yet. From then on it is
// refreshed.
func (l *lookup) add(dst pathsel.IA, answer []found) {
	d, lookedUp, err := l.ensure(dst)
	if err == nil && !lookedUp {
		now := time.Now()
		l.mu.Lock()
		d.paths = merge(d.paths, answer, true, now, l.isDown)
		d.links = linksOf(d.paths)
		d.changed, d.due = now, now.Add(retryFirst) // the first answer may lack paths
		d.tell(now)
		l.mu.Unlock()
		l.wakeUp()
	}
	l.afterLookup(dst, answer)
}
