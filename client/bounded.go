package client

import "slices"

// bounded is a map with a limit. Beyond it, a new entry replaces the oldest one. The zero value,
// with most set, is empty.
type bounded[K comparable, V any] struct {
	most  int // entries
	m     map[K]V
	order []K
}

func (b *bounded[K, V]) get(k K) (V, bool) {
	v, ok := b.m[k]
	return v, ok
}

// put sets an entry, whose place stays the same if it is there, and returns the key that was
// forgotten for it.
func (b *bounded[K, V]) put(k K, v V) (forgotten K, over bool) {
	if b.m == nil {
		b.m = map[K]V{}
	}
	if _, ok := b.m[k]; !ok {
		b.order = append(b.order, k)
	}
	b.m[k] = v
	if len(b.m) <= b.most {
		return forgotten, false
	}
	forgotten = b.order[0]
	b.order = slices.Delete(b.order, 0, 1)
	delete(b.m, forgotten)
	return forgotten, true
}

// keep leaves only the entries for which f is true.
func (b *bounded[K, V]) keep(f func(K, V) bool) {
	b.order = slices.DeleteFunc(b.order, func(k K) bool {
		if f(k, b.m[k]) {
			return false
		}
		delete(b.m, k)
		return true
	})
}
