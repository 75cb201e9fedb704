package storage

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/anacrolix/torrent/metainfo"
	engine "github.com/anacrolix/torrent/storage"

	"braid/storage/durable"
)

// The record says which pieces of a torrent were verified and are on disk, so that the next start
// need not hash them again. Each torrent has a file for it beside the data:
//
//	magic      15 bytes, with the version of the format
//	checksum   SHA-256 of the state
//	state      in Go's gob encoding
//
// The file is always replaced as a whole (package durable), so a crash leaves the old state or the
// new one. The data is synced first, the record follows: pieces and blocks in the record are on
// disk.
//
// A piece counts at the next start if all of its files still have the size and modification time
// that the record holds. Pieces of other files are hashed again: somebody has changed these files,
// or braid was writing to them when it was killed.
const recordMagic = "braid record 1\n"

// state is the content of a record.
type state struct {
	Pieces bitset // the piece was verified and is on disk
	// Sizes and Times (modification, Unix ns) of the files when their pieces were recorded; see
	// stamp.
	Sizes, Times []int64
	// Owned are the files that an unfinished download may have made or changed since they were
	// recorded. They belong to the download whatever they look like. A complete file is not among
	// them: the record knows it.
	Owned bitset
	// Wanted are the files that the last download wanted; nil if no download has ever left a file
	// out.
	Wanted bitset
	// Blocks are the blocks of unfinished pieces that are on disk.
	Blocks map[int]bitset
}

// stamp is the size and modification time of a file.
type stamp struct {
	size    int64 // -1: the file does not exist
	modTime int64 // Unix ns
}

var (
	noFile = stamp{size: -1}
	// noStamp equals the stamp of no file: its pieces have to be hashed.
	noStamp = stamp{size: -2}
)

func stampFrom(st fs.FileInfo) stamp { return stamp{st.Size(), st.ModTime().UnixNano()} }

func newState(l Layout) state {
	s := state{
		Pieces: newBitset(l.Pieces()), Owned: newBitset(len(l.Files)), Blocks: map[int]bitset{},
		Sizes: make([]int64, len(l.Files)), Times: make([]int64, len(l.Files)),
	}
	for i := range l.Files {
		s.setStamp(i, noFile)
	}
	return s
}

func (s *state) stamp(file int) stamp { return stamp{s.Sizes[file], s.Times[file]} }

func (s *state) setStamp(file int, x stamp) { s.Sizes[file], s.Times[file] = x.size, x.modTime }

func (s *state) encode() ([]byte, error) {
	var body bytes.Buffer
	if err := gob.NewEncoder(&body).Encode(s); err != nil {
		return nil, err
	}
	return durable.Seal(recordMagic, body.Bytes()), nil
}

func decodeState(b []byte, l Layout) (s state, err error) {
	if b, err = durable.Unseal(recordMagic, b); err != nil {
		return s, err
	}
	if err := gob.NewDecoder(bytes.NewReader(b)).Decode(&s); err != nil {
		return s, fmt.Errorf("%w: %w", durable.ErrDamaged, err)
	}
	n := len(l.Files)
	if len(s.Sizes) != n || len(s.Times) != n || !s.Pieces.fits(l.Pieces()) || !s.Owned.fits(n) {
		return s, fmt.Errorf("%w: it is not of this torrent", durable.ErrDamaged)
	}
	if s.Blocks == nil {
		s.Blocks = map[int]bitset{}
	}
	return s, nil
}

// recordName is the name of a torrent's record below the data directory. file and mmap share the
// files, and the record.
func recordName(hash metainfo.Hash, kind Kind) string {
	if kind == KindMmap {
		kind = KindFile
	}
	return filepath.Join(recordDir, hash.HexString()+"."+string(kind)+".record")
}

