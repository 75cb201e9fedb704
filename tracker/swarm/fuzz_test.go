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
	"slices"
	"testing"

	"braid/storage/durable"
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

// A member that is read from a journal is one that could have announced, and is written as it was
// read.
func FuzzParseMember(f *testing.F) {
	for _, m := range fuzzedMembers() {
		f.Add(m.appendKey(nil, wire.InfoHash{1}), m.appendValue(nil))
	}
	f.Fuzz(func(t *testing.T, k, v []byte) {
		h, m, err := parseMember(k, v)
		if err != nil {
			return
		}
		if !m.addr().Dialable() {
			t.Fatalf("a member at %v", m.addr())
		}
		if k2, v2 := m.appendKey(nil, h), m.appendValue(nil); !bytes.Equal(k2, k) || !bytes.Equal(v2, v) {
			t.Fatalf("%x %x is written as %x %x", k, v, k2, v2)
		}
	})
}

// So is one that is read from a store.
func FuzzParseShared(f *testing.F) {
	for _, m := range fuzzedMembers() {
		value := append(append(append([]byte{}, m.id[:]...), binary.BigEndian.AppendUint64(nil, m.identity)...), 'p', 0, 0, 0, 9)
		f.Add(m.addr().AppendCompact(nil), value)
	}
	f.Add([]byte{}, make([]byte, 33))
	f.Fuzz(func(t *testing.T, address, value []byte) {
		m, err := parseShared(address, value)
		if err != nil || !m.addr().Dialable() {
			return
		}
		if got := m.addr().AppendCompact(nil); len(got) == len(address) && !bytes.Equal(got, address) {
			t.Fatalf("%x is %v, which is %x", address, m.addr(), got)
		}
		if m.flags&isSeed != 0 || string(m.id[:]) != string(value[:20]) {
			t.Fatalf("%x is read as %+v", value, m)
		}
	})
}

// Whatever is in a journal whose checksum is right, it is read or damaged; what was read can be
// told and written, and is there after a restart.
func FuzzJournal(f *testing.F) {
	h := wire.InfoHash{1}
	var good, gone []byte
	for _, m := range fuzzedMembers() {
		good = m.appendEntry(good, h)
		gone = m.appendKey(append(gone, goneEntry), h)
	}
	downloads := func(n uint32) []byte {
		return binary.BigEndian.AppendUint32(append([]byte{downloadsEntry}, h[:]...), n)
	}
	f.Add(good)
	f.Add(slices.Concat(good, downloads(3)))
	f.Add(slices.Concat(good, downloads(1<<31)))
	f.Add(slices.Concat([]byte{aliveEntry}, make([]byte, 8), good))
	f.Add(slices.Concat(good, gone, good, good, gone[:1+memberKeyLen]))
	f.Add(slices.Concat(good, gone, []byte{memberEntry})) // all have left, and then it is damaged
	// Nothing is waited for until it is on a disk, which would be all that a fuzzer does.
	dir, err := os.MkdirTemp("/dev/shm", "braid-test-")
	if err != nil {
		dir = f.TempDir()
	}
	f.Cleanup(func() { os.RemoveAll(dir) })
	name := filepath.Join(dir, journalName)
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := errors.Join(os.RemoveAll(name), os.RemoveAll(name+durable.AsideSuffix)); err != nil {
			t.Fatal(err)
		}
		write, _, err := durable.OpenLog(name, 0, func([]byte) error { return nil })
		if err == nil {
			err = errors.Join(write.Append(b), write.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		read := func() (*Durable, Totals) {
			d := &Durable{Memory: NewMemory(Limits{}), log: slog.New(slog.DiscardHandler)}
			if err := d.load(name); err != nil {
				t.Fatal(err)
			}
			// If this input fails, the next one must not find the journal locked.
			t.Cleanup(func() { _ = errors.Join(d.journal.Close(), d.dir.Close()) })
			n, err := d.Totals(context.Background())
			if err != nil || n.IPv4+n.IPv6+n.SCION != n.Members || int64(n.Members) != d.members()[0]+d.members()[1]+d.members()[2] {
				t.Fatalf("%+v, %v, %v", n, d.members(), err)
			}
			return d, n
		}
		d, _ := read()
		for i := range d.parts {
			for h, tb := range d.parts[i].tables {
				if c := tb.counts(h); c.Complete < 0 || c.Incomplete < 0 || c.Downloaded < 0 || c.Downloaders < 0 {
					t.Fatalf("%+v", c)
				}
				if tb.size == 0 {
					t.Fatal("a swarm without members")
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
		counts := d.shard(h).tables[h].counts(h)
		if err := errors.Join(d.Sync(), d.journal.Close(), d.dir.Close()); err != nil {
			t.Fatal(err)
		}
		d, after := read()
		if got := d.shard(h).tables[h].counts(h); after != before || got != counts || d.stale {
			t.Fatalf("%+v %+v, and after a restart %+v %+v", before, counts, after, got)
		}
		if err := errors.Join(d.journal.Close(), d.dir.Close()); err != nil {
			t.Fatal(err)
		}
	})
}
