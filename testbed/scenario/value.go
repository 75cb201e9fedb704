package scenario

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"braid/pathsel"
	"braid/testbed"
	"braid/units"
)

// misread is the error of a value that cannot be parsed, with its node.
type misread struct {
	node *yaml.Node
	error
}

func (m misread) Unwrap() error { return m.error }

// read parses the text of a node.
func read[T any](n *yaml.Node, to *T, parse func(string) (T, error)) error {
	if n.Kind != yaml.ScalarNode {
		return misread{n, errors.New("want one value")}
	}
	v, err := parse(n.Value)
	if err != nil {
		return misread{n, err}
	}
	*to = v
	return nil
}

// Duration is a time of at least 0, written like 30s.
type Duration time.Duration

// D is the duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

func (d Duration) String() string { return d.D().String() }

// Rate is in bits per second, written like 10mbit.
type Rate int64

// Bytes is an amount of data, written like 20MB.
type Bytes int64

// At is an interface such as 1-ff00:0:110#1. It names the link that ends there.
type At struct{ pathsel.Interface }

// When is a moment of a run: a time after the first payload byte, written like 5s, or the moment
// when the leechers have a part of all their data, written like 30%.
type When struct {
	After time.Duration
	Done  float64 // 0 to 1; 0: After counts
}

// Values are decoded from YAML nodes, so that an error can name the line and the field.

func (d *Duration) UnmarshalYAML(n *yaml.Node) error { return read(n, (*time.Duration)(d), parseTime) }
func (r *Rate) UnmarshalYAML(n *yaml.Node) error     { return read(n, (*int64)(r), testbed.ParseRate) }
func (b *Bytes) UnmarshalYAML(n *yaml.Node) error    { return read(n, (*int64)(b), parseSize) }
func (a *At) UnmarshalYAML(n *yaml.Node) error       { return read(n, &a.Interface, pathsel.ParseInterface) }
func (w *When) UnmarshalYAML(n *yaml.Node) error     { return read(n, w, parseWhen) }

var parseTime, parseSize = naming("time", units.ParseDuration), naming("size", units.ParseSize)

// naming returns a function that parses a value, and names the value in its error.
func naming[T any](what string, parse func(string) (T, error)) func(string) (T, error) {
	return func(s string) (T, error) {
		v, err := parse(s)
		if err != nil {
			err = fmt.Errorf("%s %q: %w", what, s, err)
		}
		return v, err
	}
}

func parseWhen(s string) (w When, err error) {
	if part, ok := strings.CutSuffix(s, "%"); ok {
		v, err := strconv.ParseFloat(part, 64)
		if err != nil || !(v > 0 && v < 100) {
			return w, fmt.Errorf("%q: want more than 0%% and less than 100%%", s)
		}
		return When{Done: v / 100}, nil
	}
	if w.After, err = units.ParseDuration(s); err != nil || w.After > maxTime {
		return w, fmt.Errorf("%q: want a time after the first payload byte such as 5s, or a part such as 30%%", s)
	}
	return w, nil
}

func (w When) immediately() bool { return w == When{} }

// comesBefore compares two times; parts of the data are not compared.
func (w *When) comesBefore(x When) bool {
	return w != nil && w.Done == 0 && x.Done == 0 && w.After < x.After
}

// later returns a time that is later; a part of the data stays.
func (w *When) later(by time.Duration) *When {
	if w == nil || w.Done > 0 {
		return w
	}
	return &When{After: w.After + by}
}

// properties of a link by name, as [testbed.LinkChange.Set] reads them. The link keeps the others.
type properties map[string]yaml.Node

func (p properties) read() (c testbed.LinkChange, err error) {
	for _, name := range slices.Sorted(maps.Keys(p)) {
		n := p[name]
		if err = c.Set(name, n.Value); n.Kind != yaml.ScalarNode {
			err = errors.New("want one value")
		}
		if err != nil {
			return c, onLine(n.Line, "%s: %w", name, err)
		}
	}
	return c, nil
}

func (l *Link) UnmarshalYAML(n *yaml.Node) (err error) {
	type plain Link
	if err = n.Decode((*plain)(l)); err == nil {
		l.line = n.Line
		l.change, err = l.Properties.read()
	}
	return err
}

func (e *Event) UnmarshalYAML(n *yaml.Node) (err error) {
	type plain Event
	if err = n.Decode((*plain)(e)); err == nil {
		e.change, err = e.Properties.read()
	}
	if e.change.Direction = e.Direction; e.Link != nil {
		e.change.Interface = e.Link.Interface
	}
	return err
}

// comparison is an expectation such as >= 0.95, or >= 0.8 of VARIANT: of the figure's median there.
type comparison struct {
	atLeast bool
	value   float64
	of      string // a variant; "": the value counts by itself
}

