package storage

import (
	"bytes"
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// How the data of a torrent is hashed:
//
//  1. A counter hands out pieces in order, so that a disk reads forwards.  (parallel workers)
//  2. A worker reads the files of its piece through a buffer of its own, part by part, and
//     keeps the last file open for the next piece.                          (each by itself)
//  3. It reports the sum, or why the piece could not be read.               (concurrent calls)

// hashPart is how much of a piece is in memory while it is hashed. A piece as a whole may be much larger than the data of
// the torrent.
const hashPart = 256 << 10

// source gives the bytes of a torrent's data. Each worker has its own.
type source interface {
	// read fills b from an offset in the torrent's data on; all of it is in one piece.
	read(b []byte, off int64) error
	close()
}

// partsOf reads a piece part by part; what do gets is valid until it returns.
func partsOf(l Layout, src source, piece int, buf []byte, do func(b []byte, off int64) error) error {
	off, n := l.PieceRange(piece)
	for end := off + n; off < end; {
		b := buf[:min(int64(len(buf)), end-off)]
		if err := src.read(b, off); err != nil {
			return err
		}
		if err := do(b, off); err != nil {
			return err
		}
		off += int64(len(b))
	}
	return nil
}

// sumOf is the hash of a piece.
func sumOf(l Layout, src source, piece int, buf []byte) (sum [sha1.Size]byte, err error) {
	h := sha1.New()
	err = partsOf(l, src, piece, buf, func(b []byte, _ int64) error {
		h.Write(b)
		return nil
	})
	h.Sum(sum[:0])
	return sum, err
}

// hashPieces hashes every piece. report is called once for each, from several goroutines; an error of it, or of the
// context, ends the work.
func hashPieces(ctx context.Context, l Layout, open func() source, report func(src source, piece int, sum [sha1.Size]byte, err error) error) error {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range min(runtime.GOMAXPROCS(0), l.Pieces()) {
		g.Go(func() error {
			r := open()
			defer r.close()
			buf := make([]byte, hashPart)
			for {
				piece := int(next.Add(1) - 1)
				if piece >= l.Pieces() {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				sum, err := sumOf(l, r, piece, buf)
				if err := report(r, piece, sum, err); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// inFiles are the sources for files below a directory.
func inFiles(l Layout, dir string) func() source {
	return func() source {
		return &filesReader{layout: l, dir: dir}
	}
}

// filesReader reads a torrent's data out of its files.
type filesReader struct {
	layout Layout
	dir    string
	names  []string // nil: the files are complete; else the present name of each, empty if it is not there
	file   *os.File // of layout.Files[index]
	index  int
}

func (r *filesReader) close() {
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}

func (r *filesReader) read(b []byte, off int64) error {
	clear(b) // padding is zeros
	return r.layout.span(off, len(b), func(i int, at int64, from, to int) error {
		return r.readFile(i, b[from:to], at)
	})
}

func (r *filesReader) readFile(i int, b []byte, at int64) error {
	if r.file == nil || r.index != i {
		r.close()
		name := filepath.Join(r.dir, filepath.FromSlash(r.layout.Files[i].Path))
		if r.names != nil {
			if r.names[i] == "" {
				return fs.ErrNotExist
			}
			name = filepath.Join(r.dir, r.names[i])
		}
		st, err := os.Stat(name)
		if err == nil && !st.Mode().IsRegular() {
			err = fmt.Errorf("%s is not a regular file", name) // to open a pipe would wait for its writer
		}
		if err != nil {
			return err
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		r.file, r.index = f, i
	}
	if _, err := r.file.ReadAt(b, at); errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %w", r.file.Name(), io.ErrUnexpectedEOF)
	} else if err != nil {
		return err
	}
	return nil
}

// FileState says how a file compares with its torrent.
type FileState string

const (
	FileOK      FileState = "ok"
	FileMissing FileState = "missing"
	FilePartial FileState = "partial"   // only the .part file of an unfinished download is there
	FileSize    FileState = "size"      // there, but not as long as it should be
	FileDamaged FileState = "damaged"   // a piece that it holds a part of is wrong
	FileUnknown FileState = "unchecked" // right as far as it goes; a piece shared with a bad file could not be checked
)

// FileReport is the result of checking one file.
type FileReport struct {
	File
	State     FileState `json:"state"`
	BadPieces int       `json:"bad_pieces"`
	// Error says why the file could not be read, if it is there and could not.
	Error string `json:"error,omitempty"`
}

// Report is the result of checking a torrent's data.
type Report struct {
	Files []FileReport
	// Good[i] tells whether piece i is right.
	Good []bool
}

// Complete tells whether every piece and every file is right.
func (r Report) Complete() bool {
	for _, f := range r.Files {
		if f.State != FileOK {
			return false
		}
	}
	return true
}

// GoodPieces counts the pieces that are right.
func (r Report) GoodPieces() int {
	n := 0
	for _, g := range r.Good {
		if g {
			n++
		}
	}
	return n
}

// Check hashes the data of a torrent below dir and compares. It writes nothing. progress, if not nil, is called with
// the number of bytes checked so far, from several goroutines.
func Check(ctx context.Context, l Layout, dir string, progress func(bytes int64)) (Report, error) {
	r := Report{Good: make([]bool, l.Pieces()), Files: make([]FileReport, len(l.Files))}
	var done atomic.Int64
	err := hashPieces(ctx, l, inFiles(l, dir), func(_ source, piece int, sum [sha1.Size]byte, err error) error {
		r.Good[piece] = err == nil && bytes.Equal(sum[:], l.pieceHash(piece))
		_, n := l.PieceRange(piece)
		if n := done.Add(n); progress != nil {
			progress(n)
		}
		return nil
	})
	if err != nil {
		return Report{}, fmt.Errorf("check %s in %s: %w", l.Name, dir, err)
	}
	present := make([]bool, len(l.Files))
	for i, f := range l.Files {
		r.Files[i] = statFile(dir, f)
		present[i] = r.Files[i].State == FileOK
	}
	judge(l, r, present)
	return r, nil
}

func statFile(dir string, f File) FileReport {
	r := FileReport{File: f, State: FileOK}
	name := filepath.Join(dir, filepath.FromSlash(f.Path))
	st, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.State = FileMissing
		if _, err := os.Stat(name + partSuffix); err == nil {
			r.State = FilePartial
		}
	case err != nil:
		r.State, r.Error = FileDamaged, err.Error()
	case !st.Mode().IsRegular():
		r.State, r.Error = FileDamaged, "not a regular file"
	case st.Size() != f.Length:
		r.State = FileSize
	}
	return r
}

// judge turns wrong pieces into verdicts on files. A wrong piece speaks against a file only if all files in it are
// there: with a neighbour missing it could not have been right.
func judge(l Layout, r Report, present []bool) {
	absent := make([]bool, l.Pieces()) // pieces that hold bytes of a file that is not there
	for i, f := range l.Files {
		begin, end := l.FilePieces(f)
		for p := begin; p < end && !present[i]; p++ {
			absent[p] = true
		}
	}
	for i, f := range l.Files {
		begin, end := l.FilePieces(f)
		for p := begin; p < end; p++ {
			if r.Good[p] {
				continue
			}
			r.Files[i].BadPieces++
			if present[i] && !absent[p] {
				r.Files[i].State = FileDamaged
			} else if r.Files[i].State == FileOK {
				r.Files[i].State = FileUnknown
			}
		}
	}
}

// Hash computes the piece hashes of the files below dir, for a torrent that is being made. l needs no hashes of its
// own. A file that cannot be read, or is shorter than the layout says, is an error.
func Hash(ctx context.Context, l Layout, dir string, progress func(bytes int64)) ([]byte, error) {
	sums := make([]byte, l.Pieces()*sha1.Size)
	var mu sync.Mutex
	var done int64
	err := hashPieces(ctx, l, inFiles(l, dir), func(_ source, piece int, sum [sha1.Size]byte, err error) error {
		if err != nil {
			return err
		}
		copy(sums[piece*sha1.Size:], sum[:])
		_, n := l.PieceRange(piece)
		mu.Lock()
		defer mu.Unlock()
		if done += n; progress != nil {
			progress(done)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("hash %s: %w", l.Name, err)
	}
	return sums, nil
}
