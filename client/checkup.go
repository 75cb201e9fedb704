package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"braid/pathsel"
	"braid/scionnet"
)

// Finding out why a transfer makes no progress: evidence for Diagnose.
//
//	data comes ──1 s without──► the ways to a few targets are examined ──2 s without──► the cause is told
//
// While nothing comes the examination is repeated, so that another cause is told as soon as the first.

const (
	// examineAfter and causeAfter are how long no data comes before the ways to peers are examined, and before the cause is told.
	// Together with examineFor they keep the promise of three seconds.
	examineAfter, causeAfter = time.Second, 2 * time.Second
	// idleAfter is how long peers with missing pieces may send no block before that is a cause: a download waits for its turn
	// with a peer, and a slow connection takes seconds for a block.
	idleAfter = 10 * time.Second
	// examineFor bounds one examination; a path with a longer round trip counts as down.
	examineFor = 1200 * time.Millisecond
	// examineEvery and examineSeldom are the pauses between two of them, in the first minute and then.
	examineEvery, examineSeldom = time.Second, 10 * time.Second
	// examineTargets and examinePaths bound what is examined at a time: a packet for each router on each of the paths.
	examineTargets, examinePaths = 4, 4
	// examineAtOnce bounds the transfers of a session that examine something at the same time.
	examineAtOnce = 4
)

// TrackerState is what is known of a tracker of a transfer.
type TrackerState struct {
	URL      string
	SCION    scionnet.Addr // zero: it is on IP, or its address is not known
	Answered bool          // the last time
	Err      error         // why it has not; nil too while the first answer is awaited
}

// StoppedError says that a transfer was given up because it made no progress.
type StoppedError struct {
	Torrent string
	After   time.Duration
	Cause   *Cause // nil: it is not known
}

func (e *StoppedError) Error() string {
	text := "the cause is not known"
	if e.Cause != nil {
		text = e.Cause.Text
	}
	return fmt.Sprintf("%s: no progress for %v: %s", e.Torrent, e.After.Round(time.Second), text)
}

// examination is what was found out about the way to a target.
type examination struct {
	control error
	paths   []pathsel.Path
	err     error // of the lookup of the paths
	traces  []scionnet.Trace
	hostUp  bool
}

// examiner is a transport on whose ways there is something to find out.
type examiner interface {
	examine(ctx context.Context, to scionnet.Addr, paths []pathsel.Path) examination
}

// examine asks the routers on the paths and the host or, if there is no path, the control service.
func (t *scionTransport) examine(ctx context.Context, to scionnet.Addr, paths []pathsel.Path) (x examination) {
	if x.paths = paths; len(paths) == 0 {
		x.control = t.host.CheckControl(ctx)
		return x
	}
	var all sync.WaitGroup
	all.Go(func() { x.traces, _ = t.host.Trace(ctx, to.IA, paths) })
	all.Go(func() {
		echoes, _ := t.host.Probe(ctx, to.IA, to.Host, paths)
		x.hostUp = slices.ContainsFunc(echoes, func(p scionnet.Probe) bool { return p.Status == scionnet.PathAlive })
	})
	all.Wait()
	if x.traces == nil { // no socket could be opened
		x.traces = make([]scionnet.Trace, len(paths))
	}
	x.paths, paths = nil, x.paths
	traces := x.traces
	x.traces = nil
	for i, p := range paths {
		r := traces[i]
		if revoked, ok := t.host.Revoked(p); ok && !r.Alive(p) && r.Down.IA == 0 {
			r.Down = revoked.Interface
		}
		if !r.Unknown || r.Down.IA != 0 {
			x.paths, x.traces = append(x.paths, p), append(x.traces, r)
		}
	}
	return x
}

// stall is what a transfer knows of its own progress.
type stall struct {
	useful    int64 // bytes of payload so far
	usefulAt  time.Time
	examining bool
	examined  time.Time // when the last examination ended
	found     map[string]examination
	trackers  map[string]TrackerState
	cause     *Cause
}

