package swarm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"braid/pathsel"
	"braid/storage/durable"
	"braid/tracker/wire"
)

// Durable is a Memory with a journal: changes are written to disk every so often, so a restart
// forgets only the latest ones, also after a crash. Announces that change nothing are not written;
// after a restart each member has its whole lifetime left.
type Durable struct {
	*Memory
	dir    *os.Root
	log    *slog.Logger
	every  time.Duration // between syncs
	stop   chan struct{}
	ended  chan struct{}
	close  func() error
	last   atomic.Pointer[synced]
	unsaid atomic.Bool // the journal shall say that the tracker is running

	mu      sync.Mutex // held by one writer at a time, and for long if the disk hangs
	journal *durable.Log
	waiting []byte // entries that could not be written yet, beside the news of the shards
	stale   bool   // the journal lacks changes that are not waiting: it must be rewritten
	given   bool   // the note was read
}

// synced is the outcome of a sync.
type synced struct {
	err error
	at  time.Time
}

const (
	// DefaultSync is how often the journal is written: what a crash may cost.
	DefaultSync = time.Second
	// journalName is the journal's in the data directory.
	journalName = "swarms.journal"
	// lockPatience is how long to wait until another process has closed the journal.
	lockPatience = time.Second
	// diskPatience is how long a sync may take before the disk counts as broken.
	diskPatience = 10 * time.Second
	// mostWaiting bounds the bytes of entries that wait while the disk fails. If there are more,
	// they are dropped, and the whole journal is rewritten once the disk works again.
	mostWaiting = 4 << 20
	// mostNews bounds the news of a shard in the same way: a sync may hang.
	mostNews = 1 << 20
)

// A batch of the journal is a list of entries. Each entry is a byte for its kind, and then the
// bytes that are named here.
const (
	memberEntry    = 'm' // a member's key and value: it was added or has changed
	goneEntry      = 'g' // a member's key: it was removed
	downloadsEntry = 'd' // info hash, downloads (4): of a swarm that has members
	aliveEntry     = 'a' // Unix time (8): the tracker was running
)

// A member's key is info hash (20), kind (1), ISD-AS (8), host (16), port (2); its value peer ID
// (20), identity (8), flags (1).
const memberKeyLen, memberValueLen = 20 + 1 + 8 + 16 + 2, 20 + 8 + 1

var entryLen = map[byte]int{
	memberEntry: memberKeyLen + memberValueLen, goneEntry: memberKeyLen, downloadsEntry: 24, aliveEntry: 8,
}

// OpenDurable reads the journal in the directory, which is made if there is none, and writes to it
// at that interval. A damaged journal is set aside, and what precedes the damage is used: peers
// come back with their next announce.
func OpenDurable(dir string, l Limits, every time.Duration, log *slog.Logger) (*Durable, error) {
	if every <= 0 {
		every = DefaultSync
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the tracker's data directory: %w", err)
	}
	d := &Durable{
		Memory: NewMemory(l), log: log, every: every,
		stop: make(chan struct{}), ended: make(chan struct{}),
	}
	if err := d.load(filepath.Join(dir, journalName)); err != nil {
		return nil, fmt.Errorf("open the journal in %s: %w", dir, err)
	}
	d.close = sync.OnceValue(d.end)
	go d.run()
	return d, nil
}

// load opens the journal and reads it into memory.
func (d *Durable) load(name string) error {
	dir, err := os.OpenRoot(filepath.Dir(name))
	if err != nil {
		return err
	}
	alive := time.Now()
	apply := func(batch []byte) error { return d.apply(batch, &alive) }
	journal, damage, err := durable.OpenLog(name, lockPatience, apply)
	if err != nil {
		return errors.Join(err, dir.Close())
	}
	if damage != nil {
		d.stale = true
		d.log.Error("the journal is damaged and set aside; missing peers come back with their next announce",
			"set_aside", name+durable.AsideSuffix, "error", damage)
	}
	if away := time.Since(alive); away > d.limits.Lifetime {
		d.stale = true
		d.Memory = NewMemory(d.limits)
		d.log.Info("the journal is older than a peer's lifetime: it is not used", "age", away.Round(time.Second))
	}
	d.dir, d.journal = dir, journal
	d.shrink()
	for i := range d.parts {
		d.parts[i].journaled = true
	}
	if d.stale {
		err = d.rewrite()
	}
	d.last.Store(&synced{err, time.Now()})
	return nil
}

