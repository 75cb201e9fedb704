package pathsel

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ACL is a SCION path policy: an ordered list of entries. The first entry that matches an interface
// decides about that interface, and a path is allowed only if all its interfaces are. The last
// entry, and no other, matches everything. The zero value allows every path.
type ACL struct{ entries []aclEntry }

type aclEntry struct {
	allow bool
	hop   Pattern
}

// ParseACL reads the entries of an ACL, separated by white space or commas. An entry is + (allow)
// or - (deny), then ISD, ISD-AS, ISD-AS#IF or ISD-AS#IN,OUT. 0 is the wildcard. The last entry must
// be the default, a bare + or -. For example "- 1-ff00:0:110#2 +" forbids one link, and "+ 1 -"
// allows only ISD 1. An empty text allows every path.
func ParseACL(s string) (ACL, error) {
	if len(s) > maxExpression {
		return ACL{}, fmt.Errorf("ACL is %d bytes long: at most %d are allowed",
			len(s), maxExpression)
	}
	var acl ACL
	words := aclWords(s)
	for len(words) > 0 {
		if words[0] != "+" && words[0] != "-" {
			return ACL{}, fmt.Errorf("ACL %q: entry begins with %q instead of + or - and a space",
				s, words[0])
		}
		e := aclEntry{allow: words[0] == "+"}
		words = words[1:]
		if len(words) > 0 && words[0] != "+" && words[0] != "-" {
			hop, err := ParsePattern(words[0])
			if err != nil {
				return ACL{}, fmt.Errorf("ACL %q: %w", s, err)
			}
			e.hop, words = hop, words[1:]
		}
		acl.entries = append(acl.entries, e)
		if e.hop.matchesAll() && len(words) > 0 {
			return ACL{}, fmt.Errorf("ACL %q: entries after the default have no effect: %s",
				s, strings.Join(words, " "))
		}
	}
	if n := len(acl.entries); n > 0 && !acl.entries[n-1].hop.matchesAll() {
		return ACL{}, fmt.Errorf("ACL %q: the last entry must be the default, + or -", s)
	}
	return acl, nil
}

// aclWords splits the text at white space and at commas between entries. Other commas separate the
// two interface IDs of a hop.
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

// String returns a text from which ParseACL makes the same ACL.
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

// Allows reports whether every interface of the path is allowed.
func (a ACL) Allows(p Path) bool {
	for i, f := range p.Interfaces {
		match := slices.IndexFunc(a.entries, func(e aclEntry) bool {
			return e.hop.matches(f, i%2 != 0)
		})
		if match >= 0 && !a.entries[match].allow {
			return false
		}
	}
	return true
}

// Pattern matches interfaces, and paths by their interfaces. Zero fields are wildcards.
type Pattern struct {
	isd     uint16
	as      uint64
	in, out uint64 // where a path enters the AS, and where it leaves the AS
}

// ParsePattern reads ISD, ISD-AS, ISD-AS#IF or ISD-AS#IN,OUT. 0 is the wildcard.
func ParsePattern(s string) (Pattern, error) {
	s = strings.TrimSpace(s)
	fail := func(format string, args ...any) (Pattern, error) {
		return Pattern{}, fmt.Errorf("hop %q: %s", s, fmt.Sprintf(format, args...))
	}
	isd, rest, hasAS := strings.Cut(s, "-")
	n, err := strconv.ParseUint(isd, 10, 16)
	if err != nil {
		return fail("ISD must be a number from 0 to 65535")
	}
	h := Pattern{isd: uint16(n)}
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
	in, out, isPair := strings.Cut(ids, ",")
	if !isPair {
		out = in
	}
	if h.in, err = strconv.ParseUint(in, 10, 16); err == nil {
		h.out, err = strconv.ParseUint(out, 10, 16)
	}
	if err != nil {
		return fail("interface must be a number from 0 to 65535, " +
			"or two such numbers with a comma between them")
	}
	if h.as == 0 && (h.in != 0 || h.out != 0) {
		return fail("an interface ID is only valid together with an AS")
	}
	return h, nil
}

func (h Pattern) matchesAll() bool { return h.isd == 0 && h.as == 0 }

func (h Pattern) matches(f Interface, ingress bool) bool {
	id := h.out
	if ingress {
		id = h.in
	}
	return (h.isd == 0 || h.isd == f.IA.ISD()) && (h.as == 0 || h.as == f.IA.AS()) &&
		(id == 0 || id == f.ID)
}

// String returns a text from which ParsePattern makes the same pattern.
func (h Pattern) String() string {
	_, as, _ := strings.Cut(IA(h.as).String(), "-")
	ids := strconv.FormatUint(h.in, 10)
	if h.in != h.out {
		ids += "," + strconv.FormatUint(h.out, 10)
	}
	return fmt.Sprintf("%d-%s#%s", h.isd, as, ids)
}

// Matches reports whether any interface of the path matches. A path inside one AS has no
// interfaces.
func (h Pattern) Matches(path Path) bool {
	for i, f := range path.Interfaces {
		if h.matches(f, i%2 != 0) {
			return true
		}
	}
	return false
}
