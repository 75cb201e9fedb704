package pathsel

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// PeerID names an address-level peer: its SCION address as text.
type PeerID string

// Key names a path-level peer: an address-level peer reached over one path.
type Key struct {
	Peer PeerID      `json:"peer"`
	Path Fingerprint `json:"path"`
}

// String is for logs: the peer, and a short fingerprint of the path.
func (k Key) String() string { return string(k.Peer) + "/" + k.Path.Short() }

// State is the state of a path-level peer's connection. The package comment has the drawing.
type State int

const (
	Idle    State = iota // not connected: never tried, or closed on purpose
	Opening              // the handshake is running
	Active               // connected, carries pieces
	Failed               // refused or lost; may be tried again from RetryAt
	Parked               // holds its place, no requests
	Probing              // connected, carries pieces until its probe is judged
)

var stateNames = [...]string{"idle", "opening", "active", "failed", "parked", "probing"}

func (s State) String() string { return stateNames[s] }

// Open reports whether the state takes one of the peer's places (View.MaxPaths).
func (s State) Open() bool { return s != Idle && s != Failed }

// Carries reports whether pieces are requested in this state.
func (s State) Carries() bool { return s == Active || s == Probing }

// MarshalText writes the state's name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a state's name.
func (s *State) UnmarshalText(b []byte) error { return unmarshalName(s, b, stateNames[:], "state") }

func unmarshalName[T ~int](to *T, b []byte, names []string, what string) error {
	i := slices.Index(names, string(b))
	if i < 0 {
		return fmt.Errorf("unknown %s %q: want one of %q", what, b, names)
	}
	*to = T(i)
	return nil
}

// Candidate describes one path-level peer at the time of a View.
type Candidate struct {
	Key   Key   `json:"key"`
	Path  Path  `json:"path"`
	State State `json:"state"`
	// Since is when that state began; zero for Idle before the first attempt.
	Since time.Time `json:"since,omitzero"`
	// Handshake is how long the last successful handshake took; 0 before the first.
	Handshake time.Duration `json:"handshake_ns,omitempty"`
	// BytesRead is the number of payload bytes read so far, over all successive connections.
	BytesRead uint64 `json:"bytes_read"`
	// RTT is the smoothed round-trip time of the connection; 0 when unknown.
	RTT time.Duration `json:"rtt_ns,omitempty"`
	// Slots are the measurements of a Meter, oldest first. They outlive the connection.
	Slots []Slot `json:"slots,omitempty"`
	// Outstanding is the number of requests sent and not yet answered.
	Outstanding int `json:"outstanding,omitempty"`
	// Silent tells whether answers are so overdue that the connection is probably dead (see
	// Silence).
	Silent bool `json:"silent,omitempty"`
	// Quiet tells whether an answer or a keep-alive is overdue. It is weaker than Silent: it only
	// makes a revocation count.
	Quiet bool `json:"quiet,omitempty"`
	// RevokedAt is when a revocation or a router's "interface down" last arrived for one of the
	// path's links; zero if never.
	RevokedAt time.Time `json:"revoked_at,omitzero"`
	// Hint is the rank of the path in Hints; 0 if it is not hinted.
	Hint int `json:"hint,omitempty"`
	// Failures counts failed attempts since the last success. RetryAt is when the next is due.
	Failures int       `json:"failures,omitempty"`
	RetryAt  time.Time `json:"retry_at,omitzero"`
}

// View is the input of a selector at one moment. Candidates are grouped by peer and, for each peer,
// in the order of its path lookup. Paths that a Policy forbids are not in it.
type View struct {
	Now time.Time `json:"now"`
	// MaxPaths is the budget of open connections for each address-level peer, at least 1.
	MaxPaths   int         `json:"max_paths"`
	Candidates []Candidate `json:"candidates"`
	// Preference is the user's order of paths. Each peer's candidates already stand in this order;
	// selectors with an order of their own need it.
	Preference Preference `json:"preference,omitempty"`
	// Remaining is the number of missing payload bytes. It is 0 when unknown (a magnet link without
	// metadata) and when nothing is missing.
	Remaining uint64 `json:"remaining,omitempty"`
	// Seed differs between clients and is constant within one. It is the only source of randomness.
	Seed uint64 `json:"seed,omitempty"`
	// Memory is the one of the same selector's last Plan.
	Memory Memory `json:"memory,omitzero"`
}

// Memory is what a selector remembers from one view to the next. The zero value is the initial one.
// Its content is private to the selector; others only pass it on, and may record it as JSON.
type Memory struct {
	value    any             // of the selector's own type
	recorded json.RawMessage // instead of value, where the memory was read from a trace
}

// recall returns a selector's memory of type T. It is zero if another selector wrote it or if it
// cannot be read.
func recall[T any](m Memory) (own T) {
	if v, ok := m.value.(T); ok {
		return v
	}
	if json.Unmarshal(m.recorded, &own) != nil {
		return *new(T)
	}
	return own
}

// IsZero reports whether the memory is empty.
func (m Memory) IsZero() bool { return m.value == nil && len(m.recorded) == 0 }

