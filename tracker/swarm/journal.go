package swarm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"braid/pathsel"
	"braid/storage/boltdb"
	"braid/tracker/wire"
)

// Durable is a Memory with a journal: who came, changed or left is written to disk every so often, so that a restart,
// also after a crash, forgets only what happened since. Announces that change nothing are not written; after a restart every
// member has its lifetime before it again.
type Durable struct {
	*Memory
	name  string // of the database
	db    *boltdb.DB
	log   *slog.Logger
	stop  chan struct{}
	ended chan struct{}
	close func() error

	mu  sync.Mutex // one writer at a time
	err error      // of the last write; nil when one has succeeded since
	// astray: the database may have members that memory has not, and that are not among the dirty ones.
	astray bool
	given  bool // the note was read
}

const (
	// DefaultSync is how often the journal is written: what a crash may cost.
	DefaultSync = time.Second
	// journalName is the database's in the data directory.
	journalName = "swarms.db"
	// perWrite bounds the changes of one database transaction, which are all in memory until it ends.
	perWrite = 20_000
	// lockPatience is how long to wait for another process to let go of the database.
	lockPatience = time.Second
)

// The database, version 1. A member's key is info hash (20), kind (1), ISD-AS (8), host (16), port (2); its value peer
// ID (20), identity (8), flags (1). A table's key is its hash, its value the downloads (4). "synced" is Unix time, "note" what
// Keep was given.
var (
	membersBucket = []byte("members-1")
	tablesBucket  = []byte("tables-1")
	metaBucket    = []byte("meta-1")
	syncedKey     = []byte("synced")
	journalNote   = []byte("note")
)

const memberKeyLen, memberValueLen = 20 + 1 + 8 + 16 + 2, 20 + 8 + 1

// OpenDurable reads the journal in the directory, which is made if there is none, and writes to it at that interval. A
// journal that is damaged is set aside: peers come back with their next announce.
func OpenDurable(dir string, l Limits, every time.Duration, log *slog.Logger) (*Durable, error) {
	if every <= 0 {
		every = DefaultSync
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the tracker's data directory: %w", err)
	}
	name := filepath.Join(dir, journalName)
	d := &Durable{Memory: NewMemory(l), name: name, log: log, stop: make(chan struct{}), ended: make(chan struct{})}
	if err := d.start(); err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	for i := range d.parts {
		d.parts[i].dirty = newDirty()
	}
	d.close = sync.OnceValue(d.end)
	go d.run(every)
	return d, nil
}

func newDirty() *dirty {
	return &dirty{members: map[memberKey]struct{}{}, tables: map[wire.InfoHash]struct{}{}}
}

func (d *Durable) start() (err error) {
	if d.db, err = d.open(); err != nil {
		return err
	}
	if err = prepare(d.db); err == nil {
		err = d.load()
	}
	if errors.Is(err, boltdb.ErrDamaged) {
		d.Memory = NewMemory(d.limits)
		err = d.startOver(err)
	}
	if err != nil {
		return errors.Join(err, d.db.Close())
	}
	return nil
}

// open opens the database, which is a new one if there is none or a damaged one.
func (d *Durable) open() (*boltdb.DB, error) {
	opts := &bolt.Options{Timeout: lockPatience, FreelistType: bolt.FreelistMapType}
	return boltdb.Open(d.name, 0o600, opts, d.sayDamaged)
}

