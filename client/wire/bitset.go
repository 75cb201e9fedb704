package wire

import (
	"math"
	"math/bits"
)

// Bitset is a set of small numbers, such as pieces.
type Bitset []uint64

// NewBitset makes an empty set with room for the numbers below n.
func NewBitset(n int) Bitset { return make(Bitset, (n+63)/64) }

// FullBitset makes the set of all numbers below n.
func FullBitset(n int) Bitset {
	b := NewBitset(n)
	for w := range b {
		b[w] = math.MaxUint64
	}
	if n%64 > 0 {
		b[n/64] = 1<<(n%64) - 1
	}
	return b
}

// Set puts a number into the set, which has room for it.
func (b Bitset) Set(i int) { b[i/64] |= 1 << (i % 64) }

// Clear takes a number out of the set, which has room for it.
func (b Bitset) Clear(i int) { b[i/64] &^= 1 << (i % 64) }

// Has tells whether a number is in the set.
func (b Bitset) Has(i int) bool { return i/64 < len(b) && b[i/64]>>(i%64)&1 != 0 }

// Grow puts a number into the set and makes room for it.
func (b *Bitset) Grow(i int) {
	for len(*b) <= i/64 {
		*b = append(*b, 0)
	}
	b.Set(i)
}

// Next is the first number from i on that is in the set and not in except, which may be nil; -1 if
// there is none.
func (b Bitset) Next(i int, except Bitset) int {
	for w := i / 64; w < len(b); w++ {
		word := b[w]
		if except != nil {
			word &^= except[w]
		}
		if w == i/64 {
			word &^= 1<<(i%64) - 1
		}
		if word != 0 {
			return w*64 + bits.TrailingZeros64(word)
		}
	}
	return -1
}
