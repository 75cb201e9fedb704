package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"braid/pathsel"
	"braid/scionnet"
	"braid/storage"
)

// checkup finds out why a transfer makes no progress: it collects evidence for diagnose.
//
//	data comes ──1 s without──► examines ways to a few targets ──2 s without──► tells the cause
//
// While no data comes it examines again and again, so that it notices a new cause as soon as the
// first one.
type checkup struct {
	*core
	caused    func(*Cause, time.Duration) // nil: nobody wants to know
	useful    int64                       // bytes of payload so far
	idle      time.Duration               // without more of them, while braid ran
	looked    time.Time
	examining bool
	examined  time.Time // when the last examination ended
	found     map[string]examination
	trackers  map[string]TrackerState
	cause     *Cause
	lookAgain time.Time // a stall is not looked at before: that goes over all pieces
	stalls    stallWarner
}

const (
	// After causeAfter without data the cause is told. With examineAfter and examineFor, braid keeps
	// its promise to tell the cause within causeWithin.
	causeAfter, causeWithin = 2 * time.Second, 3 * time.Second
	// idleAfter is how long peers with missing pieces may send no block before that is a cause. A
	// download waits for its turn with a peer, and a slow connection takes seconds for a block.
	idleAfter = 10 * time.Second
	// examineFor bounds one examination; a path with a longer round trip counts as down.
	examineFor = 1200 * time.Millisecond
	// examineEvery is the pause between two examinations in the first minute, examineSeldom the
	// pause after that.
	examineEvery, examineSeldom = time.Second, 10 * time.Second
	// examineTargets and examinePaths bound an examination, which sends a packet to each router on
	// each of the paths.
	examineTargets, examinePaths = 4, 4
	// examineAtOnce bounds the transfers of a session that examine at the same time.
	examineAtOnce = 4
)

// TrackerState is what is known of a tracker of a transfer.
type TrackerState struct {
	URL      string
	SCION    scionnet.Addr // zero: it is on IP, or its address is not known
	Answered bool          // it has answered the last announce
	Err      error         // why it has not answered; also nil before the first answer
}

// StoppedError says that a transfer was given up since it made no progress.
type StoppedError struct {
	After time.Duration
	Cause *Cause // nil: it is not known
}

func (e *StoppedError) Error() string {
	text := "the cause is not known"
	if e.Cause != nil {
		text = e.Cause.Text
	}
	return fmt.Sprintf("no progress for %v: %s", e.After.Round(time.Second), text)
}

// examine asks the routers on the paths and the host. Without a path it asks the control service.
// It leaves out paths about which it finds out nothing.
func (t *scionTransport) examine(
	ctx context.Context, to scionnet.Addr, paths []pathsel.Path,
) (x examination) {
	x.Examined = true
	if len(paths) == 0 {
		x.Control = t.host.CheckControl(ctx)
		return x
	}
	var traces []scionnet.Trace
	var both sync.WaitGroup
	both.Go(func() { traces, x.Unsent = t.host.Trace(ctx, to.IA, paths) })
	both.Go(func() {
		echoes, _ := t.host.Probe(ctx, to.IA, to.Host, paths)
		x.HostUp = slices.ContainsFunc(echoes, func(p scionnet.Probe) bool {
			return p.Status == scionnet.PathAlive
		})
	})
	both.Wait()
	for i, r := range traces {
		p := paths[i]
		if revoked, ok := t.host.Revoked(p); ok && !r.Alive(p) && r.Down.IA == 0 {
			r.Down = revoked.Interface
		}
		if !r.Unknown || r.Down.IA != 0 {
			x.Paths, x.Traces = append(x.Paths, p), append(x.Traces, r)
		}
	}
	return x
}

// onTracker notes the state of a tracker.
func (c *checkup) onTracker(s TrackerState) {
	if c.trackers == nil {
		c.trackers = map[string]TrackerState{}
	}
	c.trackers[s.URL] = s
}

// restart counts the time without data from now on.
func (c *checkup) restart() { c.idle, c.looked = 0, time.Now() }

