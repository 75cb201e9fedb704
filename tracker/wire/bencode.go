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
	if c, err := d.peek(); err != nil || c < '0' || c > '9' {
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

// each calls f before every element of a list or, with an 'l' or 'd' in front, a dictionary.
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

// dict calls f with every key; f takes the value. Keys out of order are let pass, as elsewhere.
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

func appendString(b []byte, s string) []byte {
	b = strconv.AppendInt(b, int64(len(s)), 10)
	return append(append(b, ':'), s...)
}

func appendInt(b []byte, n int64) []byte {
	return append(strconv.AppendInt(append(b, 'i'), n, 10), 'e')
}

func appendCount(b []byte, key string, n int64) []byte { return appendInt(appendString(b, key), n) }
