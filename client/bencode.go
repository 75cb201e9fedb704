package client

import "braid/units/bencoding"

// Bounds of bencoded bytes from strangers.
const (
	// maxValues bounds strings, numbers, lists and dictionaries, keys included. A file takes 7 of
	// them, 24 in a hybrid torrent. Decoding this many takes about 200 MB and a second or two.
	maxValues = 3 << 20
	// maxNesting bounds nested lists and dictionaries. The engine's decoder has the same bound.
	maxNesting = 64
)

func newReader(b []byte) *bencoding.Reader {
	return bencoding.NewReader(b, bencoding.Limits{Values: maxValues, Depth: maxNesting})
}
