package dht

import "errors"

const (
	// maxMessage bounds a message in bytes. It fits one packet on every SCION path and on Ethernet,
	// with an item of BEP 44 in it.
	maxMessage = 1400
	// maxDepth and maxValues bound a message before it is decoded: a decoder makes much of little,
	// up to 700 bytes of memory for each byte. A message has a dictionary in a dictionary with
	// lists of strings; an item may have some more.
	maxDepth, maxValues = 8, 256
)

var errUnbounded = errors.New("no message: too many values, or nested too deeply")

// checkBounds counts the values of bencoded bytes and their depth. It does not check that the bytes
// are well-formed: it reads only enough to never count too few.
func checkBounds(b []byte) error {
	if len(b) > maxMessage {
		return errUnbounded
	}
	depth, values := 0, 0
	for i := 0; i < len(b); {
		c := b[i]
		i++
		switch {
		case c == 'e':
			depth--
			continue
		case c == 'd' || c == 'l':
			depth++
		case c == 'i':
			for i < len(b) && b[i] != 'e' {
				i++
			}
			i++
		case c >= '0' && c <= '9':
			n := int(c - '0')
			for ; i < len(b) && b[i] >= '0' && b[i] <= '9' && n < maxMessage; i++ {
				n = 10*n + int(b[i]-'0')
			}
			i += 1 + n // the colon and the string
		default:
			return errUnbounded
		}
		if values++; values > maxValues || depth > maxDepth {
			return errUnbounded
		}
	}
	return nil
}
