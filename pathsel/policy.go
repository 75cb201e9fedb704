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
}

// Refusal is a path that a policy does not allow, and why.
type Refusal struct {
	Path   Path
	Reason string
}

// Apply divides the paths into those that may be used, in the order of preference, and those that may not.
// The slice that it is given stays as it is.
func (p Policy) Apply(paths []Path) (allowed []Path, refused []Refusal) {
	for _, path := range paths {
		switch {
		case !p.Sequence.Allows(path):
			refused = append(refused, Refusal{path, fmt.Sprintf("does not match the sequence %q", p.Sequence)})
		case !p.ACL.Allows(path):
			refused = append(refused, Refusal{path, fmt.Sprintf("denied by the ACL %q", p.ACL)})
		case p.MaxLatency > 0 && path.Latency > p.MaxLatency:
			refused = append(refused, Refusal{path, fmt.Sprintf("announced latency of %v exceeds %v", path.Latency, p.MaxLatency)})
		case path.MTU < p.MinMTU && path.Hops() > 0:
			refused = append(refused, Refusal{path, fmt.Sprintf("MTU of %d is below %d", path.MTU, p.MinMTU)})
		default:
			allowed = append(allowed, path)
		}
	}
	slices.SortStableFunc(allowed, p.Preference.Compare)
	return allowed, refused
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
