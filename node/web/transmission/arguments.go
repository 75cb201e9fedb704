package transmission

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
)

// reader reads the arguments of a method. The first argument of a wrong type sets err; nil means
// that the client has not named an argument.
type reader struct {
	args arguments
	err  error
}

func (r *reader) wrong(name, want string) {
	if r.err == nil {
		r.err = fail(invalidParams, "%q must be %s", name, want)
	}
}

func get[T any](r *reader, name, want string, parse func(json.RawMessage) (T, bool)) *T {
	raw, ok := r.args[name]
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

// wholes reads a list of numbers. The error names what they should be.
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

// parseFlag takes 0 and 1 too, which older clients send.
func parseFlag(b json.RawMessage) (bool, bool) {
	switch string(b) {
	case "1":
		return true, true
	case "0":
		return false, true
	}
	return parseAs[bool](b)
}

// parseWhole takes 1.0 too, since JSON has one kind of number.
func parseWhole(b json.RawMessage) (int, bool) {
	f, ok := parseAs[float64](b)
	return int(f), ok && f == math.Trunc(f) && math.Abs(f) < 1<<53
}

// maxIDs bounds how many torrents a request may name.
const maxIDs = 100_000

// selection is the argument ids of a request.
type selection struct {
	all, recent bool
	numbers     map[int]bool
	hashes      map[string]bool
}

// ids reads which torrents are meant. All are meant only if the argument is missing: an empty list
// names none, so that a client's mistake does not remove everything.
func (r *reader) ids() selection {
	raw, ok := r.args["ids"]
	if !ok {
		return selection{all: true}
	}
	s, err := parseIDs(raw)
	if err != nil {
		r.wrong("ids", "a number, an info hash, a list of both, or recently-active")
	}
	return s
}

func parseIDs(raw json.RawMessage) (selection, error) {
	s := selection{numbers: map[int]bool{}, hashes: map[string]bool{}}
	if n, ok := parseWhole(raw); ok {
		s.numbers[n] = true
		return s, nil
	}
	if text, ok := parseAs[string](raw); ok {
		if canonical(text) == "recently_active" {
			return selection{recent: true}, nil
		}
		return s, s.addHash(text)
	}
	all, ok := parseAs[[]json.RawMessage](raw)
	if !ok || len(all) > maxIDs {
		return s, errors.New("neither a number nor a string nor a list, or too long")
	}
	for _, x := range all {
		if n, ok := parseWhole(x); ok {
			s.numbers[n] = true
		} else if text, ok := parseAs[string](x); !ok {
			return s, errors.New("neither a number nor a string")
		} else if err := s.addHash(text); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s selection) addHash(text string) error {
	text = strings.ToLower(text)
	if len(text) != 40 || strings.Trim(text, "0123456789abcdef") != "" {
		return fmt.Errorf("%q is not an info hash", text)
	}
	s.hashes[text] = true
	return nil
}

func (s selection) has(id int, hash string) bool {
	return s.all || s.numbers[id] || s.hashes[hash]
}