// apply puts a batch into memory. It sets alive to the last time at which the tracker was running.
func (d *Durable) apply(batch []byte, alive *time.Time) error {
	for len(batch) > 0 {
		kind := batch[0]
		n, known := entryLen[kind]
		if !known || len(batch) <= n {
			return fmt.Errorf("%w: entry %q of %d bytes", durable.ErrDamaged, kind, len(batch)-1)
		}
		e := batch[1 : 1+n]
		batch = batch[1+n:]
		switch kind {
		case memberEntry:
			h, m, err := parseMember(e[:memberKeyLen], e[memberKeyLen:])
			if err != nil {
				return err
			}
			d.restore(h, m)
		case goneEntry:
			h, m, err := parseMember(e, make([]byte, memberValueLen))
			if err != nil {
				return err
			}
			s := d.shard(h)
			if t := s.tables[h]; t != nil {
				if i := t.find(d.seed, m.addr()); i >= 0 {
					d.drop(s, h, t, t.groups[kindOf(m.addr())], i)
				}
			}
		case downloadsEntry:
			if e[20] > 127 {
				return fmt.Errorf("%w: too many downloads", durable.ErrDamaged)
			}
			if t := d.shard(wire.InfoHash(e)).tables[wire.InfoHash(e)]; t != nil {
				t.downloaded = int32(binary.BigEndian.Uint32(e[20:]))
			}
		case aliveEntry:
			*alive = time.Unix(int64(binary.BigEndian.Uint64(e)), 0)
		}
	}
	return nil
}

// restore adds a member, or replaces what is known of it.
func (d *Durable) restore(h wire.InfoHash, m member) {
	s := d.shard(h)
	t := s.tables[h]
	if t == nil {
		t = &table{}
	}
	if i := t.find(d.seed, m.addr()); i >= 0 {
		t.remove(d.seed, t.groups[kindOf(m.addr())], i)
		t.add(d.seed, m)
		return
	}
	d.put(s, h, t, m)
}

// shrink drops members for which there is no room, since the limits were higher in the last run.
func (d *Durable) shrink() {
	for i := range d.parts {
		for h, t := range d.parts[i].tables {
			for k, g := range t.groups {
				for g != nil && len(g.members) > 0 && !d.holds(k) {
					d.drop(&d.parts[i], h, t, g, 0)
					d.stale = true
				}
			}
		}
	}
}

// holds reports whether there is room for all members of a kind.
func (d *Durable) holds(kind int) bool {
	members := d.members()
	members[kind]--
	return d.limits.room(members, kind)
}

// appendKey writes the key of a member of the swarm.
func (m *member) appendKey(b []byte, h wire.InfoHash) []byte {
	b = append(append(b, h[:]...), byte(kindOf(m.addr())))
	b = append(binary.BigEndian.AppendUint64(b, uint64(m.ia)), m.host[:]...)
	return binary.BigEndian.AppendUint16(b, m.port)
}

func (m *member) appendValue(b []byte) []byte {
	return append(binary.BigEndian.AppendUint64(append(b, m.id[:]...), m.identity), byte(m.flags))
}

// appendEntry writes that the member was added to the swarm or has changed.
func (m *member) appendEntry(b []byte, h wire.InfoHash) []byte {
	return m.appendValue(m.appendKey(append(b, memberEntry), h))
}

func parseMember(k, v []byte) (wire.InfoHash, member, error) {
	if len(k) != memberKeyLen || len(v) != memberValueLen || k[20] >= kinds || flags(v[28]) > isPaused {
		return wire.InfoHash{}, member{},
			fmt.Errorf("%w: record of %d and %d bytes", durable.ErrDamaged, len(k), len(v))
	}
	be := binary.BigEndian
	m := member{
		ia: pathsel.IA(be.Uint64(k[21:])), host: [16]byte(k[29:45]), port: be.Uint16(k[45:]),
		id: wire.PeerID(v[:20]), identity: be.Uint64(v[20:]), flags: flags(v[28]),
	}
	if int(k[20]) != kindOf(m.addr()) || !m.addr().Dialable() {
		return wire.InfoHash{}, member{}, fmt.Errorf("%w: no peer is at %s", durable.ErrDamaged, m.addr())
	}
	return wire.InfoHash(k), m, nil
}

func (d *Durable) run() {
	defer close(d.ended)
	tick := time.NewTicker(d.every)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-tick.C:
			err := d.Sync()
			switch {
			case err != nil && !failing: // logged once: the log may be on the full disk
				d.log.Error("the journal cannot be written; the tracker keeps trying", "error", err)
			case err == nil && failing:
				d.log.Warn("the journal is written again")
			}
			failing = err != nil
		case <-d.stop:
			return
		}
	}
}

// Sync writes what has changed since the last time.
func (d *Durable) Sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.sync()
	d.last.Store(&synced{err, time.Now()})
	return err
}

