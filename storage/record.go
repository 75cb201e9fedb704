package storage

import (
	"encoding/binary"
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

	"braid/storage/boltdb"
)

// The record is a bbolt database beside the data, with a bucket for each torrent and backend, named by the info hash and
// the backend. Its keys are a letter and a chunk number of four bytes, highest first:
//
//	'p'  a bit for each of 32768 pieces, the first in the highest bit of the first byte: the piece was verified
//	     and is on disk
//	'f'  size and modification time (Unix ns) of each of 256 files in the order of the torrent, eight bytes each,
//	     highest first, as they were when the pieces were recorded; size -1: the file was not there
//
// The data of some pieces is synced, then the record is told of them (checkpoint), so that a piece in the record is
// always on disk. A piece counts at the next start if all of its files are still what the record says, or have been told
// otherwise in the record before they were changed. Pieces of other files are hashed again: those of files that
// somebody has changed, and those of files that braid was writing to when it was killed.
const (
	recordName   = "completion.db"
	piecesChunk  = 32768
	filesChunk   = 256
	stampBytes   = 16
	lockName     = "lock"
	boltPageSize = 4096
)

// lockWait is how long to wait for another process's lock: long enough for one that is just ending.
const lockWait = 2 * time.Second

// recordOptions make commits small: the free pages are found again when the database is opened, which is quick.
func recordOptions() *bbolt.Options {
	return &bbolt.Options{Timeout: lockWait, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType, PageSize: boltPageSize}
}

// record is the database and, of the torrents that are open, what is known by now.
type record struct {
	dir    string
	kind   Kind
	system system
	lock   *os.File
	db     *boltdb.DB
	log    *slog.Logger
	saving sync.Mutex // one save at a time, so that of two the later writes the later state

	mu       sync.Mutex
	torrents map[metainfo.Hash]*tally
}

// tally is what is known of one torrent's pieces.
type tally struct {
	layout Layout // with the files as the record counts them
	known  []bool // the piece was checked
	right  []bool // and found right
	saved  []bool // and this is in the record
}

// stamp says how a file was left.
type stamp struct {
	size    int64 // -1: it is not there
	modTime int64 // Unix ns
}

var noFile = stamp{size: -1}

func openRecord(dir string, kind Kind, sys system, log *slog.Logger) (*record, error) {
	own := filepath.Join(dir, recordDir)
	if err := os.MkdirAll(own, 0o755); err != nil {
		return nil, fmt.Errorf("open storage: %w; choose a directory that you may write to", err)
	}
	lock, err := lockDir(dir, true, lockWait)
	if err != nil {
		return nil, fmt.Errorf("open storage: %w", err)
	}
	name := filepath.Join(own, recordName)
	db, err := boltdb.Open(name, 0o644, recordOptions(), func(aside string, err error) {
		log.Warn("the record of verified pieces is damaged; the data will be checked", "set_aside", aside, "error", err)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open storage: %w", err), lock.Close())
	}
	return &record{dir: dir, kind: kind, system: sys, lock: lock, db: db, log: log, torrents: map[metainfo.Hash]*tally{}}, nil
}

var errLocked = errors.New("another braid is using it")

// lockDir takes the lock on a directory for downloads, which ends when the file is closed or the process is killed.
func lockDir(dir string, exclusive bool, wait time.Duration) (*os.File, error) {
	name := filepath.Join(dir, recordDir, lockName)
	flags := os.O_RDONLY
	if exclusive {
		flags = os.O_RDWR | os.O_CREATE
	}
	f, err := os.OpenFile(name, flags, 0o644)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(wait); ; time.Sleep(50 * time.Millisecond) {
		switch ok, err := boltdb.TryLock(f, exclusive); {
		case err != nil:
			return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), f.Close())
		case ok:
			return f, nil
		case !time.Now().Before(deadline):
			return nil, errors.Join(fmt.Errorf("%s: %w; wait for it, or choose another directory", dir, errLocked), f.Close())
		}
	}
}

func (r *record) update(do func(b *bbolt.Bucket) error, hash metainfo.Hash) error {
	return r.system.update(r.db, func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(bucketName(hash, r.kind))
		if err != nil {
			return err
		}
		return do(b)
	})
}

// bucketName tells backends with files of their own apart. Those that share the files share the record.
func bucketName(hash metainfo.Hash, kind Kind) []byte {
	if kind == KindMmap {
		kind = KindFile
	}
	return append(hash[:], kind...)
}

