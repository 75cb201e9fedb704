package pathsel

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Policy is what the user allows: it comes before any selector, and no selector sees a path that it
// refuses. The zero value allows everything in the order of the lookup.
type Policy struct {
	Sequence   Sequence
	ACL        ACL
	Preference Preference
	// MaxLatency refuses paths whose announced one-way latency is longer; 0: no limit. A path that
	// announces only part of its latency is measured by that part: it is at least as long.
	MaxLatency time.Duration
	// MinMTU refuses paths with a smaller SCION MTU in bytes; 0: no limit.
	MinMTU int
	// Chosen are the paths that the user has picked from a list, by destination. Of the paths to these no other is
	// allowed; destinations that are not here are not restricted.
	Chosen map[IA][]Fingerprint
}

// IsZero tells whether the policy neither refuses nor orders anything.
func (p Policy) IsZero() bool {
	return p.Sequence.re == nil && len(p.ACL.entries) == 0 && len(p.Preference) == 0 && p.MaxLatency == 0 && p.MinMTU == 0 && len(p.Chosen) == 0
}

// Clause is the part of a policy that refuses a path. Its text is the name of the command line flag.
type Clause string

const (
	BySequence   Clause = "sequence"
	ByACL        Clause = "acl"
	ByMaxLatency Clause = "max-latency"
	ByMinMTU     Clause = "min-mtu"
	ByChoice     Clause = "interactive"
)

// Refusal is a path that a policy does not allow, and why: the first clause that refuses it, in the order of the constants.
type Refusal struct {
	Path   Path
	Clause Clause
	Reason string
}

// Apply divides the paths into those that may be used, in the order of preference, and those that may not.
// The slice that it is given stays as it is.
func (p Policy) Apply(paths []Path) (allowed []Path, refused []Refusal) {
	for _, path := range paths {
		switch chosen, some := p.Chosen[path.Dst]; {
		case !p.Sequence.Allows(path):
			refused = append(refused, Refusal{path, BySequence, fmt.Sprintf("does not match the sequence %q", p.Sequence)})
		case !p.ACL.Allows(path):
			refused = append(refused, Refusal{path, ByACL, fmt.Sprintf("denied by the ACL %q", p.ACL)})
		case p.MaxLatency > 0 && path.Latency > p.MaxLatency:
			refused = append(refused, Refusal{path, ByMaxLatency, fmt.Sprintf("announced latency of %v exceeds %v", path.Latency, p.MaxLatency)})
		case path.MTU < p.MinMTU && path.Hops() > 0:
			refused = append(refused, Refusal{path, ByMinMTU, fmt.Sprintf("MTU of %d is below %d", path.MTU, p.MinMTU)})
		case some && !slices.Contains(chosen, path.Fingerprint):
			refused = append(refused, Refusal{path, ByChoice, "not among the chosen ones"})
		default:
			allowed = append(allowed, path)
		}
	}
	slices.SortStableFunc(allowed, p.Preference.Compare)
	return allowed, refused
}

// Missing are the chosen paths to dst that are not among the given ones.
func (p Policy) Missing(dst IA, paths []Path) []Fingerprint {
	var out []Fingerprint
	for _, f := range p.Chosen[dst] {
		if !slices.ContainsFunc(paths, func(q Path) bool { return q.Fingerprint == f }) {
			out = append(out, f)
		}
	}
	return out
}

// Unjudged is how many of the paths the policy allows without being able to judge them: it limits the latency, and they
// announce only a part of theirs, or nothing.
func (p Policy) Unjudged(allowed []Path) int {
	n := 0
	for _, path := range allowed {
		if p.MaxLatency > 0 && !path.LatencyKnown {
			n++
		}
	}
	return n
}

// Summary says which clauses have refused how many paths: "2 by --acl (denied by the ACL "- 1-ff00:0:110#2 +")". The reason
// is that of the first path.
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
			parts = append(parts, fmt.Sprintf("%d by --%s (%s)", n, c, reason))
		}
	}
	return strings.Join(parts, ", ")
}

// Preference orders paths by what they announce, the first criterion first. The empty one keeps the order of
// the lookup.
type Preference []Criterion

// Criterion is one thing to prefer paths by.
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
			return nil, fmt.Errorf("preference %q: %q is not one of latency, bandwidth, hops, mtu", s, word)
		}
		if slices.Contains(out, c) {
			return nil, fmt.Errorf("preference %q: %s stands twice", s, c)
		}
		out = append(out, c)
	}
	return out, nil
}

// Compare is negative when a is preferred to b.
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
