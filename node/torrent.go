package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/anacrolix/torrent/metainfo"

	"braid/client"
	"braid/node/event"
	"braid/storage"
	"braid/tracker"
)

// Options describe a torrent of a node.
type Options struct {
	Source       client.Source
	Storage      Storage
	Trackers     [][]tracker.URL // tiers
	Peers        []client.Peer   // in addition to those of the source
	Selection    client.Selection
	SuperSeeding client.SuperSeeding
	Goal         Goal
	Limits       client.Limits // of this torrent, in addition to those of the node; see Config.Adjustable
	StopTimeout  time.Duration // gives the torrent up after so long without data; 0: never
	Paused       bool          // add it without starting it
	// MustFind has the start fail if no source can search for peers.
	MustFind bool
	// PieceEvents publishes an event for each verified piece.
	PieceEvents bool
	// Trace, if not nil, gets what path selection sees and decides: see client.Options.
	Trace io.Writer
	// Checking, if not nil, gets the number of bytes that were hashed before the start.
	Checking func(bytes int64)
}

func (o Options) title() string { return cmp.Or(o.Source.Name, o.Source.InfoHash.HexString()) }

// State of a torrent.
type State string

const (
	Starting State = "starting" // existing files are looked at
	Running  State = "running"  // downloads, serves, or has failed: see Progress
	Paused   State = "paused"
	Served   State = "served" // it has reached its goal
	Removed  State = "removed"
)

// Torrent is one torrent of a node.
type Torrent struct {
	node    *Node
	hash    metainfo.Hash
	added   time.Time
	limiter *client.Limiter // nil: limits do not change

	op sync.Mutex // held while the torrent is started or stopped, which takes long

	mu       sync.Mutex
	options  Options
	state    State
	run      *run // the last one; nil: it was never started
	past     client.Progress
	trackers map[string]client.TrackerState
	done     chan struct{} // closed when it is complete or has failed
	complete bool          // and that was told
	ended    chan struct{} // closed when it is served or removed

	saving sync.Mutex
	kept   bool // its .torrent file is saved
}

// run is the time from a start to a pause.
type run struct {
	transfer *client.Transfer
	store    *sharedStore
	offset   time.Duration // from adding the torrent to the start; 0 for the first run
	cancel   context.CancelFunc
	follower sync.WaitGroup
}

func newTorrent(n *Node, o Options) *Torrent {
	t := &Torrent{
		node: n, hash: o.Source.InfoHash, added: time.Now(), options: o, state: Starting,
		trackers: map[string]client.TrackerState{}, done: make(chan struct{}), ended: make(chan struct{}),
	}
	if o.Paused {
		t.state = Paused
	}
	if n.limiter != nil {
		t.limiter = client.NewLimiter()
	}
	return t
}

// InfoHash returns the info hash in hexadecimal digits.
func (t *Torrent) InfoHash() string { return t.hash.HexString() }

// Options returns how the torrent was added, with later changes.
func (t *Torrent) Options() Options {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.options
}

// Source returns what the torrent was made from.
func (t *Torrent) Source() client.Source { return t.Options().Source }

// State returns what the torrent does.
func (t *Torrent) State() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state
}

// Done returns a channel that is closed when the wanted data is complete or the torrent has failed:
// see Progress. A failed torrent that is started again has a new channel.
func (t *Torrent) Done() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.done
}

// Ended returns a channel that is closed when the torrent has reached its goal or was removed. A
// torrent that is started again has a new channel.
func (t *Torrent) Ended() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

// Trackers returns what is known of the trackers, sorted by URL.
func (t *Torrent) Trackers() []client.TrackerState {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []client.TrackerState
	for _, s := range t.trackers {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b client.TrackerState) int { return cmp.Compare(a.URL, b.URL) })
	return out
}

// AddPeers offers the torrent peers that somebody has named. A torrent that does not run ignores
// them.
func (t *Torrent) AddPeers(peers ...client.Peer) {
	t.mu.Lock()
	r := t.run
	t.mu.Unlock()
	if r != nil {
		r.transfer.AddPeers(peers...)
	}
}

