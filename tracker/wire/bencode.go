package wire

import (
	"errors"
	"fmt"
	"strconv"
)

// maxDepth of nested lists and dictionaries. Answers have three.
const maxDepth = 16

// decoder reads bencoded values in place (BEP 3).
type decoder struct {
	b     []byte
	depth int
}

var errShort = errors.New("bencoding ends too early")

// kinds are the kinds of values, by what kind returns.
var kinds = map[byte]string{'i': "number", '0': "string", 'l': "list", 'd': "dictionary"}

// kind is that of the next value; 'e' at the end of a list or dictionary, 0 at that of the input.
func (d *decoder) kind() byte {
	switch {
	case len(d.b) == 0:
		return 0
	case '0' <= d.b[0] && d.b[0] <= '9':
		return '0'
	}
	return d.b[0]
}

// want returns an error unless a value of that kind comes next.
func (d *decoder) want(kind byte) error {
	switch d.kind() {
	case kind:
		return nil
	case 0:
		return errShort
	}
	return fmt.Errorf("want a bencoded %s", kinds[kind])
}

// until takes the digits in front of the end mark.
func (d *decoder) until(end byte) (string, error) {
	const longest = 20 // digits of a number of 64 bits, with sign
	for i, c := range d.b[:min(len(d.b), longest+1)] {
		if c == end {
			s := string(d.b[:i])
			d.b = d.b[i+1:]
			return s, nil
		}
	}
	return "", fmt.Errorf("bencoded number without its %q", end)
}

func (d *decoder) integer() (int64, error) {
	if err := d.want('i'); err != nil {
		return 0, err
	}
	d.b = d.b[1:]
	s, err := d.until('e')
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("bencoded number %q", s)
	}
	return n, nil
}

func (d *decoder) bytes() ([]byte, error) {
	if err := d.want('0'); err != nil {
		return nil, err
	}
	s, err := d.until(':')
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || n > uint64(len(d.b)) {
		return nil, errShort
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v, nil
}

// text reads a string. One that is too long reads as empty.
func (d *decoder) text(longest int) (string, error) {
	v, err := d.bytes()
	if len(v) > longest {
		v = nil
	}
	return string(v), err
}

// message reads a string for a log or a terminal.
func (d *decoder) message() (string, error) {
	v, err := d.bytes()
	return printable(v), err
}

// each calls f before every element of a list or, if kind is 'd', before every key of a dictionary.
func (d *decoder) each(kind byte, f func() error) error {
	if err := d.want(kind); err != nil {
		return err
	}
	if d.depth++; d.depth > maxDepth {
		return errors.New("bencoding is nested too deeply")
	}
	defer func() { d.depth-- }()
	d.b = d.b[1:]
	for d.kind() != 'e' {
		if len(d.b) == 0 {
			return errShort
		}
		if err := f(); err != nil {
			return err
		}
	}
	d.b = d.b[1:]
	return nil
}

// dict calls f with every key; f reads the value. Keys may come in any order, as in other
// implementations.
func (d *decoder) dict(f func(key string) error) error {
	return d.each('d', func() error {
		k, err := d.bytes()
		if err != nil {
			return err
		}
		return f(string(k))
	})
}

func (d *decoder) skip() (err error) {
	switch d.kind() {
	case 'i':
		_, err = d.integer()
	case 'l':
		err = d.each('l', d.skip)
	case 'd':
		err = d.dict(func(string) error { return d.skip() })
	default:
		_, err = d.bytes()
	}
	return err
}

func appendString[S string | []byte](b []byte, s S) []byte {
	b = strconv.AppendInt(b, int64(len(s)), 10)
	return append(append(b, ':'), s...)
}

// appendText writes a key of a dictionary and a string.
func appendText[S string | []byte](b []byte, key string, s S) []byte {
	return appendString(appendString(b, key), s)
}

// appendCount writes a key of a dictionary and a number.
func appendCount(b []byte, key string, n int64) []byte {
	return append(strconv.AppendInt(append(appendString(b, key), 'i'), n, 10), 'e')
}
