package storage

import "slices"

// extents are the ranges of a buffer that hold something: in order, apart from each other.
type extents []extent

type extent struct{ from, to int } // to is the first byte behind it

// with returns the extents with one more range, and by how many bytes they have grown. It keeps what it is called on.
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

// holds tells whether a range is held in full.
func (x extents) holds(from, to int) bool {
	return slices.ContainsFunc(x, func(e extent) bool { return e.from <= from && to <= e.to })
}
