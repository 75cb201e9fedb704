// Package lists makes lists: of other lists, and of texts.
package lists

import "strings"

// Map returns the results of f for all elements, in their order. It never returns nil, so JSON has
// [] for no elements.
func Map[From, To any](all []From, f func(From) To) []To {
	out := make([]To, len(all))
	for i, x := range all {
		out[i] = f(x)
	}
	return out
}

// Split returns the parts of a text between separators. It trims white space around them, and drops
// empty ones. It never returns nil.
func Split(text, separator string) []string {
	out := []string{}
	for part := range strings.SplitSeq(text, separator) {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}
