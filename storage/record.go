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
	"strconv"
	"strings"
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
//	     highest first, as they were when the pieces were recorded; size -1: the file was not there, -2: somebody else
//	     has changed it
//	'o'  a bit for each of 32768 files, as in 'p': a download that has not ended may have made or changed the file since
//	     it was recorded, so that it is ours whatever it is
//	'b'  with the number of a piece in place of a chunk's: a bit for each of its blocks of
//	     16 KiB, as in 'p': the block is on disk, and the piece is not complete
//
//	'w'  a bit for each of 32768 files, as in 'p': the last download wanted the file; not there
//	     if none has ever left one out
//
// The data of some pieces and blocks is synced, then the record is told of them (checkpoint), so
// that what is in the record is always on disk. A piece counts at the next start if all of its
// files are still what the record says, or have been told otherwise in the record before they were
// changed. Pieces of other files are hashed again: those of files that somebody has changed, and
// those of files that braid was writing to when it was killed.
const (
	recordName   = "completion.db"
	bitsChunk    = 32768
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
	lost   bool       // what it was is not known: it was damaged
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
	mine   []bool // of each file: the download may make it or change it; nil: of none
}

// stamp says how a file was left.
type stamp struct {
	size    int64 // -1: it is not there
	modTime int64 // Unix ns
}

var (
	noFile = stamp{size: -1}
	// noStamp is that of no file: its pieces have to be hashed.
	noStamp = stamp{size: -2}
)

func stampFrom(st fs.FileInfo) stamp { return stamp{st.Size(), st.ModTime().UnixNano()} }

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
	lost := false
	db, err := boltdb.Open(name, 0o644, recordOptions(), func(aside string, err error) {
		lost = true
		log.Warn("the record of verified pieces is damaged; the data will be checked", "set_aside", aside, "error", err)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open storage: %w", err), lock.Close())
	}
	return &record{dir: dir, kind: kind, system: sys, lock: lock, db: db, log: log, lost: lost, torrents: map[metainfo.Hash]*tally{}}, nil
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
			if exclusive {
				writeHolder(f)
			}
			return f, nil
		case !time.Now().Before(deadline):
			return nil, errors.Join(fmt.Errorf("%s: %w%s; wait for it, or choose another directory", dir, errLocked, holder(f)), f.Close())
		}
	}
}

// writeHolder says in the lock's file which process has it, for a message to people. Nothing depends on it.
func writeHolder(f *os.File) {
	_ = f.Truncate(0)
	_, _ = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
}

// maxCommand is how much of a command line is shown: enough for the command and its first arguments.
const maxCommand = 100

// holder names the process that has the lock, as far as that is known: it may be another user's, or in another container.
func holder(f *os.File) string {
	b := make([]byte, 32)
	n, _ := f.ReadAt(b, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil {
		return ""
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	command := strings.Join(strings.Split(strings.TrimRight(string(line), "\x00"), "\x00"), " ")
	switch {
	case err != nil || command == "":
		return "" // the process is not one of those that this one sees, so that its number says nothing
	case len(command) > maxCommand:
		command = strings.ToValidUTF8(command[:maxCommand], "") + "…"
	}
	return fmt.Sprintf(" (process %d: %s)", pid, command)
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

// recorded is what the record knows of a torrent.
type recorded struct {
	right   []bool         // of each piece
	changed []int          // files that are not as the record says
	blocks  map[int][]byte // of pieces that are not right: see 'b'
}

// open takes a torrent from the record, as far as its files are what they were. l has the files as
// the record counts them, mine are those that the download may make or change. It takes nothing
// with recheck, and knows that nothing is there if the data is fresh.
func (r *record) open(hash metainfo.Hash, l Layout, recheck, fresh bool, mine []bool) (known recorded, err error) {
	now, err := stamps(r.dir, l)
	if err != nil {
		return known, fmt.Errorf("open storage: %w", err)
	}
	for i := range now {
		if fresh {
			now[i] = noFile
		}
	}
	t := newTally(l)
	err = r.db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketName(hash, r.kind))
		known.changed = t.load(b, now)
		if mine != nil {
			t.mine = loadBits(b, 'o', len(l.Files))
		}
		if !recheck && !fresh {
			known.blocks = t.keptIn(loadBlocks(b, t.layout.Pieces()), t.lacks(now, known.changed))
		}
		for i, m := range mine {
			t.mine[i] = t.mine[i] || m
		}
		return nil
	})
	if err != nil {
		return known, fmt.Errorf("read the record of %s: %w", l.Name, err)
	}
	if recheck && !fresh {
		for p := range t.known {
			t.known[p] = false
		}
		clear(t.right)
	}
	for p, bits := range known.blocks {
		t.known[p] = t.known[p] && !l.isWhole(p, bits) // nobody was left to hash it
	}
	// What the record says and is no longer believed must not be believed when the file is touched back.
	err = r.update(func(b *bbolt.Bucket) error {
		copy(t.saved, t.right)
		return errors.Join(t.store(b, nil, nil, nil, true), storeBits(b, 'o', t.mine), storeOnlyBlocks(b, known.blocks))
	}, hash)
	if err != nil {
		return known, fmt.Errorf("write the record of %s: %w", l.Name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.torrents[hash] = t
	known.right = slices.Clone(t.right)
	return known, nil
}

// want notes which files a download wants.
func (r *record) want(hash metainfo.Hash, l Layout, wanted []bool) error {
	same := false
	err := r.db.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket(bucketName(hash, r.kind)); b == nil || b.Get(chunkKey('w', 0)) == nil {
			same = !slices.Contains(wanted, false)
		} else {
			same = slices.Equal(wanted, loadBits(b, 'w', len(wanted)))
		}
		return nil
	})
	if err == nil && !same {
		err = r.update(func(b *bbolt.Bucket) error { return storeBits(b, 'w', wanted) }, hash)
	}
	if err != nil {
		return fmt.Errorf("write the record of %s: %w", l.Name, err)
	}
	return nil
}