// examinedAll is an event: the ways to some targets were examined.
type examinedAll struct{ found map[string]examination }

func (t *Transfer) onExamined(e examinedAll) {
	t.stall.examining, t.stall.examined, t.stall.found = false, time.Now(), e.found
}

// TrackerState notes how it goes with a tracker.
func (t *Transfer) TrackerState(s TrackerState) { t.inbox.put(s) }

// checkProgress looks whether there is progress, and if not, why. It ends a transfer that has had none for too long.
func (t *Transfer) checkProgress() {
	s := &t.stall
	now := time.Now()
	st := t.torrent.Stats()
	if useful := st.BytesReadUsefulData.Int64(); useful != s.useful || s.usefulAt.IsZero() {
		s.useful, s.usefulAt = useful, now
	}
	if t.claiming || now.Sub(s.usefulAt) >= examineAfter && t.torrent.Info() != nil && t.hashing() {
		s.usefulAt = now
	}
	idle := now.Sub(s.usefulAt)
	if t.isDone || idle < examineAfter {
		s.found = nil
		t.tellCause(nil)
		return
	}
	targets := t.targets()
	t.examine(targets, idle)
	if idle >= causeAfter {
		c := Diagnose(Evidence{DiskFull: t.full.err != nil, Connected: t.connected(), Targets: targets, WebSeeds: len(t.source.WebSeeds)})
		if c != nil && (c.Kind == Choked || c.Kind == NoData) && idle < idleAfter {
			c = nil
		}
		if c != nil || !s.examining {
			t.tellCause(c)
		}
	}
	if limit := t.options.StopTimeout; limit > 0 && now.Sub(s.usefulAt) >= limit {
		t.fail(&StoppedError{Torrent: t.source.title(), After: limit, Cause: s.cause})
	}
}

// tellCause notes the cause, and tells of it if it is another one.
func (t *Transfer) tellCause(c *Cause) {
	before := t.stall.cause
	t.stall.cause = c
	switch {
	case c == nil && before == nil, c != nil && before != nil && c.Kind == before.Kind && c.Text == before.Text:
		return
	case c != nil:
		t.log.Warn("no progress", "cause", c.Kind, "reason", c.Text)
	case !t.isDone:
		t.log.Info("progress again")
	}
	if t.options.Caused != nil {
		t.options.Caused(c, time.Since(t.start))
	}
}

// connected is what is known of the peers that are connected, and not silent.
func (t *Transfer) connected() Connected {
	c := Connected{Metadata: t.want != nil}
	var missing []bool
	if c.Metadata {
		missing = t.want.missing(t.torrent)
		for _, m := range missing {
			if m {
				c.Missing++
			}
		}
	}
	peers, serving := map[pathsel.PeerID]bool{}, map[pathsel.PeerID]bool{}
	for r := range t.greetedRows() {
		if t.isSilent(r) {
			continue
		}
		who := uploadPeer(r)
		peers[who] = true
		g := t.session.gauges.find(r.link.face)
		if g == nil {
			continue
		}
		if g.unchoked.Load() {
			serving[who] = true
		}
		g.conn.PeerPieces().Iterate(func(i uint32) bool {
			if int(i) < len(missing) && missing[i] {
				missing[i] = false
				c.Offered++
			}
			return true
		})
	}
	c.Peers, c.Serving = len(peers), len(serving)
	return c
}

// isSilent tells whether nothing arrives on the connection, not even signs of life.
func (t *Transfer) isSilent(r *row) bool {
	for _, p := range t.peers {
		for _, s := range p.paths {
			if &s.row == r {
				return s.candidate.Silent
			}
		}
	}
	return false
}

