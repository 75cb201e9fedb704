package storage

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// The system fills the rest of a file's last page with zeros, which are no data of the file.
func TestMappedFileIsCutWithinItsLastPage(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	const size, left = 5000, 4500
	if err := os.WriteFile(name, make([]byte, size), 0o644); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	v, err := newView(file, size)
	if err != nil {
		t.Fatal(err)
	}
	defer v.close()
	b := make([]byte, size)
	if err := v.read(b, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, left); err != nil {
		t.Fatal(err)
	}
	if err := v.read(b, 0); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("read behind the end: %v", err)
	}
}
