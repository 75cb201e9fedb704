package wire

import (
	"strconv"

	"braid/units/bencoding"
)

// maxDepth of nested lists and dictionaries. Answers have three.
const maxDepth = 16

// decoder reads the values of answers and reports.
type decoder struct{ *bencoding.Reader }

func newDecoder(b []byte) *decoder {
	return &decoder{bencoding.NewReader(b, bencoding.Limits{Depth: maxDepth})}
}

// short reads a string. One that is too long reads as empty.
func (d *decoder) short(longest int) (string, error) {
	v, err := d.Bytes()
	if len(v) > longest {
		v = nil
	}
	return string(v), err
}

// message reads a string for a log or a terminal.
func (d *decoder) message() (string, error) {
	v, err := d.Bytes()
	return printable(v), err
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
