package pathsel

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Policy is what the user allows. It is applied before any selector, so selectors never see a
// forbidden path. The zero value allows all paths in the order of the lookup.
type Policy struct {
	Sequence   Sequence
	ACL        ACL
	Preference Preference
	// MaxLatency forbids paths with a longer announced one-way latency; 0 means no limit. A
	// partially announced latency is a lower bound and is compared as it is.
	MaxLatency time.Duration
	// MinMTU forbids paths with a smaller SCION MTU in bytes; 0 means no limit.
	MinMTU int
	// Chosen are the paths that the user has picked from a list, by destination. Other paths to
	// these destinations are forbidden. Other destinations are not restricted.
	Chosen map[IA][]Fingerprint
}

// IsZero reports whether the policy neither forbids nor orders any paths.
func (p Policy) IsZero() bool {
	return p.Sequence.re == nil && len(p.ACL.entries) == 0 && len(p.Preference) == 0 &&
		p.MaxLatency == 0 && p.MinMTU == 0 && len(p.Chosen) == 0
}

// Clause names the part of a policy that forbids a path.
type Clause string

const (
	BySequence   Clause = "sequence"
	ByACL        Clause = "acl"
	ByMaxLatency Clause = "max-latency"
	ByMinMTU     Clause = "min-mtu"
	ByChoice     Clause = "interactive"
)

// Refusal is a path that a policy forbids, with the first clause that forbids it (in the order of
// the constants) and the reason.
type Refusal struct {
	Path   Path
	Clause Clause
	Reason string
}

// RefusedError says that the policy forbids all known paths to an AS.
type RefusedError struct {
	To      IA
	Refused []Refusal
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("none of the %d paths to %s is allowed: %s",
		len(e.Refused), e.To, Summary(e.Refused))
}

// Apply returns the allowed paths in order of preference, and the forbidden paths. It does not
// change its argument.
func (p Policy) Apply(paths []Path) (allowed []Path, refused []Refusal) {
	for _, path := range paths {
		refuse := func(by Clause, format string, args ...any) {
			refused = append(refused, Refusal{path, by, fmt.Sprintf(format, args...)})
		}
		switch chosen, some := p.Chosen[path.Dst]; {
		case !p.Sequence.Allows(path):
			refuse(BySequence, "does not match the sequence %q", p.Sequence)
		case !p.ACL.Allows(path):
			refuse(ByACL, "denied by the ACL %q", p.ACL)
		case p.MaxLatency > 0 && path.Latency > p.MaxLatency:
			refuse(ByMaxLatency, "announced latency of %v exceeds %v", path.Latency, p.MaxLatency)
		case path.MTU < p.MinMTU && path.Hops() > 0:
			refuse(ByMinMTU, "MTU of %d is below %d", path.MTU, p.MinMTU)
		case some && !slices.Contains(chosen, path.Fingerprint):
			refuse(ByChoice, "not among the chosen paths")
		default:
			allowed = append(allowed, path)
		}
	}
	slices.SortStableFunc(allowed, p.Preference.Compare)
	return allowed, refused
}

// Missing returns the chosen paths to dst that are not among paths.
func (p Policy) Missing(dst IA, paths []Path) []Fingerprint {
	var out []Fingerprint
	for _, f := range p.Chosen[dst] {
		if !slices.ContainsFunc(paths, func(q Path) bool { return q.Fingerprint == f }) {
			out = append(out, f)
		}
	}
	return out
}

// Unjudged returns how many allowed paths could not be checked against the latency limit, because
// they announce no latency or only a part of it.
func (p Policy) Unjudged(allowed []Path) int {
	n := 0
	for _, path := range allowed {
		if p.MaxLatency > 0 && !path.LatencyKnown {
			n++
		}
	}
	return n
}

// Summary counts the forbidden paths by clause, with the reason of the first path: 2 by acl (denied
// by the ACL "- 1-ff00:0:110#2 +").
func Summary(refused []Refusal) string {
	var parts []string
	for _, c := range []Clause{BySequence, ByACL, ByMaxLatency, ByMinMTU, ByChoice} {
		n, reason := 0, ""
		for _, r := range refused {
			if r.Clause != c {
				continue
			}
			if n++; n == 1 {
				reason = r.Reason
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d by %s (%s)", n, c, reason))
		}
	}
	return strings.Join(parts, ", ")
}

// Preference orders paths by their announced figures, the most important criterion first. The empty
// one keeps the order of the lookup.
type Preference []Criterion

// Criterion is one figure by which paths are ordered.
type Criterion string

const (
	ByLatency   Criterion = "latency"   // shortest announced latency first, unknown last
	ByBandwidth Criterion = "bandwidth" // highest announced bandwidth first, unknown last
	ByHops      Criterion = "hops"      // fewest links first
	ByMTU       Criterion = "mtu"       // largest packets first
)

// ParsePreference reads criteria separated by commas.
func ParsePreference(s string) (Preference, error) {
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	var out Preference
	for _, word := range strings.SplitN(s, ",", 6) {
		c := Criterion(strings.TrimSpace(word))
		switch c {
		case ByLatency, ByBandwidth, ByHops, ByMTU:
		default:
			return nil, fmt.Errorf("preference %q: %q is not one of latency, bandwidth, hops, mtu",
				s, word)
		}
		if slices.Contains(out, c) {
			return nil, fmt.Errorf("preference %q: %s is given twice", s, c)
		}
		out = append(out, c)
	}
	return out, nil
}

// Compare returns a negative number if a is preferred to b.
func (p Preference) Compare(a, b Path) int {
	for _, c := range p {
		var d int
		switch c {
		case ByLatency:
			if d = -compareBool(a.LatencyKnown, b.LatencyKnown); d == 0 && a.LatencyKnown {
				d = cmp.Compare(a.Latency, b.Latency)
			}
		case ByBandwidth:
			d = cmp.Compare(b.Bandwidth, a.Bandwidth)
		case ByHops:
			d = cmp.Compare(a.Hops(), b.Hops())
		case ByMTU:
			d = cmp.Compare(b.MTU, a.MTU)
		}
		if d != 0 {
			return d
		}
	}
	return 0
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
