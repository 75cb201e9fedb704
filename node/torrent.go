package node

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anacrolix/torrent/metainfo"

	"braid/client"
	"braid/node/event"
	"braid/storage"
	"braid/tracker"
)

// Options describe a torrent of a node. The JSON tags are those of its state file: see saved.
type Options struct {
	Source   client.Source   `json:"-"`
	Trackers [][]tracker.URL `json:"trackers"`        // tiers
	Peers    []client.Peer   `json:"peers,omitempty"` // in addition to those of the source

	Name  string        `json:"name,omitempty"`  // for users; empty: that of the source
	Names storage.Names `json:"names,omitempty"` // of files that were renamed: see Rename
	// Storage: without a directory, the data is in the directory of the node's settings.
	Storage Storage `json:"storage"`
	// WebSeeds are used in addition to the source's.
	WebSeeds     []client.WebSeed    `json:"web_seeds,omitempty"`
	Selection    client.Selection    `json:"selection"`
	SuperSeeding client.SuperSeeding `json:"super_seeding"`
	Goal         Goal                `json:"goal"`
	// Rates limit this torrent, in addition to the node's rates; see Config.Service.
	Rates        Rates    `json:"rates"`
	IgnoreGlobal bool     `json:"ignore_global,omitempty"` // the node's rates do not apply to it
	Policy       Policy   `json:"policy"`                  // in addition to the node's
	PeerLimit    int      `json:"peer_limit,omitempty"`    // peers that it dials; 0: the node's
	Labels       []string `json:"labels,omitempty"`
	Priority     Priority `json:"priority,omitempty"`
	// StopTimeout is a time without data after which the torrent fails; 0: it never does.
	StopTimeout time.Duration `json:"stop_timeout,omitempty"`
	Paused      bool          `json:"paused,omitempty"` // add it without starting it

	// MustFind makes the start fail if no source can search for peers.
	MustFind bool `json:"-"`
	// PieceEvents publishes an event for each verified piece.
	PieceEvents bool `json:"-"`
	// Trace, if not nil, gets the views and decisions of path selection: see client.Options.
	Trace io.Writer `json:"-"`
	// Checking, if not nil, gets the number of hashed bytes while the start checks existing files.
	Checking func(bytes int64) `json:"-"`
}

func (o Options) title() string {
	if name := cmp.Or(o.Name, o.Source.Name); name != "" {
		return name
	}
	return o.Source.InfoHash.HexString()
}

// WebSeedURLs returns the URLs of the web seeds that the torrent or the user has named.
func (o Options) WebSeedURLs() []string {
	urls := slices.Clone(o.Source.WebSeeds)
	for _, w := range o.WebSeeds {
		urls = append(urls, w.URL)
	}
	return urls
}

// State of a torrent.
type State string

// The states:
//
//	Starting ──► Running ──► Served       Queued, Paused and Failed lead to Starting; all states
//	   │            │                     lead to Paused and Removed
//	   └─► Failed ◄─┘
const (
	Queued   State = "queued"   // it waits for its turn, in a service
	Starting State = "starting" // existing files are checked
	Running  State = "running"  // downloads, serves, or has failed: see Progress
	Paused   State = "paused"
	Served   State = "served" // it has reached its goal
	Failed   State = "failed" // it could not be started, in a service
	Moving   State = "moving" // its data is being moved
	Removed  State = "removed"
)

