package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/anacrolix/torrent/metainfo"
	engine "github.com/anacrolix/torrent/storage"
)

// Store is where torrents keep their data. The engine opens each torrent in it.
type Store = engine.ClientImplCloser

// Kind is a backend.
type Kind string

const (
	KindFile Kind = "file" // each piece at its place in the final files
	KindMmap Kind = "mmap" // the same files, mapped into memory
	KindBolt Kind = "bolt" // the pieces of a torrent in a bbolt database, to be exported or served as they are
)

// ParseKind reads the name of a backend.
func ParseKind(s string) (Kind, error) {
	switch k := Kind(s); k {
	case KindFile, KindMmap, KindBolt:
		return k, nil
	}
	return "", fmt.Errorf("storage %q: want file, mmap or bolt", s)
}

// Option changes how a store is opened.
type Option func(*options)

type options struct {
	recheck bool
	wanted  func(path string) bool
	system  system
}

// Recheck has all data that is there hashed, whatever the record says of it.
func Recheck() Option { return func(o *options) { o.recheck = true } }

// Wanted tells the store which files the user wants, by their path as in Layout. Empty files that are not wanted are not
// made; whether others are is decided by what is written.
func Wanted(wanted func(path string) bool) Option { return func(o *options) { o.wanted = wanted } }

// Open opens the directory for downloads, which is made if it is not there. Files end in .part until they are complete.
//
// A record of the verified pieces stands beside the data. It is trusted at the next Open as far as a file is as the
// record says, by size and modification time; other files are hashed again. Only one Store may have a directory open.
func Open(kind Kind, dir string, log *slog.Logger, opts ...Option) (Store, error) {
	if _, err := ParseKind(string(kind)); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open storage: %w", err)
	}
	o := options{system: realSystem{}}
	for _, opt := range opts {
		opt(&o)
	}
	rec, err := openRecord(dir, kind, o.system, log)
	if err != nil {
		return nil, err
	}
	return &store{dir: dir, kind: kind, record: rec, log: log, options: o, open: map[metainfo.Hash]*torrent{}}, nil
}

type store struct {
	dir     string
	kind    Kind
	record  *record
	log     *slog.Logger
	options options

	mu   sync.Mutex
	open map[metainfo.Hash]*torrent
}

func (s *store) Close() error { return s.record.close() }