func parseComparison(s string) (c comparison, err error) {
	words := strings.Fields(s)
	if len(words) == 4 && words[2] == "of" {
		c.of, words = words[3], words[:2]
	}
	if len(words) == 2 && (words[0] == ">=" || words[0] == "<=") {
		c.atLeast = words[0] == ">="
		if c.value, err = strconv.ParseFloat(words[1], 64); err == nil && !math.IsNaN(c.value) {
			return c, nil
		}
	}
	return c, fmt.Errorf("%q: want an expectation such as \">= 0.95\", \"<= 1.5\" or \">= 0.8 of VARIANT\"", s)
}

func (c comparison) holds(v float64) bool {
	if c.atLeast {
		return v >= c.value
	}
	return v <= c.value
}

// lines has the line at which each part of a scenario begins, for errors. 0 means unknown.
type lines map[string]yaml.Node

// of returns the line of a key.
func (l lines) of(key string) int {
	n := l[key]
	return n.Line
}

// item returns the line of an element of a list.
func (l lines) item(key string, i int) int {
	n := l[key]
	if n.Kind == yaml.AliasNode {
		n = *n.Alias
	}
	if i >= len(n.Content) {
		return 0
	}
	return n.Content[i].Line
}

// goTypes matches what yaml.v3 says of Go's types, which mean nothing to a user.
var goTypes = regexp.MustCompile(`(?m) (in type|into) \S+$`)

// decode parses a YAML text of one document into v. A field that v does not have is an error.
func decode(text []byte, v any) error {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	err := d.Decode(v)
	if wrong := (misread{}); errors.As(err, &wrong) {
		var file yaml.Node
		if err := yaml.Unmarshal(text, &file); err != nil {
			return err
		}
		return onLine(wrong.node.Line, "%s: %w", fieldOf(&file, wrong.node), wrong.error)
	}
	if wrong := (*yaml.TypeError)(nil); errors.As(err, &wrong) {
		line, all := mistake(text, wrong.Errors[0])
		for _, said := range wrong.Errors[1:min(len(wrong.Errors), 5)] { // enough to begin with
			at, what := mistake(text, said)
			all += fmt.Sprintf("; line %d: %s", at, what)
		}
		return onLine(line, "%s", all)
	}
	if errors.Is(err, io.EOF) {
		return errors.New("nothing is in it")
	}
	if err != nil {
		return err
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("more than one document")
	}
	return nil
}

// mistake splits a message of yaml.v3 into the line and the mistake. An example is "line 3: cannot
// unmarshal !!str `a great...` into int". Users know fields, but not Go's types. So mistake looks
// for the value in the text, and names its field.
func mistake(text []byte, said string) (line int, what string) {
	begins, what, _ := strings.Cut(goTypes.ReplaceAllString(said, ""), ": ")
	line, _ = strconv.Atoi(strings.TrimPrefix(begins, "line "))
	var file yaml.Node
	if _, value, ok := strings.Cut(what, "`"); ok && yaml.Unmarshal(text, &file) == nil {
		value = strings.TrimSuffix(strings.TrimSuffix(value, "`"), "...")
		if n := valueAt(&file, line, value); n != nil {
			return line, fmt.Sprintf("%s: cannot use %q", fieldOf(&file, n), n.Value)
		}
	}
	return line, strings.Replace(what, "unmarshal", "use", 1)
}

// valueAt finds a field's value by its line and its beginning.
func valueAt(n *yaml.Node, line int, begin string) *yaml.Node {
	for i, x := range n.Content {
		isField := n.Kind == yaml.MappingNode && i%2 == 1
		if isField && x.Line == line && strings.HasPrefix(x.Value, begin) && len(x.Content) == 0 {
			return x
		}
		if v := valueAt(x, line, begin); v != nil {
			return v
		}
	}
	return nil
}

// fieldOf finds the name of the field within n whose value is at the position of v.
func fieldOf(n, v *yaml.Node) string {
	for i, x := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 && x.Line == v.Line && x.Column == v.Column {
			return n.Content[i-1].Value
		}
		if name := fieldOf(x, v); name != "" {
			return name
		}
	}
	return ""
}

// inLine is an error with the line of the file that it is about.
type inLine struct {
	line int
	error
}

func (e inLine) Unwrap() error { return e.error }

// onLine returns an error with the line of the file that it is about.
func onLine(line int, format string, args ...any) error {
	return inLine{line, fmt.Errorf(format, args...)}
}

// inFile puts the name of the file and the line before an error. The innermost line is the most
// exact.
func inFile(file string, err error) error {
	line := 0
	for in, rest := (inLine{}), err; errors.As(rest, &in); rest = in.error {
		line = cmp.Or(in.line, line)
	}
	if line > 0 {
		return fmt.Errorf("scenario %s, line %d: %w", file, line, err)
	}
	return fmt.Errorf("scenario %s: %w", file, err)
}
