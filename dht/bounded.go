package dht

import (
	"fmt"

	"braid/bencoding"
)

const (
	// maxMessage bounds a message in bytes. It fits one packet on every SCION path and on Ethernet,
	// with an item of BEP 44 in it.
	maxMessage = 1400
	// maxDepth and maxValues bound a message before it is decoded. A message has a dictionary in a
	// dictionary with lists of strings; an item may have some more.
	maxDepth, maxValues = 8, 256
)

// checkBounds returns an error for bencoded bytes that must not be decoded.
func checkBounds(b []byte) error {
	if len(b) > maxMessage {
		return fmt.Errorf("longer than %d bytes", maxMessage)
	}
	return bencoding.NewReader(b, bencoding.Limits{Values: maxValues, Depth: maxDepth}).Skip()
}