// OpenTorrent is called by the engine, with its lock held.
func (s *store) OpenTorrent(_ context.Context, info *metainfo.Info, hash metainfo.Hash) (engine.TorrentImpl, error) {
	l, err := NewLayout(info)
	if err != nil {
		return engine.TorrentImpl{}, err
	}
	t, err := s.openData(l, hash)
	if err != nil {
		return engine.TorrentImpl{}, fmt.Errorf("open the data of %s: %w", l.Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[hash] = t
	impl := t.impl()
	impl.Close = func() error {
		s.mu.Lock()
		delete(s.open, hash)
		s.mu.Unlock()
		return t.close()
	}
	return impl, nil
}

func (s *store) openData(l Layout, hash metainfo.Hash) (*torrent, error) {
	log, sys := s.log, s.options.system
	var data place
	fresh := false
	if s.kind == KindBolt {
		b, err := openBoltPlace(s.dir, l, hash, sys, log) // before the record is asked: it may be set aside
		if err != nil {
			return nil, err
		}
		data, fresh = b, b.fresh
	} else if err := refuseLinks(s.dir, l); err != nil {
		return nil, err
	}
	right, changed, err := s.record.open(hash, countedFiles(s.kind, hash, l), s.options.recheck, fresh)
	if err != nil {
		if data != nil {
			err = errors.Join(err, data.close())
		}
		return nil, err
	}
	if data == nil {
		if err := finishNames(s.dir, l, right); err != nil {
			return nil, err
		}
		if err := makeWritable(s.dir, l); err != nil {
			return nil, err
		}
		if data, err = openFiles(s.dir, l, right, s.kind == KindMmap, sys, s.options.wanted); err != nil {
			return nil, err
		}
	}
	return newTorrent(l, hash, data, s.record, right, changed, log), nil
}

// countedFiles is the layout with the files as the record counts them: those that hold the data.
func countedFiles(kind Kind, hash metainfo.Hash, l Layout) Layout {
	if kind == KindBolt {
		l.Files = []File{{Path: boltPath(hash), Length: l.Length}}
	}
	return l
}

// finishNames gives files whose pieces are all right their final name. That is done with the last piece; if
// braid ended in between, nobody would.
func finishNames(dir string, l Layout, right []bool) error {
	for _, f := range l.Files {
		begin, end := l.FilePieces(f)
		if begin == end || slices.Contains(right[begin:end], false) {
			continue
		}
		name := filepath.Join(dir, filepath.FromSlash(f.Path))
		if _, err := os.Lstat(name); err == nil {
			continue
		}
		if err := os.Rename(name+partSuffix, name); err != nil {
			return fmt.Errorf("finish %s: %w", f.Path, err)
		}
	}
	return nil
}

// makeWritable takes the write protection away that other clients give to complete files: if one is damaged, braid has
// to write to it.
func makeWritable(dir string, l Layout) error {
	for _, f := range l.Files {
		name := filepath.Join(dir, filepath.FromSlash(f.Path))
		st, err := os.Stat(name)
		if err != nil || st.Mode().Perm()&0o200 != 0 {
			continue // missing is fine
		}
		if err := os.Chmod(name, st.Mode().Perm()|0o200); err != nil {
			return fmt.Errorf("make %s writable: %w", f.Path, err)
		}
	}
	return nil
}

// refuseLinks keeps a symbolic link that is already in the directory from leading a download out of it.
func refuseLinks(dir string, l Layout) error {
	seen := map[string]bool{}
	for _, f := range l.Files {
		for i := 0; i < len(f.Path); i++ {
			if f.Path[i] != '/' && i != len(f.Path)-1 {
				continue
			}
			name := strings.TrimSuffix(f.Path[:i+1], "/")
			if seen[name] {
				continue
			}
			seen[name] = true
			names := []string{name}
			if i == len(f.Path)-1 {
				names = append(names, name+partSuffix)
			}
			for _, n := range names {
				full := filepath.Join(dir, filepath.FromSlash(n))
				if st, err := os.Lstat(full); err == nil && st.Mode()&fs.ModeSymlink != 0 {
					return fmt.Errorf("%s is a symbolic link: remove it, or download into another directory", full)
				}
			}
		}
	}
	return nil
}

// OpenVerified opens data in files below dir that has just been found complete, for seeding. Nothing is written, and
// nothing is locked: it may lie on a disk that can only be read.
func OpenVerified(dir string, log *slog.Logger) Store {
	return &verified{kind: KindFile, dir: dir, log: log}
}

// OpenVerifiedIn is OpenVerified for any backend.
func OpenVerifiedIn(kind Kind, dir string, log *slog.Logger) (Store, error) {
	if _, err := ParseKind(string(kind)); err != nil {
		return nil, err
	}
	return &verified{kind: kind, dir: dir, log: log}, nil
}

type verified struct {
	kind Kind
	dir  string
	log  *slog.Logger
}

func (s *verified) Close() error { return nil }

func (s *verified) OpenTorrent(_ context.Context, info *metainfo.Info, hash metainfo.Hash) (engine.TorrentImpl, error) {
	l, err := NewLayout(info)
	if err != nil {
		return engine.TorrentImpl{}, err
	}
	data, err := openReader(s.kind, s.dir, l, hash)
	if err != nil {
		return engine.TorrentImpl{}, fmt.Errorf("open the data of %s: %w", l.Name, err)
	}
	right := slices.Repeat([]bool{true}, l.Pieces())
	return newTorrent(l, hash, data, nil, right, nil, s.log).impl(), nil
}

// openReader opens a place for reading only.
func openReader(kind Kind, dir string, l Layout, hash metainfo.Hash) (place, error) {
	if kind == KindBolt {
		return openBoltReader(dir, l, hash)
	}
	return openFiles(dir, l, nil, kind == KindMmap, nil, nil)
}