// PhasePaused is the phase of a torrent that is paused.
const PhasePaused client.Phase = "paused"

// Progress returns the torrent's state. Its counters include earlier runs of this torrent.
func (t *Torrent) Progress() client.Progress {
	t.mu.Lock()
	r, past, state, name := t.run, t.past, t.state, t.options.title()
	t.mu.Unlock()
	if r == nil {
		past.Name, past.Phase = name, client.Checking
		if state == Paused {
			past.Phase = PhasePaused
		}
		return past
	}
	p := r.transfer.Progress()
	p.Since += r.offset
	p.Fetched, p.Sent = p.Fetched+past.Fetched, p.Sent+past.Sent
	p.Wasted, p.Dropped = p.Wasted+past.Wasted, p.Dropped+past.Dropped
	if state == Paused {
		p.Phase, p.Paths = PhasePaused, nil
	}
	return p
}

// Pause ends the torrent's connections and searches for peers. What was received stays on disk.
func (t *Torrent) Pause() error {
	t.op.Lock()
	defer t.op.Unlock()
	if s := t.State(); s != Running {
		return fmt.Errorf("pause torrent %s: it is %s", t.Options().title(), s)
	}
	err := t.stop(Paused)
	t.save()
	t.changed("paused")
	return err
}

// Resume starts a torrent that is paused, has failed, or has reached its goal. It stops again soon
// if the goal has not been changed. The context bounds Resume only.
func (t *Torrent) Resume(ctx context.Context) error {
	t.op.Lock()
	defer t.op.Unlock()
	switch s := t.State(); {
	case s == Served, s == Running && t.Progress().Err != nil:
		if err := t.stop(Paused); err != nil {
			return err
		}
	case s != Paused:
		return fmt.Errorf("resume torrent %s: it is %s", t.Options().title(), s)
	}
	if err := t.start(ctx); err != nil {
		return err
	}
	t.save()
	t.changed("resumed")
	return nil
}

// SetGoal changes when the torrent has been served enough.
func (t *Torrent) SetGoal(g Goal) {
	t.mu.Lock()
	t.options.Goal = g
	t.mu.Unlock()
	t.save()
}

// SetLimits changes the limits of this torrent. They hold in addition to those of the node.
func (t *Torrent) SetLimits(l client.Limits) error {
	if err := setLimits(t.limiter, l); err != nil {
		return fmt.Errorf("limit torrent %s: %w", t.Options().title(), err)
	}
	t.mu.Lock()
	t.options.Limits = l
	t.mu.Unlock()
	t.save()
	t.changed("limited")
	return nil
}

// start needs op. A start that fails leaves the torrent paused.
func (t *Torrent) start(ctx context.Context) (err error) {
	o := t.Options()
	n, src := t.node, o.Source
	// Once the node is closing nothing is started: Close waits for starts that were under way
	// before.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.ctx, cancel)()
	if n.ctx.Err() != nil {
		return errClosed
	}
	store, err := n.stores.open(o, t.moved, n.log)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			t.setState(Paused)
			err = errors.Join(err, n.stores.release(store, t.hash))
		}
	}()
	if !o.Storage.Complete && !src.IsMagnet() { // of a magnet link the transfer does it when it knows the files
		if err := storage.Claim(ctx, store.Store, src.Layout, src.InfoHash, o.Checking); err != nil {
			return fmt.Errorf("download %s: %w", src.Name, err)
		}
	}
	if n.ctx.Err() != nil {
		return errClosed
	}
	r := &run{store: store}
	t.mu.Lock()
	if t.run != nil { // resumed
		r.offset = time.Since(t.added)
	}
	t.mu.Unlock()
	if r.transfer, err = n.session.Add(src, store.Store, t.callbacks(o, r.offset)); err != nil {
		return err
	}
	var run context.Context
	run, r.cancel = context.WithCancel(context.Background())
	t.begin(r)
	var searches []Search
	if !o.Storage.Complete { // a seed is announced when its data is complete
		if searches, err = t.search(r); err != nil {
			r.cancel()
			r.transfer.Close()
			return err
		}
	}
	r.follower.Go(func() { t.follow(run, r, searches) })
	return nil
}

