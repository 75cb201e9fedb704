package testbed

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// CopyTree copies regular files below src to dst, in lexical order, until limit bytes are reached
// (0: all of them); the file that would exceed the limit is cut there. It returns the number of
// files and bytes.
//
// Torrents are seeded from a copy, since braid writes files of its own beside the data.
func CopyTree(src, dst string, limit int64) (files int, size int64, err error) {
	err = filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if limit > 0 && size >= limit {
			return fs.SkipAll
		}
		rel, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		n, err := copyFile(path, filepath.Join(dst, rel), limit-size)
		files, size = files+1, size+n
		return err
	})
	if err != nil {
		return files, size, fmt.Errorf("copy the data set from %s: %w", src, err)
	}
	if size == 0 {
		return 0, 0, fmt.Errorf("copy the data set from %s: there is no data in it", src)
	}
	return files, size, nil
}

// copyFile copies at most limit bytes, all if limit is not positive.
func copyFile(from, to string, limit int64) (n int64, err error) {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return 0, err
	}
	in, err := os.Open(from)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return 0, err
	}
	var r io.Reader = in
	if limit > 0 {
		r = io.LimitReader(in, limit)
	}
	n, err = io.Copy(out, r)
	return n, errors.Join(err, out.Close())
}

// RandomFile makes a file of so many bytes, which depend on the seed only.
func RandomFile(name string, seed [32]byte, size int64) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, rand.NewChaCha8(seed), size)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %d random bytes: %w", size, err)
	}
	return nil
}

// SameTree compares every file below want with the one of the same name below got, byte by byte.
// Whatever got has beside them is not looked at.
func SameTree(want, got string) error {
	return filepath.WalkDir(want, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(want, path)
		if err != nil {
			return err
		}
		return SameFile(path, filepath.Join(got, rel))
	})
}

// SameFile compares two files byte by byte; the error says where they differ.
func SameFile(want, got string) error {
	a, err := os.Open(want)
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := os.Open(got)
	if err != nil {
		return err
	}
	defer b.Close()
	const chunk = 1 << 18
	bufA, bufB := make([]byte, chunk), make([]byte, chunk)
	for off := int64(0); ; off += chunk {
		n, errA := io.ReadFull(a, bufA)
		m, errB := io.ReadFull(b, bufB)
		switch {
		case n != m || !bytes.Equal(bufA[:n], bufB[:m]):
			return fmt.Errorf("%s differs from %s in the %d bytes from offset %d", got, want, chunk, off)
		case atEnd(errA) && atEnd(errB):
			return nil
		case errA != nil || errB != nil:
			return fmt.Errorf("compare %s with %s: %w", got, want, errors.Join(errA, errB))
		}
	}
}

func atEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
