package pathsel

import (
	"fmt"
	"time"
)

// PeerID names an address-level peer: its SCION address as text.
type PeerID string

// Key names a path-level peer: an address-level peer reached over one path.
type Key struct {
	Peer PeerID
	Path Fingerprint
}

// State is where the connection of a path-level peer stands.
//
//	         Open            handshake done
//	Idle ----------> Opening ---------------> Active
//	 ^                  |                        |
//	 |  RetryAt passed  v   refused, lost        |
//	 +--------------- Failed <-------------------+
type State int

const (
	Idle    State = iota // known, never tried or ready to be tried again
	Opening              // the handshake is on its way
	Active               // connected, carries pieces
	Failed               // refused or lost; may be tried again from RetryAt
)

var stateNames = [...]string{"idle", "opening", "active", "failed"}

func (s State) String() string { return stateNames[s] }

// Candidate is what is known of one path-level peer at the time of a View.
type Candidate struct {
	Key   Key
	Path  Path
	State State
	// Handshake is how long the last successful handshake took; 0 before the first.
	Handshake time.Duration
	// BytesRead is the number of payload bytes read over this path-level peer so far, over all its
	// connections.
	BytesRead uint64
	// RTT is the smoothed round-trip time of the connection; 0 when unknown.
	RTT time.Duration
	// Failures counts attempts that failed since the last success; RetryAt is when the next is due.
	Failures int
	RetryAt  time.Time
}

// View is the world at one moment, as far as path selection cares. Candidates come grouped by peer, and
// for each peer in the order of its path lookup.
type View struct {
	Now time.Time
	// MaxPaths is the connection budget for each address-level peer, at least 1.
	MaxPaths   int
	Candidates []Candidate
}

// Action is what is to be done with a path-level peer.
type Action int

const (
	Open  Action = iota // connect
	Close               // disconnect; the path-level peer becomes Idle
)

var actionNames = [...]string{"open", "close"}

func (a Action) String() string { return actionNames[a] }

// Decision is one step for the client to carry out, and why.
type Decision struct {
	Key    Key
	Action Action
	Reason string
}

// Selector decides which path-level peers carry the download. Decide changes nothing in the view, and
// the same view gives the same decisions: a selector that wants history finds it in the candidates.
type Selector interface {
	Name() string
	Decide(View) []Decision
}

// New returns the selector of that name.
func New(name string) (Selector, error) {
	switch name {
	case "first":
		return fixed{name: name, limit: 1}, nil
	case "all":
		return fixed{name: name}, nil
	}
	return nil, fmt.Errorf("path selection %q: want one of first, all", name)
}

// fixed keeps the first paths of every peer's lookup open, whatever they show: one of them, or as many
// as the budget allows. It is the original system's mapping with no selection after it.
type fixed struct {
	name  string
	limit int // paths for each peer; 0: the view's budget
}

func (f fixed) Name() string { return f.name }

func (f fixed) Decide(v View) []Decision {
	limit := v.MaxPaths
	if f.limit > 0 {
		limit = min(limit, f.limit)
	}
	rank := map[PeerID]int{}
	var out []Decision
	for _, c := range v.Candidates {
		r := rank[c.Key.Peer]
		rank[c.Key.Peer]++
		switch open := c.State == Opening || c.State == Active; {
		case r >= limit && open:
			out = append(out, Decision{c.Key, Close, fmt.Sprintf("path %d of this peer, over the limit of %d", r+1, limit)})
		case r >= limit || open || v.Now.Before(c.RetryAt):
		case c.Failures > 0:
			out = append(out, Decision{c.Key, Open, fmt.Sprintf("try again after %d failures", c.Failures)})
		default:
			out = append(out, Decision{c.Key, Open, fmt.Sprintf("path %d of at most %d for this peer", r+1, limit)})
		}
	}
	return out
}

// RetryDelay is how long to wait after that many failures in a row before the next attempt: 1 s, then
// twice as long each time, at most 30 s. Without a limit a path that comes back after a long outage
// would stay unused; without growth a dead path costs a handshake every second.
func RetryDelay(failures int) time.Duration {
	const first, most = time.Second, 30 * time.Second
	if failures <= 1 {
		return first
	}
	if failures > 5 {
		return most
	}
	return first << (failures - 1)
}

// Map is the address-level to path-level mapping: of the paths that the lookup returned, in its order
// (fewest hops first), each path once, at most max of them.
func Map(peer PeerID, paths []Path, max int) []Candidate {
	seen := make(map[Fingerprint]bool, len(paths))
	var out []Candidate
	for _, p := range paths {
		if len(out) == max {
			break
		}
		if seen[p.Fingerprint] {
			continue
		}
		seen[p.Fingerprint] = true
		out = append(out, Candidate{Key: Key{peer, p.Fingerprint}, Path: p})
	}
	return out
}
