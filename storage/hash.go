package storage

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// How the data of a torrent is hashed:
//
//  1. A counter hands out pieces in order, so that a disk reads forwards.  (parallel workers)
//  2. A worker reads its piece through a buffer of its own, part by part.  (each by itself)
//  3. It reports the sum, or why the piece could not be read.              (concurrent calls)

// hashPart is how much of a piece is in memory while it is hashed. A torrent may claim pieces that
// are much larger than its data.
const hashPart = 256 << 10

// hashBuffers has buffers for single pieces.
var hashBuffers = sync.Pool{New: func() any { return new([hashPart]byte) }}

// partsOf reads a piece part by part; what do gets is valid until it returns.
func partsOf(l Layout, data place, piece int, buf []byte, do func(b []byte, off int64) error) error {
	off, n := l.PieceRange(piece)
	for end := off + n; off < end; {
		b := buf[:min(int64(len(buf)), end-off)]
		if err := data.read(b, off); err != nil {
			return err
		}
		if err := do(b, off); err != nil {
			return err
		}
		off += int64(len(b))
	}
	return nil
}

type hashSum = [sha1.Size]byte

func sumOf(l Layout, data place, piece int, buf []byte) (sum hashSum, err error) {
	h := sha1.New()
	err = partsOf(l, data, piece, buf, func(b []byte, _ int64) error {
		h.Write(b)
		return nil
	})
	h.Sum(sum[:0])
	return sum, err
}

// work says which pieces to hash. progress may be nil; it is called with the number of bytes so
// far.
type work struct {
	layout   Layout
	chosen   []bool // pieces; nil: all
	data     place
	progress func(bytes int64)
}

