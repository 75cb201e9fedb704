package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/anacrolix/torrent/metainfo"
	engine "github.com/anacrolix/torrent/storage"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// The record is a bbolt database with a bucket for each torrent, named by its info hash:
//
//	"pieces"  a bit for each piece, the first piece in the highest bit of the first byte: its data was
//	          verified and has been synced to disk
//	"files"   JSON, size and modification time of each file in the order of the torrent; there only
//	          while nobody has the torrent open
//
// The files of some pieces are synced, then the record is told (checkpoint), so that a piece in the record is always
// on disk. Without "files" (braid was killed) the pieces are not trusted, since what was written after them may have
// gone to their place; they are hashed again.
const (
	recordName = "completion.db"
	piecesKey  = "pieces"
	filesKey   = "files"
)

// lockWait is how long to wait for another process's lock: long enough for one that is just ending.
const lockWait = 2 * time.Second

// record is the database and, of the torrents that are open, what is known by now.
type record struct {
	dir string
	db  *bbolt.DB
	log *slog.Logger

	mu       sync.Mutex
	torrents map[metainfo.Hash]*tally
}

// tally is what is known of one torrent's pieces.
type tally struct {
	layout Layout
	known  []bool // the piece was checked
	right  []bool // and found right
	saved  []bool // and this is in the record
}

type stamp struct {
	Size    int64 `json:"size"`
	ModTime int64 `json:"mtime_ns"` // 0: the file is not there
}

func openRecord(dir string, log *slog.Logger) (*record, error) {
	own := filepath.Join(dir, recordDir)
	if err := os.MkdirAll(own, 0o755); err != nil {
		return nil, fmt.Errorf("open storage: %w", err)
	}
	name := filepath.Join(own, recordName)
	db, err := bbolt.Open(name, 0o644, &bbolt.Options{Timeout: lockWait})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("open storage: another braid is using %s; wait for it, or choose another directory", dir)
	}
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		aside := fmt.Sprintf("%s.damaged-%d", name, time.Now().Unix())
		if os.Rename(name, aside) == nil {
			log.Warn("the record of verified pieces is damaged; all data will be checked", "set_aside", aside, "error", err)
			db, err = bbolt.Open(name, 0o644, &bbolt.Options{Timeout: lockWait})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open storage record %s: %w", name, err)
	}
	return &record{dir: dir, db: db, log: log, torrents: map[metainfo.Hash]*tally{}}, nil
}

// open takes a torrent from the record, as far as its files are what they were, and returns which pieces are right.
func (r *record) open(hash metainfo.Hash, l Layout) (right []bool, err error) {
	t := newTally(l)
	err = r.db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(hash[:])
		if err != nil {
			return err
		}
		stamps, err := r.stamps(l)
		if err != nil {
			return err
		}
		t.load(b.Get([]byte(piecesKey)), b.Get([]byte(filesKey)), stamps)
		return b.Delete([]byte(filesKey))
	})
	if err != nil {
		return nil, fmt.Errorf("read the record of %s: %w", l.Name, err)
	}
	if err := r.finishNames(t); err != nil {
		return nil, err
	}
	if err := r.makeWritable(l); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.torrents[hash] = t
	return slices.Clone(t.right), nil
}

func newTally(l Layout) *tally {
	n := l.Pieces()
	return &tally{layout: l, known: make([]bool, n), right: make([]bool, n), saved: make([]bool, n)}
}

// load fills in what a record says. A piece of a file that is not there is known to be missing; one of a file
// that has changed is not known.
func (t *tally) load(pieces, files []byte, now []stamp) {
	l := t.layout
	var then []stamp
	trusted := json.Unmarshal(files, &then) == nil && len(then) == len(l.Files) && len(pieces) == (l.Pieces()+7)/8
	for p := range t.known {
		t.known[p] = true
		t.right[p] = trusted && pieces[p/8]>>(7-p%8)&1 == 1
	}
	for i, f := range l.Files {
		begin, end := l.filePieces(f)
		for p := begin; p < end; p++ {
			switch {
			case now[i].ModTime == 0:
				t.right[p] = false
			case !trusted || now[i] != then[i]:
				t.known[p], t.right[p] = false, false
			}
		}
	}
	// A file that is missing makes its pieces known, also those that it shares with a changed one.
	for i, f := range l.Files {
		begin, end := l.filePieces(f)
		for p := begin; p < end && now[i].ModTime == 0; p++ {
			t.known[p] = true
		}
	}
	copy(t.saved, t.right)
}

// finishNames gives files whose pieces are all right their final name. That is done with the last piece; if
// braid ended in between, nobody would.
func (r *record) finishNames(t *tally) error {
	for _, f := range t.layout.Files {
		begin, end := t.layout.filePieces(f)
		whole := end > begin
		for p := begin; p < end && whole; p++ {
			whole = t.right[p]
		}
		name := filepath.Join(r.dir, filepath.FromSlash(f.Path))
		if _, err := os.Lstat(name); !whole || err == nil {
			continue
		}
		if err := os.Rename(name+partSuffix, name); err != nil {
			return fmt.Errorf("finish %s: %w", f.Path, err)
		}
	}
	return nil
}

