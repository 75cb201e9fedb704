package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/anacrolix/torrent/metainfo"
)

// Stored is a place that may hold the data of a torrent.
type Stored struct {
	Kind   Kind
	Dir    string
	Hash   metainfo.Hash
	Layout Layout
}

// Trusted tells whether the record vouches for all of the data, without hashing and without
// changing anything.
func (s Stored) Trusted() bool {
	saved, ok := s.record()
	if !ok {
		return false
	}
	if right := s.confirmed(saved); right == nil || slices.Contains(right, false) {
		return false
	}
	if s.Kind == KindBolt {
		return true
	}
	root, err := openDir(s.Dir)
	if err != nil || root == nil {
		return false
	}
	defer root.Close()
	return !slices.ContainsFunc(s.Layout.Files, func(f File) bool {
		return statFile(root, f).State != FileOK
	})
}

// IsGone tells whether neither the record nor a file of the torrent is there, as if the disk were
// not mounted.
func (s Stored) IsGone() bool {
	_, err := os.Lstat(filepath.Join(s.Dir, recordName(s.Hash, s.Kind)))
	if !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	now, err := stamps(s.Dir, countedFiles(s.Kind, s.Hash, s.Layout))
	return err == nil && !slices.ContainsFunc(now, func(x stamp) bool { return x != noFile })
}

// Recorded returns which pieces the record vouches for, also while a download is using the
// directory; nil if there is no record. Nothing is hashed.
func (s Stored) Recorded() []bool {
	saved, ok := s.readRecord()
	if !ok {
		return nil
	}
	return s.confirmed(saved)
}

// confirmed returns which pieces the record vouches for as the files are now; nil if they cannot be
// looked at.
func (s Stored) confirmed(saved state) []bool {
	counted := countedFiles(s.Kind, s.Hash, s.Layout)
	now, err := stamps(s.Dir, counted)
	if err != nil {
		return nil
	}
	_, right, _ := saved.compare(counted, now)
	return right
}

// record reads the record, unless there is none, it is damaged, or a download is using the
// directory.
func (s Stored) record() (saved state, ok bool) {
	lock, err := lockDir(s.Dir, false, 0)
	if err != nil {
		return saved, false
	}
	defer lock.Close()
	return s.readRecord()
}

// readRecord reads the record, unless there is none or it is damaged.
func (s Stored) readRecord() (saved state, ok bool) {
	b, err := os.ReadFile(filepath.Join(s.Dir, recordName(s.Hash, s.Kind)))
	if err != nil {
		return saved, false
	}
	saved, err = decodeState(b, countedFiles(s.Kind, s.Hash, s.Layout))
	return saved, err == nil
}

// Wanted returns the files that the last download wanted; nil if it wanted all of them, or if there
// is no record of it.
func (s Stored) Wanted() []bool {
	saved, ok := s.record()
	if !ok || !saved.Wanted.fits(len(s.Layout.Files)) {
		return nil
	}
	wanted := saved.Wanted.bools(len(s.Layout.Files))
	if !slices.Contains(wanted, true) || !slices.Contains(wanted, false) {
		return nil
	}
	return wanted
}

// ErrIncomplete is in errors about data with missing or wrong pieces.
var ErrIncomplete = errors.New("pieces are missing or wrong")

// Check hashes the data and compares. It writes nothing. progress, if not nil, is called with the
// number of bytes checked so far, from several goroutines. For a database the report describes the
// files as Export would write them.
func (s Stored) Check(ctx context.Context, progress func(bytes int64)) (Report, error) {
	return s.CheckWanted(ctx, nil, progress)
}

// CheckWanted is Check for some of the files; nil is all.
func (s Stored) CheckWanted(ctx context.Context, wanted []bool, progress func(bytes int64)) (Report, error) {
	l := s.Layout
	if wanted == nil {
		wanted = slices.Repeat([]bool{true}, len(l.Files))
	}
	r := newReport(l, wanted)
	check := s.checkFiles
	if s.Kind == KindBolt {
		check = s.checkDatabase
	}
	present, err := check(ctx, r, wanted, progress)
	if err != nil {
		return Report{}, fmt.Errorf("check %s in %s: %w", l.Name, s.Dir, err)
	}
	judge(l, r, present)
	return r, nil
}

// checkDatabase is checkFiles for a database.
func (s Stored) checkDatabase(
	ctx context.Context, r Report, wanted []bool, progress func(bytes int64),
) (present []bool, err error) {
	l := s.Layout
	saved, _ := s.record()
	unfinished := make([]bool, l.Pieces())
	db, err := openBoltReader(s.Dir, l, s.Hash)
	if err == nil {
		pieces := work{l, l.PiecesOf(wanted), db, progress}
		err = pieces.check(ctx, func(piece int, err error) error {
			r.Good[piece] = err == nil
			unfinished[piece] = errors.Is(err, io.ErrUnexpectedEOF) ||
				err != nil && saved.Blocks[piece] != nil
			return nil
		})
		err = errors.Join(err, db.close())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	present = make([]bool, len(l.Files))
	for i, f := range l.Files {
		begin, end := l.FilePieces(f)
		some := slices.Contains(r.Good[begin:end], true)
		present[i] = begin == end || some && !slices.Contains(unfinished[begin:end], true)
		switch {
		case !wanted[i] || present[i]:
		case some:
			r.Files[i].State = FilePartial
		default:
			r.Files[i].State = FileMissing
		}
	}
	return present, nil
}

// Export writes the files of a torrent from a database into a directory, and checks every piece. If
// pieces are missing or wrong, the error is ErrIncomplete, and the names of files that need them
// end in .part. Without a database it writes nothing. Right pieces in the directory are kept.
// progress may be nil. The options are those of Open.
func (s Stored) Export(
	ctx context.Context, out string, log *slog.Logger, progress func(bytes int64), o Options,
) (err error) {
	defer annotate(&err, "export %s", s.Layout.Name)
	if s.Kind != KindBolt {
		return fmt.Errorf("storage %s keeps the files as they are", s.Kind)
	}
	db, err := openBoltReader(s.Dir, s.Layout, s.Hash)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: there is no database of them in %s", ErrIncomplete, s.Dir)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	st, err := Open(KindFile, out, log, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	t, err := st.(*store).openData(ctx, s.Layout, s.Hash)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	var bad atomic.Int64
	err = work{s.Layout, nil, db, progress}.check(ctx, func(index int, err error) error {
		if err != nil {
			bad.Add(1)
			return nil //nolint:nilerr // the others are exported, and the missing ones counted
		}
		off, _ := s.Layout.PieceRange(index)
		p := piece{t, index, off}
		if p.Completion().Complete {
			return nil
		}
		err = partsOf(s.Layout, db, index, make([]byte, hashPart), func(b []byte, at int64) error {
			_, err := p.WriteAt(b, at-off)
			return err
		})
		if err != nil {
			return err
		}
		if err := t.writer.flushPiece(index); err != nil {
			return err
		}
		return p.MarkComplete()
	})
	if n := bad.Load(); err == nil && n > 0 {
		err = fmt.Errorf("%w: %d of %d", ErrIncomplete, n, s.Layout.Pieces())
	}
	return err
}
