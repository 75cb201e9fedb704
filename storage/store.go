package storage

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	g "github.com/anacrolix/generics"
	"github.com/anacrolix/torrent/metainfo"
	engine "github.com/anacrolix/torrent/storage"
)

// Store is where torrents keep their data. The engine opens each torrent in it.
type Store = engine.ClientImplCloser

// Open opens the directory for downloads, which is made if it is not there. kind is "file": each piece at its
// place in the final files, which end in .part until they are complete.
//
// A record of the verified pieces stands beside the data. It is trusted at the next Open if the store was closed
// properly and a file is as it was left, by size and modification time; other files are hashed again. Only one Store
// may have a directory open.
func Open(kind, dir string, log *slog.Logger) (Store, error) {
	if kind != "file" {
		return nil, fmt.Errorf("storage %q: want file", kind)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open storage: %w", err)
	}
	rec, err := openRecord(dir, log)
	if err != nil {
		return nil, err
	}
	return &fileStore{dir: dir, record: rec, log: log}, nil
}

type fileStore struct {
	dir    string
	record *record
	log    *slog.Logger
}

func (s *fileStore) Close() error { return s.record.close() }

// OpenTorrent is called by the engine, with its lock held.
func (s *fileStore) OpenTorrent(_ context.Context, info *metainfo.Info, hash metainfo.Hash) (engine.TorrentImpl, error) {
	l, err := NewLayout(info)
	if err != nil {
		return engine.TorrentImpl{}, err
	}
	if err := refuseLinks(s.dir, l); err != nil {
		return engine.TorrentImpl{}, err
	}
	right, err := s.record.open(hash, l)
	if err != nil {
		return engine.TorrentImpl{}, err
	}
	f, err := openFiles(s.dir, l, hash, s.record, right, s.log)
	if err != nil {
		return engine.TorrentImpl{}, fmt.Errorf("open the files of %s: %w", l.Name, err)
	}
	return engine.TorrentImpl{Piece: f.piece, Close: f.close}, nil
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

// OpenVerified opens data below dir that has just been found complete, for seeding. Nothing is written.
func OpenVerified(dir string, log *slog.Logger) Store {
	return engine.NewFileOpts(engine.NewFileClientOpts{
		ClientBaseDir:   dir,
		PieceCompletion: allComplete{},
		UsePartFiles:    g.Some(false),
		DisableMmap:     true,
		Logger:          log,
	})
}

type allComplete struct{}

func (allComplete) Get(metainfo.PieceKey) (engine.Completion, error) {
	return engine.Completion{Ok: true, Complete: true}, nil
}
func (allComplete) Set(metainfo.PieceKey, g.Option[bool]) error { return nil }
func (allComplete) Persistent() bool                            { return false }
func (allComplete) Close() error                                { return nil }