// lacks tells which bytes of the data are in no file that may be believed, given how the files are
// now and which of them have changed. A change may be the download's own, if that has not ended; a
// database is nobody else's.
func (t *tally) lacks(now []stamp, changed []int) func(off int64, n int) bool {
	foreign := make([]bool, len(now))
	for _, i := range changed {
		foreign[i] = t.mine != nil && !t.mine[i]
	}
	return func(off int64, n int) bool {
		err := t.layout.span(off, n, func(i int, at int64, from, to int) error {
			if foreign[i] || now[i] == noFile || t.mine != nil && now[i].size < at+int64(to-from) {
				return errLacks
			}
			return nil
		})
		return err != nil
	}
}

var errLacks = errors.New("the file lacks it")

// loadBlocks reads the blocks of at most maxPartial of so many pieces from a bucket, which may be
// nil. What it returns is the database's own, and not checked.
func loadBlocks(b *bbolt.Bucket, pieces int) map[int][]byte {
	out := map[int][]byte{}
	eachBlocks(b, func(key, bits []byte) {
		if p := binary.BigEndian.Uint32(key[1:]); int64(p) < int64(pieces) && len(out) < maxPartial {
			out[int(p)] = bits
		}
	})
	return out
}

// storeOnlyBlocks writes blocks, and takes out those of all other pieces.
func storeOnlyBlocks(b *bbolt.Bucket, blocks map[int][]byte) error {
	var all []note
	var stale [][]byte
	eachBlocks(b, func(key, _ []byte) { stale = append(stale, slices.Clone(key)) })
	for _, key := range stale {
		if err := b.Delete(key); err != nil {
			return err
		}
	}
	for p, bits := range blocks {
		all = append(all, note{piece: p, bits: bits})
	}
	return storeBlocks(b, all)
}

func storeBlocks(b *bbolt.Bucket, notes []note) error {
	for _, n := range notes {
		key := chunkKey('b', n.piece)
		if n.bits == nil {
			if err := b.Delete(key); err != nil {
				return err
			}
		} else if err := b.Put(key, n.bits); err != nil {
			return err
		}
	}
	return nil
}

// eachBlocks goes over the blocks in a bucket, which may be nil.
func eachBlocks(b *bbolt.Bucket, do func(key, bits []byte)) {
	if b == nil {
		return
	}
	c := b.Cursor()
	for k, v := c.Seek([]byte{'b'}); len(k) > 0 && k[0] == 'b'; k, v = c.Next() {
		if len(k) == len(chunkKey('b', 0)) && v != nil {
			do(k, v)
		}
	}
}

func newTally(l Layout) *tally {
	n := l.Pieces()
	return &tally{layout: l, known: make([]bool, n), right: make([]bool, n), saved: make([]bool, n)}
}

