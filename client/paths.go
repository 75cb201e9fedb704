package client

import (
	"context"
	"slices"
	"time"

	"braid/pathsel"
)

// peerState is an address-level peer.
type peerState struct {
	peer      Peer
	transport Transport
	paths     []*pathState // the mapping's order, then further connections and paths that are no longer listed
	banned    bool
	err       error // of the last path lookup
}

// pathState is a path-level peer: what pathsel decides about.
type pathState struct {
	row
	candidate pathsel.Candidate
	meter     pathsel.Meter
	silence   pathsel.Silence
	offer     *offer        // nil: the engine may not dial it
	then      pathsel.State // the state after Opening
	unlisted  bool          // the last lookup has not shown its path
}

func newPathState(p *peerState, c pathsel.Candidate) *pathState {
	return &pathState{
		row:       row{peer: p.peer, path: c.Path, conn: c.Key.Conn, transport: p.transport.Name()},
		candidate: c,
	}
}

const (
	// offerPatience is how long the engine may leave an offer lying before it counts as failed. It dials at once unless
	// it has enough connections or the torrent needs none; an offer that it has dropped must be made again.
	offerPatience = 45 * time.Second
	// maxMapped is how many paths to a peer a selector is given that tries more of them than it connects. With hundreds
	// of them the last would be tried after an hour.
	maxMapped = 64
)

// mapped is how many paths to each peer the selector chooses from.
func (s *Session) mapped() int {
	if s.selector.Name() == "adaptive" {
		return max(s.maxPaths, maxMapped)
	}
	return s.maxPaths // the published mapping
}

// lookPaths keeps the paths to a peer up to date.
func (t *Transfer) lookPaths(ctx context.Context, tr Transport, p Peer) {
	changes, cancel := tr.Watch(p)
	defer cancel()
	failures := 0
	for {
		paths, err := tr.Paths(ctx, p)
		if ctx.Err() != nil {
			return
		}
		t.inbox.put(found{p, paths, err})
		var again <-chan time.Time
		if failures++; err == nil {
			failures = 0
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

// mapPaths brings the path-level peers of an address-level peer in line with its paths. A connection whose path is
// no longer listed is left alone, behind the others, until it ends by itself.
func (t *Transfer) mapPaths(e found) {
	i := slices.IndexFunc(t.peers, func(s *peerState) bool { return s.peer == e.peer })
	if i < 0 {
		return
	}
	p := t.peers[i]
	if e.err != nil {
		if p.err == nil {
			t.log.Warn("no paths to peer", "peer", p.peer, "error", e.err)
		}
		p.err = e.err
		return
	}
	p.err = nil
	var next []*pathState
	for _, c := range pathsel.Map(p.peer.ID(), e.paths, t.session.mapped()) {
		first := slices.IndexFunc(p.paths, func(s *pathState) bool { return s.candidate.Key == c.Key })
		if first < 0 {
			next = append(next, newPathState(p, c))
		} else {
			next = append(next, p.paths[first])
		}
	}
	for _, s := range p.paths {
		i := slices.IndexFunc(next, func(n *pathState) bool { return n.candidate.Key.Path == s.candidate.Key.Path })
		if s.unlisted = i < 0; !s.unlisted && next[i] == s {
			continue
		}
		if s.unlisted && s.link == nil && s.candidate.State.Open() {
			t.close(s, "path no longer listed")
		}
		if read, written := s.bytes(); !s.unlisted || s.link != nil || read+written > 0 {
			next = append(next, s) // also for the final report
		} else {
			t.withdraw(s)
		}
	}
	for _, s := range next {
		for _, path := range e.paths {
			if path.Fingerprint == s.candidate.Key.Path {
				s.candidate.Path, s.path = path, path
			}
		}
	}
	p.paths = next
}
