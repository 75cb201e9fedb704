package transmission

import "strings"

// dialect is one of the two forms of the protocol.
type dialect int

const (
	classic dialect = iota // method, arguments, result; keys mostly in camelCase, some in kebab-case
	jsonrpc                // JSON-RPC 2.0, everything in snake_case
)

// style is how the classic dialect spells a name.
type style int

const (
	kebab style = iota
	camel
	snake // names that are newer than the classic dialect
)

// key spells a name, which is given in snake_case, for an answer.
func (d dialect) key(name string, s style) string {
	switch {
	case d == jsonrpc || s == snake:
		return name
	case s == kebab:
		return strings.ReplaceAll(name, "_", "-")
	case name == "is_utp":
		return "isUTP"
	}
	words := strings.Split(name, "_")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
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
	name  string // in snake_case
	style style
	get   func(T) any
}

// table describes a kind of object, in both dialects.
type table[T any] []column[T]

func (t table[T]) object(d dialect, v T) map[string]any {
	out := make(map[string]any, len(t))
	for _, c := range t {
		out[d.key(c.name, c.style)] = c.get(v)
	}
	return out
}

func (t table[T]) list(d dialect, all []T) []map[string]any {
	out := make([]map[string]any, 0, len(all))
	for _, v := range all {
		out = append(out, t.object(d, v))
	}
	return out
}

// pick returns the columns with these names, each once. It ignores unknown names, as Transmission
// does.
func (t table[T]) pick(names []string) table[T] {
	var out table[T]
	seen := map[string]bool{}
	for _, n := range names {
		n = canonical(n)
		for _, c := range t {
			if c.name == n && !seen[n] {
				seen[n] = true
				out = append(out, c)
			}
		}
	}
	return out
}