// begin makes r the current run.
func (t *Torrent) begin(r *run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.run != nil {
		p := t.run.transfer.Progress()
		t.past.Fetched, t.past.Sent = t.past.Fetched+p.Fetched, t.past.Sent+p.Sent
		t.past.Wasted, t.past.Dropped = t.past.Wasted+p.Wasted, t.past.Dropped+p.Dropped
		if isClosed(t.done) && !t.complete { // it had failed
			t.done = make(chan struct{})
		}
		if isClosed(t.ended) {
			t.ended = make(chan struct{})
		}
	}
	t.run, t.state, t.options.Paused, t.options.Storage.Recheck = r, Running, false, false
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (t *Torrent) setState(s State) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state = s
}

// callbacks are the options of a transfer, which publishes its events in the torrent's time.
func (t *Torrent) callbacks(o Options, offset time.Duration) client.Options {
	s := &t.node.stream
	out := client.Options{
		Peers: o.Peers, Selection: o.Selection, SuperSeeding: o.SuperSeeding, StopTimeout: o.StopTimeout, Trace: o.Trace,
		Limiter: t.limiter,
		Decided: func(e client.PathEvent) {
			e.Since += offset
			s.publish(newPathStep(o.Source, e))
		},
		Caused: func(c *client.Cause, since time.Duration) {
			s.publish(newCauseChange(o.Source, c, offset+since))
		},
	}
	if o.PieceEvents {
		out.Verified = func(p client.VerifiedPiece) {
			p.Since += offset
			s.publish(newPiece(o.Source, p))
		}
	}
	return out
}

func (t *Torrent) moved(path, aside string) {
	t.node.stream.publish(event.InTheWay{Event: "in-the-way", Path: path, Aside: aside})
}

// search has all sources look for peers.
func (t *Torrent) search(r *run) (out []Search, err error) {
	o, n := t.Options(), t.node
	s := Swarm{
		InfoHash: t.hash, PeerID: n.session.PeerID(), Trackers: o.Trackers, Listen: n.Listening(),
		Progress: r.transfer.Progress, Found: r.transfer.AddPeers, Hint: r.transfer.Hint,
		Asked: func(s client.TrackerState) {
			t.mu.Lock()
			t.trackers[s.URL] = s
			t.mu.Unlock()
			r.transfer.TrackerState(s)
		},
		Logger: n.log.With("torrent", o.Source.Name),
	}
	for _, source := range n.sources {
		x, e := source.Start(s)
		switch {
		case e == nil:
			out = append(out, x)
		case !errors.Is(e, ErrNoWay):
			closeAll(out)
			return nil, fmt.Errorf("announce %s: %w", o.Source.Name, e)
		case len(o.Trackers) > 0:
			err = fmt.Errorf("announce %s: %w", o.Source.Name, e)
		}
	}
	if err == nil || len(out) > 0 {
		return out, nil
	}
	if o.MustFind {
		return nil, err
	}
	n.log.Warn("peers must find this braid in another way", "torrent", o.Source.Name, "reason", err)
	return nil, nil
}

func closeAll(searches []Search) {
	var all sync.WaitGroup
	for _, x := range searches {
		all.Go(x.Close)
	}
	all.Wait()
}

