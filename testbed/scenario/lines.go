package scenario

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"
)

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
		text := goTypes.ReplaceAllString(strings.Join(wrong.Errors, "\n"), "")
		return errors.New(strings.NewReplacer("\n", "; ", "unmarshal", "use").Replace(text))
	}
	if err != nil {
		return err
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("more than one document")
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
