package pathsel

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"time"
)

// PeerID names an address-level peer: its SCION address as text.
type PeerID string

// Key names a path-level peer: an address-level peer reached over one path. Several connections on one
// path are told apart by Conn: 0 is the first, and the only one unless a selector asks for more.
type Key struct {
	Peer PeerID      `json:"peer"`
	Path Fingerprint `json:"path"`
	Conn int         `json:"conn,omitempty"`
}

// String is for logs: the peer, enough of the path to recognise it, and the connection if not the first.
func (k Key) String() string {
	if k.Conn == 0 {
		return string(k.Peer) + "/" + k.Path.Short()
	}
	return fmt.Sprintf("%s/%s+%d", k.Peer, k.Path.Short(), k.Conn)
}

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Conn, b.Conn))
}

// State is where the connection of a path-level peer stands; the package comment has the drawing.
type State int

const (
	Idle    State = iota // not connected: never tried, or closed on purpose
	Opening              // the handshake is on its way
	Active               // connected, carries pieces
	Failed               // refused or lost; may be tried again from RetryAt
	Parked               // holds its place, no requests
	Probing              // connected, carries pieces until its probe is judged
)

var stateNames = [...]string{"idle", "opening", "active", "failed", "parked", "probing"}

func (s State) String() string { return stateNames[s] }

// Open tells whether the state takes one of the peer's places (View.MaxPaths).
func (s State) Open() bool { return s != Idle && s != Failed }

// Carries tells whether pieces are requested in this state.
func (s State) Carries() bool { return s == Active || s == Probing }

// MarshalText writes the state's name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a state's name.
func (s *State) UnmarshalText(b []byte) error { return unmarshalName(s, b, stateNames[:], "state") }

func unmarshalName[T ~int](to *T, b []byte, names []string, what string) error {
	for i, name := range names {
		if name == string(b) {
			*to = T(i)
			return nil
		}
	}
	return fmt.Errorf("unknown %s %q: want one of %q", what, b, names)
}

// Candidate is what is known of one path-level peer at the time of a View.
type Candidate struct {
	Key   Key   `json:"key"`
	Path  Path  `json:"path"`
	State State `json:"state"`
	// Since is when that state began; zero for Idle before the first attempt.
	Since time.Time `json:"since,omitzero"`
	// Handshake is how long the last successful handshake took; 0 before the first.
	Handshake time.Duration `json:"handshake_ns,omitempty"`
	// BytesRead is the number of payload bytes read over this path-level peer so far, over all its
	// successive connections.
	BytesRead uint64 `json:"bytes_read"`
	// RTT is the smoothed round-trip time of the connection; 0 when unknown.
	RTT time.Duration `json:"rtt_ns,omitempty"`
	// Slots are what a Meter found worth judging, oldest first. They outlive the connection.
	Slots []Slot `json:"slots,omitempty"`
	// Outstanding is the number of requests sent and not yet answered.
	Outstanding int `json:"outstanding,omitempty"`
	// Silent: data is in flight and nothing has been acknowledged for a few probe timeouts.
	Silent bool `json:"silent,omitempty"`
	// Quiet: nothing has arrived for a moment, though an answer or a sign of life was due. It is less than Silent: it only
	// lets a revocation count.
	Quiet bool `json:"quiet,omitempty"`
	// RevokedAt is when a revocation or a router's "interface down" last arrived for one of the path's
	// links; zero if never.
	RevokedAt time.Time `json:"revoked_at,omitzero"`
	// Hint is the rank of the path by Hints; 0: none names it.
	Hint int `json:"hint,omitempty"`
	// Failures counts attempts that failed since the last success; RetryAt is when the next is due.
	Failures int       `json:"failures,omitempty"`
	RetryAt  time.Time `json:"retry_at,omitzero"`
}

// View is the world at one moment, as far as path selection cares. Candidates come grouped by peer, and
// for each peer in the order of its path lookup; connections beyond the first may stand anywhere among
// those of their peer. Paths that a Policy forbids are not in it.
type View struct {
	Now time.Time `json:"now"`
	// MaxPaths is the budget of open connections for each address-level peer, at least 1.
	MaxPaths   int         `json:"max_paths"`
	Candidates []Candidate `json:"candidates"`
	// Preference is by which announced figures the user wants paths to be tried first. The candidates of each peer
	// stand in that order already; it is for a selector that has an order of its own.
	Preference Preference `json:"preference,omitempty"`
	// Remaining is how many payload bytes are still missing; 0 when unknown (a magnet link without
	// metadata) and when nothing is missing.
	Remaining uint64 `json:"remaining,omitempty"`
	// Seed differs from client to client and stays the same within one: all randomness comes from it.
	Seed uint64 `json:"seed,omitempty"`
	// Memory is that of the last Plan of the same selector.
	Memory Memory `json:"memory,omitzero"`
}

// Memory is what a selector carries from one view to the next; the zero value is that of the start. Only
// that selector knows what is in it: whoever holds one passes it on, and may record it as JSON.
type Memory struct {
	value    any             // of the selector's own type
	recorded json.RawMessage // instead of value, where the memory was read from a trace
}

// recall is a selector's memory of type T, zero if it is another selector's or cannot be read.
func recall[T any](m Memory) (own T) {
	if v, ok := m.value.(T); ok {
		return v
	}
	if json.Unmarshal(m.recorded, &own) != nil {
		return *new(T)
	}
	return own
}

