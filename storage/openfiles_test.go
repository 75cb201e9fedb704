//go:build unix

package storage

import (
	"errors"
	"syscall"
	"testing"
)

// While too many files are open, pieces cannot be read. They still count as right.
func TestTooManyOpenFiles(t *testing.T) {
	info, _, data := shape(t, 16<<10, 32<<10)
	dir := fastDir(t)
	fillStore(t, KindFile, dir, info, data)
	s, tor := openStore(t, KindFile, dir, info)
	p, b := tor.Piece(info.Piece(0)), make([]byte, 16<<10)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	_, err := p.ReadAt(b, 0)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, syscall.EMFILE) {
		t.Errorf("error %v", err)
	}
	if _, err := p.ReadAt(b, 0); err != nil || !p.Completion().Complete {
		t.Errorf("error %v, complete %v", err, p.Completion().Complete)
	}
	closeStore(t, s, tor)
}
