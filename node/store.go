package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"

	"github.com/anacrolix/torrent/metainfo"

	"braid/client"
	"braid/storage"
)

// Storage says where the data of a torrent is and how it may be written.
type Storage struct {
	Kind storage.Kind `json:"kind"`
	Dir  string       `json:"dir"`
	// Complete says that all data is there: files are only read.
	Complete bool `json:"complete,omitempty"`
	// Existing says what happens to existing files that are not the torrent's.
	Existing      storage.Existing `json:"existing,omitempty"`
	AllowDotfiles bool             `json:"allow_dotfiles,omitempty"`
	// Recheck hashes all data at the next start, even if it was recorded as verified.
	Recheck bool `json:"recheck,omitempty"`
}

// stores are the open stores. Torrents in the same directory share one, since only one store can
// write there.
type stores struct {
	mu  sync.Mutex
	all []*sharedStore
}

// sharedStore is a store and the torrents in it.
type sharedStore struct {
	storage.Store
	options Storage

	mu    sync.Mutex
	users map[metainfo.Hash]Options // at the start of each torrent
}

func (s *sharedStore) user(hash metainfo.Hash) Options {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users[hash]
}

// open returns the store for a torrent. The caller must call release when it no longer needs it.
func (s *stores) open(
	o Options, moved func(path, aside string), log *slog.Logger,
) (*sharedStore, error) {
	want := o.Storage
	dir, err := filepath.Abs(want.Dir)
	if err != nil {
		return nil, fmt.Errorf("open storage: %w", err)
	}
	want.Dir, want.Recheck = realDir(dir), false
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.all {
		if x.options.Dir != want.Dir || x.options.Complete != want.Complete {
			continue
		}
		if want.Complete && x.options.Kind != want.Kind {
			continue
		}
		if x.options != want {
			return nil, fmt.Errorf("open storage in %s: another torrent uses it with other options",
				o.Storage.Dir)
		}
		x.mu.Lock()
		x.users[o.Source.InfoHash] = o
		x.mu.Unlock()
		return x, nil
	}
	x := &sharedStore{options: want, users: map[metainfo.Hash]Options{o.Source.InfoHash: o}}
	names := func(h metainfo.Hash) storage.Names { return x.user(h).Names }
	if want.Complete {
		x.Store, err = storage.OpenVerifiedIn(want.Kind, o.Storage.Dir, log, names)
	} else {
		x.Store, err = storage.Open(want.Kind, o.Storage.Dir, log, storage.Options{
			Recheck: func(h metainfo.Hash) bool { return x.user(h).Storage.Recheck },
			Wanted: func(h metainfo.Hash, l storage.Layout) []bool {
				return x.user(h).Selection.Wants(l)
			},
			Names:    names,
			Existing: want.Existing, Moved: moved,
			AllowDotfiles: want.AllowDotfiles,
		})
	}
	if err != nil {
		return nil, err
	}
	x.options.Dir = realDir(dir) // which exists only now
	s.all = append(s.all, x)
	return x, nil
}

// realDir resolves symbolic links: several paths may lead to a directory. A directory that does not
// exist is returned as it is.
func realDir(dir string) string {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return dir
}

// release ends a torrent's use of its store. If no other torrent uses it, the store is closed.
func (s *stores) release(x *sharedStore, hash metainfo.Hash) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.mu.Lock()
	delete(x.users, hash)
	last := len(x.users) == 0
	x.mu.Unlock()
	if !last {
		return nil
	}
	if i := slices.Index(s.all, x); i >= 0 {
		s.all = slices.Delete(s.all, i, i+1)
		return x.Close()
	}
	return nil
}

func (s *stores) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, x := range s.all {
		errs = append(errs, x.Close())
	}
	s.all = nil
	return errors.Join(errs...)
}

// IsComplete tells whether the data of a torrent is complete and right. It trusts the completion
// record, unless Storage.Recheck is set. progress, which may be nil, gets the number of hashed
// bytes.
func IsComplete(
	ctx context.Context, src client.Source, s Storage, progress func(bytes int64),
) (bool, error) {
	stored := s.Of(src)
	if !s.Recheck && stored.Trusted() {
		return true, nil
	}
	r, err := stored.Check(ctx, progress)
	return err == nil && r.Complete(), err
}

// refuseGone returns an error if an earlier run had data, and there is no trace of it: its disk is
// probably not mounted. The torrent would fetch everything again, onto another disk.
func (t *Torrent) refuseGone() error {
	t.mu.Lock()
	o, had := t.options, t.last.Have > 0
	t.mu.Unlock()
	if !had || o.Storage.Complete || o.Storage.Recheck || o.Source.IsMagnet() || !o.stored().IsGone() {
		return nil
	}
	return fmt.Errorf("none of the data of %s is in %s any more: is the disk mounted? Then resume "+
		"the torrent. To fetch all data again, verify the torrent, or remove and add it",
		o.title(), o.Storage.Dir)
}

// Of describes the data of a torrent on disk.
func (s Storage) Of(src client.Source) storage.Stored {
	return storage.Stored{Kind: s.Kind, Dir: s.Dir, Hash: src.InfoHash, Layout: src.Layout}
}

func (o Options) stored() storage.Stored { return o.Storage.Of(o.Source) }

// deleteData deletes the data of a torrent that was removed.
func (t *Torrent) deleteData(ctx context.Context) error {
	o := t.Options()
	if o.Source.IsMagnet() || o.Storage.Dir == "" {
		return nil // there is no data
	}
	if err := errors.Join(t.leave(ctx), t.deleteIn(ctx, o.Storage.Dir)); err != nil {
		return fmt.Errorf("remove torrent %s: its data is left behind: %w", o.title(), err)
	}
	return nil
}

// deleteIn deletes the torrent's data in a directory. It keeps files that belong to another torrent
// of the node as well, such as one with a newer state of the same data.
func (t *Torrent) deleteIn(ctx context.Context, dir string) error {
	o := t.Options()
	o.Storage.Dir = dir
	var shared []string
	for _, x := range t.node.Torrents() {
		other := x.Options()
		if x == t || x.isRemoving() || other.Source.Layout.Name != o.Source.Layout.Name ||
			!isSameDir(other.Storage.Dir, dir) {
			continue
		}
		names, err := other.stored().Holds(other.Storage.Complete)
		if err != nil {
			return err
		}
		shared = append(shared, names...)
	}
	return o.stored().Delete(ctx, o.Storage.Complete, shared...)
}
