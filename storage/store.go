package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/anacrolix/torrent/metainfo"
	engine "github.com/anacrolix/torrent/storage"
	"go.etcd.io/bbolt"

	"braid/storage/boltdb"
	"braid/storage/durable"
)

// Store keeps the data of torrents. The engine opens each torrent in it.
type Store = engine.ClientImplCloser

// Kind is a backend.
type Kind string

const (
	KindFile Kind = "file" // pieces at their places in the final files
	KindMmap Kind = "mmap" // the same files, mapped into memory
	KindBolt Kind = "bolt" // the pieces of each torrent in a bbolt database, to be exported or served from there
)

// ParseKind reads the name of a backend.
func ParseKind(s string) (Kind, error) {
	switch k := Kind(s); k {
	case KindFile, KindMmap, KindBolt:
		return k, nil
	}
	return "", fmt.Errorf("storage %q: want file, mmap or bolt", s)
}

// Options say how a store opens torrents. All of them may be zero.
type Options struct {
	// Recheck tells of which torrents the record is ignored: all existing data is hashed, and
	// blocks of unfinished pieces, which cannot be hashed, are forgotten.
	Recheck func(metainfo.Hash) bool
	// Wanted tells which files of a torrent the user wants. Others are created only if they share a
	// piece with a wanted file.
	Wanted func(metainfo.Hash, Layout) []bool
	// Names tells which files of a torrent the user has renamed.
	Names func(metainfo.Hash) Names
	// Existing says what happens to files that are in the way and do not belong to the download.
	Existing Existing
	// Moved is called for each such file with its path and its new path, which is empty if the file
	// was deleted.
	Moved func(path, aside string)
	// AllowDotfiles lets a torrent's name begin with a dot.
	AllowDotfiles bool

	system system // nil: the operating system
}

// Open opens a directory for downloads, and makes it if it does not exist. Names of files end in
// .part until they are complete.
//
// A record of the verified pieces is kept beside the data. The next Open trusts it for all files
// that still have the size and modification time in the record, and hashes the others again. The
// record also has the blocks of unfinished pieces, see Blocks. Only one Store may have a directory
// open.
func Open(kind Kind, dir string, log *slog.Logger, o Options) (Store, error) {
	if _, err := ParseKind(string(kind)); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open storage: %w", err)
	}
	own := filepath.Join(dir, recordDir)
	if err := os.MkdirAll(own, 0o755); err != nil {
		return nil, fmt.Errorf("open storage: %w; choose a directory that you may write to", err)
	}
	lock, err := lockDir(dir, true, lockWait)
	if err != nil {
		return nil, fmt.Errorf("open storage: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open storage: %w", err), lock.Close())
	}
	s := newStore(kind, dir, log, o)
	s.lock, s.root = lock, root
	return s, nil
}

// store is a directory with the data of torrents.
type store struct {
	dir     string
	kind    Kind
	lock    *os.File // nil: the data is only read
	root    *os.Root // the directory; likewise
	log     *slog.Logger
	options Options

	mu      sync.Mutex
	open    map[metainfo.Hash]*torrent
	claimed map[metainfo.Hash][]bool // of each file: what Claim found the download may write to
}

func newStore(kind Kind, dir string, log *slog.Logger, o Options) *store {
	if o.system == nil {
		o.system = realSystem{}
	}
	return &store{
		dir: dir, kind: kind, log: log, options: o,
		open: map[metainfo.Hash]*torrent{}, claimed: map[metainfo.Hash][]bool{},
	}
}

// writable is the store, if it comes from Open; otherwise nil.
func writable(st Store) *store {
	if s, ok := st.(*store); ok && s.root != nil {
		return s
	}
	return nil
}

func (s *store) Close() error {
	if s.root == nil {
		return nil
	}
	return errors.Join(s.root.Close(), s.lock.Close())
}

// OpenTorrent is called by the engine. It may hash what is there already, until the context ends.
func (s *store) OpenTorrent(ctx context.Context, info *metainfo.Info, hash metainfo.Hash) (engine.TorrentImpl, error) {
	l, err := s.options.layout(info, hash)
	if err != nil {
		return engine.TorrentImpl{}, err
	}
	open := s.openData
	if s.root == nil {
		open = s.openVerified
	}
	t, err := open(ctx, l, hash)
	if err != nil {
		return engine.TorrentImpl{}, fmt.Errorf("open the data of %s: %w", l.Name, err)
	}
	return s.add(hash, t), nil
}

// find is the torrent if the store has it open; otherwise nil.
func (s *store) find(hash metainfo.Hash) *torrent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[hash]
}