// Torrent is one torrent of a node.
type Torrent struct {
	node    *Node
	hash    metainfo.Hash
	number  int // see Number
	added   time.Time
	limiter *client.Limiter // nil: limits do not change
	events  torrentLog
	history history

	op      sync.Mutex // held while the torrent is started or stopped, which takes long
	setting sync.Mutex // held by Change

	mu         sync.Mutex
	options    Options
	state      State
	reason     string             // why it is in this state
	failed     error              // why it is Failed
	forced     bool               // it runs in any case, whatever the queue allows
	removing   bool               // it is being removed with its data
	arriving   bool               // it is complete, and must move to the directory for complete data
	due        bool               // the program for complete torrents must run for it
	taken      bool               // somebody runs that program, or will do so
	verifying  bool               // it is Starting only because its data is being verified
	unverified bool               // it is stopped, and the check of its data has not ended
	nextMove   *move              // it is wanted and has not begun; nil: none
	moveTo     string             // its data is being copied there; empty: it is not
	leaving    string             // where old data must be deleted; empty: nowhere
	renaming   storage.Names      // the new names, while files are being renamed; else nil
	run        *run               // nil: it does not run
	abort      context.CancelFunc // cancels a start, move or check; nil: none is under way
	last       client.Progress    // of the last run, without its connections
	found      []bool             // pieces that a check since then has found right; nil: no check
	past       counters           // of earlier runs
	started    time.Time
	completed  time.Time
	moving     bool // see Status.Moving
	trackers   map[string]TrackerStatus
	deliverers []client.Peer // peers that have delivered data
	done       chan struct{} // closed when it is complete or has failed
	complete   bool          // it is complete, and an event has said so
	ended      chan struct{} // closed when it is Served or Removed

	saving sync.Mutex
	kept   bool              // its .torrent file is saved
	onDisk [sha256.Size]byte // sum of its HASH.json

	deciding atomic.Bool // carryOut is starting or stopping it
}

func newTorrent(n *Node, o Options) *Torrent {
	t := &Torrent{
		node:     n,
		hash:     o.Source.InfoHash,
		added:    time.Now(),
		options:  o,
		state:    Starting,
		trackers: map[string]TrackerStatus{},
		done:     make(chan struct{}),
		ended:    make(chan struct{}),
	}
	t.last.Name, t.last.Phase = o.title(), client.Checking
	t.setShape(o.shapeOf(nil))
	switch {
	case o.Paused:
		t.state = Paused
	case n.service:
		t.state = Queued
	}
	if n.limiter != nil {
		t.limiter = &client.Limiter{}
	}
	return t
}

// shapeOf returns what the torrent wants, and what of it is there. right tells which pieces are; if
// it is nil, none is. A magnet link has zeros.
func (o Options) shapeOf(right func(piece int) bool) (s shape) {
	if o.Source.IsMagnet() {
		return s
	}
	l := o.Source.Layout
	for i, wanted := range l.PiecesOf(o.Selection.Wants(l)) {
		_, n := l.PieceRange(i)
		has := right != nil && right(i)
		if !has {
			s.Missing += n
		}
		if wanted {
			s.Total, s.Pieces = s.Total+n, s.Pieces+1
		}
		if wanted && has {
			s.Have, s.Done = s.Have+n, s.Done+1
		}
	}
	return s
}

// setShape sets the progress of a torrent that does not run. The caller holds mu, unless no other
// goroutine knows the torrent yet.
func (t *Torrent) setShape(s shape) {
	p := &t.last
	p.Total, p.Have, p.Missing, p.Pieces, p.Done = s.Total, s.Have, s.Missing, s.Pieces, s.Done
}

// lookAtRecord reads the completion record of a torrent that is not started yet. It returns false
// if there are files without a record.
func (t *Torrent) lookAtRecord() bool {
	o := t.options
	if o.Source.IsMagnet() || o.Storage.Dir == "" {
		return true
	}
	right := o.stored().Recorded()
	if right == nil {
		return o.stored().IsGone()
	}
	t.setShape(o.shapeOf(func(i int) bool { return right[i] }))
	return true
}

// InfoHash returns the info hash in hexadecimal digits.
func (t *Torrent) InfoHash() string { return t.hash.HexString() }

// Number is a short name of the torrent, from 1. No other torrent of the node ever gets it; a
// restart numbers all torrents anew.
func (t *Torrent) Number() int { return t.number }

// Options returns how the torrent was added, with later changes.
func (t *Torrent) Options() Options {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.options
}

// Source returns the torrent's source.
func (t *Torrent) Source() client.Source { return t.Options().Source }

// State returns what the torrent does.
func (t *Torrent) State() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state
}

// current returns the run, or nil.
func (t *Torrent) current() *run {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.run
}

// Done returns a channel that is closed when the wanted data is complete or the torrent has failed:
// see Progress. A torrent that is resumed has a new channel if it has failed or lacks data.
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

// AddPeers gives the torrent addresses of peers. A torrent that does not run ignores them.
func (t *Torrent) AddPeers(peers ...client.Peer) {
	if r := t.current(); r != nil {
		r.transfer.AddPeers(peers...)
	}
}

