package pathsel

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ACL is an ordered list of entries as in SCION path policies. Each interface of a path gets the verdict of
// the first entry that matches it; one denial forbids the path. The last entry, and no other, matches
// everything. The zero value allows every path.
type ACL struct{ entries []aclEntry }

type aclEntry struct {
	allow bool
	hop   hopPredicate
}

// hopPredicate matches interfaces; zero fields are wildcards. With two interface IDs the first is for
// interfaces through which a path enters an AS, the second for those through which it leaves.
type hopPredicate struct {
	isd     uint16
	as      uint64
	in, out uint64
	both    bool // in and out were given apart
}

// ParseACL reads entries in their order, separated by white space or commas: + (allow) or - (deny), then ISD, ISD-AS,
// ISD-AS#IF or ISD-AS#IN,OUT with 0 as the wildcard. The last entry is the default, a bare + or -. So
// "- 1-ff00:0:110#2 +" forbids one link and "+ 1 -" allows nothing outside ISD 1. An empty
// text allows every path.
func ParseACL(s string) (ACL, error) {
	if len(s) > maxExpression {
		return ACL{}, fmt.Errorf("ACL of %d bytes: at most %d are read", len(s), maxExpression)
	}
	var acl ACL
	words := aclWords(s)
	for len(words) > 0 {
		if words[0] != "+" && words[0] != "-" {
			return ACL{}, fmt.Errorf("ACL %q: entry begins with %q, want + or - and a space", s, words[0])
		}
		e := aclEntry{allow: words[0] == "+"}
		words = words[1:]
		if len(words) > 0 && words[0] != "+" && words[0] != "-" {
			hop, err := parseHopPredicate(words[0])
			if err != nil {
				return ACL{}, fmt.Errorf("ACL %q: %w", s, err)
			}
			e.hop, words = hop, words[1:]
		}
		acl.entries = append(acl.entries, e)
		if e.hop.matchesAll() && len(words) > 0 {
			return ACL{}, fmt.Errorf("ACL %q: entries after the default would never be read: %s", s, strings.Join(words, " "))
		}
	}
	if n := len(acl.entries); n > 0 && !acl.entries[n-1].hop.matchesAll() {
		return ACL{}, fmt.Errorf("ACL %q: the last entry must be the default, + or -", s)
	}
	return acl, nil
}

// aclWords splits at white space, and at commas that stand between two entries: others are part of a hop.
func aclWords(s string) []string {
	s = strings.TrimSpace(s)
	b := []byte(s)
	for i, c := range b {
		if i == 0 || c != ',' {
			continue
		}
		if rest := strings.TrimSpace(s[i+1:]); rest != "" && (rest[0] == '+' || rest[0] == '-') {
			b[i] = ' '
		}
	}
	return strings.Fields(string(b))
}

// String is a text that ParseACL reads back.
func (a ACL) String() string {
	var words []string
	for _, e := range a.entries {
		words = append(words, map[bool]string{true: "+", false: "-"}[e.allow])
		if !e.hop.matchesAll() {
			words = append(words, e.hop.String())
		}
	}
	return strings.Join(words, " ")
}

// Allows tells whether every interface of the path is allowed.
func (a ACL) Allows(p Path) bool {
	for i, f := range p.Interfaces {
		match := slices.IndexFunc(a.entries, func(e aclEntry) bool { return e.hop.matches(f, i%2 != 0) })
		if match >= 0 && !a.entries[match].allow {
			return false
		}
	}
	return true
}

func parseHopPredicate(s string) (hopPredicate, error) {
	fail := func(format string, args ...any) (hopPredicate, error) {
		return hopPredicate{}, fmt.Errorf("hop %q: %s", s, fmt.Sprintf(format, args...))
	}
	isd, rest, hasAS := strings.Cut(s, "-")
	n, err := strconv.ParseUint(isd, 10, 16)
	if err != nil {
		return fail("ISD must be a number from 0 to 65535")
	}
	h := hopPredicate{isd: uint16(n)}
	if !hasAS {
		return h, nil
	}
	as, ids, hasID := strings.Cut(rest, "#")
	if h.as, err = parseAS(as); err != nil {
		return fail("%v", err)
	}
	if !hasID {
		return h, nil
	}
	in, out, both := strings.Cut(ids, ",")
	if !both {
		out = in
	}
	h.both = both
	for _, id := range []struct {
		text string
		to   *uint64
	}{{in, &h.in}, {out, &h.out}} {
		if *id.to, err = strconv.ParseUint(id.text, 10, 16); err != nil {
			return fail("interface must be a number from 0 to 65535, or two of them with a comma")
		}
	}
	if h.as == 0 && (h.in != 0 || h.out != 0) {
		return fail("an interface needs an AS: interface IDs mean nothing across ASes")
	}
	return h, nil
}

func (h hopPredicate) matchesAll() bool { return h.isd == 0 && h.as == 0 }

func (h hopPredicate) matches(f Interface, ingress bool) bool {
	id := h.out
	if ingress {
		id = h.in
	}
	return (h.isd == 0 || h.isd == f.IA.ISD()) && (h.as == 0 || h.as == f.IA.AS()) && (id == 0 || id == f.ID)
}

func (h hopPredicate) String() string {
	_, as, _ := strings.Cut(IA(h.as).String(), "-")
	ids := strconv.FormatUint(h.in, 10)
	if h.both {
		ids += "," + strconv.FormatUint(h.out, 10)
	}
	return fmt.Sprintf("%d-%s#%s", h.isd, as, ids)
}

// Pattern matches paths by the interfaces on them: ISD, ISD-AS or ISD-AS#IF, as in an ACL.
type Pattern struct{ hop hopPredicate }

// ParsePattern reads ISD, ISD-AS, ISD-AS#IF or ISD-AS#IN,OUT with 0 as the wildcard.
func ParsePattern(s string) (Pattern, error) {
	hop, err := parseHopPredicate(strings.TrimSpace(s))
	return Pattern{hop}, err
}

// Matches tells whether one of the path's interfaces matches. A path inside one AS has none.
func (p Pattern) Matches(path Path) bool {
	for i, f := range path.Interfaces {
		if p.hop.matches(f, i%2 != 0) {
			return true
		}
	}
	return false
}

// String is a text that ParsePattern reads back.
func (p Pattern) String() string { return p.hop.String() }
