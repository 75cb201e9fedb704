package storage

import "slices"

// bitset holds a bit for each of some things, the first in the highest bit of the first byte.
type bitset []byte

func newBitset(n int) bitset { return make(bitset, (n+7)/8) }

func bitsetOf(all []bool) bitset {
	b := newBitset(len(all))
	for i, on := range all {
		b.put(i, on)
	}
	return b
}

func (b bitset) has(i int) bool { return b[i/8]>>(7-i%8)&1 == 1 }
func (b bitset) set(i int)      { b[i/8] |= 1 << (7 - i%8) }
func (b bitset) clear(i int)    { b[i/8] &^= 1 << (7 - i%8) }

func (b bitset) put(i int, on bool) {
	if b.clear(i); on {
		b.set(i)
	}
}

// fits tells whether the set is one of n things.
func (b bitset) fits(n int) bool { return len(b) == (n+7)/8 }

func (b bitset) bools(n int) []bool {
	out := make([]bool, n)
	for i := range out {
		out[i] = b.has(i)
	}
	return out
}

// extents are ranges of a buffer, in order and apart from each other.
type extents []extent

type extent struct{ from, to int } // to is the first byte after it

// with returns the extents with one more range, and by how many bytes they have grown. It does not
// change x.
func (x extents) with(from, to int) (out extents, grown int) {
	first, _ := slices.BinarySearchFunc(x, from, func(e extent, from int) int { return e.to - from })
	last := first // the first that neither overlaps nor touches
	grown = to - from
	added := extent{from, to}
	for ; last < len(x) && x[last].from <= to; last++ {
		grown -= max(0, min(x[last].to, to)-max(x[last].from, from))
		added = extent{min(added.from, x[last].from), max(added.to, x[last].to)}
	}
	return slices.Replace(slices.Clone(x), first, last, added), grown
}

// total is the number of bytes in the extents.
func (x extents) total() (n int) {
	for _, e := range x {
		n += e.to - e.from
	}
	return n
}

// holds tells whether the extents cover a range.
func (x extents) holds(from, to int) bool {
	return slices.ContainsFunc(x, func(e extent) bool { return e.from <= from && to <= e.to })
}