func chunkKey(letter byte, chunk int) []byte {
	return binary.BigEndian.AppendUint32([]byte{letter}, uint32(chunk))
}

// open takes a torrent from the record, as far as its files are what they were, and returns which pieces are right, and
// which files are not as the record says. l has the files as the record counts them. It takes nothing with recheck, and knows that nothing is there if the data
// is fresh.
func (r *record) open(hash metainfo.Hash, l Layout, recheck, fresh bool) (right []bool, changed []int, err error) {
	now, err := stamps(r.dir, l)
	if err != nil {
		return nil, nil, fmt.Errorf("open storage: %w", err)
	}
	for i := range now {
		if fresh {
			now[i] = noFile
		}
	}
	t := newTally(l)
	err = r.db.View(func(tx *bbolt.Tx) error {
		changed = t.load(tx.Bucket(bucketName(hash, r.kind)), now)
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read the record of %s: %w", l.Name, err)
	}
	if recheck && !fresh {
		for p := range t.known {
			t.known[p] = false
		}
		clear(t.right)
	}
	// What the record says and is no longer believed must not be believed when the file is touched back.
	err = r.update(func(b *bbolt.Bucket) error {
		copy(t.saved, t.right)
		return t.store(b, nil, nil, true)
	}, hash)
	if err != nil {
		return nil, nil, fmt.Errorf("write the record of %s: %w", l.Name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.torrents[hash] = t
	return slices.Clone(t.right), changed, nil
}

func newTally(l Layout) *tally {
	n := l.Pieces()
	return &tally{layout: l, known: make([]bool, n), right: make([]bool, n), saved: make([]bool, n)}
}

// load fills in what a bucket says, which may be nil, and returns the files that have changed since. A piece of a file
// that is not there is known to be missing; one of a file that has changed is not known.
func (t *tally) load(b *bbolt.Bucket, now []stamp) (changed []int) {
	l := t.layout
	for chunk := 0; chunk*piecesChunk < len(t.right); chunk++ {
		var bits []byte
		if b != nil {
			bits = b.Get(chunkKey('p', chunk))
		}
		for i := chunk * piecesChunk; i < min(len(t.right), (chunk+1)*piecesChunk); i++ {
			p := i - chunk*piecesChunk
			t.known[i] = true
			t.right[i] = p/8 < len(bits) && bits[p/8]>>(7-p%8)&1 == 1
		}
	}
	var then []byte
	for i, f := range l.Files {
		if i%filesChunk == 0 && b != nil {
			then = b.Get(chunkKey('f', i/filesChunk))
		}
		if s := stampAt(then, i%filesChunk); now[i] != s {
			changed = append(changed, i)
		} else if s != noFile {
			continue
		}
		begin, end := l.FilePieces(f)
		for p := begin; p < end; p++ {
			t.known[p], t.right[p] = false, false
		}
	}
	// A file that is missing makes its pieces known, also those that it shares with a changed one.
	for i, f := range l.Files {
		begin, end := l.FilePieces(f)
		for p := begin; p < end && now[i] == noFile; p++ {
			t.known[p] = true
		}
	}
	return changed
}

func stampAt(b []byte, i int) stamp {
	if len(b) < (i+1)*stampBytes {
		return noFile
	}
	b = b[i*stampBytes:]
	return stamp{int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:]))}
}

// store writes the chunks that hold the pieces and files, or those of all pieces.
func (t *tally) store(b *bbolt.Bucket, pieces []int, files map[int]stamp, all bool) error {
	chunks := map[int]bool{}
	for _, p := range pieces {
		chunks[p/piecesChunk] = true
	}
	for c := 0; all && c*piecesChunk < len(t.saved); c++ {
		chunks[c] = true
	}
	for c := range chunks {
		part := t.saved[c*piecesChunk : min(len(t.saved), (c+1)*piecesChunk)]
		bits := make([]byte, (len(part)+7)/8)
		for p, saved := range part {
			if saved {
				bits[p/8] |= 1 << (7 - p%8)
			}
		}
		if err := b.Put(chunkKey('p', c), bits); err != nil {
			return err
		}
	}
	parts := map[int][]byte{}
	for i, s := range files {
		part := parts[i/filesChunk]
		if part == nil {
			part = make([]byte, filesChunk*stampBytes)
			for j := range filesChunk {
				binary.BigEndian.PutUint64(part[j*stampBytes:], ^uint64(0))
			}
			copy(part, b.Get(chunkKey('f', i/filesChunk)))
			parts[i/filesChunk] = part
		}
		at := part[i%filesChunk*stampBytes:]
		binary.BigEndian.PutUint64(at, uint64(s.size))
		binary.BigEndian.PutUint64(at[8:], uint64(s.modTime))
	}
	for c, part := range parts {
		if err := b.Put(chunkKey('f', c), part); err != nil {
			return err
		}
	}
	return nil
}

