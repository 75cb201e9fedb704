package client

import (
	"context"
	"fmt"
	"slices"
	"time"

	"braid/pathsel"
)

// peerState is an address-level peer.
type peerState struct {
	peer      Peer
	transport Transport
	paths     []*pathState // the mapping's order, then further connections and paths that are no longer listed
	origin    pathsel.Origin
	banned    bool
	// delivered and failures are from before it was put aside the last time; lookupFailures are lookups in a row without a path.
	delivered                bool
	failures, lookupFailures int

	err     error                 // of the last path lookup, or the policy's
	missing []pathsel.Fingerprint // chosen by the user, and not in the last lookup
}

// pathState is a path-level peer: what pathsel decides about.
type pathState struct {
	row
	candidate pathsel.Candidate
	meter     pathsel.Meter
	silence   pathsel.Silence
	offer     *offer        // nil: the engine may not dial it
	obfuscate bool          // the next connection is obfuscated, since the one before was refused
	then      pathsel.State // the state after Opening
	unlisted  bool          // the last lookup has not shown its path
	delivered bool          // data that was of use
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

// errNoneAllowed says that the policy refuses all of so many paths.
type errNoneAllowed int

func (n errNoneAllowed) Error() string { return fmt.Sprintf("none of the %d paths is allowed", int(n)) }

// restrict leaves the paths that the user's policy allows, and says what it takes away. It is for SCION: where the
// network chooses the way there is nothing to choose from.
func (t *Transfer) restrict(p *peerState, paths []pathsel.Path) []pathsel.Path {
	policy := t.session.policy
	a, ok := p.peer.SCION()
	if !ok || policy.IsZero() {
		p.err = nil
		return paths
	}
	missing := policy.Missing(a.IA, paths)
	for _, f := range missing {
		if !slices.Contains(p.missing, f) {
			t.log.Warn("a chosen path is gone; it is used again when it is back", "peer", p.peer, "path", f.Short())
		}
	}
	for _, f := range p.missing {
		if !slices.Contains(missing, f) {
			t.log.Warn("a chosen path is back", "peer", p.peer, "path", f.Short())
		}
	}
	p.missing = missing
	allowed, refused := policy.Apply(paths)
	var err error
	if len(allowed) == 0 && len(paths) > 0 {
		err = fmt.Errorf("%w: %s", errNoneAllowed(len(paths)), pathsel.Summary(refused))
		if p.err == nil || p.err.Error() != err.Error() {
			t.log.Warn("no path to peer is allowed; waiting for one that is", "peer", p.peer, "paths", len(paths), "refused", pathsel.Summary(refused))
		}
	} else if len(refused) > 0 {
		t.log.Info("paths refused by the policy", "peer", p.peer, "allowed", len(allowed), "refused", pathsel.Summary(refused))
	}
	p.err = err
	return allowed
}

// mapPaths brings the path-level peers of an address-level peer in line with its paths. A connection whose path is
// no longer listed is left alone, behind the others, until it ends by itself.
func (t *Transfer) mapPaths(e found) {
	i := slices.IndexFunc(t.peers, func(s *peerState) bool { return s.peer == e.peer })
	if i < 0 {
		return
	}
	p := t.peers[i]
	p.lookupFailures++
	if e.err != nil {
		if p.err == nil {
			t.log.Info("no paths to peer", "peer", p.peer, "error", e.err)
		}
		p.err = e.err
		return
	}
	if e.paths = t.restrict(p, e.paths); len(e.paths) > 0 {
		p.lookupFailures = 0
	}
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
		// An attempt under way goes on: control services also leave out paths that have just come back.
		if read, written := s.bytes(); !s.unlisted || s.link != nil || s.candidate.State == pathsel.Opening || read+written > 0 {
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
