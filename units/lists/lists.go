// Package lists has what package slices lacks.
package lists

// Map returns the results of f for all elements, in their order. It never returns nil, so JSON has
// [] for no elements.
func Map[From, To any](all []From, f func(From) To) []To {
	out := make([]To, len(all))
	for i, x := range all {
		out[i] = f(x)
	}
	return out
}