// add notes an opened torrent, and returns it in the form that the engine uses.
func (s *store) add(hash metainfo.Hash, t *torrent) engine.TorrentImpl {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[hash] = t
	return engine.TorrentImpl{Piece: t.piece, Close: func() error {
		s.mu.Lock()
		delete(s.open, hash)
		s.mu.Unlock()
		return t.close()
	}}
}

func (s *store) openData(ctx context.Context, l Layout, hash metainfo.Hash) (*torrent, error) {
	if s.kind == KindBolt {
		return s.openDatabase(l, hash)
	}
	s.mu.Lock()
	owned := s.claimed[hash]
	delete(s.claimed, hash)
	s.mu.Unlock()
	if owned == nil {
		var err error
		if owned, err = s.claim(ctx, l, hash, nil); err != nil {
			return nil, err
		}
	}
	rec, known, err := s.openRecord(hash, l, false, owned)
	if err != nil {
		return nil, err
	}
	data, err := s.openFiles(l, known, owned)
	if err != nil {
		return nil, err
	}
	return newTorrent(l, data, rec, known, s.log), nil
}

// openDatabase opens the database before the record, since a damaged one is set aside.
func (s *store) openDatabase(l Layout, hash metainfo.Hash) (*torrent, error) {
	data, err := openBoltPlace(s.dir, l, hash, s.options.system, s.log)
	if err != nil {
		return nil, err
	}
	rec, known, err := s.openRecord(hash, l, data.fresh, nil)
	if err != nil {
		return nil, errors.Join(err, data.close())
	}
	return newTorrent(l, data, rec, known, s.log), nil
}

// countedFiles returns the layout with the files as the record counts them: those that hold the
// data.
func countedFiles(kind Kind, hash metainfo.Hash, l Layout) Layout {
	if kind == KindBolt {
		l.Files = []File{{Path: boltPath(hash), Length: l.Length}}
	}
	return l
}

// OpenVerified opens files below dir that were just found complete, for seeding. It writes and
// locks nothing, so the disk may be read-only.
func OpenVerified(dir string, log *slog.Logger) Store {
	return newStore(KindFile, dir, log, Options{})
}

// OpenVerifiedIn is OpenVerified for any backend, and for files that the user has renamed; see
// Options.Names.
func OpenVerifiedIn(kind Kind, dir string, log *slog.Logger, names func(metainfo.Hash) Names) (Store, error) {
	if _, err := ParseKind(string(kind)); err != nil {
		return nil, err
	}
	return newStore(kind, dir, log, Options{Names: names}), nil
}

// openVerified opens data that is only read.
func (s *store) openVerified(_ context.Context, l Layout, hash metainfo.Hash) (*torrent, error) {
	var data place
	var err error
	if s.kind == KindBolt {
		data, err = openBoltReader(s.dir, l, hash)
	} else {
		data, err = s.openComplete(l)
	}
	if err != nil {
		return nil, err
	}
	all := slices.Repeat([]bool{true}, l.Pieces())
	known := recorded{pieces: &verdicts{checked: slices.Clone(all), right: all}}
	return newTorrent(l, data, nil, known, s.log), nil
}

func (s *store) openComplete(l Layout) (*files, error) {
	now, err := stamps(s.dir, l)
	if err != nil {
		return nil, err
	}
	f, err := readFiles(s.dir, l, s.kind == KindMmap)
	if err == nil {
		f.stamps = now
	}
	return f, err
}

// system has the calls of the operating system that decide what survives a crash and what fits on
// the disk. Tests replace it by a system whose disk is full, or loses data that was not synced.
type system interface {
	durable.System
	// syncAll syncs the file system that f is on, or says that it cannot (errors.ErrUnsupported).
	syncAll(f *os.File) error
	// isSynced returns why a file is not on disk, after a syncAll that has not failed.
	isSynced(f *os.File) error
	// uncache forgets the data of a file that is in memory but need not be written to disk.
	uncache(f *os.File)
	// folds tells whether two names that differ only in case or in Unicode form name the same file
	// in a directory.
	folds(dir string) (bool, error)
	// update is a transaction; when it returns, it is on disk.
	update(db *boltdb.DB, do func(tx *bbolt.Tx) error) error
}

type realSystem struct{ durable.OS }

func (realSystem) syncAll(f *os.File) error                                { return syncFileSystem(f) }
func (realSystem) isSynced(f *os.File) error                               { return writeError(f) }
func (realSystem) uncache(f *os.File)                                      { dropCache(f) }
func (realSystem) folds(dir string) (bool, error)                          { return foldsNames(dir) }
func (realSystem) update(db *boltdb.DB, do func(tx *bbolt.Tx) error) error { return db.Update(do) }