// Progress returns the torrent's state. Its counters include earlier runs of this torrent.
func (t *Torrent) Progress() client.Progress {
	t.mu.Lock()
	r, past, p, state, failed, title := t.run, t.past, t.last, t.state, t.failed, t.options.title()
	t.mu.Unlock()
	if r != nil {
		p = r.transfer.Progress()
		r.observe(p, time.Now())
		p.Since += r.offset
	}
	p.Name = title
	p.Fetched, p.Sent = p.Fetched+past.Fetched, p.Sent+past.Sent
	p.Wasted, p.Dropped = p.Wasted+past.Wasted, p.Dropped+past.Dropped
	if phase, ok := phases[state]; ok && r == nil {
		p.Phase, p.Err, p.Cause, p.Waiting = phase, failed, nil, ""
	}
	return p
}

// phases are the phases of torrents without a transfer.
var phases = map[State]client.Phase{
	Paused:   "paused",
	Served:   client.Complete,
	Queued:   "queued",
	Moving:   "moving",
	Failed:   client.Broken,
	Starting: client.Checking,
}

// Pause ends the torrent's connections, and its searches for peers. Received data stays on disk.
func (t *Torrent) Pause() error {
	if err := t.mayPause(); err != nil {
		return err
	}
	t.mu.Lock()
	moving := t.state == Moving
	t.options.Paused, t.forced = t.options.Paused || moving, false
	t.mu.Unlock()
	if moving { // it is paused afterwards
		return t.keep()
	}
	t.cancelStart()
	t.op.Lock()
	defer t.op.Unlock()
	if t.State() == Paused { // it was, and only its data was being verified
		return nil
	}
	if err := t.mayPause(); err != nil {
		return err
	}
	err := t.stop(Paused)
	t.save()
	t.changed("paused")
	t.node.poke()
	return err
}

func (t *Torrent) mayPause() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch s := t.state; {
	case s == Paused, s == Removed, s == Starting && !t.node.service, s == Served && !t.node.service:
		return fmt.Errorf("pause torrent %s: it is %s", t.options.title(), s)
	}
	return nil
}

// Resume starts a torrent that is paused, has failed, or has reached its goal; in the last case it
// soon stops again, unless the goal was changed. A torrent whose data is being moved or verified
// starts afterwards. In a service it waits for its turn in the queue. The context bounds Resume
// only.
func (t *Torrent) Resume(ctx context.Context) error { return t.resume(ctx, false) }

// ResumeNow starts a torrent without waiting for its turn in the queue.
func (t *Torrent) ResumeNow(ctx context.Context) error { return t.resume(ctx, true) }

func (t *Torrent) resume(ctx context.Context, now bool) error {
	t.mu.Lock()
	starting := t.state == Starting && !t.verifying
	later := t.state == Moving || t.verifying || starting && now
	if later { // it runs afterwards
		t.options.Paused, t.forced, t.reason = false, now, ""
	}
	t.mu.Unlock()
	switch {
	case later:
		return t.keep()
	case starting:
		return fmt.Errorf("resume torrent %s: it is %s", t.Options().title(), Starting)
	}
	t.op.Lock()
	defer t.op.Unlock()
	s, failed := t.State(), t.Progress().Err != nil
	switch {
	case s == Served, s == Running && failed:
		if err := t.stop(Paused); err != nil {
			return err
		}
	case now && (s == Queued || s == Running):
	case s != Paused && s != Failed:
		return fmt.Errorf("resume torrent %s: it is %s", t.Options().title(), s)
	}
	t.mu.Lock()
	t.reopen()
	t.forced, t.failed, t.reason = now, nil, ""
	service := t.node.service
	if t.options.Paused = false; service && t.state != Running {
		t.state = Queued
	}
	t.mu.Unlock()
	if !service && t.current() == nil {
		if err := t.start(ctx); err != nil {
			return err
		}
	}
	t.save()
	t.changed("resumed")
	t.node.poke()
	return nil
}

func (t *Torrent) changed(how string) {
	t.node.stream.publish(event.Changed{
		Event:    how,
		Torrent:  t.Options().title(),
		InfoHash: t.InfoHash(),
	})
}