func (d *Durable) sync() error {
	for i := range d.parts {
		s := &d.parts[i]
		s.mu.Lock()
		d.take(s)
		s.mu.Unlock()
	}
	if d.stale {
		d.waiting = nil // all of it will be in the rewritten journal
	}
	// If the rewrite of a long journal fails, the disk may still have room for a batch.
	if d.stale || d.journal.IsLong() {
		if err := d.rewrite(); err == nil || d.stale {
			return err
		}
	}
	if len(d.waiting) == 0 && !d.unsaid.Load() {
		return nil
	}
	return d.wrote(d.journal.Append(append(d.waiting, alive()...)))
}

// take moves the news of a shard to the entries that wait. The caller holds the shard's lock.
func (d *Durable) take(s *shard) {
	d.waiting, d.stale = append(d.waiting, s.news...), d.stale || s.lost
	s.news, s.lost = nil, false
}

// wrote takes note of whether the entries that wait were written.
func (d *Durable) wrote(err error) error {
	if err == nil {
		d.waiting = nil
		d.unsaid.Store(false)
	} else if len(d.waiting) > mostWaiting {
		d.waiting, d.stale = nil, true
	}
	return err
}

// rewrite replaces the journal with one of all that is in memory.
func (d *Durable) rewrite() error {
	err := d.wrote(d.journal.Rewrite(func(add func(batch []byte) error) error {
		if err := add(alive()); err != nil {
			return err
		}
		for i := range d.parts {
			if batch := d.all(&d.parts[i]); len(batch) > 0 {
				if err := add(batch); err != nil {
					return err
				}
			}
		}
		return nil
	}))
	d.stale = d.stale && err != nil
	return err
}

// Healthy is the error of the last write of the journal, or nil. If the disk hangs, no write ends,
// and Healthy says so without waiting.
func (d *Durable) Healthy() error {
	last := d.last.Load()
	if late := time.Since(last.at) - d.every; late > diskPatience {
		return fmt.Errorf("the disk has not answered for %s", late.Round(time.Second))
	}
	return last.err
}

// all returns entries of everything in a shard, in place of its news.
func (d *Durable) all(s *shard) (batch []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.take(s)
	for h, t := range s.tables {
		t.each(func(m *member) { batch = m.appendEntry(batch, h) })
		if t.downloaded > 0 {
			batch = t.appendDownloads(batch, h)
		}
	}
	return batch
}

func (t *table) appendDownloads(b []byte, h wire.InfoHash) []byte {
	return binary.BigEndian.AppendUint32(append(append(b, downloadsEntry), h[:]...), uint32(t.downloaded))
}

// alive is an entry that says that the tracker is running.
func alive() []byte {
	return binary.BigEndian.AppendUint64([]byte{aliveEntry}, uint64(time.Now().Unix()))
}

// Sweep implements Store. The next sync notes that the tracker is running, even if nothing changes.
func (d *Durable) Sweep(ctx context.Context) error {
	d.unsaid.Store(true)
	return d.Memory.Sweep(ctx)
}

// Close implements Store.
func (d *Durable) Close() error { return d.close() }

func (d *Durable) end() error {
	close(d.stop)
	<-d.ended
	d.unsaid.Store(true)
	if err := errors.Join(d.Sync(), d.journal.Close(), d.dir.Close()); err != nil {
		return fmt.Errorf("close the journal: %w", err)
	}
	return nil
}

var _ Keeper = (*Durable)(nil)

// The note of Keep is a file of its own, with a checksum, which is replaced as a whole.
const (
	noteName  = "swarms.note"
	noteMagic = "braid note 1\n"
)

// Keep implements Keeper.
func (d *Durable) Keep(_ context.Context, note []byte, _ time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(note) > MaxNote {
		return fmt.Errorf("a note of %d bytes, more than %d", len(note), MaxNote)
	}
	if err := durable.Replace(durable.OS{}, d.dir, noteName, durable.Seal(noteMagic, note)); err != nil {
		return fmt.Errorf("write the tracker's note: %w", err)
	}
	return nil
}

// Kept implements Keeper.
func (d *Durable) Kept(context.Context) ([][]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.given {
		return nil, nil
	}
	d.given = true
	b, err := d.dir.ReadFile(noteName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var note []byte
	if err == nil {
		note, err = durable.Unseal(noteMagic, b)
	}
	if err != nil {
		return nil, fmt.Errorf("read the tracker's note: %w", err)
	}
	if len(note) == 0 || len(note) > MaxNote {
		return nil, nil
	}
	return [][]byte{note}, nil
}
