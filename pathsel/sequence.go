package pathsel

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

const (
	// maxExpression limits a sequence or an ACL, in bytes. It is longer than any useful one;
	// without it, a pasted file would be compiled.
	maxExpression = 4096
	// maxDepth limits nested parentheses, so that the parser cannot overflow the stack.
	maxDepth = 64
)

// Sequence is a regular expression over the hops of a path, in the language of the scion tools.
// Hops are ISD, ISD-AS, ISD-AS#IF (either interface) or ISD-AS#IN,OUT, with 0 as the wildcard. They
// are combined by ? + * | and parentheses. A postfix operator binds tightest, then |, then
// concatenation. The whole path must match, including source and destination. Unlike in the scion
// tools, an impossible number is an error, and AS numbers may be in capitals.
type Sequence struct {
	text string
	re   *regexp.Regexp
}

// ParseSequence reads a sequence. The empty one allows every path.
func ParseSequence(s string) (Sequence, error) {
	if len(s) > maxExpression {
		return Sequence{}, fmt.Errorf("sequence is %d bytes long: at most %d are allowed",
			len(s), maxExpression)
	}
	if strings.TrimSpace(s) == "" {
		return Sequence{}, nil
	}
	p := sequenceParser{in: s}
	pattern, err := p.concatenation(0)
	if err == nil && p.peek() != 0 {
		err = p.unexpected("the end")
	}
	if err != nil {
		return Sequence{}, fmt.Errorf("sequence %q: %w", s, err)
	}
	re, err := regexp.Compile("^" + pattern + "$")
	if err != nil {
		return Sequence{}, fmt.Errorf("sequence %q: too complex: %w", s, err)
	}
	return Sequence{text: s, re: re}, nil
}

// String returns the text that was parsed.
func (s Sequence) String() string { return s.text }

// Allows reports whether the path matches. The path inside one AS has no hops.
func (s Sequence) Allows(p Path) bool {
	if s.re == nil {
		return true
	}
	hops := p.Sequence()
	if hops != "" {
		hops += " "
	}
	return len(p.Interfaces)%2 == 0 && s.re.MatchString(hops) // an odd number is malformed
}

// sequenceParser turns a sequence into a regular expression over hops written as "ISD-AS#IN,OUT ".
type sequenceParser struct {
	in  string
	pos int
}

// peek returns the next byte that is not white space, 0 at the end.
func (p *sequenceParser) peek() byte {
	for p.pos < len(p.in) && strings.IndexByte(" \t\r\n", p.in[p.pos]) >= 0 {
		p.pos++
	}
	if p.pos == len(p.in) {
		return 0
	}
	return p.in[p.pos]
}

func (p *sequenceParser) unexpected(want string) error {
	if c := p.peek(); c != 0 {
		return fmt.Errorf("at byte %d: found %q instead of %s", p.pos+1, c, want)
	}
	return fmt.Errorf("ends too early: expected %s", want)
}

func (p *sequenceParser) concatenation(depth int) (string, error) {
	if depth > maxDepth {
		return "", fmt.Errorf("more than %d nested parentheses", maxDepth)
	}
	var b strings.Builder
	for {
		alt, err := p.alternatives(depth)
		if err != nil {
			return "", err
		}
		b.WriteString(alt)
		if c := p.peek(); c == 0 || c == ')' {
			return b.String(), nil
		}
	}
}

func (p *sequenceParser) alternatives(depth int) (string, error) {
	left, err := p.postfix(depth)
	for err == nil && p.peek() == '|' {
		p.pos++
		var right string
		right, err = p.postfix(depth)
		left = left + "|" + right
	}
	return "(?:" + left + ")", err
}

func (p *sequenceParser) postfix(depth int) (string, error) {
	var out string
	var err error
	switch c := p.peek(); {
	case c == '(':
		p.pos++
		if out, err = p.concatenation(depth + 1); err != nil {
			return "", err
		}
		if p.peek() != ')' {
			return "", p.unexpected("a closing parenthesis")
		}
		p.pos++
	case c >= '0' && c <= '9':
		if out, err = p.hop(); err != nil {
			return "", err
		}
	default:
		return "", p.unexpected("a hop such as 1-ff00:0:110#1 or a parenthesis")
	}
	// Different operators in a row mean the same as a star; equal ones mean the same as one.
	// Without folding them, a long row of operators would nest as deeply as it is long.
	var op byte
	for c := p.peek(); c == '?' || c == '+' || c == '*'; c = p.peek() {
		p.pos++
		if op != 0 && op != c {
			c = '*'
		}
		op = c
	}
	if op != 0 {
		out = "(?:" + out + ")" + string(op)
	}
	return out, nil
}

func (p *sequenceParser) hop() (string, error) {
	isd, err := p.number("an ISD")
	if err != nil {
		return "", err
	}
	as, in, out := "[0-9a-f:]+", "[0-9]+", "[0-9]+"
	pair := in + "," + out
	if p.peek() == '-' {
		p.pos++
		if as, err = p.as(); err != nil {
			return "", err
		}
		if p.peek() == '#' {
			p.pos++
			if in, err = p.number("an interface"); err != nil {
				return "", err
			}
			if p.peek() == ',' {
				p.pos++
				if out, err = p.number("an interface"); err != nil {
					return "", err
				}
				pair = in + "," + out
			} else {
				pair = "(?:[0-9]+," + in + "|" + in + ",[0-9]+)"
			}
		}
	}
	return isd + "-" + as + "#" + pair + " ", nil
}

// number reads a decimal number without leading zeros. 0 becomes a pattern for any number.
func (p *sequenceParser) number(what string) (string, error) {
	if c := p.peek(); c < '0' || c > '9' {
		return "", p.unexpected(what)
	}
	start := p.pos
	if p.in[p.pos] == '0' {
		p.pos++
		return "[0-9]+", nil
	}
	for p.pos < len(p.in) && p.in[p.pos] >= '0' && p.in[p.pos] <= '9' {
		p.pos++
	}
	number := p.in[start:p.pos]
	if _, err := strconv.ParseUint(number, 10, 16); err != nil {
		return "", fmt.Errorf("at byte %d: %s is at most 65535, not %s", start+1, what, number)
	}
	return number, nil
}

func (p *sequenceParser) as() (string, error) {
	start := p.pos
	for p.pos < len(p.in) && strings.IndexByte("0123456789abcdefABCDEF:", p.in[p.pos]) >= 0 {
		p.pos++
	}
	text := p.in[start:p.pos]
	if !strings.Contains(text, ":") && strings.HasPrefix(text, "0") {
		p.pos = start + 1 // what follows a zero is the next hop, as in the scion tools
		return "[0-9a-f:]+", nil
	}
	as, err := parseAS(text)
	if err != nil {
		return "", fmt.Errorf("at byte %d: %w", start+1, err)
	}
	_, canonical, _ := strings.Cut(IA(as).String(), "-")
	return canonical, nil
}
