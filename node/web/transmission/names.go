package transmission

import (
	"strings"

	"braid/units/lists"
)

// dialect is one of the two forms of the protocol.
type dialect int

const (
	classic dialect = iota // method, arguments, result; keys mostly in camelCase, some in kebab-case
	jsonrpc                // JSON-RPC 2.0, everything in snake_case
)

// key spells a name for an answer. The name is given as the classic dialect spells it. Names that
// are newer than this dialect are in snake_case in both.
func (d dialect) key(name string) string {
	if d == jsonrpc {
		return canonical(name)
	}
	return name
}

// canonical returns a name in snake_case. The client may have spelled it in any style: Transmission
// 4.1 accepts all styles in both dialects, too.
func canonical(key string) string {
	var b strings.Builder
	upper := true // no underscore at the start, and none inside a run of capital letters
	for _, r := range key {
		switch {
		case r == '-':
			r, upper = '_', true
		case r >= 'A' && r <= 'Z':
			if !upper {
				b.WriteByte('_')
			}
			r, upper = r-'A'+'a', true
		default:
			upper = r == '_'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// column is one member of the objects that describe values of type T.
type column[T any] struct {
	name string // as the classic dialect spells it
	get  func(T) any
}

// table describes a kind of object, in both dialects.
type table[T any] []column[T]

func (t table[T]) object(d dialect, v T) map[string]any {
	out := make(map[string]any, len(t))
	for _, c := range t {
		out[d.key(c.name)] = c.get(v)
	}
	return out
}

func (t table[T]) list(d dialect, all []T) []map[string]any {
	return lists.Map(all, func(v T) map[string]any { return t.object(d, v) })
}

// pick returns the columns with these names, each once. It ignores unknown names, as Transmission
// does.
func (t table[T]) pick(names []string) table[T] {
	var out table[T]
	known := map[string]column[T]{}
	for _, c := range t {
		known[canonical(c.name)] = c
	}
	for _, n := range names {
		n = canonical(n)
		if c, ok := known[n]; ok {
			delete(known, n)
			out = append(out, c)
		}
	}
	return out
}