// MarshalJSON writes what the selector remembers.
func (m Memory) MarshalJSON() ([]byte, error) {
	if m.value == nil && len(m.recorded) > 0 {
		return m.recorded, nil
	}
	return json.Marshal(m.value)
}

// UnmarshalJSON keeps the JSON until the selector decodes it.
func (m *Memory) UnmarshalJSON(b []byte) error {
	*m = Memory{recorded: bytes.Clone(b)}
	return nil
}

// Action is a step that the client takes for a path-level peer. Park and Fail are carried out
// before the next view. Open may take longer, and so may Probe and Return if the connection was not
// kept.
type Action int

const (
	Open   Action = iota // connect
	Close                // disconnect; the path-level peer becomes Idle
	Park                 // take back its requests and send no more; the connection may be kept
	Probe                // give a parked or unconnected path requests until its probe is judged
	Return               // make a parked or probing path active
	Fail                 // disconnect, and give its requests to others at once; counts as a failure
)

var actionNames = [...]string{"open", "close", "park", "probe", "return", "fail"}

func (a Action) String() string { return actionNames[a] }

// MarshalText writes the action's name.
func (a Action) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads an action's name.
func (a *Action) UnmarshalText(b []byte) error {
	return unmarshalName(a, b, actionNames[:], "action")
}

// Decision is one step for the client to carry out, with its reason.
type Decision struct {
	Key    Key    `json:"key"`
	Action Action `json:"action"`
	Reason string `json:"reason"`
}

// Plan is a selector's answer to a view.
type Plan struct {
	// Decisions are carried out in their order: those that free a place stand before those that
	// take one. There is at most one for each key.
	Decisions []Decision `json:"decisions,omitempty"`
	// Memory must be passed on in the next View.
	Memory Memory `json:"memory,omitzero"`
	// Waiting explains that no usable path is left and what happens next. It is empty otherwise.
	Waiting string `json:"waiting,omitempty"`
}

// Selector decides which path-level peers carry the download. Decide does not change the view, and
// equal views give equal plans. All history is in the candidates and in the view's memory.
type Selector interface {
	Name() string
	// Paths returns how many paths of each peer the selector wants to choose from. The budget
	// (View.MaxPaths) limits the open connections.
	Paths(budget int) int
	Decide(View) Plan
}

// Config holds the selectors' settings. The zero value means the defaults.
type Config struct {
	// InitialDeadline limits the wait for handshakes before the first selection (default 2 s).
	// Without it, one dead path would delay the selection forever. It is for "slots" only, as are
	// Slot and MinWeight.
	InitialDeadline time.Duration
	// Slot is the time between two selections (default 1 s).
	Slot time.Duration
	// MinWeight is the share of the best path's weight, in percent, that keeps a path; at most 100.
	// 0 means the default of 25.
	MinWeight int
	// Without names what the selector must not know or do.
	Without Without
}

// New returns the selector of that name with the default configuration.
func New(name string) (Selector, error) { return Config{}.New(name) }

// New returns the selector of that name.
func (c Config) New(name string) (Selector, error) {
	s, err := c.unrestricted(name)
	if err == nil && c.Without != (Without{}) {
		s = restricted{s, c.Without}
	}
	return s, err
}

func (c Config) unrestricted(name string) (Selector, error) {
	if c.InitialDeadline < 0 || c.Slot < 0 || c.MinWeight < 0 || c.MinWeight > 100 {
		return nil, fmt.Errorf("path selection: deadline %v and slot %v must not be negative, "+
			"minimum weight %d must be from 0 to 100", c.InitialDeadline, c.Slot, c.MinWeight)
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

// RetryDelay returns the wait after a number of failures in a row: 1 s, then twice as long each
// time, at most 30 s. Without a limit, a path would stay unused long after an outage; without
// growth, a dead path costs a handshake every second.
func RetryDelay(failures int) time.Duration {
	const first, most = time.Second, 30 * time.Second
	doublings := min(max(0, failures-1), 5)
	return min(first<<doublings, most)
}

// Map returns the path-level peers of an address-level peer: the first max different paths in the
// order of the lookup (fewest hops first). Selector.Paths says how many paths a selector wants.
func Map(peer PeerID, paths []Path, max int) []Candidate {
	seen := make(map[Fingerprint]bool, len(paths))
	var out []Candidate
	for _, p := range paths {
		if len(out) < max && !seen[p.Fingerprint] {
			seen[p.Fingerprint] = true
			out = append(out, Candidate{Key: Key{Peer: peer, Path: p.Fingerprint}, Path: p})
		}
	}
	return out
}

// waiting returns Plan.Waiting for the view. It is empty if some path could carry pieces.
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
	none := fmt.Sprintf("no path has a connection (%d known); ", len(v.Candidates))
	if trying > 0 {
		return none + fmt.Sprintf("trying %d of them again", trying)
	}
	left := max(0, next.Sub(v.Now)).Round(100 * time.Millisecond)
	return none + fmt.Sprintf("the next attempt is in %v", left)
}
