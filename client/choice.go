package client

import (
	"errors"
	"slices"
	"time"

	"github.com/anacrolix/torrent"

	"braid/pathsel"
)

// Choosing paths: views out of measurements, and decisions into connections.
//
// What is parked keeps its connection, behind a closed gate: no requests, and to come back costs nothing. Where the gate cannot
// close, or enough connections wait already, parking ends the connection, which gives its requests to the others at
// once, and coming back costs a handshake: until it is done the path-level peer is Opening.

// PathEvent is a step in the life of a path-level peer, and why it was taken.
type PathEvent struct {
	// Name is path- and one of: selected (it will be connected), opened (it is), parked, probed, returned, closed,
	// failed.
	Name   string
	Since  time.Duration // since the transfer was added
	Key    pathsel.Key
	Reason string
}

func (t *Transfer) tell(name string, k pathsel.Key, reason string) {
	t.log.Info(name, "peer", k.Peer, "path", k.Path.Short(), "conn", k.Conn, "reason", reason)
	if t.decided != nil {
		t.decided(PathEvent{Name: name, Since: time.Since(t.start), Key: k, Reason: reason})
	}
}

// enter changes the state of a path-level peer. What was measured so far belongs to the old one.
func (t *Transfer) enter(s *pathState, state pathsel.State) {
	now := time.Now()
	t.sample(s, now)
	s.candidate.State, s.candidate.Since, s.silence = state, now, pathsel.Silence{}
	t.sample(s, now)
}

func (t *Transfer) onDialled(e dialled) {
	for _, p := range t.peers {
		for _, s := range p.paths {
			if s.offer != e.offer {
				continue
			}
			if e.err != nil {
				t.lost(s, e.err)
				return
			}
			if s.link != nil {
				s.settle()
			}
			s.link, s.err = e.link, nil
			s.candidate.Handshake = e.link.Measure().Handshake
			t.enter(s, s.then)
			t.tell("path-opened", s.candidate.Key, "handshake of "+s.candidate.Handshake.Round(10*time.Microsecond).String())
			e.link.OnChange(t.inbox.touch)
			return
		}
	}
	if e.link != nil { // the offer was withdrawn meanwhile
		e.link.Close()
	}
}

// lost notes that a path-level peer was refused or lost, and when to try again.
func (t *Transfer) lost(s *pathState, err error) {
	t.failed(s)
	s.err = err
	t.tell("path-failed", s.candidate.Key, err.Error())
}

func (t *Transfer) failed(s *pathState) {
	t.enter(s, pathsel.Failed)
	s.candidate.Failures++
	s.candidate.RetryAt = s.candidate.Since.Add(pathsel.RetryDelay(s.candidate.Failures))
}

var (
	errEnded    = errors.New("the connection has ended")
	errRefused  = errors.New("the peer ended the connection before its handshake; it may not have this torrent")
	errEnough   = errors.New("the torrent has as many connections as it may open")
	errNoAnswer = errors.New("the engine has not connected")
)

// look finds links that have changed, and offers that lead nowhere, and measures. It tells whether a connection is
// silent.
func (t *Transfer) look() (silent bool) {
	now := time.Now()
	for _, p := range t.peers {
		for _, s := range p.paths {
			t.lookAt(s, now)
			if s.link != nil || s.candidate.State.Open() {
				t.sample(s, now)
				silent = silent || s.candidate.Silent
			}
		}
	}
	for _, r := range t.inbound {
		if r.link != nil && r.link.Closed() {
			r.path = r.link.Path()
			r.settle()
			t.log.Info("peer disconnected", "peer", r.peer, "bytes_written", r.past.written)
		}
	}
	t.inbound = trimFinished(t.inbound, maxFinished)
	return silent
}

func (t *Transfer) lookAt(s *pathState, now time.Time) {
	l := s.link
	if l == nil {
		if s.candidate.State == pathsel.Opening && now.Sub(s.candidate.Since) > offerPatience {
			t.withdraw(s)
			t.lost(s, errNoAnswer)
		}
		return
	}
	if !l.Closed() {
		return
	}
	err := errRefused
	if l.Greeted() {
		err = errEnded
	} else {
		s.obfuscate = !s.obfuscate
	}
	s.settle()
	// Closed by a peer that is complete as well, or that has seen us complete before we have.
	if t.paused || t.torrent.Info() != nil && t.torrent.BytesMissing() == 0 {
		t.enter(s, pathsel.Idle)
		return
	}
	t.lost(s, err)
}

// view is what the selector sees, and whose each candidate is.
func (t *Transfer) view() (pathsel.View, map[pathsel.Key]*pathState) {
	v := pathsel.View{Now: time.Now(), MaxPaths: t.session.maxPaths, Preference: t.session.policy.Preference, Seed: t.seed, Memory: t.memory}
	if t.torrent.Info() != nil {
		v.Remaining = uint64(max(0, t.torrent.BytesMissing()))
	}
	states := map[pathsel.Key]*pathState{}
	for _, p := range t.peers {
		if p.banned {
			continue
		}
		for _, s := range p.paths {
			if s.unlisted && !s.candidate.State.Open() {
				continue
			}
			if at := p.transport.Revoked(s.candidate.Path); at.After(s.candidate.RevokedAt) {
				s.candidate.RevokedAt = at
			}
			s.candidate.Hint = t.hints.Rank(s.candidate.Path)
			v.Candidates = append(v.Candidates, s.candidate)
			states[s.candidate.Key] = s
		}
	}
	return v, states
}

