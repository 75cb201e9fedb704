package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"braid/client"
	"braid/node/event"
	"braid/storage"
)

// run is the time from a start of a torrent to its end.
type run struct {
	transfer *client.Transfer
	store    *sharedStore
	offset   time.Duration // from adding the torrent to the start; 0 for the first run
	began    time.Time
	ctx      context.Context
	cancel   context.CancelFunc
	follower sync.WaitGroup

	sourcing sync.Mutex // held while searches begin or end, which takes long
	early    bool       // the searches began before the transfer was complete

	mu        sync.Mutex
	searches  []Search
	completed time.Time // zero: it is not complete
	moved     int64     // bytes of transferred payload at the last look
	enough    int64     // bytes of sent payload when the goal was reached; 0: it is not reached
	active    time.Time // when payload was last transferred; zero: never
}

// start starts the torrent. The caller holds op. If the start fails, the torrent is paused.
func (t *Torrent) start(ctx context.Context) (err error) {
	t.mu.Lock()
	if t.options.Storage.Dir == "" {
		t.options.Storage.Dir = t.node.Dir() // later changes of the setting do not move the data
	}
	again := !t.started.IsZero()
	t.mu.Unlock()
	o, n := t.Options(), t.node
	// While the node closes, nothing is started. Close cancels starts that have begun before, and
	// waits for them.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.ctx, cancel)()
	if n.ctx.Err() != nil {
		return errClosed
	}
	defer func() {
		if err != nil {
			t.mu.Lock()
			t.state = Paused
			t.mu.Unlock()
		}
	}()
	store, err := t.openStore(ctx, o)
	defer func() {
		if err != nil && store != nil {
			err = errors.Join(err, n.stores.release(store, t.hash))
		}
	}()
	if err != nil {
		return err
	}
	if n.ctx.Err() != nil { // ctx ends a little later than n.ctx
		return errClosed
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	r := &run{store: store, began: time.Now()}
	if again {
		r.offset = time.Since(t.added)
	}
	// Files that were left out since are left out from the beginning: complete data ends a
	// transfer's selection for good.
	if now := t.Options(); !wantsMore(now, o.Selection) {
		o.Selection = now.Selection
	}
	opts, err := t.transferOptions(o, r.offset)
	if err != nil {
		return err
	}
	if r.transfer, err = n.session.Add(o.Source, store.Store, opts); err != nil {
		return err
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	if err := t.beginSearching(r, o); err != nil {
		r.cancel()
		r.transfer.Close()
		t.fold(r)
		return err
	}
	r.follower.Go(func() { t.follow(r) })
	return nil
}

// openStore opens the store of a start, and sees to it that the files may be used: complete data is
// verified if that is due, and a download claims its files. The caller releases the store, which is
// nil if it cannot be opened.
func (t *Torrent) openStore(ctx context.Context, o Options) (*sharedStore, error) {
	src := o.Source
	if o.Storage.Complete && o.Storage.Recheck {
		if ok, err := IsComplete(ctx, src, o.Storage, o.Checking); err != nil || !ok {
			err = errors.Join(fmt.Errorf("verify %s: its data is not complete", src.Name), err)
			return nil, err
		}
	}
	if err := t.refuseGone(); err != nil {
		return nil, err
	}
	store, err := t.node.stores.open(o, t.setAside, t.node.log)
	if err != nil || o.Storage.Complete || src.IsMagnet() {
		return store, err // the transfer claims the files of a magnet link
	}
	if err := storage.Claim(ctx, store.Store, src.Layout, src.InfoHash, o.Checking); err != nil {
		return store, fmt.Errorf("download %s: %w", src.Name, err)
	}
	return store, nil
}

// confirmPatience is how long a start waits until complete data is known to be on disk.
const confirmPatience = time.Second

// beginSearching makes r the current run, and starts its searches. A seed is announced by onDone,
// when its data was checked.
func (t *Torrent) beginSearching(r *run, o Options) (err error) {
	r.sourcing.Lock()
	defer r.sourcing.Unlock()
	t.begin(r)
	t.catchUp(r, o)
	if o.Storage.Complete {
		return nil
	}
	if p := r.transfer.Progress(); p.Total > 0 && p.Missing == 0 {
		select { // so that trackers hear of a seed at once
		case <-r.transfer.Done():
		case <-time.After(confirmPatience): // something on disk was wrong
		}
	}
	r.early = !isClosed(r.transfer.Done())
	searches, err := t.search(r)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.searches = searches
	return err
}

// begin makes r the current run.
func (t *Torrent) begin(r *run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reopen()
	if isClosed(t.ended) { // it was Served, perhaps in an earlier process
		t.ended = make(chan struct{})
	}
	t.run, t.state, t.started = r, Running, r.began
	t.options.Paused, t.failed, t.reason, t.unverified, t.found = false, nil, "", false, nil
	if !t.options.Source.IsMagnet() { // otherwise the check is due later: see describe
		t.options.Storage.Recheck = false
	}
}

// reopen gives Done a new channel if the old one is closed and the torrent is not complete. The
// caller holds mu.
func (t *Torrent) reopen() {
	if isClosed(t.done) && !t.complete {
		t.done = make(chan struct{})
	}
}

// catchUp applies options that have changed since a start read them. Change has not applied them,
// since there was no run.
func (t *Torrent) catchUp(r *run, before Options) {
	t.setting.Lock()
	defer t.setting.Unlock()
	o := t.Options()
	before.Trackers = o.Trackers // the searches have not begun
	t.carryOut(r, before, o)
}

// fold ends the current run, and adds its counters to those of earlier runs.
func (t *Torrent) fold(r *run) {
	p := r.transfer.Progress()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.run != r {
		return
	}
	t.past = t.countersLocked(time.Now())
	t.past.Fetched, t.past.Sent = t.past.Fetched+p.Fetched, t.past.Sent+p.Sent
	t.past.Wasted, t.past.Dropped = t.past.Wasted+p.Wasted, t.past.Dropped+p.Dropped
	p.Since += r.offset
	p.Fetched, p.Sent, p.Wasted, p.Dropped, p.ReadRate, p.WriteRate = 0, 0, 0, 0, 0, 0
	p.Paths = nil
	t.last, t.run = p, nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// transferOptions returns the options of a transfer. offset is added to the times in its events,
// which begin when the torrent was added.
func (t *Torrent) transferOptions(o Options, offset time.Duration) (out client.Options, err error) {
	s := &t.node.stream
	out = client.Options{
		Peers:        o.Peers,
		WebSeeds:     o.WebSeeds,
		Selection:    o.Selection,
		SuperSeeding: o.SuperSeeding,
		StopTimeout:  o.StopTimeout,
		Trace:        o.Trace,
		Limiter:      t.limiter,
		Logger:       t.logger(),
		Decided: func(e client.PathEvent) {
			now := time.Now()
			t.history.note(e, now)
			e.Since += offset
			s.publish(newPathStep(o.Source, e, now))
		},
		Caused: func(c *client.Cause, since time.Duration) {
			s.publish(newCauseChange(o.Source, c, offset+since))
		},
	}
	t.mu.Lock()
	out.Known = slices.Clone(t.deliverers)
	t.mu.Unlock()
	if o.PieceEvents {
		out.Verified = func(p client.VerifiedPiece) {
			p.Since += offset
			s.publish(newPiece(o.Source, p))
		}
	}
	out.MaxPeers = cmp.Or(o.PeerLimit, t.node.Settings().PeerLimit)
	out.Policy, err = o.Policy.Parse()
	return out, err
}

// setAside reports an existing file that was renamed or deleted.
func (t *Torrent) setAside(path, aside string) {
	t.node.stream.publish(event.InTheWay{Event: "in-the-way", Path: path, Aside: aside})
}

// follow waits until a run is complete, and then until it ends.
func (t *Torrent) follow(r *run) {
	defer func() {
		r.sourcing.Lock()
		defer r.sourcing.Unlock()
		closeAll(r.takeSearches())
	}()
	select {
	case <-r.transfer.Done():
		t.onDone(r)
	case <-r.transfer.Ended():
		return
	case <-r.ctx.Done():
		if isClosed(r.transfer.Done()) { // at the same time: completion must be reported
			t.onDone(r)
		}
		return
	}
	select {
	case <-r.transfer.Ended():
	case <-r.ctx.Done():
	}
}

// onDone tells the sources and subscribers that a run is complete or has failed.
func (t *Torrent) onDone(r *run) {
	p := r.transfer.Progress()
	r.mu.Lock()
	if p.Err == nil {
		r.completed = time.Now()
	}
	r.mu.Unlock()
	if t.Options().Storage.Complete && p.Err == nil && r.ctx.Err() == nil {
		t.searchAgain(r)
	}
	t.tellDone(r)
	r.sourcing.Lock() // searches that begin just now must hear of it, too
	defer r.sourcing.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.searches {
		x.Hungry(false)
		switch {
		case p.Err != nil:
		case p.Fetched > 0: // otherwise it was complete before
			x.Completed()
		case r.early:
			x.Announce()
		}
	}
}

// tellDone tells subscribers that the torrent is complete (once), or that it has failed.
func (t *Torrent) tellDone(r *run) {
	t.describe(r)
	p, own, o, s := t.Progress(), r.transfer.Progress(), t.Options(), t.node.Settings()
	moves := s.CompleteDir != "" && p.Fetched > 0 && isSameDir(o.Storage.Dir, s.Dir)
	t.mu.Lock()
	told, done := t.complete, t.done
	again := !t.completed.IsZero() && own.Fetched == 0
	if t.complete = p.Err == nil; t.complete && t.completed.IsZero() {
		t.completed = time.Now()
		t.arriving = moves && !o.Storage.Complete
	}
	if t.complete && !told && !again && s.RunsScript() {
		t.due = true
	}
	t.mu.Unlock()
	if p.Err == nil && told {
		return
	}
	t.moveComplete() // before the event, whose readers must see that the data will move
	if p.Err != nil {
		t.node.stream.publish(NewFailed(p.Name, t.InfoHash(), p.Err))
	} else {
		e := newDone(o.Source, p, own)
		e.Again = again
		t.node.stream.publish(e)
	}
	if !isClosed(done) {
		close(done)
	}
	t.save()
	t.node.poke()
}

// TakeProgram tells whether the caller must run the program of the settings now: the torrent has
// become complete, its data is where it stays, and nobody has taken the program. The caller calls
// ProgramRan afterwards. Without that, the next process takes the program again.
func (t *Torrent) TakeProgram() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.due || t.taken || t.moving || t.arriving {
		return false
	}
	t.taken = true
	return true
}

// ProgramRan notes that the program need not run for the torrent any more.
func (t *Torrent) ProgramRan() {
	t.mu.Lock()
	t.due, t.taken = false, false
	t.mu.Unlock()
	t.save()
}

// describe takes over and saves the description that peers have sent for a magnet link.
func (t *Torrent) describe(r *run) {
	if !t.Source().IsMagnet() {
		return
	}
	src, err := r.transfer.Described()
	if err != nil {
		return // no peer has sent it yet
	}
	t.mu.Lock()
	t.options.Source, t.options.Storage.Recheck = src, false // the store checks its files now
	t.mu.Unlock()
	t.save()
}

// serve ends a run whose goal is reached. The caller runs it in a goroutine, since it takes long.
func (t *Torrent) serve(r *run, reason string) {
	t.op.Lock()
	defer t.op.Unlock()
	if t.current() != r {
		return
	}
	t.end(Served)
	p := t.Progress()
	t.mu.Lock()
	t.reason = reason
	t.mu.Unlock()
	e := event.Served{
		Event:    "served",
		Torrent:  p.Name,
		InfoHash: t.InfoHash(),
		Sent:     p.Sent,
		Reason:   reason,
	}
	if p.Total > 0 {
		e.Ratio = float64(p.Sent) / float64(p.Total)
	}
	t.node.stream.publish(e)
	t.save()
	t.mu.Lock()
	close(t.ended)
	t.mu.Unlock()
	t.node.poke()
}

// stop ends the current run, if there is one. The caller holds op.
func (t *Torrent) stop(next State) error {
	r := t.current()
	var err error
	if r != nil {
		t.remember(r)
		r.cancel()
		r.follower.Wait()
		r.transfer.Close()
		t.describe(r) // beat has not seen a description that has just come
		t.fold(r)
		err = t.node.stores.release(r.store, t.hash)
	}
	t.mu.Lock()
	t.state, t.reason, t.failed = next, "", nil
	t.options.Paused = t.options.Paused || next == Paused
	t.mu.Unlock()
	return err
}

// end is stop, with errors in the log.
func (t *Torrent) end(next State) {
	if err := t.stop(next); err != nil {
		t.logger().Warn("the storage of a torrent cannot be closed",
			"torrent", t.Options().title(), "error", err)
	}
}

// shut ends the searches of a torrent. Close calls it.
func (t *Torrent) shut() {
	t.op.Lock()
	defer t.op.Unlock()
	if r := t.current(); r != nil {
		t.remember(r)
		r.cancel()
		r.follower.Wait()
	}
}

// cancelStart cancels a start that is under way.
func (t *Torrent) cancelStart() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.abort != nil {
		t.abort()
	}
}

// restart ends the run, if there is one, changes the options, and starts the torrent again. It
// locks op.
func (t *Torrent) restart(change func(*Options)) {
	if t.State() != Moving { // a move goes on, and the torrent starts again after it
		t.cancelStart()
	}
	t.op.Lock()
	defer t.op.Unlock()
	before := t.State()
	if before == Removed || before == Moving {
		return
	}
	if t.current() != nil {
		t.end(Queued)
	}
	t.mu.Lock()
	change(&t.options)
	t.complete = false
	t.mu.Unlock()
	t.save()
	t.goOn(before)
}

// goOn starts a torrent that was stopped for a while, unless it is paused or was Served before. The
// caller holds op.
func (t *Torrent) goOn(before State) {
	t.mu.Lock()
	switch {
	case t.options.Paused:
		t.state, t.reason = Paused, ""
	case before == Served && t.reason != "": // otherwise it was resumed while it moved
		t.state = Served
	case t.node.service:
		t.state = Queued
	default:
		t.state = Starting
	}
	start := t.state == Starting
	t.mu.Unlock()
	t.node.poke()
	if !start {
		return
	}
	if err := t.start(t.node.ctx); err != nil {
		t.fail(err)
	}
}

// fail notes that a start has failed.
func (t *Torrent) fail(err error) {
	t.mu.Lock()
	t.state, t.failed = Failed, err
	t.mu.Unlock()
	t.logger().Error("the torrent cannot be started", "error", err)
	t.node.stream.publish(NewFailed(t.Options().title(), t.InfoHash(), err))
	t.mu.Lock()
	defer t.mu.Unlock()
	if !isClosed(t.done) {
		close(t.done)
	}
}

// remove ends the torrent. It returns false if it is removed already.
func (t *Torrent) remove() bool {
	t.cancelStart()
	t.op.Lock()
	defer t.op.Unlock()
	if t.State() == Removed {
		return false
	}
	t.end(Removed)
	t.mu.Lock()
	if !isClosed(t.ended) {
		close(t.ended)
	}
	t.mu.Unlock()
	return true
}