// loadRecord reads the record of a torrent. Without one the state is that of a new torrent. A
// damaged record is set aside, and lost is true.
func (s *store) loadRecord(hash metainfo.Hash, l Layout) (saved state, lost bool, err error) {
	name := filepath.Join(s.dir, recordName(hash, s.kind))
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return newState(l), false, nil
	}
	if err != nil {
		return saved, false, fmt.Errorf("read the record of %s: %w", l.Name, err)
	}
	saved, damage := decodeState(b, l)
	if damage == nil {
		return saved, false, nil
	}
	aside := name + durable.AsideSuffix
	if err := os.Rename(name, aside); err != nil {
		return saved, false, fmt.Errorf("set the damaged record of %s aside: %w", l.Name, err)
	}
	s.log.Warn("the record of verified pieces is damaged; the data will be checked",
		"torrent", l.Name, "set_aside", aside, "error", damage)
	return newState(l), true, nil
}

// verdicts are what is known of the pieces of an open torrent.
type verdicts struct {
	mu      sync.Mutex
	checked []bool // of each piece: it was verified, or is known to be missing
	right   []bool // of each piece: it was verified and is right
	noted   bitset // pieces that have been right since the last note
	known   []bool // of each piece: it was checked at the last note
}

func (v *verdicts) get(piece int) engine.Completion {
	v.mu.Lock()
	defer v.mu.Unlock()
	return engine.Completion{Ok: v.checked[piece], Complete: v.right[piece]}
}

// set notes that a piece was checked, and tells whether it is right now and was not, or the other
// way round.
func (v *verdicts) set(piece int, right bool) (changed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	changed = v.right[piece] != right
	v.checked[piece], v.right[piece] = true, right
	if !right && v.noted != nil {
		v.noted.clear(piece)
	}
	return changed
}

// note notes the checked pieces and the right ones, at the beginning of a sync.
func (v *verdicts) note() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.noted, v.known = bitsetOf(v.right), slices.Clone(v.checked)
}

// knew tells whether all of these pieces were checked at the last note.
func (v *verdicts) knew(begin, end int) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !slices.Contains(v.known[begin:end], false)
}

// synced returns the noted pieces that have been right ever since. A piece that was wrong meanwhile
// may be right again, with data that is younger than the sync.
func (v *verdicts) synced() bitset {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.noted)
}

// lose notes that a right piece is not right any more. It returns false if the piece was not right.
func (v *verdicts) lose(piece int) (was bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	was, v.right[piece] = v.right[piece], false
	if v.noted != nil {
		v.noted.clear(piece)
	}
	return was
}

// record is the file that keeps what is known of one torrent's pieces.
type record struct {
	store  *store
	hash   metainfo.Hash
	layout Layout // with the files as the record counts them
	pieces *verdicts

	mu      sync.Mutex // also while the file is written, so that the last save writes the last state
	saved   state      // the state in the file; if unsaved, the state that it should have
	unsaved bool       // the last save has failed
}

// recorded is what is known of a torrent when it is opened.
type recorded struct {
	pieces  *verdicts
	changed []int          // files that are not as the record says
	blocks  map[int]bitset // of pieces that are not right
}

// openRecord reads the record of a torrent, and takes from it what the present files confirm. fresh
// means that there is no data. owned are the files that the download may make or change; nil: it
// has none that others could change.
func (s *store) openRecord(hash metainfo.Hash, l Layout, fresh bool, owned []bool) (*record, recorded, error) {
	counted := countedFiles(s.kind, hash, l)
	now, err := stamps(s.dir, counted)
	if err != nil {
		return nil, recorded{}, fmt.Errorf("look at the files of %s: %w", l.Name, err)
	}
	saved, _, err := s.loadRecord(hash, counted)
	if err != nil {
		return nil, recorded{}, err
	}
	if fresh {
		now = slices.Repeat([]stamp{noFile}, len(now))
	}
	v := &verdicts{}
	r := &record{store: s, hash: hash, layout: counted, pieces: v, saved: saved}
	known := recorded{pieces: v, blocks: map[int]bitset{}}
	v.checked, v.right, known.changed = saved.compare(counted, now)
	switch {
	case fresh:
	case s.options.Recheck != nil && s.options.Recheck(hash):
		clear(v.checked)
		clear(v.right)
		for i, x := range now {
			if x == saved.stamp(i) && x != noFile {
				known.changed = append(known.changed, i)
			}
		}
	default:
		known.blocks = r.keptIn(saved.Blocks, r.lacks(now, known.changed, owned != nil))
	}
	for p, bits := range known.blocks {
		v.checked[p] = v.checked[p] && !l.isWhole(p, bits) // the last download has not hashed it any more
	}
	// Data that is no longer trusted must not be trusted again if somebody sets the file's time
	// back. Nor must it count as missing then, or if this process ends before it is hashed.
	r.saved.Pieces, r.saved.Blocks = bitsetOf(v.right), maps.Clone(known.blocks)
	for _, i := range known.changed {
		if r.saved.stamp(i) != noFile {
			r.saved.setStamp(i, noStamp)
		}
	}
	for i := range owned {
		if owned[i] {
			r.saved.Owned.put(i, !r.isComplete(i))
		}
	}
	if s.options.Wanted != nil {
		if wanted := s.options.Wanted(hash, l); saved.Wanted != nil || slices.Contains(wanted, false) {
			r.saved.Wanted = bitsetOf(wanted)
		}
	}
	return r, known, r.save()
}

