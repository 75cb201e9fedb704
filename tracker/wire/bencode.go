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

func (d *decoder) peek() (byte, error) {
	if len(d.b) == 0 {
		return 0, errShort
	}
	return d.b[0], nil
}

// atString reports whether a string comes next.
func (d *decoder) atString() bool {
	c, err := d.peek()
	return err == nil && '0' <= c && c <= '9'
}

// atList reports whether a list comes next.
func (d *decoder) atList() bool {
	c, err := d.peek()
	return err == nil && c == 'l'
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
	if c, err := d.peek(); err != nil || c != 'i' {
		return 0, errors.Join(err, errors.New("want a bencoded number"))
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
	if !d.atString() {
		_, err := d.peek()
		return nil, errors.Join(err, errors.New("want a bencoded string"))
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
	if c, err := d.peek(); err != nil || c != kind {
		return errors.Join(err, fmt.Errorf("want a bencoded %q", kind))
	}
	if d.depth++; d.depth > maxDepth {
		return errors.New("bencoding is nested too deeply")
	}
	defer func() { d.depth-- }()
	d.b = d.b[1:]
	for {
		c, err := d.peek()
		if err != nil {
			return err
		}
		if c == 'e' {
			d.b = d.b[1:]
			return nil
		}
		if err := f(); err != nil {
			return err
		}
	}
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

func (d *decoder) skip() error {
	c, err := d.peek()
	if err != nil {
		return err
	}
	switch c {
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
