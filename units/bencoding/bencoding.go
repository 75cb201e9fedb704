// Package bencoding reads bencoded bytes (BEP 3) that come from strangers. It makes nothing of them
// but the values that its caller asks for, and it refuses too many or too deeply nested values.
//
// The engine's decoder makes Go values of all bytes, and takes up to 700 bytes of memory for each
// byte that it reads: an empty dictionary in a list of files is two bytes. So a Reader goes over the
// bytes before the decoder does, or takes its place.
package bencoding

import (
	"errors"
	"fmt"
	"math"
)

// Limits bound what a Reader takes.
type Limits struct {
	Values int // strings, numbers, lists and dictionaries, keys included; 0: no limit
	Depth  int // nested lists and dictionaries, for which the Reader calls itself
}

// maxString keeps the length of a string in the range of int on every machine.
const maxString = math.MaxInt32

// Reader reads bencoded bytes from front to back. It refuses malformed bytes, and values beyond its
// limits. After an error it is of no use.
type Reader struct {
	bytes  []byte
	at     int
	limits Limits
	depth  int
	values int
}

// NewReader reads from the beginning of the bytes. It changes nothing in them.
func NewReader(b []byte, l Limits) *Reader { return &Reader{bytes: b, limits: l} }

var errShort = errors.New("it ends too early")

// kinds are the kinds of values, as Kind returns them.
var kinds = map[byte]string{'i': "number", '0': "string", 'l': "list", 'd': "dictionary"}

// At is the number of bytes that were read so far.
func (r *Reader) At() int { return r.at }

// Rest are the bytes that were not read yet.
func (r *Reader) Rest() []byte { return r.bytes[r.at:] }

// Kind is the first byte of the next value: 'd', 'l', 'i', or '0' for a string. It is 'e' at the
// end of a list or dictionary, and 0 at the end of the bytes.
func (r *Reader) Kind() byte {
	switch {
	case r.at >= len(r.bytes):
		return 0
	case r.bytes[r.at] >= '0' && r.bytes[r.at] <= '9':
		return '0'
	}
	return r.bytes[r.at]
}

// begin takes the first byte of a value of that kind.
func (r *Reader) begin(kind byte) error {
	switch have := r.Kind(); {
	case have == 0:
		return errShort
	case have != kind:
		return fmt.Errorf("want a %s at byte %d, found %q", kinds[kind], r.at, r.bytes[r.at])
	}
	if r.values++; r.limits.Values > 0 && r.values > r.limits.Values {
		return fmt.Errorf("more than the %d values (strings, numbers, lists and dictionaries) that are accepted",
			r.limits.Values)
	}
	if kind != '0' { // a string's first byte is a part of its length
		r.at++
	}
	return nil
}

// digits reads a decimal number of at most most without leading zeros, and the byte behind it.
func (r *Reader) digits(end byte, most uint64) (n uint64, err error) {
	from := r.at
	for ; r.at < len(r.bytes) && r.bytes[r.at] >= '0' && r.bytes[r.at] <= '9'; r.at++ {
		d := uint64(r.bytes[r.at] - '0')
		if n > (most-d)/10 {
			return 0, fmt.Errorf("the number at byte %d is larger than %d", from, most)
		}
		n = 10*n + d
	}
	if r.at == len(r.bytes) {
		return 0, errShort
	}
	if r.bytes[r.at] != end || r.at == from || r.bytes[from] == '0' && r.at > from+1 {
		return 0, fmt.Errorf("malformed number at byte %d", from)
	}
	r.at++
	return n, nil
}

// Bytes reads a string, as a part of the bytes.
func (r *Reader) Bytes() ([]byte, error) {
	if err := r.begin('0'); err != nil {
		return nil, err
	}
	n, err := r.digits(':', maxString)
	if err != nil {
		return nil, err
	}
	if n > uint64(len(r.bytes)-r.at) {
		return nil, errShort
	}
	from := r.at
	r.at += int(n)
	return r.bytes[from:r.at:r.at], nil
}

// Text reads a string, as a copy.
func (r *Reader) Text() (string, error) {
	s, err := r.Bytes()
	return string(s), err
}

// Number reads an integer. One that does not fit is an error: no integer in use has more digits, and
// a decoder takes long for a million digits.
func (r *Reader) Number() (int64, error) {
	if err := r.begin('i'); err != nil {
		return 0, err
	}
	sign := int64(1)
	if r.at < len(r.bytes) && r.bytes[r.at] == '-' {
		sign = -1
		r.at++
	}
	n, err := r.digits('e', math.MaxInt64)
	return sign * int64(n), err
}

// List reads a list. item is called at the beginning of each value in it, and reads the value.
func (r *Reader) List(item func() error) error { return r.container('l', item) }

// Dict reads a dictionary. item is called behind each key, and reads the value. Keys may come in any
// order, as some programs write them.
func (r *Reader) Dict(item func(key []byte) error) error {
	return r.container('d', func() error {
		key, err := r.Bytes()
		if err != nil {
			return err
		}
		return item(key)
	})
}

func (r *Reader) container(kind byte, item func() error) error {
	if err := r.begin(kind); err != nil {
		return err
	}
	if r.depth++; r.depth > r.limits.Depth {
		return fmt.Errorf("lists and dictionaries nested deeper than the %d that are accepted", r.limits.Depth)
	}
	for r.Kind() != 'e' {
		if err := item(); err != nil {
			return err
		}
	}
	r.at++
	r.depth--
	return nil
}

// Skip reads past a value of any kind.
func (r *Reader) Skip() (err error) {
	switch r.Kind() {
	case '0':
		_, err = r.Bytes()
	case 'i':
		_, err = r.Number()
	case 'l':
		err = r.List(r.Skip)
	default: // begin refuses everything that is no dictionary
		err = r.Dict(func([]byte) error { return r.Skip() })
	}
	return err
}
