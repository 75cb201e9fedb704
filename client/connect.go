package client

import (
	"context"
	"errors"
	"slices"
	"time"

	"braid/pathsel"
)

// connector carries out decisions about paths: it opens, parks and closes the connections of a
// transfer, and notes how that went. The way of a peer through it:
//
//  1. add          the peer becomes a spare of the peerSet
//  2. choosePeers  the peer is dialled: lookPaths looks up its paths, on a goroutine of its own
//  3. onPaths      each allowed path becomes a path-level peer, which is Idle
//  4. carryOut     the selector wants it: open offers it to the engine, and it is Opening
//  5. onDialled    the engine has dialled it, and it is Active or Probing
//  6. onGreeted    the BitTorrent handshake over the connection is done
//  7. look         at each look the connection is measured; if it has ended, the path-level peer is
//     Failed (lost), until the selector wants it again
//
// A connection that a peer has opened begins with onAccepted.
//
// A parked path keeps its connection, whose filter keeps requests back. To return costs nothing
// then. If the filter cannot do that, or enough connections are parked already, parking ends the
// connection. Its requests go to other connections at once, and to return takes a handshake: until
// it is done, the path-level peer is Opening.
type connector struct {
	*core
	report func(PathEvent) // nil: nobody wants to know
}

func (c *connector) tell(name string, k pathsel.Key, reason string) {
	c.log.Info(name, "peer", k.Peer, "path", k.Path.Short(), "reason", reason)
	if c.report != nil {
		c.report(PathEvent{Name: name, Since: time.Since(c.start), Key: k, Reason: reason})
	}
}

func (c *connector) carryOut(d pathsel.Decision) {
	s := c.peers.path(d.Key)
	if s == nil {
		return
	}
	switch d.Action {
	case pathsel.Open:
		c.tell("path-selected", d.Key, d.Reason)
		c.open(s, pathsel.Active)
	case pathsel.Close:
		c.close(s, d.Reason)
	case pathsel.Park:
		c.tell("path-parked", d.Key, d.Reason)
		c.park(s)
	case pathsel.Probe:
		c.tell("path-probed", d.Key, d.Reason)
		c.resume(s, pathsel.Probing)
	case pathsel.Return:
		c.tell("path-returned", d.Key, d.Reason)
		c.resume(s, pathsel.Active)
	case pathsel.Fail:
		c.disconnect(s)
		c.lost(s, errors.New(d.Reason))
	}
}

// enter changes the state of a path-level peer. It measures before and after, so that each
// measurement belongs to one state.
func (c *connector) enter(s *pathState, state pathsel.State) {
	now := time.Now()
	s.sample(now)
	s.candidate.State, s.candidate.Since, s.silence = state, now, pathsel.Silence{}
	s.sample(now)
}

// lost notes that a path-level peer was refused or lost, and when to try again.
func (c *connector) lost(s *pathState, err error) {
	c.enter(s, pathsel.Failed)
	s.candidate.Failures++
	s.candidate.RetryAt = s.candidate.Since.Add(pathsel.RetryDelay(s.candidate.Failures))
	s.err = err
	c.tell("path-failed", s.candidate.Key, err.Error())
}

var (
	errEnded   = errors.New("the connection has ended")
	errRefused = errors.New("the peer ended the connection before its handshake; " +
		"it may not have this torrent")
	errEnough   = errors.New("the torrent has as many connections as it may open")
	errNoAnswer = errors.New("the engine has not connected")
)

// onDialled notes the result of an attempt of the engine to dial an offer.
func (c *connector) onDialled(o *offer, l *link, err error) {
	s := c.peers.find(func(s *pathState) bool { return s.offer == o })
	switch {
	case s == nil && l != nil:
		l.Close() // the offer was withdrawn meanwhile
	case s == nil:
	case err != nil:
		c.lost(s, err)
		if errors.Is(err, errRTCGone) {
			c.setAside(s.of) // it would fail for ever
			c.peers.forget(s.of)
		}
	default:
		s.link, s.err = l, nil
		s.candidate.Handshake = l.Measure().Handshake
		c.enter(s, s.then)
		handshake := s.candidate.Handshake.Round(10 * time.Microsecond)
		c.tell("path-opened", s.candidate.Key, "handshake of "+handshake.String())
		l.OnChange(c.inbox.touch)
	}
}

