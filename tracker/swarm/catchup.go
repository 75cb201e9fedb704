package swarm

import (
	"bytes"

	bolt "go.etcd.io/bbolt"

	"braid/tracker/wire"
)

// mostDirty bounds the changes that wait for a disk that does not take them. If there are more, database and memory are compared
// when it does again.
const mostDirty = 1 << 16

// forgetDirty keeps what waits to be written from growing without end: that there is much is all that is noted then.
func (d *Durable) forgetDirty() {
	waiting := 0
	for i := range d.parts {
		waiting += d.parts[i].countDirty()
	}
	if waiting <= mostDirty {
		return
	}
	d.astray = true
	for i := range d.parts {
		d.parts[i].dropDirty()
	}
}

// compare takes out of the database what is not in memory.
func (d *Durable) compare() error {
	for _, b := range []struct {
		name  []byte
		there func(key []byte) bool
	}{{membersBucket, d.hasMember}, {tablesBucket, d.hasTable}} {
		var gone []change
		err := d.db.View(func(tx *bolt.Tx) error {
			return tx.Bucket(b.name).ForEach(func(k, _ []byte) error {
				if !b.there(k) {
					gone = append(gone, change{key: bytes.Clone(k)})
				}
				return nil
			})
		})
		if err == nil {
			err = d.write(b.name, gone)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *Durable) hasMember(key []byte) bool {
	h, m, err := parseMember(key, make([]byte, memberValueLen))
	if err != nil {
		return false
	}
	s := d.shard(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[h]
	return t != nil && t.find(d.seed, m.addr()) >= 0
}

func (d *Durable) hasTable(key []byte) bool {
	if len(key) != len(wire.InfoHash{}) {
		return false
	}
	s := d.shard(wire.InfoHash(key))
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tables[wire.InfoHash(key)] != nil
}

func (s *shard) countDirty() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.dirty.members) + len(s.dirty.tables)
}

func (s *shard) dropDirty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirty = newDirty()
}