// choose asks the selector and carries its decisions out.
func (t *Transfer) choose() {
	if t.paused {
		return
	}
	v, states := t.view()
	if t.torrent.Info() != nil && v.Remaining == 0 {
		return // complete, which the engine is about to say; it has let go of the peers that are complete as well
	}
	plan := t.session.selector.Decide(v)
	// Hundreds of path-level peers take tens of milliseconds to think about: never more than a twentieth of the time.
	t.rested = v.Now.Add(20 * time.Since(v.Now))
	t.memory = plan.Memory
	t.record(v, plan)
	t.wait(plan.Waiting, len(v.Candidates) > 0)
	for _, d := range plan.Decisions {
		s := states[d.Key]
		if s == nil {
			if s = t.another(d.Key); s == nil {
				continue
			}
			states[d.Key] = s
		}
		t.carryOut(s, d)
	}
}

// wait notes what the selector is waiting for. Before the first path is known, or where peers only connect to us,
// nothing is missing yet.
func (t *Transfer) wait(reason string, known bool) {
	if !known {
		reason = ""
	}
	switch {
	case reason != "" && t.waiting == "":
		t.log.Info("waiting for a path", "reason", reason)
	case reason == "" && t.waiting != "":
		t.log.Info("no longer waiting for a path")
	}
	t.waiting = reason
}

func (t *Transfer) record(v pathsel.View, p pathsel.Plan) {
	if t.trace == nil {
		return
	}
	if err := pathsel.WriteStep(t.trace, pathsel.Step{Selector: t.session.selector.Name(), View: v, Plan: p}); err != nil {
		t.log.Error("the trace ends here", "error", err)
		t.trace = nil
	}
}

// another is one more connection on a path that has one; nil if there is no such path.
func (t *Transfer) another(k pathsel.Key) *pathState {
	for _, p := range t.peers {
		if p.peer.ID() != k.Peer {
			continue
		}
		for _, s := range p.paths {
			if s.candidate.Key.Path == k.Path {
				x := newPathState(p, pathsel.Candidate{Key: k, Path: s.candidate.Path})
				p.paths = append(p.paths, x)
				return x
			}
		}
	}
	return nil
}

func (t *Transfer) carryOut(s *pathState, d pathsel.Decision) {
	switch d.Action {
	case pathsel.Open:
		t.tell("path-selected", d.Key, d.Reason)
		t.open(s, pathsel.Active)
	case pathsel.Close:
		t.close(s, d.Reason)
	case pathsel.Park:
		t.tell("path-parked", d.Key, d.Reason)
		t.park(s)
	case pathsel.Probe:
		t.tell("path-probed", d.Key, d.Reason)
		t.resume(s, pathsel.Probing)
	case pathsel.Return:
		t.tell("path-returned", d.Key, d.Reason)
		t.resume(s, pathsel.Active)
	case pathsel.Fail:
		t.disconnect(s)
		t.failed(s)
		s.err = errors.New(d.Reason)
		t.tell("path-failed", d.Key, d.Reason)
	}
}

func (t *Transfer) park(s *pathState) {
	warm := 0
	for _, p := range t.peers {
		for _, x := range p.paths {
			if p.peer == s.peer && x.link != nil && x.candidate.State == pathsel.Parked {
				warm++
			}
		}
	}
	if s.link == nil || warm >= t.session.maxPaths || !s.link.Filter.Park() {
		t.disconnect(s)
	}
	t.enter(s, pathsel.Parked)
}

// resume brings a path-level peer back to work.
func (t *Transfer) resume(s *pathState, state pathsel.State) {
	switch {
	case s.link != nil:
		s.link.Filter.Unpark()
		t.enter(s, state)
	case s.candidate.State == pathsel.Opening:
		s.then = state
	default:
		t.open(s, state)
	}
}

// open offers the path-level peer to the engine, which dials it now or never: it drops an address that it has dialled,
// so that trying again is offering again. It then is in the given state.
func (t *Transfer) open(s *pathState, then pathsel.State) {
	if t.dialled() >= maxDialled {
		t.lost(s, errEnough)
		return
	}
	if s.offer == nil {
		i := slices.IndexFunc(t.peers, func(p *peerState) bool { return p.peer == s.peer })
		var o *offer
		var err error
		o, err = t.session.offers.add(t.ctx, t.peers[i].transport, s.peer, s.candidate.Path, func(l *link, err error) {
			if l != nil && t.conceals.Load() {
				l.Filter.Conceal()
			}
			t.inbox.put(dialled{o, l, err})
		})
		if err != nil {
			t.lost(s, err)
			return
		}
		s.offer = o
	}
	s.offer.spent.Store(false)
	s.offer.obfuscate = nil
	if s.obfuscate {
		s.offer.obfuscate = t.source.InfoHash.Bytes()
	}
	s.then = then
	t.enter(s, pathsel.Opening)
	t.torrent.AddPeers([]torrent.PeerInfo{{Addr: s.offer.face, Source: torrent.PeerSourceDirect}})
}

// dialled counts the connections that the transfer has opened or is opening.
func (t *Transfer) dialled() (n int) {
	for _, p := range t.peers {
		for _, s := range p.paths {
			if s.link != nil || s.candidate.State == pathsel.Opening {
				n++
			}
		}
	}
	return n
}

func (t *Transfer) close(s *pathState, reason string) {
	open := s.candidate.State.Open()
	t.disconnect(s)
	if open {
		t.enter(s, pathsel.Idle)
		t.tell("path-closed", s.candidate.Key, reason)
	}
}

// disconnect ends the connection or the attempt. The engine gives the requests to the others when its next read
// fails, which is at once. The face goes with it: the engine takes no new connection with that of an old one.
func (t *Transfer) disconnect(s *pathState) {
	t.withdraw(s)
	if s.link != nil {
		t.sample(s, time.Now())
		s.link.Close()
		s.settle()
	}
}

func (t *Transfer) withdraw(s *pathState) {
	if s.offer != nil {
		s.offer.withdraw()
		s.offer = nil
	}
}