// follow watches a run until it ends: it tells the sources how the transfer is, tells subscribers
// when it is complete, and ends it when its goal is reached.
func (t *Torrent) follow(ctx context.Context, r *run, searches []Search) {
	defer func() { closeAll(searches) }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	done, completed, saved := r.transfer.Done(), time.Time{}, time.Now()
	onDone := func() {
		done, completed = nil, time.Now()
		t.isDone(r)
		p := r.transfer.Progress()
		for _, x := range searches {
			x.Hungry(false)
			if p.Err == nil && p.Fetched > 0 { // otherwise it was complete before
				x.Completed()
			}
		}
	}
	for {
		select {
		case <-ctx.Done():
			if done != nil && isClosed(done) { // both may be true by now, and completion must be told
				onDone()
			}
			return
		case <-r.transfer.Ended():
			return
		case <-done:
			if t.Options().Storage.Complete && r.transfer.Progress().Err == nil {
				var err error
				if searches, err = t.search(r); err != nil {
					t.node.log.Error("the torrent is not announced", "torrent", t.Options().title(), "error", err)
				}
			}
			onDone()
		case <-tick.C:
		}
		if time.Since(saved) >= saveEvery {
			saved = time.Now()
			t.save()
		}
		if completed.IsZero() {
			hungry := isHungry(t.Progress())
			for _, x := range searches {
				x.Hungry(hungry)
			}
		} else if g := t.Options().Goal; !g.IsZero() { // otherwise an idle seed costs nothing
			if reason := g.reached(t.Progress(), time.Since(completed)); reason != "" {
				t.serve(r, reason)
				return
			}
		}
	}
}

// isDone tells subscribers, once, that the torrent is complete, or that it has failed.
func (t *Torrent) isDone(r *run) {
	p, src := t.Progress(), t.Source()
	t.mu.Lock()
	told, done := t.complete, t.done
	t.complete = p.Err == nil
	t.mu.Unlock()
	if p.Err == nil && told {
		return
	}
	if p.Err != nil {
		t.node.stream.publish(NewFailed(p.Name, t.InfoHash(), p.Err))
	} else {
		t.node.stream.publish(newDone(src, p))
	}
	if !isClosed(done) {
		close(done)
	}
	t.save()
}

// serve ends a run whose goal is reached.
func (t *Torrent) serve(r *run, reason string) {
	r.transfer.Close()
	t.setState(Served)
	p := t.Progress()
	e := event.Served{Event: "served", Torrent: p.Name, InfoHash: t.InfoHash(), Sent: p.Sent, Reason: reason}
	if p.Total > 0 {
		e.Ratio = float64(p.Sent) / float64(p.Total)
	}
	t.node.stream.publish(e)
	t.save()
	t.mu.Lock()
	close(t.ended)
	t.mu.Unlock()
}

// stop ends the current run; it needs op.
func (t *Torrent) stop(next State) error {
	t.mu.Lock()
	r := t.run
	t.mu.Unlock()
	if r == nil {
		return nil
	}
	r.cancel()
	r.follower.Wait()
	r.transfer.Close()
	t.mu.Lock()
	t.state, t.options.Paused = next, next == Paused
	t.mu.Unlock()
	return t.node.stores.release(r.store, t.hash)
}

// shut ends the searches of a torrent whose node is being closed.
func (t *Torrent) shut() {
	t.op.Lock()
	defer t.op.Unlock()
	t.mu.Lock()
	r := t.run
	t.mu.Unlock()
	if r != nil {
		r.cancel()
		r.follower.Wait()
	}
}

// remove ends the torrent. It tells whether nobody else has done so.
func (t *Torrent) remove() bool {
	t.op.Lock()
	defer t.op.Unlock()
	before := t.State()
	if before == Removed {
		return false
	}
	if before == Running || before == Served {
		if err := t.stop(Removed); err != nil {
			t.node.log.Warn("the storage of a removed torrent cannot be closed", "torrent", t.Options().title(), "error", err)
		}
	}
	t.mu.Lock()
	t.state = Removed
	if !isClosed(t.ended) {
		close(t.ended)
	}
	t.mu.Unlock()
	t.unsave()
	return true
}

func (t *Torrent) changed(how string) {
	t.node.stream.publish(event.Changed{Event: how, Torrent: t.Options().title(), InfoHash: t.InfoHash()})
}
