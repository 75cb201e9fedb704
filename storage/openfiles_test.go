//go:build unix

package storage

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/anacrolix/torrent/metainfo"
)

// limitOpenFiles sets how many files the process may have open, and returns the limit before.
func limitOpenFiles(t *testing.T, most uint64) (before uint64) {
	t.Helper()
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	before, limit.Cur = limit.Cur, most
	if err == nil {
		err = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	}
	if err != nil {
		t.Error(err)
	}
	return before
}

// While too many files are open, pieces cannot be read. They still count as right.
func TestTooManyOpenFiles(t *testing.T) {
	info, _, data := shape(t, 16<<10, 32<<10)
	dir := fastDir(t)
	fillStore(t, KindFile, dir, info, data)
	s, tor := openStore(t, KindFile, dir, info)
	p, b := tor.Piece(info.Piece(0)), make([]byte, 16<<10)
	before := limitOpenFiles(t, 0)
	_, err := p.ReadAt(b, 0)
	limitOpenFiles(t, before)
	if !errors.Is(err, syscall.EMFILE) {
		t.Errorf("error %v", err)
	}
	if _, err := p.ReadAt(b, 0); err != nil || !p.Completion().Complete {
		t.Errorf("error %v, complete %v", err, p.Completion().Complete)
	}
	closeStore(t, s, tor)
}

// If too many files are open, a check ends with that error. It does not say of any file that its
// data is wrong, or that it belongs to somebody else.
func TestCheckTooManyOpenFiles(t *testing.T) {
	sizes := make([]int64, 200)
	for i := range sizes {
		sizes[i] = 16 << 10
	}
	info, l, data := shape(t, 16<<10, sizes...)
	dir := fastDir(t)
	fillStore(t, KindFile, dir, info, data)
	stored := Stored{KindFile, dir, metainfo.Hash{9}, l}
	if err := os.Remove(filepath.Join(dir, recordName(stored.Hash, KindFile))); err != nil {
		t.Fatal(err)
	}
	st, err := Open(KindFile, dir, slog.New(slog.DiscardHandler), Options{Existing: ReplaceExisting})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	limit := limitOpenFiles(t, 1000)
	for what, do := range map[string]func(progress func(int64)) error{
		"check": func(p func(int64)) error { _, err := stored.Check(t.Context(), p); return err },
		"claim": func(p func(int64)) error { return Claim(t.Context(), st, l, stored.Hash, p) },
	} {
		var calls atomic.Int32
		err := do(func(int64) { // no file can be opened between the first piece and the middle
			switch calls.Add(1) {
			case 1:
				limitOpenFiles(t, 0)
			case int32(l.Pieces()) / 2:
				limitOpenFiles(t, limit)
			}
		})
		if limitOpenFiles(t, limit); !errors.Is(err, syscall.EMFILE) {
			t.Errorf("%s: %v", what, err)
		}
	}
	free, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	one := uint64(free.Fd()) + 1
	free.Close()
	limitOpenFiles(t, one) // the directory can be opened, but none in it
	names, err := stored.Holds(true)
	if limitOpenFiles(t, limit); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("%d files belong to the torrent, %v", len(names), err)
	}
	if r, err := stored.Check(t.Context(), nil); err != nil || !r.Complete() {
		t.Errorf("%d of %d pieces are right, %v", r.GoodPieces(), r.Pieces, err)
	}
}