// targets are the peers and trackers that should answer, with what is known of them.
func (t *Transfer) targets() []Target {
	var out []Target
	add := func(x Target, at scionnet.Addr) {
		if x.SCION = at.IA != 0; x.SCION {
			x.IA = at.IA
			if e, ok := t.stall.found[x.Name]; ok {
				x.Examined, x.Control, x.Paths, x.Traces, x.HostUp = true, e.control, e.paths, e.traces, e.hostUp
				if e.err != nil {
					x.Err = e.err
				}
			}
		}
		out = append(out, x)
	}
	for _, p := range t.peers {
		if slices.ContainsFunc(p.paths, func(s *pathState) bool {
			return s.link != nil && s.link.Greeted() && !s.link.Closed() && !s.candidate.Silent
		}) {
			continue
		}
		x := Target{Name: p.peer.String(), Err: p.err, Banned: p.banned}
		for _, s := range p.paths {
			if s.err != nil {
				x.Err = s.err
				x.Refused = x.Refused || errors.Is(s.err, errRefused)
			}
		}
		at, _ := p.peer.SCION()
		add(x, at)
	}
	for _, k := range t.stall.trackers {
		add(Target{Name: k.URL, Tracker: true, Answered: k.Answered, Err: k.Err}, k.SCION)
	}
	slices.SortFunc(out[len(out)-len(t.stall.trackers):], func(a, b Target) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// examine has the ways to some of the targets examined, unless that was done a moment ago.
func (t *Transfer) examine(targets []Target, idle time.Duration) {
	s := &t.stall
	pause := examineEvery
	if idle > time.Minute {
		pause = examineSeldom
	}
	if s.examining || time.Since(s.examined) < pause {
		return
	}
	type order struct {
		name   string
		at     scionnet.Addr
		by     examiner
		paths  []pathsel.Path
		lookUp Transport // the paths are not known
		err    error
	}
	var orders []order
	for _, x := range targets {
		if len(orders) >= examineTargets || !x.SCION || x.Answered || len(orders) > 0 && x.Tracker {
			continue
		}
		o := order{name: x.Name}
		if x.Tracker {
			o.at = t.stall.trackers[x.Name].SCION
		}
		for _, p := range t.peers {
			if p.peer.String() != x.Name {
				continue
			}
			o.at, o.err = p.peer.scion, p.err
			for _, c := range p.paths {
				if !c.unlisted && c.conn == 0 {
					o.paths = append(o.paths, c.candidate.Path)
				}
			}
		}
		// The control plane leaves paths out that have been revoked, and they are part of the picture.
		for _, path := range s.found[x.Name].paths {
			if !slices.ContainsFunc(o.paths, func(p pathsel.Path) bool { return p.Fingerprint == path.Fingerprint }) {
				o.paths = append(o.paths, path)
			}
		}
		o.paths = o.paths[:min(len(o.paths), examinePaths)]
		tr, err := t.session.transportFor(SCIONPeer(o.at))
		if err != nil {
			continue
		}
		if o.by, _ = tr.(examiner); o.by == nil {
			continue
		}
		if x.Tracker {
			o.lookUp = tr
		}
		orders = append(orders, o)
	}
	if len(orders) == 0 {
		return
	}
	s.examining = true
	t.lookups.Go(func() {
		found := map[string]examination{}
		defer func() { t.inbox.put(examinedAll{found}) }()
		select {
		case t.session.examining <- struct{}{}:
			defer func() { <-t.session.examining }()
		case <-t.ctx.Done():
			return
		}
		ctx, cancel := context.WithTimeout(t.ctx, examineFor)
		defer cancel()
		var all sync.WaitGroup
		var mu sync.Mutex
		for _, o := range orders {
			all.Go(func() {
				if o.lookUp != nil {
					quick, cancel := context.WithTimeout(ctx, examineFor/3)
					o.paths, o.err = o.lookUp.Paths(quick, SCIONPeer(o.at))
					cancel()
					o.paths = o.paths[:min(len(o.paths), examinePaths)]
				}
				x := o.by.examine(ctx, o.at, o.paths)
				x.err = o.err
				mu.Lock()
				defer mu.Unlock()
				found[o.name] = x
			})
		}
		all.Wait()
	})
}