// compare tells which pieces were checked and are right, given how the files are now, and which
// files have changed.
func (s *state) compare(l Layout, now []stamp) (checked, right []bool, changed []int) {
	right = s.Pieces.bools(l.Pieces())
	checked = slices.Repeat([]bool{true}, len(right))
	for i, f := range l.Files {
		was := s.stamp(i)
		if now[i] != was {
			changed = append(changed, i)
		}
		if now[i] != was || was == noFile {
			begin, end := l.FilePieces(f)
			clear(checked[begin:end])
			clear(right[begin:end])
		}
	}
	// The pieces of a missing file are known to be missing, also those that it shares with a
	// changed file.
	for i, f := range l.Files {
		begin, end := l.FilePieces(f)
		for p := begin; p < end && now[i] == noFile; p++ {
			checked[p] = true
		}
	}
	return checked, right, changed
}

// lacks returns a function that tells whether bytes of the data are missing, or in a file that
// somebody else has changed. files tells that the data is in files, of which the unfinished
// download itself may have changed those that it owns. Nobody else changes a database.
func (r *record) lacks(now []stamp, changed []int, files bool) func(off int64, n int) bool {
	foreign := make([]bool, len(now))
	for _, i := range changed {
		foreign[i] = files && !r.saved.Owned.has(i)
	}
	return func(off int64, n int) bool {
		err := r.layout.Span(off, n, func(i int, at int64, from, to int) error {
			if foreign[i] || now[i] == noFile || files && now[i].size < at+int64(to-from) {
				return errLacks
			}
			return nil
		})
		return err != nil
	}
}

var errLacks = errors.New("the file lacks it")