// onGreeted notes that the handshake over a connection that we have opened is done.
func (c *connector) onGreeted(l *link) {
	if s := c.peers.find(func(s *pathState) bool { return s.link == l }); s != nil {
		l.Greet()
		s.candidate.Failures, s.of.failures = 0, 0
	}
}

// onAccepted takes an accepted connection whose peer has named this torrent.
func (c *connector) onAccepted(l *link) {
	if c.err != nil {
		l.Close()
		return
	}
	peer := l.Peer()
	c.peers.accepted = append(c.peers.accepted, &row{
		peer: peer, from: c.peers.sourceOf(peer), transport: l.transport, accepted: true, link: l,
	})
	c.log.Info("peer connected", "peer", peer, "transport", l.transport)
	l.OnChange(c.inbox.touch)
}

// offerPatience is how long the engine may ignore an offer before the offer counts as failed. The
// engine dials at once, unless it has enough connections or the torrent needs none: then it forgets
// the offer.
const offerPatience = 45 * time.Second

// look finds connections that have ended and offers that the engine ignores, and measures all
// others. It tells whether a connection is silent.
func (c *connector) look() (silent bool) {
	now := time.Now()
	var ended []*link
	for s := range c.peers.paths() {
		if at := s.of.transport.Revoked(s.candidate.Path); at.After(s.candidate.RevokedAt) {
			s.candidate.RevokedAt = at
		}
		if s.link != nil && s.link.Closed() {
			ended = append(ended, s.link)
		}
		c.lookAt(s, now)
		if s.link != nil || s.candidate.State.Open() {
			s.sample(now)
			silent = silent || s.candidate.Silent
		}
	}
	for _, r := range c.peers.accepted {
		if r.link != nil && r.link.Closed() {
			ended = append(ended, r.link)
			r.path = r.link.Path()
			r.foldLink()
			c.log.Info("peer disconnected", "peer", r.peer, "bytes_written", r.past.written)
		}
	}
	c.peers.trim()
	for _, l := range ended {
		w, ok := l.below.(scionWire)
		if !ok {
			continue
		}
		if to, moved := w.MovedTo(); moved { // that is why the connection has ended
			c.addAll([]Peer{PeerAt(to)}, FromItself, true)
		}
	}
	return silent
}