// prepare makes the buckets that are not there.
func prepare(db *boltdb.DB) error {
	return db.Update(func(tx *bolt.Tx) error {
		for _, name := range [][]byte{membersBucket, tablesBucket, metaBucket} {
			_, err := tx.CreateBucketIfNotExists(name)
			if errors.Is(err, bolterrors.ErrIncompatibleValue) {
				return fmt.Errorf("%w: %s is no bucket", boltdb.ErrDamaged, name)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// startOver sets the database aside and begins a new one, into which all that is in memory is to be written. If that
// fails, the damaged one stays in use, so that its next error leads here again.
func (d *Durable) startOver(reason error) error {
	aside, err := d.db.SetAside()
	if err != nil {
		return err
	}
	if aside != "" {
		d.sayDamaged(aside, reason)
	}
	fresh, err := d.open()
	if err != nil {
		return err
	}
	if err := prepare(fresh); err != nil {
		return errors.Join(err, fresh.Close())
	}
	_ = d.db.Close() // nothing in it is needed
	d.db = fresh
	return nil
}

func (d *Durable) sayDamaged(aside string, err error) {
	d.log.Error("the journal is damaged and set aside; peers come back with their next announce", "set_aside", aside, "error", err)
}

func (d *Durable) load() error {
	return d.db.Update(func(tx *bolt.Tx) error {
		if b := tx.Bucket(metaBucket).Get(syncedKey); len(b) == 8 {
			away := time.Since(time.Unix(int64(binary.BigEndian.Uint64(b)), 0))
			if away > d.limits.Lifetime {
				d.log.Info("the journal is older than a peer's lifetime: it is not used", "age", away.Round(time.Second))
				return errors.Join(tx.DeleteBucket(membersBucket), tx.DeleteBucket(tablesBucket),
					second(tx.CreateBucket(membersBucket)), second(tx.CreateBucket(tablesBucket)))
			}
		}
		err := tx.Bucket(membersBucket).ForEach(func(k, v []byte) error {
			h, x, err := parseMember(k, v)
			if err != nil {
				return err
			}
			s := d.shard(h)
			t := s.tables[h]
			if t == nil {
				t = &table{}
			}
			switch {
			case t.find(d.seed, x.addr()) >= 0:
			case !d.limits.room(d.members(), kindOf(x.addr())):
				d.astray = true
			default:
				d.put(s, h, t, x)
			}
			return nil
		})
		if err != nil {
			return err
		}
		return tx.Bucket(tablesBucket).ForEach(func(k, v []byte) error {
			if len(k) != 20 || len(v) != 4 || v[0] > 127 {
				return fmt.Errorf("%w: record of %d and %d bytes", boltdb.ErrDamaged, len(k), len(v))
			}
			if t := d.shard(wire.InfoHash(k)).tables[wire.InfoHash(k)]; t != nil {
				t.downloaded = int32(binary.BigEndian.Uint32(v))
			}
			return nil
		})
	})
}

func second[T any](_ T, err error) error { return err }

func (k memberKey) bytes() []byte {
	b := make([]byte, 0, memberKeyLen)
	b = append(b, k.hash[:]...)
	b = append(b, byte(kindOf(k.addr)))
	b = binary.BigEndian.AppendUint64(b, uint64(k.addr.IA))
	host := k.addr.Host.As16()
	return binary.BigEndian.AppendUint16(append(b, host[:]...), k.addr.Port)
}

func (m *member) value() []byte {
	b := append(make([]byte, 0, memberValueLen), m.id[:]...)
	return append(binary.BigEndian.AppendUint64(b, m.identity), byte(m.flags))
}

func parseMember(k, v []byte) (wire.InfoHash, member, error) {
	if len(k) != memberKeyLen || len(v) != memberValueLen || k[20] >= kinds || flags(v[28]) > isPaused {
		return wire.InfoHash{}, member{}, fmt.Errorf("%w: record of %d and %d bytes", boltdb.ErrDamaged, len(k), len(v))
	}
	be := binary.BigEndian
	m := member{
		ia: pathsel.IA(be.Uint64(k[21:])), host: [16]byte(k[29:45]), port: be.Uint16(k[45:]),
		id: wire.PeerID(v[:20]), identity: be.Uint64(v[20:]), flags: flags(v[28]),
	}
	if int(k[20]) != kindOf(m.addr()) || !m.addr().Dialable() {
		return wire.InfoHash{}, member{}, fmt.Errorf("%w: no peer is at %s", boltdb.ErrDamaged, m.addr())
	}
	return wire.InfoHash(k), m, nil
}

func (d *Durable) run(every time.Duration) {
	defer close(d.ended)
	tick := time.NewTicker(every)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-tick.C:
			err := d.Sync()
			switch {
			case err != nil && !failing: // said once: a full disk is not made fuller
				d.log.Error("the journal cannot be written; it is tried again all the time", "journal", d.name, "error", err)
			case err == nil && failing:
				d.log.Warn("the journal is written again", "journal", d.name)
			}
			failing = err != nil
		case <-d.stop:
			return
		}
	}
}

// change is one record to be written; a nil value takes it out.
type change struct{ key, value []byte }

// Sync writes what has changed since the last time.
func (d *Durable) Sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = d.sync()
	return d.err
}

func (d *Durable) sync() error {
	if d.astray {
		if err := d.compare(); err != nil && !errors.Is(err, boltdb.ErrDamaged) {
			d.forgetDirty()
			return err
		}
		d.astray = false
		for i := range d.parts {
			d.parts[i].allDirty()
		}
	}
	var members, tables []change
	var taken [shards]*dirty
	for i := range d.parts {
		taken[i] = d.parts[i].takeDirty(d.seed, &members, &tables)
	}
	if len(members)+len(tables) == 0 {
		return nil
	}
	err := errors.Join(d.write(membersBucket, members), d.write(tablesBucket, tables))
	if errors.Is(err, boltdb.ErrDamaged) {
		err = d.startOver(err)
		for i := range d.parts {
			d.parts[i].allDirty()
		}
	}
	if err != nil {
		// To be written the next time, as it is then.
		for i := range d.parts {
			d.parts[i].putBack(taken[i])
		}
		d.forgetDirty()
	}
	return err
}

// Healthy is the error of the last write of the journal, or nil.
func (d *Durable) Healthy() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

func (s *shard) takeDirty(seed hashSeed, members, tables *[]change) *dirty {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.dirty
	if len(was.members)+len(was.tables) == 0 {
		return nil
	}
	s.dirty = newDirty()
	for k := range was.members {
		c := change{key: k.bytes()}
		if t := s.tables[k.hash]; t != nil {
			if i := t.find(seed, k.addr); i >= 0 {
				c.value = t.groups[kindOf(k.addr)].members[i].value()
			}
		}
		*members = append(*members, c)
	}
	for h := range was.tables {
		c := change{key: h[:]}
		if t := s.tables[h]; t != nil {
			c.value = binary.BigEndian.AppendUint32(nil, uint32(t.downloaded))
		}
		*tables = append(*tables, c)
	}
	return was
}

// allDirty has everything written again.
func (s *shard) allDirty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for h, t := range s.tables {
		t.each(func(m *member) { s.dirtyMember(h, m.addr()) })
		if t.downloaded > 0 {
			s.dirtyTable(h)
		}
	}
}

func (s *shard) putBack(was *dirty) {
	if was == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range was.members {
		s.dirty.members[k] = struct{}{}
	}
	for h := range was.tables {
		s.dirty.tables[h] = struct{}{}
	}
}

// write puts the changes into the bucket in the order of their keys, which is that of the database's pages.
func (d *Durable) write(bucket []byte, changes []change) error {
	slices.SortFunc(changes, func(a, b change) int { return bytes.Compare(a.key, b.key) })
	for part := range slices.Chunk(changes, perWrite) {
		err := d.db.Update(func(tx *bolt.Tx) error {
			b := tx.Bucket(bucket)
			for _, c := range part {
				var err error
				if c.value == nil {
					err = b.Delete(c.key)
				} else {
					err = b.Put(c.key, c.value)
				}
				if err != nil {
					return err
				}
			}
			return stamp(tx)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// stamp says that the journal is that of a living tracker, also where nothing changes.
func (d *Durable) stamp() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.db.Update(stamp)
}

func stamp(tx *bolt.Tx) error {
	return tx.Bucket(metaBucket).Put(syncedKey, binary.BigEndian.AppendUint64(nil, uint64(time.Now().Unix())))
}

// Sweep implements Store.
func (d *Durable) Sweep(ctx context.Context) error {
	return errors.Join(d.Memory.Sweep(ctx), d.stamp())
}

// Close implements Store.
func (d *Durable) Close() error { return d.close() }

func (d *Durable) end() error {
	close(d.stop)
	<-d.ended
	if err := errors.Join(d.Sync(), d.Sync(), d.stamp(), d.db.Close()); err != nil {
		return fmt.Errorf("close the journal: %w", err)
	}
	return nil
}