// stamps looks at all files of a torrent.
func stamps(dir string, l Layout) ([]stamp, error) {
	out := make([]stamp, len(l.Files))
	var err error
	for i, f := range l.Files {
		if out[i], err = stampOf(dir, f); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func stampOf(dir string, f File) (stamp, error) {
	name := filepath.Join(dir, filepath.FromSlash(f.Path))
	st, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		st, err = os.Stat(name + partSuffix)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return noFile, nil
	}
	if err != nil {
		return stamp{}, err
	}
	return stamp{st.Size(), st.ModTime().UnixNano()}, nil
}

// forget closes a torrent, of which everything has been recorded.
func (r *record) forget(hash metainfo.Hash) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.torrents, hash)
}

// get says what is known of a piece.
func (r *record) get(hash metainfo.Hash, piece int) engine.Completion {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.torrents[hash]
	if t == nil {
		return engine.Completion{}
	}
	return engine.Completion{Ok: t.known[piece], Complete: t.right[piece]}
}

// set notes that pieces were checked. That they are wrong goes to disk at once, that they are right with checkpoint.
func (r *record) set(hash metainfo.Hash, right bool, pieces ...int) error {
	r.mu.Lock()
	t := r.torrents[hash]
	if t == nil {
		r.mu.Unlock()
		return nil
	}
	var taken []int
	for _, p := range pieces {
		t.known[p], t.right[p] = true, right
		if t.saved[p] && !right {
			taken = append(taken, p)
		}
	}
	r.mu.Unlock()
	if len(taken) == 0 {
		return nil
	}
	return r.save(hash, taken, nil)
}

// checkpoint is told that the data of these pieces is on disk, and which files have changed. It takes the files away
// that are in the record now. A file of which some pieces were not checked yet stays: with its stamp in the record they
// would count as missing.
func (r *record) checkpoint(hash metainfo.Hash, pieces []int, changed map[int]bool) error {
	r.mu.Lock()
	t := r.torrents[hash]
	var checked []int
	for i := range changed {
		if t != nil && t.isChecked(t.layout.Files[i]) {
			checked = append(checked, i)
		}
	}
	r.mu.Unlock()
	files := map[int]stamp{}
	for _, i := range checked {
		s, err := stampOf(r.dir, t.layout.Files[i])
		if err != nil {
			return fmt.Errorf("write the record of verified pieces: %w", err)
		}
		files[i] = s
	}
	if len(pieces)+len(files) == 0 {
		return nil
	}
	if err := r.save(hash, pieces, files); err != nil {
		return err
	}
	for i := range files {
		delete(changed, i)
	}
	return nil
}

func (t *tally) isChecked(f File) bool {
	begin, end := t.layout.FilePieces(f)
	return !slices.Contains(t.known[begin:end], false)
}

// save writes which of the pieces are right by now.
func (r *record) save(hash metainfo.Hash, pieces []int, files map[int]stamp) error {
	r.saving.Lock()
	defer r.saving.Unlock()
	before := make([]bool, len(pieces))
	err := r.update(func(b *bbolt.Bucket) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		t := r.torrents[hash]
		if t == nil {
			return nil
		}
		for i, p := range pieces {
			before[i], t.saved[p] = t.saved[p], t.right[p]
		}
		return t.store(b, pieces, files, false)
	}, hash)
	if err == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(pieces) - 1; i >= 0; i-- { // backwards: one may be there twice
		if t := r.torrents[hash]; t != nil {
			t.saved[pieces[i]] = before[i]
		}
	}
	return fmt.Errorf("write the record of verified pieces: %w", err)
}

func (r *record) close() error {
	return errors.Join(r.db.Close(), r.lock.Close())
}