// look finds out whether the transfer makes progress and, if not, why. It returns the time since
// the last progress; 0 if it does not look. Busy means that no data can arrive, because files on
// disk are being checked or the last data is being written.
func (c *checkup) look(diskFull, busy bool) time.Duration {
	now := time.Now()
	passed := now.Sub(c.looked)
	if passed > examineAfter {
		passed = sampleEvery // braid did not run meanwhile, and has not read yet what has come
	}
	c.idle, c.looked = c.idle+passed, now
	st := c.torrent.Stats()
	useful := st.BytesReadUsefulData.Int64()
	if busy || useful != c.useful {
		c.useful, c.idle = useful, 0
	}
	stalled := !c.isDone && c.idle >= examineAfter
	if stalled && now.Before(c.lookAgain) {
		return 0
	}
	if stalled && c.isDescribed() && isHashing(c.torrent) {
		c.idle, stalled = 0, false
	}
	if !stalled {
		c.found = nil
		c.tell(nil)
		return c.idle
	}
	defer func() { c.lookAgain = sparingly(now) }()
	c.stalls.look(now)
	targets := c.targets()
	c.examine(targets)
	if c.idle >= causeAfter {
		e := evidence{
			DiskFull: diskFull, DiskBusy: storage.IsBusy(c.store.Store, c.source.InfoHash),
			Connected: c.connected(), Targets: targets,
		}
		if errs, usable := c.source.WebSeedErrors(); !usable {
			e.WebSeeds = len(errs)
		}
		x := diagnose(e)
		if x != nil && (x.Kind == Choked || x.Kind == NoData) && c.idle < idleAfter {
			x = nil
		}
		if x != nil || !c.examining {
			c.tell(x)
		}
	}
	return c.idle
}

// exceeds tells whether the time without data is longer than the user's limit. It waits until the
// cause is known, or should be, because the error of the transfer names it.
func (c *checkup) exceeds(limit, idle time.Duration) bool {
	if c.cause == nil {
		limit = max(limit, causeWithin)
	}
	return idle >= max(limit, examineAfter)
}

// tell notes the cause and, if it has changed, tells the user.
func (c *checkup) tell(x *Cause) {
	before := c.cause
	c.cause = x
	switch {
	case x == nil && before == nil:
		return
	case x != nil && before != nil && x.Kind == before.Kind && x.Text == before.Text:
		return
	case x != nil:
		c.log.Warn("no progress", "cause", x.Kind, "reason", x.Text)
	case !c.isDone:
		c.log.Info("progress again")
	}
	if c.caused != nil {
		c.caused(x, time.Since(c.start))
	}
}

// connected is what is known of the peers that are connected, and not silent.
func (c *checkup) connected() connectedPeers {
	out := connectedPeers{Metadata: c.want != nil}
	var missing []bool
	if out.Metadata {
		missing = c.want.missing(c.torrent)
		for _, m := range missing {
			if m {
				out.Missing++
			}
		}
	}
	silent := map[*row]bool{}
	for s := range c.peers.paths() {
		silent[&s.row] = s.candidate.Silent
	}
	peers, serving := map[pathsel.PeerID]bool{}, map[pathsel.PeerID]bool{}
	for r := range c.peers.connected() {
		if silent[r] {
			continue
		}
		id := r.remoteID()
		peers[id] = true
		g := r.link.gauge.Load()
		if g.unchoked.Load() {
			serving[id] = true
		}
		if !out.Metadata {
			continue // seeds have all pieces that a torrent can have, which are four billion
		}
		for i := range g.conn.Pieces().Iterate {
			if int(i) < len(missing) && missing[i] {
				missing[i] = false
				out.Offered++
			}
		}
	}
	out.Peers, out.Serving = len(peers), len(serving)
	return out
}

