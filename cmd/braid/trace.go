package main

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// createTrace opens a trace for writing, compressed if the name ends in .gz.
func createTrace(name string) (io.WriteCloser, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("open the trace: %w", err)
	}
	t := &traceWriter{file: f, buf: bufio.NewWriter(f)}
	t.Writer = t.buf
	if strings.HasSuffix(name, ".gz") {
		t.gzip = gzip.NewWriter(t.buf)
		t.Writer = t.gzip
	}
	return t, nil
}

type traceWriter struct {
	io.Writer
	gzip *gzip.Writer // nil: not compressed
	buf  *bufio.Writer
	file *os.File
}

func (t *traceWriter) Close() error {
	var err error
	if t.gzip != nil {
		err = t.gzip.Close()
	}
	return errors.Join(err, t.buf.Flush(), t.file.Close())
}

// openTrace opens a trace for reading.
func openTrace(name string) (io.ReadCloser, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open the trace: %w", err)
	}
	if !strings.HasSuffix(name, ".gz") {
		return f, nil
	}
	z, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open the trace %s: %w", name, err)
	}
	return struct {
		io.Reader
		io.Closer
	}{z, f}, nil
}
