package swarm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"

	"braid/storage/boltdb"
	"braid/tracker/wire"
)

// members to begin with, one of each kind of network.
func fuzzedMembers() []member {
	var out []member
	for i, a := range []wire.Addr{
		{Host: netip.MustParseAddr("10.0.0.1"), Port: 1},
		{Host: netip.MustParseAddr("2001:db8::1"), Port: 2},
		{IA: 1<<48 | 5, Host: netip.MustParseAddr("10.0.0.1"), Port: 3},
		{IA: 1<<48 | 5, Host: netip.MustParseAddr("fd00::1"), Port: 4},
	} {
		m := (&Visit{Addr: a, Identity: uint64(i), ID: wire.PeerID{byte(i)}, Seed: i == 1}).member(0)
		out = append(out, m)
	}
	return out
}

// A member that is read from a journal is one that could have announced, and is written as it was read.
func FuzzParseMember(f *testing.F) {
	for _, m := range fuzzedMembers() {
		k := memberKey{wire.InfoHash{1}, m.addr()}
		f.Add(k.bytes(), m.value())
	}
	f.Fuzz(func(t *testing.T, k, v []byte) {
		h, m, err := parseMember(k, v)
		if err != nil {
			return
		}
		if !m.addr().Dialable() {
			t.Fatalf("a member at %v", m.addr())
		}
		if again := (memberKey{h, m.addr()}); !bytes.Equal(again.bytes(), k) || !bytes.Equal(m.value(), v) {
			t.Fatalf("%x %x is written as %x %x", k, v, again.bytes(), m.value())
		}
	})
}

// So is one that is read from a store.
func FuzzParseShared(f *testing.F) {
	for _, m := range fuzzedMembers() {
		value := append(append(append([]byte{}, m.id[:]...), binary.BigEndian.AppendUint64(nil, m.identity)...), 'p', 0, 0, 0, 9)
		f.Add(addressBytes(m.addr()), value)
	}
	f.Add([]byte{}, make([]byte, 33))
	f.Fuzz(func(t *testing.T, address, value []byte) {
		m, err := parseShared(address, value)
		if err != nil || !m.addr().Dialable() {
			return
		}
		if got := addressBytes(m.addr()); len(got) == len(address) && !bytes.Equal(got, address) {
			t.Fatalf("%x is %v, which is %x", address, m.addr(), got)
		}
		if m.flags&isSeed != 0 || string(m.id[:]) != string(value[:20]) {
			t.Fatalf("%x is read as %+v", value, m)
		}
	})
}

// Whatever records are in a journal that is whole, it is read or damaged; what was read can be told and written, and is
// there after a restart.
func FuzzJournal(f *testing.F) {
	all := fuzzedMembers()
	record := func(bucket byte, k, v []byte) []byte {
		return append(append([]byte{bucket, byte(len(k)), byte(len(v))}, k...), v...)
	}
	var good []byte
	for _, m := range all {
		k := memberKey{wire.InfoHash{1}, m.addr()}
		good = append(good, record(0, k.bytes(), m.value())...)
	}
	h := wire.InfoHash{1}
	f.Add(good)
	f.Add(append(good, record(1, h[:], []byte{0, 0, 0, 3})...))
	f.Add(append(good, record(1, h[:], []byte{0xff, 0, 0, 3})...))
	f.Add(append(record(2, syncedKey, binary.BigEndian.AppendUint64(nil, 1)), good...))
	f.Add(append(record(2, journalNote, []byte("note")), record(2, membersBucket, nil)...))
	buckets := [][]byte{membersBucket, tablesBucket, metaBucket}
	name := filepath.Join(f.TempDir(), journalName)
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
		// Nothing is waited for until it is on disk, which would be all that a fuzzer does.
		db, err := boltdb.Open(name, 0o600, &bolt.Options{NoSync: true, NoGrowSync: true, PageSize: 1024, FreelistType: bolt.FreelistMapType}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		err = db.Update(func(tx *bolt.Tx) error {
			for len(b) >= 3 {
				where, k, v := int(b[0])%len(buckets), int(b[1]), int(b[2])
				if b = b[3:]; len(b) < k+v || k == 0 {
					break
				}
				bucket, err := tx.CreateBucketIfNotExists(buckets[where])
				if err != nil {
					return err
				}
				if err := bucket.Put(b[:k], b[k:k+v]); err != nil {
					return err
				}
				b = b[k+v:]
			}
			return nil
		})
		if err == nil {
			err = prepare(db)
		}
		if err != nil {
			t.Fatal(err)
		}
		read := func() (*Durable, Totals) {
			d := &Durable{Memory: NewMemory(Limits{}), name: name, db: db, log: slog.New(slog.DiscardHandler)}
			if err := d.load(); err != nil {
				if !errors.Is(err, boltdb.ErrDamaged) {
					t.Fatal(err)
				}
				return nil, Totals{}
			}
			for i := range d.parts {
				d.parts[i].dirty = newDirty()
			}
			n, err := d.Totals(context.Background())
			if err != nil || n.IPv4+n.IPv6+n.SCION != n.Members || int64(n.Members) != d.members()[0]+d.members()[1]+d.members()[2] {
				t.Fatalf("%+v, %v, %v", n, d.members(), err)
			}
			return d, n
		}
		d, _ := read()
		if d == nil {
			return
		}
		for i := range d.parts {
			for h, tb := range d.parts[i].tables {
				if c := tb.counts(h); c.Complete < 0 || c.Incomplete < 0 || c.Downloaded < 0 || c.Downloaders < 0 {
					t.Fatalf("%+v", c)
				}
				tb.each(func(m *member) {
					if !m.addr().Dialable() {
						t.Fatalf("a member at %v", m.addr())
					}
				})
			}
		}
		v := Visit{InfoHash: wire.InfoHash{1}, Identity: 99, Addr: wire.Addr{Host: netip.MustParseAddr("192.0.2.1"), Port: 7}, Want: 50, Reaches: IPv4 | IPv6 | SCION}
		if _, err := d.Announce(context.Background(), v); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Kept(context.Background()); err != nil {
			t.Fatal(err)
		}
		before, err := d.Totals(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Sync(); err != nil {
			t.Fatal(err)
		}
		if d, after := read(); d == nil || after != before {
			t.Fatalf("%+v, and after a restart %+v", before, after)
		}
	})
}