// targets are the peers and trackers that should answer, and what is known of the ways to them.
func (c *checkup) targets() []target {
	var out []target
	add := func(x target) {
		if x.examination = c.found[x.Name]; x.Lookup != nil {
			x.Err = x.Lookup
		}
		out = append(out, x)
	}
	for _, p := range c.peers.dialled {
		answers := func(s *pathState) bool { return s.isConnected() && !s.candidate.Silent }
		if slices.ContainsFunc(p.paths, answers) {
			continue
		}
		x := target{Name: p.peer.String(), Err: p.err, Banned: p.banned}
		for _, s := range p.paths {
			if s.err != nil {
				x.Err = s.err
				x.Refused = x.Refused || errors.Is(s.err, errRefused)
			}
		}
		x.At, _ = p.peer.SCION()
		add(x)
	}
	for _, url := range slices.Sorted(maps.Keys(c.trackers)) {
		k := c.trackers[url]
		add(target{Name: url, Tracker: true, At: k.SCION, Answered: k.Answered, Err: k.Err})
	}
	return out
}

// next are the targets whose ways are examined next, with the paths to examine.
func (c *checkup) next(targets []target) (out []target) {
	for _, x := range targets {
		if len(out) >= examineTargets || x.At.IA == 0 || x.Answered || len(out) > 0 && x.Tracker {
			continue
		}
		before := x.Paths
		x.Paths, x.Lookup = nil, nil
		if p := c.peers.byID[pathsel.PeerID(x.Name)]; p != nil {
			x.Lookup = p.err
			for _, s := range p.paths {
				if !s.unlisted {
					x.Paths = append(x.Paths, s.candidate.Path)
				}
			}
		}
		// The control plane leaves out revoked paths. They were examined before, and belong to the
		// cause.
		for _, path := range before {
			same := func(p pathsel.Path) bool { return p.Fingerprint == path.Fingerprint }
			if !slices.ContainsFunc(x.Paths, same) {
				x.Paths = append(x.Paths, path)
			}
		}
		x.Paths, _ = applyAll(c.policies(), x.Paths) // which may have changed since
		x.Paths = x.Paths[:min(len(x.Paths), examinePaths)]
		out = append(out, x)
	}
	return out
}

// examine has the ways to some of the targets examined, unless that was done a moment ago.
func (c *checkup) examine(targets []target) {
	pause := examineEvery
	if c.idle > time.Minute {
		pause = examineSeldom
	}
	by := transportOf[*scionTransport](c.common)
	if by == nil || c.examining || time.Since(c.examined) < pause {
		return
	}
	next := c.next(targets)
	if len(next) == 0 {
		return
	}
	c.examining = true
	policies := c.policies()
	c.workers.Go(func() {
		found := map[string]examination{}
		defer c.inbox.put(func() {
			c.examining, c.examined, c.found = false, time.Now(), found
		})
		if c.examiners.Acquire(c.ctx, 1) != nil {
			return // the transfer has ended
		}
		defer c.examiners.Release(1)
		ctx, cancel := context.WithTimeout(c.ctx, examineFor)
		defer cancel()
		var all sync.WaitGroup
		var mu sync.Mutex
		for _, x := range next {
			all.Go(func() {
				x.Paths, x.Lookup = x.ways(ctx, by, policies)
				way := by.examine(ctx, x.At, x.Paths)
				way.Lookup = x.Lookup
				mu.Lock()
				defer mu.Unlock()
				found[x.Name] = way
			})
		}
		all.Wait()
	})
}

// ways returns the paths to examine. Those of a tracker are looked up first.
func (t target) ways(
	ctx context.Context, by Transport, policies [2]pathsel.Policy,
) ([]pathsel.Path, error) {
	if !t.Tracker {
		return t.Paths, t.Lookup
	}
	ctx, cancel := context.WithTimeout(ctx, examineFor/3)
	defer cancel()
	paths, err := by.Paths(ctx, PeerAt(t.At))
	paths, refused := applyAll(policies, paths)
	if len(paths) == 0 && len(refused) > 0 {
		err = &pathsel.RefusedError{To: t.At.IA, Refused: refused}
	}
	return paths[:min(len(paths), examinePaths)], err
}