// IsZero reports whether nothing is remembered.
func (m Memory) IsZero() bool { return m.value == nil && len(m.recorded) == 0 }

// MarshalJSON writes what the selector remembers.
func (m Memory) MarshalJSON() ([]byte, error) {
	if m.value == nil && len(m.recorded) > 0 {
		return m.recorded, nil
	}
	return json.Marshal(m.value)
}

// UnmarshalJSON keeps what was recorded until the selector asks for it.
func (m *Memory) UnmarshalJSON(b []byte) error {
	*m = Memory{recorded: bytes.Clone(b)}
	return nil
}

// Action is what is to be done with a path-level peer. Park and Fail are carried out before the
// next view is taken; Open may take its time, and so may Probe and Return of a connection that was not kept.
type Action int

const (
	Open   Action = iota // connect; a key that is not in the view is one more connection on a path that is
	Close                // disconnect; the path-level peer becomes Idle
	Park                 // take back its requests and make no more; the connection may be kept
	Probe                // one that is parked, or not connected, gets requests like an active one, until the probe is judged
	Return               // a parked or probing one becomes active
	Fail                 // give its requests to the others at once and disconnect; it counts as a failure
)

var actionNames = [...]string{"open", "close", "park", "probe", "return", "fail"}

func (a Action) String() string { return actionNames[a] }

// MarshalText writes the action's name.
func (a Action) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads an action's name.
func (a *Action) UnmarshalText(b []byte) error { return unmarshalName(a, b, actionNames[:], "action") }

// Decision is one step for the client to carry out, and why.
type Decision struct {
	Key    Key    `json:"key"`
	Action Action `json:"action"`
	Reason string `json:"reason"`
}

// Plan is what a selector makes of a view.
type Plan struct {
	// Decisions are to be carried out in their order: what frees a place stands before what takes it.
	// There is at most one for each key.
	Decisions []Decision `json:"decisions,omitempty"`
	// Memory goes into the next View as it is.
	Memory Memory `json:"memory,omitzero"`
	// Waiting says that no path is left and what happens next; empty otherwise.
	Waiting string `json:"waiting,omitempty"`
}

// Selector decides which path-level peers carry the download. Decide changes nothing in the view, and the
// same view gives the same plan: a selector that wants history finds it in the candidates and in the
// view's memory.
type Selector interface {
	Name() string
	// Paths is how many paths of each peer the selector wants to choose from, where the budget
	// (View.MaxPaths) is the number of open connections.
	Paths(budget int) int
	Decide(View) Plan
}

// Config holds what a user may set about selectors, most of it about slots; the zero value means the defaults.
type Config struct {
	// InitialDeadline ends the wait for handshakes before the first selection; 2 s. Without it one dead
	// path would put off the selection for ever.
	InitialDeadline time.Duration
	// Slot is the time between two selections; 1 s.
	Slot time.Duration
	// MinWeight in percent of the best path's weight keeps a path; 25. 0 means the default, at most 100.
	MinWeight int
	// Without is what any selector has to do without.
	Without Without
}

// New returns the selector of that name with the default configuration.
func New(name string) (Selector, error) { return Config{}.New(name) }

// New returns the selector of that name.
func (c Config) New(name string) (Selector, error) {
	s, err := c.whole(name)
	if err == nil && c.Without != (Without{}) {
		s = blinded{s, c.Without}
	}
	return s, err
}

func (c Config) whole(name string) (Selector, error) {
	if c.InitialDeadline < 0 || c.Slot < 0 || c.MinWeight < 0 || c.MinWeight > 100 {
		return nil, fmt.Errorf("path selection: deadline %v and slot %v must not be negative, minimum weight %d must be from 0 to 100", c.InitialDeadline, c.Slot, c.MinWeight)
	}
	switch name {
	case "first":
		return fixed{name: name, limit: 1}, nil
	case "all":
		return fixed{name: name}, nil
	case "slots":
		return slots{
			deadline:  cmp.Or(c.InitialDeadline, 2*time.Second),
			slot:      cmp.Or(c.Slot, time.Second),
			minWeight: cmp.Or(c.MinWeight, 25),
		}, nil
	case "adaptive":
		return adaptive{still: c.Without.Exploration}, nil
	}
	return nil, fmt.Errorf("path selection %q: want one of adaptive, all, first, slots", name)
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
// (fewest hops first), each path once, at most max of them. The original system maps as many as it
// connects; Selector.Paths says how many a selector wants.
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
		out = append(out, Candidate{Key: Key{Peer: peer, Path: p.Fingerprint}, Path: p})
	}
	return out
}

// waiting describes a view in which nothing is left that could carry pieces.
func waiting(v View) string {
	if len(v.Candidates) == 0 {
		return "no path to any peer is known; waiting for the next lookup"
	}
	var next time.Time
	trying := 0
	for _, c := range v.Candidates {
		switch {
		case c.State == Opening && c.Failures > 0:
			trying++ // it may well fail again
		case c.State.Open() || c.State == Idle:
			return ""
		case next.IsZero() || c.RetryAt.Before(next):
			next = c.RetryAt
		}
	}
	if trying > 0 {
		return fmt.Sprintf("none of %d paths has a connection; trying %d of them again", len(v.Candidates), trying)
	}
	return fmt.Sprintf("none of %d paths has a connection; the next attempt is in %v", len(v.Candidates),
		max(0, next.Sub(v.Now)).Round(100*time.Millisecond))
}
