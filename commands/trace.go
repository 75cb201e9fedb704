package commands

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"braid/commands/terminal"
)

// createTrace opens a trace for writing, compressed if the name ends in .gz. If it cannot be
// written, the download goes on: the log says so once, and the rest of the trace is dropped.
func createTrace(name string, log *slog.Logger) (io.WriteCloser, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("open the trace: %w", err)
	}
	t := &traceWriter{file: f, buf: bufio.NewWriter(f), log: log}
	t.to = t.buf
	if strings.HasSuffix(name, ".gz") {
		t.gzip = gzip.NewWriter(t.buf)
		t.to = t.gzip
	}
	return t, nil
}

type traceWriter struct {
	to   io.Writer
	gzip *gzip.Writer // nil: not compressed
	buf  *bufio.Writer
	file *os.File
	log  *slog.Logger
	lost bool
}

// Write never fails: see createTrace.
func (t *traceWriter) Write(b []byte) (int, error) {
	if !t.lost {
		_, err := t.to.Write(b)
		t.check(err)
	}
	return len(b), nil
}

// Close never fails either.
func (t *traceWriter) Close() error {
	var err error
	if t.gzip != nil {
		err = t.gzip.Close()
	}
	t.check(errors.Join(err, t.buf.Flush(), t.file.Close()))
	return nil
}

func (t *traceWriter) check(err error) {
	if err != nil && !t.lost {
		t.lost = true
		t.log.Warn("the trace is incomplete", "file", t.file.Name(), "error",
			terminal.OneLine(err.Error()))
	}
}
