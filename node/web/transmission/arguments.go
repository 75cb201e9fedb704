package transmission

import (
	"cmp"
	"encoding/json"
	"math"
	"path/filepath"
	"strings"

	"braid/node/web/foreign"
)

// reader reads the arguments of a method. Its methods return nil for an argument that the client
// has not sent. The first argument of a wrong type sets err.
type reader struct {
	args arguments
	err  error
}

// note keeps the first error.
func (r *reader) note(err error) { r.err = cmp.Or(r.err, err) }

func (r *reader) wrong(name, want string) {
	r.note(fail(invalidParams, "%q must be %s", canonical(name), want))
}

// get reads an argument, whose name may be spelled in any style.
func get[T any](r *reader, name, want string, parse func(json.RawMessage) (T, bool)) *T {
	raw, ok := r.args[canonical(name)]
	if !ok {
		return nil
	}
	v, ok := parse(raw)
	if !ok {
		r.wrong(name, want)
		return nil
	}
	return &v
}

func (r *reader) flag(name string) *bool { return get(r, name, "a boolean", parseFlag) }
func (r *reader) text(name string) *string {
	return get(r, name, "a string", parseAs[string])
}
func (r *reader) real(name string) *float64 { return get(r, name, "a number", parseAs[float64]) }
func (r *reader) whole(name string) *int    { return get(r, name, "a whole number", parseWhole) }
func (r *reader) texts(name string) *[]string {
	return get(r, name, "a list of strings", parseAs[[]string])
}

// directory reads an absolute path on this machine.
func (r *reader) directory(name string) *string {
	path := r.text(name)
	if path == nil {
		return nil
	}
	if !filepath.IsAbs(*path) {
		r.note(fail(pathNotAbsolute, "the directory %q is not an absolute path", *path))
		return nil
	}
	return new(filepath.Clean(*path))
}

func (r *reader) neededDirectory(name string) string {
	dir := r.directory(name)
	if dir == nil {
		r.note(fail(invalidParams, "the request names no directory"))
	}
	return valueOf(dir)
}

// within reads a whole number from least to most. want describes the bounds for the error.
func (r *reader) within(name string, least, most int, want string) *int {
	n := r.whole(name)
	if n != nil && (*n < least || *n > most) {
		r.wrong(name, want)
		return nil
	}
	return n
}

// set changes a value if the client has sent a new one.
func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// valueOf returns the value of an argument, or the zero value if the client has not sent it.
func valueOf[T any](p *T) (v T) {
	set(&v, p)
	return v
}

// wholes reads a list of whole numbers.
func (r *reader) wholes(name string) *[]int {
	return get(r, name, "a list of whole numbers", func(b json.RawMessage) ([]int, bool) {
		var all []json.RawMessage
		if json.Unmarshal(b, &all) != nil {
			return nil, false
		}
		out := make([]int, 0, len(all))
		for _, x := range all {
			n, ok := parseWhole(x)
			if !ok {
				return nil, false
			}
			out = append(out, n)
		}
		return out, true
	})
}

func parseAs[T any](b json.RawMessage) (v T, ok bool) {
	return v, string(b) != "null" && json.Unmarshal(b, &v) == nil
}

// parseFlag accepts 0 and 1 as well, which older clients send.
func parseFlag(b json.RawMessage) (bool, bool) {
	switch string(b) {
	case "1":
		return true, true
	case "0":
		return false, true
	}
	return parseAs[bool](b)
}

// parseWhole accepts 1.0 as well, since JSON has only one kind of number.
func parseWhole(b json.RawMessage) (int, bool) {
	f, ok := parseAs[float64](b)
	return int(f), ok && f == math.Trunc(f) && math.Abs(f) < 1<<53
}

// maxIDs bounds the torrents that a request may name.
const maxIDs = 100_000

// selection is the argument ids, which chooses torrents.
type selection struct {
	all, recent bool
	named       map[any]bool // numbers and info hashes
}

// ids reads the argument ids. All torrents are chosen only if it is missing. An empty list chooses
// none, so that a client's mistake does not remove everything.
func (r *reader) ids() selection {
	raw, ok := r.args["ids"]
	if !ok {
		return selection{all: true}
	}
	s, ok := parseIDs(raw)
	if !ok {
		r.wrong("ids", "a number, an info hash, a list of both, or recently-active")
	}
	return s
}

func parseIDs(raw json.RawMessage) (s selection, ok bool) {
	if text, ok := parseAs[string](raw); ok && canonical(text) == "recently_active" {
		return selection{recent: true}, true
	}
	all, ok := parseAs[[]json.RawMessage](raw)
	if !ok {
		all = []json.RawMessage{raw}
	}
	if len(all) > maxIDs {
		return s, false
	}
	s.named = map[any]bool{}
	for _, x := range all {
		text, _ := parseAs[string](x)
		if n, ok := parseWhole(x); ok {
			s.named[n] = true
		} else if foreign.IsHash(text) {
			s.named[strings.ToLower(text)] = true
		} else {
			return s, false
		}
	}
	return s, true
}

func (s selection) has(id int, hash string) bool { return s.all || s.named[id] || s.named[hash] }