// hash hashes the pieces. report is called once for each, from several goroutines, with the sum or
// why the piece could not be read. An error of it, or of the context, ends the work, and so do too
// many open files.
func (w work) hash(
	ctx context.Context, report func(piece int, sum hashSum, err error) error,
) error {
	l := w.layout
	var next atomic.Int64
	var mu sync.Mutex
	var done int64
	advance := func(piece int) {
		mu.Lock()
		defer mu.Unlock()
		_, n := l.PieceRange(piece)
		if done += n; w.progress != nil {
			w.progress(done)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	for range min(runtime.GOMAXPROCS(0), l.Pieces()) {
		g.Go(func() error {
			buf := make([]byte, hashPart)
			for {
				piece := int(next.Add(1) - 1)
				if piece >= l.Pieces() {
					return nil
				}
				if w.chosen != nil && !w.chosen[piece] {
					continue
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				sum, err := sumOf(l, w.data, piece, buf)
				if tooManyOpen(err) {
					return err
				}
				if err := report(piece, sum, err); err != nil {
					return err
				}
				advance(piece)
			}
		})
	}
	return g.Wait()
}

var errWrong = errors.New("the piece is wrong")

// check is hash for data that should be right: report gets an error if a piece is missing or wrong.
func (w work) check(ctx context.Context, report func(piece int, err error) error) error {
	return w.hash(ctx, func(piece int, sum hashSum, err error) error {
		if err == nil && sum != w.layout.pieceHash(piece) {
			err = errWrong
		}
		return report(piece, err)
	})
}

// FileState says how a file compares with its torrent.
type FileState string

const (
	FileOK      FileState = "ok"
	FileMissing FileState = "missing"
	FilePartial FileState = "partial" // only the .part file of an unfinished download is there
	FileSize    FileState = "size"    // there, but not as long as it should be
	FileDamaged FileState = "damaged" // a piece that it holds a part of is wrong
	// FileUnknown: no piece is known to be wrong, but one that is shared with an incomplete file
	// could not be checked.
	FileUnknown FileState = "unchecked"
	FileSkipped FileState = "skipped" // not wanted, and not looked at
)

// FileReport is the result of checking one file.
type FileReport struct {
	File
	State FileState `json:"state"`
	// BadPieces counts wrong and missing pieces.
	BadPieces int `json:"bad_pieces"`
	// GoodPieces counts right pieces.
	GoodPieces int `json:"good_pieces"`
	// Lacks is an incomplete file that shares pieces with this one, which could therefore not be
	// checked.
	Lacks string `json:"lacks,omitempty"`
	// Error says why an existing file could not be read.
	Error string `json:"error,omitempty"`
}

// Report is the result of checking a torrent's data.
type Report struct {
	Files []FileReport
	// Good[i] tells whether piece i is right.
	Good []bool
	// Pieces is the number of pieces that were checked: those of wanted files.
	Pieces int
}

// Complete tells whether every wanted file is right.
func (r Report) Complete() bool {
	return !slices.ContainsFunc(r.Files, func(f FileReport) bool {
		return f.State != FileOK && f.State != FileSkipped
	})
}

// GoodPieces counts the pieces that are right.
func (r Report) GoodPieces() int { return count(r.Good) }

func count(of []bool) (n int) {
	for _, is := range of {
		if is {
			n++
		}
	}
	return n
}

// checkFiles sets which pieces of the wanted files are right. It returns which files are complete.
// Incomplete ones are read for pieces that they share with others.
func (s Stored) checkFiles(
	ctx context.Context, r Report, wanted []bool, progress func(bytes int64),
) (present []bool, err error) {
	l := s.Layout
	present = make([]bool, len(l.Files))
	data, err := readFiles(s.Dir, l, false)
	if errors.Is(err, fs.ErrNotExist) {
		for i := range r.Files {
			if wanted[i] {
				r.Files[i].State = FileMissing
			}
		}
		return present, nil
	}
	if err != nil {
		return nil, err
	}
	for i, f := range l.Files {
		found := statFile(data.root, f)
		present[i], data.final[i] = found.State == FileOK, found.State != FilePartial
		if wanted[i] {
			r.Files[i] = found
		}
	}
	err = work{l, l.PiecesOf(wanted), data, progress}.check(ctx, func(piece int, err error) error {
		r.Good[piece] = err == nil
		return nil
	})
	return present, errors.Join(err, data.close())
}

// newReport returns a report in which all wanted files are right. judge corrects it.
func newReport(l Layout, wanted []bool) Report {
	r := Report{
		Good: make([]bool, l.Pieces()), Files: make([]FileReport, len(l.Files)),
		Pieces: count(l.PiecesOf(wanted)),
	}
	for i, f := range l.Files {
		r.Files[i] = FileReport{File: f, State: FileOK}
		if !wanted[i] {
			r.Files[i].State = FileSkipped
		}
	}
	return r
}

// BytesOf is the length of the pieces that hold bytes of wanted files.
func (l Layout) BytesOf(wanted []bool) (bytes int64) {
	for p, chosen := range l.PiecesOf(wanted) {
		if _, n := l.PieceRange(p); chosen {
			bytes += n
		}
	}
	return bytes
}

// PiecesOf returns the pieces that hold bytes of wanted files; if all files are wanted, or wanted
// is nil, all pieces, padding too.
func (l Layout) PiecesOf(wanted []bool) []bool {
	out := make([]bool, l.Pieces())
	all := !slices.Contains(wanted, false)
	for p := range out {
		out[p] = all
	}
	for i, wants := range wanted {
		begin, end := l.FilePieces(l.Files[i])
		for p := begin; p < end && wants; p++ {
			out[p] = true
		}
	}
	return out
}

func statFile(dir *os.Root, f File) FileReport {
	r := FileReport{File: f, State: FileOK}
	name := filepath.FromSlash(f.Path)
	st, err := dir.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.State = FileMissing
		if _, err := dir.Stat(filepath.FromSlash(partName(f.Path))); err == nil {
			r.State = FilePartial
		}
	case err != nil:
		r.State, r.Error = FileDamaged, err.Error()
	case !st.Mode().IsRegular():
		r.State, r.Error = FileDamaged, "not a regular file"
	case st.Size() != f.Length:
		r.State = FileSize
	default:
		file, err := dir.Open(name)
		if err != nil {
			r.State, r.Error = FileDamaged, err.Error()
			break
		}
		file.Close()
	}
	return r
}

// judge sets the states of the files that are not skipped. A wrong piece means that a file is
// damaged only if all files in the piece are complete: with an incomplete neighbour the piece
// cannot be right.
func judge(l Layout, r Report, present []bool) {
	lacks := map[int]int{} // of each wrong piece: the first incomplete file in it, counted from 1
	for i, f := range l.Files {
		begin, end := l.FilePieces(f)
		for p := begin; p < end && !present[i]; p++ {
			if lacks[p] == 0 && !r.Good[p] {
				lacks[p] = i + 1
			}
		}
	}
	for i := range r.Files {
		f := &r.Files[i]
		begin, end := l.FilePieces(f.File)
		if f.State == FileSkipped {
			continue
		}
		for p := begin; p < end; p++ {
			if r.Good[p] {
				f.GoodPieces++
				continue
			}
			f.BadPieces++
			switch {
			case present[i] && lacks[p] == 0:
				f.State = FileDamaged
			case f.State == FileOK:
				f.State, f.Lacks = FileUnknown, l.Files[lacks[p]-1].Path
			}
		}
		if f.State != FileUnknown {
			f.Lacks = ""
		}
	}
}

// Hash computes the piece hashes of the files below dir, to make a torrent of them. l needs no
// hashes. It is an error if a file cannot be read, or is shorter than in l.
func Hash(ctx context.Context, l Layout, dir string, progress func(bytes int64)) ([]byte, error) {
	sums := make([]byte, l.Pieces()*sha1.Size)
	data, err := readFiles(dir, l, false)
	if err == nil {
		err = work{l, nil, data, progress}.hash(ctx, func(piece int, sum hashSum, err error) error {
			copy(sums[piece*sha1.Size:], sum[:])
			return err
		})
		err = errors.Join(err, data.close())
	}
	if err != nil {
		return nil, fmt.Errorf("hash %s: %w", l.Name, err)
	}
	return sums, nil
}
