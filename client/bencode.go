package client

import (
	"errors"
	"fmt"
	"math"
)

// Bounds of bencoded bytes from strangers. The engine's decoder takes up to 700 bytes of memory for
// each byte that it reads: an empty dictionary in a list of files is two bytes. So values are
// counted before decoding.
const (
	// maxValues bounds strings, numbers, lists and dictionaries, keys included. A file takes 7 of
	// them, 24 in a hybrid torrent. Decoding this many takes about 200 MB and a second or two.
	maxValues = 3 << 20
	// maxNesting bounds nested lists and dictionaries. The scan below is recursive, and so is the
	// decoder, which has the same bound.
	maxNesting = 64
	// maxString keeps the length of a string in the range of int on every machine.
	maxString = math.MaxInt32
)

var errTruncated = errors.New("it ends in the middle")

// bencoded reads over bencoded bytes (BEP 3) from front to back without decoding them. It refuses
// malformed bytes and values that exceed the bounds.
type bencoded struct {
	bytes  []byte
	at     int
	depth  int
	values int
}

// kind is the first byte of the next value: 'd', 'l', 'i', or '0' for a string; 0 where there is
// none.
func (b *bencoded) kind() byte {
	switch {
	case b.at >= len(b.bytes):
		return 0
	case b.bytes[b.at] >= '0' && b.bytes[b.at] <= '9':
		return '0'
	}
	return b.bytes[b.at]
}

// begin takes the first byte of a value of that kind.
func (b *bencoded) begin(kind byte) error {
	switch have := b.kind(); {
	case have == 0:
		return errTruncated
	case have != kind:
		return fmt.Errorf("unexpected %q at byte %d", b.bytes[b.at], b.at)
	}
	if b.values++; b.values > maxValues {
		return fmt.Errorf("more than the %d values (strings, numbers, lists and dictionaries) that are accepted", maxValues)
	}
	if kind != '0' { // a string's first byte is a part of its length
		b.at++
	}
	return nil
}

// digits reads a decimal number of at most most without leading zeros, and the byte behind it.
func (b *bencoded) digits(end byte, most uint64) (n uint64, err error) {
	from := b.at
	for ; b.at < len(b.bytes) && b.bytes[b.at] >= '0' && b.bytes[b.at] <= '9'; b.at++ {
		d := uint64(b.bytes[b.at] - '0')
		if n > (most-d)/10 {
			return 0, fmt.Errorf("the number at byte %d is larger than %d", from, most)
		}
		n = 10*n + d
	}
	if b.at == len(b.bytes) {
		return 0, errTruncated
	}
	if b.bytes[b.at] != end || b.at == from || b.bytes[from] == '0' && b.at > from+1 {
		return 0, fmt.Errorf("malformed number at byte %d", from)
	}
	b.at++
	return n, nil
}

// text takes a string; it is a part of the bytes.
func (b *bencoded) text() ([]byte, error) {
	if err := b.begin('0'); err != nil {
		return nil, err
	}
	n, err := b.digits(':', maxString)
	if err != nil {
		return nil, err
	}
	if n > uint64(len(b.bytes)-b.at) {
		return nil, errTruncated
	}
	from := b.at
	b.at += int(n)
	return b.bytes[from:b.at:b.at], nil
}

// string takes a string, as a copy.
func (b *bencoded) string() (string, error) {
	s, err := b.text()
	return string(s), err
}

// number reads an integer. One that does not fit is an error: no integer in use has more digits,
// and a decoder takes long for a million digits.
func (b *bencoded) number() (int64, error) {
	if err := b.begin('i'); err != nil {
		return 0, err
	}
	sign := int64(1)
	if b.at < len(b.bytes) && b.bytes[b.at] == '-' {
		sign = -1
		b.at++
	}
	n, err := b.digits('e', math.MaxInt64)
	return sign * int64(n), err
}

// list takes a list. item is called at the beginning of each value in it, and takes the value.
func (b *bencoded) list(item func() error) error { return b.container('l', item) }

// dict takes a dictionary. item is called behind each key, and takes the value.
func (b *bencoded) dict(item func(key []byte) error) error {
	return b.container('d', func() error {
		key, err := b.text()
		if err != nil {
			return err
		}
		return item(key)
	})
}

func (b *bencoded) container(kind byte, item func() error) error {
	if err := b.begin(kind); err != nil {
		return err
	}
	if b.depth++; b.depth > maxNesting {
		return fmt.Errorf("lists and dictionaries nested deeper than the %d that are accepted", maxNesting)
	}
	for b.kind() != 'e' {
		if err := item(); err != nil {
			return err
		}
	}
	b.at++
	b.depth--
	return nil
}

// skip takes a value of any kind and returns its bytes.
func (b *bencoded) skip() ([]byte, error) {
	from := b.at
	var err error
	switch b.kind() {
	case '0':
		_, err = b.text()
	case 'i':
		_, err = b.number()
	case 'l':
		err = b.list(b.pass)
	default: // of which begin refuses what is no dictionary
		err = b.dict(func([]byte) error { return b.pass() })
	}
	return b.bytes[from:b.at], err
}

func (b *bencoded) pass() error {
	_, err := b.skip()
	return err
}