// load fills in what a bucket says, which may be nil, and returns the files that have changed since. A piece of a file
// that is not there is known to be missing; one of a file that has changed is not known.
func (t *tally) load(b *bbolt.Bucket, now []stamp) (changed []int) {
	l := t.layout
	t.right = loadBits(b, 'p', len(t.right))
	for p := range t.known {
		t.known[p] = true
	}
	for i, s := range loadStamps(b, len(l.Files)) {
		f := l.Files[i]
		if now[i] != s {
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

// loadBits reads n bits of a bucket, which may be nil.
func loadBits(b *bbolt.Bucket, letter byte, n int) []bool {
	out := make([]bool, n)
	var bits []byte
	for i := range out {
		at := i % bitsChunk
		if at == 0 && b != nil {
			bits = b.Get(chunkKey(letter, i/bitsChunk))
		}
		out[i] = at/8 < len(bits) && bits[at/8]>>(7-at%8)&1 == 1
	}
	return out
}

// storeBits writes them all.
func storeBits(b *bbolt.Bucket, letter byte, all []bool) error {
	for c := 0; c*bitsChunk < len(all); c++ {
		if err := storeChunk(b, letter, c, all); err != nil {
			return err
		}
	}
	return nil
}

func storeChunk(b *bbolt.Bucket, letter byte, chunk int, all []bool) error {
	part := all[chunk*bitsChunk : min(len(all), (chunk+1)*bitsChunk)]
	bits := make([]byte, (len(part)+7)/8)
	for i, set := range part {
		if set {
			bits[i/8] |= 1 << (7 - i%8)
		}
	}
	return b.Put(chunkKey(letter, chunk), bits)
}

// loadStamps reads those of n files from a bucket, which may be nil.
func loadStamps(b *bbolt.Bucket, n int) []stamp {
	out := make([]stamp, n)
	var chunk []byte
	for i := range out {
		if i%filesChunk == 0 && b != nil {
			chunk = b.Get(chunkKey('f', i/filesChunk))
		}
		out[i] = stampAt(chunk, i%filesChunk)
	}
	return out
}

func stampAt(b []byte, i int) stamp {
	if len(b) < (i+1)*stampBytes {
		return noFile
	}
	b = b[i*stampBytes:]
	return stamp{int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:]))}
}

// store writes the chunks that hold the pieces and files, or those of all pieces, and blocks.
func (t *tally) store(b *bbolt.Bucket, pieces []int, blocks []note, files map[int]stamp, all bool) error {
	chunks := map[int]bool{}
	for _, p := range pieces {
		chunks[p/bitsChunk] = true
	}
	for c := 0; all && c*bitsChunk < len(t.saved); c++ {
		chunks[c] = true
	}
	for c := range chunks {
		if err := storeChunk(b, 'p', c, t.saved); err != nil {
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
	return storeBlocks(b, blocks)
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
	s, err := stampOfFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		s, err = stampOfFile(name + partSuffix)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return noFile, nil
	}
	return s, err
}

func stampOfFile(name string) (stamp, error) {
	st, err := os.Stat(name)
	if err != nil {
		return stamp{}, err
	}
	return stampFrom(st), nil
}

// claims are what the record says of files: whether a download that has not ended may have made them, and how they were left.
func (r *record) claims(hash metainfo.Hash, l Layout) (mine []bool, then []stamp, err error) {
	err = r.db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketName(hash, r.kind))
		mine, then = loadBits(b, 'o', len(l.Files)), loadStamps(b, len(l.Files))
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read the record of %s: %w", l.Name, err)
	}
	return mine, then, nil
}

// forget closes a torrent. If its data was settled, all files are recorded as they were left but those that have changed.
func (r *record) forget(hash metainfo.Hash, settled bool, changed map[int]bool) error {
	r.mu.Lock()
	t := r.torrents[hash]
	delete(r.torrents, hash)
	r.mu.Unlock()
	if t == nil || !settled || !slices.Contains(t.mine, true) {
		return nil
	}
	for i := range t.mine {
		t.mine[i] = t.mine[i] && changed[i]
	}
	if err := r.update(func(b *bbolt.Bucket) error { return storeBits(b, 'o', t.mine) }, hash); err != nil {
		return fmt.Errorf("write the record of %s: %w", t.layout.Name, err)
	}
	return nil
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
	return r.save(hash, taken, nil, nil)
}

// checkpoint is told that the data of these pieces and blocks is on disk, and which files have
// changed. It takes the files away that are in the record now. A file of which some pieces were not
// checked yet stays: with its stamp in the record they would count as missing. left says how a file
// was left.
func (r *record) checkpoint(hash metainfo.Hash, pieces []int, blocks []note, changed map[int]bool, left func(file int) stamp) error {
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
		files[i] = left(i)
	}
	if len(pieces)+len(blocks)+len(files) == 0 {
		return nil
	}
	if err := r.save(hash, pieces, blocks, files); err != nil {
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

// save writes which of the pieces are right by now, and what blocks there are.
func (r *record) save(hash metainfo.Hash, pieces []int, blocks []note, files map[int]stamp) error {
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
		return t.store(b, pieces, blocks, files, false)
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
