package testbed

import (
	"bytes"
	"strings"
)

// tailBytes is how much of a process's last words is kept for an error message.
const tailBytes = 4096

// tail is a writer that remembers the end of what was written to it.
type tail struct{ buf []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if len(t.buf) > 2*tailBytes {
		t.buf = bytes.Clone(t.buf[len(t.buf)-tailBytes:])
	}
	return len(p), nil
}

func (t *tail) String() string {
	s := strings.TrimSpace(string(t.buf[max(0, len(t.buf)-tailBytes):]))
	if s == "" {
		return "it said nothing"
	}
	return s
}