// makeWritable takes the write protection away that the engine gives to complete files. They are the user's; and if
// one is damaged later, braid itself has to write to it.
func (r *record) makeWritable(l Layout) error {
	for _, f := range l.Files {
		name := filepath.Join(r.dir, filepath.FromSlash(f.Path))
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

func (r *record) stamps(l Layout) ([]stamp, error) {
	out := make([]stamp, len(l.Files))
	for i, f := range l.Files {
		name := filepath.Join(r.dir, filepath.FromSlash(f.Path))
		st, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			st, err = os.Stat(name + partSuffix)
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out[i] = stamp{Size: st.Size(), ModTime: st.ModTime().UnixNano()}
	}
	return out, nil
}

// seal records that a torrent's files are as we leave them.
func (r *record) seal(hash metainfo.Hash) error {
	r.mu.Lock()
	t := r.torrents[hash]
	delete(r.torrents, hash)
	r.mu.Unlock()
	if t == nil {
		return nil
	}
	stamps, err := r.stamps(t.layout)
	if err != nil {
		return fmt.Errorf("record the files of %s: %w", t.layout.Name, err)
	}
	b, err := json.Marshal(stamps)
	if err != nil {
		return err
	}
	if err := r.makeWritable(t.layout); err != nil {
		return err
	}
	err = r.db.Update(func(tx *bbolt.Tx) error { return put(tx, hash, filesKey, b) })
	if err != nil {
		return fmt.Errorf("record the files of %s: %w", t.layout.Name, err)
	}
	return nil
}

func put(tx *bbolt.Tx, hash metainfo.Hash, key string, value []byte) error {
	b, err := tx.CreateBucketIfNotExists(hash[:])
	if err != nil {
		return err
	}
	return b.Put([]byte(key), value)
}

// get says what is known of a piece.
func (r *record) get(k metainfo.PieceKey) engine.Completion {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.torrents[k.InfoHash]
	if t == nil || k.Index >= len(t.known) {
		return engine.Completion{}
	}
	return engine.Completion{Ok: t.known[k.Index], Complete: t.right[k.Index]}
}

// set notes that a piece was checked. That one is wrong goes to disk at once, that it is right with checkpoint.
func (r *record) set(k metainfo.PieceKey, right bool) error {
	r.mu.Lock()
	t := r.torrents[k.InfoHash]
	if t == nil || k.Index >= len(t.known) {
		r.mu.Unlock()
		return nil
	}
	t.known[k.Index], t.right[k.Index] = true, right
	taken := t.saved[k.Index] && !right
	if taken {
		t.saved[k.Index] = false
	}
	r.mu.Unlock()
	if taken {
		return r.save(k.InfoHash)
	}
	return nil
}

// checkpoint is told that the data of these pieces is on disk.
func (r *record) checkpoint(keys []metainfo.PieceKey) error {
	changed := map[metainfo.Hash]bool{}
	r.mu.Lock()
	for _, k := range keys {
		if t := r.torrents[k.InfoHash]; t != nil && k.Index < len(t.right) && t.right[k.Index] {
			t.saved[k.Index] = true
			changed[k.InfoHash] = true
		}
	}
	r.mu.Unlock()
	var errs []error
	for hash := range changed {
		errs = append(errs, r.save(hash))
	}
	return errors.Join(errs...)
}

func (r *record) save(hash metainfo.Hash) error {
	err := r.db.Update(func(tx *bbolt.Tx) error {
		// Read inside the transaction, so that of two calls the later writes the later state.
		r.mu.Lock()
		t := r.torrents[hash]
		if t == nil {
			r.mu.Unlock()
			return nil
		}
		bits := make([]byte, (len(t.saved)+7)/8)
		for p, saved := range t.saved {
			if saved {
				bits[p/8] |= 1 << (7 - p%8)
			}
		}
		r.mu.Unlock()
		return put(tx, hash, piecesKey, bits)
	})
	if err != nil {
		return fmt.Errorf("write the record of verified pieces: %w", err)
	}
	return nil
}

func (r *record) close() error { return r.db.Close() }

// Trusted tells whether the record in dir vouches for all of a torrent's data, without hashing and without
// changing anything.
func Trusted(dir string, hash metainfo.Hash, l Layout) bool {
	name := filepath.Join(dir, recordDir, recordName)
	if _, err := os.Stat(name); err != nil {
		return false
	}
	db, err := bbolt.Open(name, 0o644, &bbolt.Options{Timeout: 100 * time.Millisecond, ReadOnly: true})
	if err != nil {
		return false
	}
	defer db.Close()
	r := &record{dir: dir, db: db}
	t := newTally(l)
	err = db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket(hash[:])
		if b == nil {
			return fs.ErrNotExist
		}
		stamps, err := r.stamps(l)
		if err == nil {
			t.load(b.Get([]byte(piecesKey)), b.Get([]byte(filesKey)), stamps)
		}
		return err
	})
	if err != nil {
		return false
	}
	for _, right := range t.right {
		if !right {
			return false
		}
	}
	for _, f := range l.Files {
		if statFile(dir, f).State != FileOK {
			return false
		}
	}
	return true
}