func (c *connector) lookAt(s *pathState, now time.Time) {
	l := s.link
	if l == nil {
		if s.candidate.State == pathsel.Opening && now.Sub(s.candidate.Since) > offerPatience {
			s.withdraw()
			c.lost(s, errNoAnswer)
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
	if w, ok := l.below.(*webWire); ok && w.Err() != nil {
		err = w.Err()
	}
	s.foldLink()
	// A complete peer hangs up when we are complete. It may know that before we do.
	if c.isDone || c.hasAll() {
		if g := l.gauge.Load(); g != nil {
			pieces, _ := c.torrent.Size()
			s.of.complete = g.conn.Stats().RemotePieceCount == pieces
		}
		c.enter(s, pathsel.Idle)
		return
	}
	c.lost(s, err)
}

func (c *connector) park(s *pathState) {
	parked := 0
	for _, x := range s.of.paths {
		if x.link != nil && x.candidate.State == pathsel.Parked {
			parked++
		}
	}
	if s.link == nil || parked >= c.cfg.MaxPaths || !s.link.Filter.Park() {
		c.disconnect(s)
	}
	c.enter(s, pathsel.Parked)
}

// resume lets a path-level peer work again.
func (c *connector) resume(s *pathState, state pathsel.State) {
	switch {
	case s.link != nil:
		s.link.Filter.Unpark()
		c.enter(s, state)
	case s.candidate.State == pathsel.Opening:
		s.then = state
	default:
		c.open(s, state)
	}
}

// open offers the path-level peer to the engine. Once it is connected, it enters the state then.
// The engine dials an offer at once and forgets it, so each attempt needs an offer.
func (c *connector) open(s *pathState, then pathsel.State) {
	if c.dialled() >= maxDialled {
		c.lost(s, errEnough)
		return
	}
	if s.offer == nil {
		var o *offer
		dialled := func(l *link, err error) { c.inbox.put(func() { c.onDialled(o, l, err) }) }
		o, err := c.offers.add(c.ctx, s.of.transport, s.peer, s.candidate.Path, dialled)
		if err != nil {
			c.lost(s, err)
			return
		}
		s.offer = o
	}
	s.offer.obfuscate = nil
	if s.obfuscate {
		s.offer.obfuscate = c.source.InfoHash.Bytes()
	}
	s.then = then
	c.enter(s, pathsel.Opening)
	c.torrent.Connect(s.offer.addr)
}

// maxDialled is the number of connections that one torrent opens. The engine's default of 50 would
// be reached by a few peers with eight paths each. A connection costs about 100 kB, for a few
// goroutines and buffers.
const maxDialled = 512

// dialled counts the connections that the transfer has opened or is opening.
func (c *connector) dialled() (n int) {
	for s := range c.peers.paths() {
		if s.link != nil || s.candidate.State == pathsel.Opening {
			n++
		}
	}
	return n
}

func (c *connector) close(s *pathState, reason string) {
	open := s.candidate.State.Open()
	c.disconnect(s)
	if open {
		c.enter(s, pathsel.Idle)
		c.tell("path-closed", s.candidate.Key, reason)
	}
}

// closeWebSeeds ends the connections to web seeds, which are of no use to a complete transfer.
func (c *connector) closeWebSeeds() {
	for s := range c.peers.paths() {
		if s.peer.IsWebSeed() {
			c.close(s, "the torrent is complete")
		}
	}
}

func (c *connector) closeAll(reason string) {
	for s := range c.peers.paths() {
		c.close(s, reason)
	}
	for _, r := range c.peers.accepted {
		if r.link != nil {
			r.link.Close()
		}
	}
}

// disconnect ends the connection or the attempt. The engine's read fails at once, and the engine
// gives the requests to other connections. The engine address is withdrawn as well: the engine
// takes no new connection with the address of an old one.
func (c *connector) disconnect(s *pathState) {
	s.withdraw()
	if s.link != nil {
		s.sample(time.Now())
		s.link.Close()
		s.foldLink()
	}
}

func (s *pathState) withdraw() {
	if s.offer != nil {
		s.offer.withdraw()
		s.offer = nil
	}
}

// addAll takes note of peers. found is false for peers that belonged to the transfer when it was
// added. All others may be at addresses of this host where nothing listens any more: see Abandoned.
// A complete transfer does so later: see seedDelay.
func (c *connector) addAll(peers []Peer, from PeerSource, found bool) {
	if c.isDone {
		time.AfterFunc(seedDelay, func() { c.inbox.put(func() { c.addNow(peers, from, found) }) })
	} else {
		c.addNow(peers, from, found)
	}
}

func (c *connector) addNow(peers []Peer, from PeerSource, found bool) {
	for _, p := range peers {
		c.add(p, from, found)
		if from == FromEarlier {
			c.peers.remember(p)
		}
	}
	c.choosePeers()
}

// add takes note of a peer, unless it is known, this session itself, or out of reach. See addAll.
func (c *connector) add(p Peer, from PeerSource, found bool) {
	t, err := c.diallerFor(p)
	switch {
	case c.peers.knows(p):
	case err != nil:
		c.log.Debug("peer passed over", "peer", p, "error", err)
	case isOurs(p, c.Listening(), isLocal):
		c.log.Info("peer passed over: it is this braid", "peer", p)
	case found && t.Abandoned(p):
		c.log.Info("peer passed over: it is an address of this host, "+
			"where nothing listens any more", "peer", p)
	default:
		if c.peers.add(p, t, from) {
			c.choosePeers() // forgets some, so that a long list takes no memory
		}
	}
}

// choosePeers lets peers that fail make room for others.
func (c *connector) choosePeers() {
	dial, aside := c.peers.choose(time.Now())
	for _, p := range aside {
		c.setAside(p)
	}
	for _, p := range dial {
		ctx, end := context.WithCancel(c.ctx)
		p.endLookups = end
		c.workers.Go(func() { c.lookPaths(ctx, p.transport, p.peer) })
	}
}

// setAside ends the connections and attempts with a peer.
func (c *connector) setAside(p *peerState) {
	p.endLookups()
	for _, s := range p.paths {
		c.close(s, "another peer is tried in its place")
	}
	c.peers.keep(p)
}

// withdrawAll ends all attempts and lookups. The engine then closes the connections.
func (c *connector) withdrawAll() {
	for _, p := range c.peers.dialled {
		p.endLookups()
	}
	for s := range c.peers.paths() {
		s.withdraw()
	}
}

// lookPaths keeps the paths to a peer up to date, if they can change. It runs on a goroutine of its
// own.
func (c *connector) lookPaths(ctx context.Context, t dialler, p Peer) {
	changes, cancel := t.Watch(p)
	defer cancel()
	failures := 0
	for {
		paths, err := t.Paths(ctx, p)
		if ctx.Err() != nil {
			return
		}
		c.inbox.put(func() { c.onPaths(p, paths, err) })
		var again <-chan time.Time
		if failures++; err == nil {
			failures = 0
			if changes == nil {
				return
			}
		} else {
			again = time.After(pathsel.RetryDelay(failures))
		}
		select {
		case <-ctx.Done():
			return
		case <-changes:
		case <-again:
		}
	}
}

// restrict returns the paths that the policies allow, and logs which they refuse. It is for SCION:
// on IP the network chooses the path.
func (c *connector) restrict(p *peerState, paths []pathsel.Path) []pathsel.Path {
	a, ok := p.peer.SCION()
	if !ok {
		p.err, p.refused = nil, nil
		return paths
	}
	var missing []pathsel.Fingerprint
	policies := c.policies()
	for _, policy := range policies {
		missing = append(missing, policy.Missing(a.IA, paths)...)
	}
	allowed, refused := applyAll(policies, paths)
	p.refused = refused
	for _, f := range missing {
		if !slices.Contains(p.missing, f) {
			c.log.Warn("a chosen path is gone; it is used again when it is back",
				"peer", p.peer, "path", f.Short())
		}
	}
	for _, f := range p.missing {
		if !slices.Contains(missing, f) {
			c.log.Warn("a chosen path is back", "peer", p.peer, "path", f.Short())
		}
	}
	p.missing = missing
	var err error
	if len(allowed) == 0 && len(paths) > 0 {
		err = &pathsel.RefusedError{To: a.IA, Refused: refused}
		if p.err == nil || p.err.Error() != err.Error() {
			c.log.Warn("no path to peer is allowed; waiting for one that is",
				"peer", p.peer, "paths", len(paths), "refused", pathsel.Summary(refused))
		}
	} else if len(refused) > 0 {
		c.log.Info("paths refused by the policy",
			"peer", p.peer, "allowed", len(allowed), "refused", pathsel.Summary(refused))
	}
	p.err = err
	return allowed
}

// applyAll returns the paths that both policies allow, and those that one of them forbids.
func applyAll(
	both [2]pathsel.Policy, paths []pathsel.Path,
) (allowed []pathsel.Path, refused []pathsel.Refusal) {
	allowed, refused = both[0].Apply(paths)
	allowed, more := both[1].Apply(allowed)
	return allowed, append(refused, more...)
}

// onPolicy applies a policy that has changed: connections over paths that it forbids end.
func (c *connector) onPolicy() {
	for _, p := range c.peers.dialled {
		if p.listed == nil {
			continue // its paths are not known yet
		}
		c.onPaths(p.peer, p.listed, nil)
		for _, r := range p.refused {
			for _, s := range p.paths {
				if s.candidate.Key.Path == r.Path.Fingerprint {
					c.close(s, "the policy forbids it: "+r.Reason)
				}
			}
		}
	}
}

// onPaths brings the path-level peers of an address-level peer in line with its paths, or notes why
// there are none. A connection whose path is no longer listed stays, behind the others, until it
// ends by itself.
func (c *connector) onPaths(peer Peer, paths []pathsel.Path, err error) {
	p := c.peers.peer(peer)
	if p == nil {
		return
	}
	p.lookupFailures++
	if err != nil {
		if p.err == nil {
			c.log.Info("no paths to peer", "peer", p.peer, "error", err)
		}
		p.err = err
		return
	}
	p.listed = paths
	if paths = c.restrict(p, paths); len(paths) > 0 {
		p.lookupFailures = 0
	}
	var next []*pathState
	for _, x := range pathsel.Map(p.peer.ID(), paths, c.cfg.Selector.Paths(c.cfg.MaxPaths)) {
		s := p.path(x.Key)
		if s == nil {
			s = newPathState(p, x)
		}
		next = append(next, s)
	}
	for _, s := range p.paths {
		if s.unlisted = !slices.Contains(next, s); !s.unlisted {
			continue
		}
		// An attempt under way goes on, since control services also leave out paths that have just
		// come back. Paths that have carried something are kept for the final report.
		read, written := s.bytes()
		if s.link != nil || s.candidate.State == pathsel.Opening || read+written > 0 {
			next = append(next, s)
		} else {
			s.withdraw()
		}
	}
	for _, s := range next {
		for _, path := range paths {
			if path.Fingerprint == s.candidate.Key.Path {
				s.candidate.Path, s.path = path, path
			}
		}
	}
	p.paths = next
}
