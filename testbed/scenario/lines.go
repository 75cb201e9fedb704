package scenario

import (
	"errors"
	"fmt"

	"gopkg.in/yaml.v3"
)

// lines says in which line of its file each part of a scenario begins, so that an error can name it. A line of 0 is not
// known.
type lines map[string]yaml.Node

// readLines reads the lines of a file that has been decoded before.
func readLines(text []byte) (l lines, err error) {
	return l, yaml.Unmarshal(text, &l)
}

// of is the line of a key of the file.
func (l lines) of(key string) int {
	n := l[key]
	return n.Line
}

// item is the line of the element of a list.
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

// inLine is an error with the line of the file that it is about.
type inLine struct {
	line int
	error
}

func (e inLine) Unwrap() error { return e.error }

// at says in which line the mistake is.
func at(line int, format string, args ...any) error {
	return inLine{line, fmt.Errorf(format, args...)}
}

// inFile puts the name of the file, and the line if it is known, before an error.
func inFile(file string, err error) error {
	var in inLine
	if errors.As(err, &in) && in.line > 0 {
		return fmt.Errorf("scenario %s, line %d: %w", file, in.line, err)
	}
	return fmt.Errorf("scenario %s: %w", file, err)
}