// keptIn returns the recorded blocks that still count: those of unfinished pieces whose files do
// not lack them. The blocks of at most maxPartial pieces are kept.
func (r *record) keptIn(found map[int]bitset, lacks func(off int64, n int) bool) map[int]bitset {
	kept := map[int]bitset{}
	for piece, bits := range found {
		if piece < 0 || piece >= r.layout.Pieces() || r.pieces.right[piece] || len(kept) == maxPartial {
			continue
		}
		count := r.layout.blocksIn(piece)
		if !bits.fits(count) {
			continue
		}
		off, _ := r.layout.PieceRange(piece)
		there, any := newBitset(count), false
		for i := range count {
			if bits.has(i) && !lacks(off+int64(i)*blockSize, r.layout.blockLength(piece, i)) {
				there.set(i)
				any = true
			}
		}
		if any {
			kept[piece] = there
		}
	}
	return kept
}

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
	name := func(p string) string { return filepath.Join(dir, filepath.FromSlash(p)) }
	s, err := stampOfFile(name(f.Path))
	if errors.Is(err, fs.ErrNotExist) {
		s, err = stampOfFile(name(partName(f.Path)))
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

// remove removes pieces that are wrong or gone from the file at once. If they are gone, the next
// start hashes their files, since the data may be back by then. Right pieces enter the file with
// checkpoint.
func (r *record) remove(gone bool, pieces ...int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.unsaved && !slices.ContainsFunc(pieces, r.saved.Pieces.has) {
		return nil
	}
	for _, p := range pieces {
		if gone && r.saved.Pieces.has(p) {
			r.distrust(p)
		}
		r.saved.Pieces.clear(p)
	}
	return r.save()
}

// isComplete tells whether all pieces of a file are in the record. The caller holds r.mu, except
// while r is being opened.
func (r *record) isComplete(file int) bool {
	begin, end := r.layout.FilePieces(r.layout.Files[file])
	for p := begin; p < end; p++ {
		if !r.saved.Pieces.has(p) {
			return false
		}
	}
	return true
}

// distrust has the files of a piece hashed at the next start. The caller holds r.mu.
func (r *record) distrust(piece int) {
	off, n := r.layout.PieceRange(piece)
	_ = r.layout.Span(off, int(n), func(i int, _ int64, _, _ int) error {
		r.saved.setStamp(i, noStamp)
		return nil
	})
}

// forgetBlocks removes the blocks of a piece from the file at once.
func (r *record) forgetBlocks(piece int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.saved.Blocks[piece] == nil {
		return nil
	}
	delete(r.saved.Blocks, piece)
	return r.save()
}

// checkpoint records pieces and blocks whose data was synced since they were noted, and the stamps
// of changed files; if blocks is nil, those in the record stay. It removes the files that it
// records from changed. A file is not recorded before all of its pieces are checked and noted: with
// a valid stamp, the others would count as missing at the next start.
func (r *record) checkpoint(
	blocks map[int]bitset, changed map[int]bool, stampOf func(file int) stamp,
) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	files := map[int]stamp{}
	for i := range changed {
		if r.pieces.knew(r.layout.FilePieces(r.layout.Files[i])) {
			files[i] = stampOf(i)
		}
	}
	right := r.pieces.synced()
	if !r.unsaved && bytes.Equal(right, r.saved.Pieces) && blocks == nil && len(files) == 0 {
		return nil
	}
	r.saved.Pieces = right
	if blocks != nil {
		r.saved.Blocks = blocks
	}
	for i, x := range files {
		r.saved.setStamp(i, x)
		if x != noStamp && r.isComplete(i) {
			r.saved.Owned.clear(i)
		}
	}
	if err := r.save(); err != nil {
		return err
	}
	for i := range files {
		delete(changed, i)
	}
	return nil
}

// release ends the download, which has all its data on disk. A file stays owned only if it is
// among the changed files, which differ from the record.
func (r *record) release(changed map[int]bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if bytes.Count(r.saved.Owned, []byte{0}) == len(r.saved.Owned) {
		return nil
	}
	for i := range r.layout.Files {
		r.saved.Owned.put(i, r.saved.Owned.has(i) && changed[i])
	}
	return r.save()
}

// save writes the state unless the file has it already. The start of a service opens thousands of
// unchanged torrents, and each write waits for the disk. If a write fails, the next save repeats
// it. The caller holds r.mu, except while r is being opened.
func (r *record) save() error {
	name := recordName(r.hash, r.store.kind)
	b, err := r.saved.encode()
	if err == nil && !r.unsaved {
		if old, err := r.store.root.ReadFile(name); err == nil && bytes.Equal(old, b) {
			return nil
		}
	}
	if err == nil {
		err = durable.Replace(r.store.options.system, r.store.root, name, b)
	}
	if r.unsaved = err != nil; r.unsaved {
		return fmt.Errorf("write the record of %s: %w", r.layout.Name, err)
	}
	return nil
}

// KeptTorrent is the name of the .torrent file that a download of a magnet link keeps in the data
// directory. With it the link can be used later without asking peers for the metadata again.
func KeptTorrent(dir string, hash metainfo.Hash) string {
	return filepath.Join(dir, recordDir, hash.HexString()+".torrent")
}

// KeepTorrent writes that file. A store from OpenVerified keeps nothing.
func KeepTorrent(st Store, hash metainfo.Hash, torrent []byte) error {
	s := writable(st)
	if s == nil {
		return nil
	}
	name := KeptTorrent("", hash)
	if err := durable.Replace(s.options.system, s.root, name, torrent); err != nil {
		return fmt.Errorf("keep what is in the magnet link: %w", err)
	}
	return nil
}
