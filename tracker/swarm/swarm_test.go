package swarm_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"braid/tracker/swarm"
	"braid/tracker/wire"
)

func sleep(_ *testing.T, d time.Duration) { time.Sleep(d) } // in a bubble

func TestMemory(t *testing.T) {
	testStore(t, synctest.Test, opener{
		open: func(_ *testing.T, l swarm.Limits) swarm.Store { return swarm.NewMemory(l) }, pass: sleep,
	})
}

func TestDurable(t *testing.T) {
	testStore(t, synctest.Test, opener{
		open: func(t *testing.T, l swarm.Limits) swarm.Store { return openDurable(t, t.TempDir(), l) }, pass: sleep,
	})
}

func openDurable(t *testing.T, dir string, l swarm.Limits) *swarm.Durable {
	t.Helper()
	d, err := swarm.OpenDurable(dir, l, time.Minute, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func visit(n int) swarm.Visit {
	v := swarm.Visit{InfoHash: wire.InfoHash{byte(n)}, Identity: uint64(n), Want: 5, Reaches: swarm.IPv4 | swarm.SCION}
	v.Addr = wire.Addr{Host: netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), Port: 1}
	if n%2 == 0 {
		v.Addr.IA = 1<<48 | 5
	}
	return v
}

func announce(t *testing.T, s swarm.Store, v swarm.Visit) {
	t.Helper()
	if _, err := s.Announce(context.Background(), v); err != nil {
		t.Fatal(err)
	}
}

func counts(t *testing.T, s swarm.Store, h wire.InfoHash) wire.Counts {
	t.Helper()
	c, err := s.Scrape(context.Background(), []wire.InfoHash{h})
	if err != nil {
		t.Fatal(err)
	}
	return c[0]
}

// What was written is there after a restart, exactly; what left is not.
func TestDurableRestart(t *testing.T) {
	dir := t.TempDir()
	d := openDurable(t, dir, swarm.Limits{})
	for n := range 1000 {
		announce(t, d, visit(n))
	}
	done := visit(3)
	done.Event, done.Seed = wire.Completed, true
	announce(t, d, done)
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	gone := visit(5)
	gone.Event = wire.Stopped
	announce(t, d, gone)
	want := map[wire.InfoHash]wire.Counts{}
	for n := range 256 {
		h := wire.InfoHash{byte(n)}
		want[h] = counts(t, d, h)
	}
	before, _ := d.Totals(t.Context())
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = openDurable(t, dir, swarm.Limits{})
	defer d.Close()
	if after, _ := d.Totals(t.Context()); after != before || after.Members != 999 {
		t.Errorf("%+v, and after the restart %+v", before, after)
	}
	for h, c := range want {
		if got := counts(t, d, h); got != c {
			t.Errorf("%x: %+v, and after the restart %+v", h[:1], c, got)
		}
	}
	if c := counts(t, d, done.InfoHash); c.Downloaded != 1 {
		t.Errorf("downloads are forgotten: %+v", c)
	}
}

// A copy of the file at any time is what a crash leaves: it holds all that was synced, and is read
// at once.
func TestDurableCrash(t *testing.T) {
	dir := t.TempDir()
	d := openDurable(t, dir, swarm.Limits{})
	defer d.Close()
	for round := 1; round <= 5; round++ {
		for n := range 200 {
			announce(t, d, visit(round*1000+n))
		}
		if err := d.Sync(); err != nil {
			t.Fatal(err)
		}
		announce(t, d, visit(round*1000+500)) // not synced
		b, err := os.ReadFile(filepath.Join(dir, "swarms.journal"))
		if err != nil {
			t.Fatal(err)
		}
		other := t.TempDir()
		if err := os.WriteFile(filepath.Join(other, "swarms.journal"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		again := openDurable(t, other, swarm.Limits{})
		if n, _ := again.Totals(t.Context()); n.Members != round*200+round-1 {
			t.Errorf("%d members after the crash, want %d", n.Members, round*200+round-1)
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestDurableDamaged(t *testing.T) {
	whole := t.TempDir()
	d := openDurable(t, whole, swarm.Limits{})
	for n := range 500 {
		announce(t, d, visit(n))
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(whole, "swarms.journal"))
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 40 {
		c := append([]byte(nil), b...)
		if i%2 == 0 {
			c = c[:r.IntN(len(c))]
		} else {
			for range 20 {
				c[r.IntN(len(c))] ^= 1 << r.IntN(8)
			}
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "swarms.journal"), c, 0o600); err != nil {
			t.Fatal(err)
		}
		// It opens, with whatever is there, or with nothing, and works.
		d, err := swarm.OpenDurable(dir, swarm.Limits{}, time.Hour, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Errorf("damage %d: %v", i, err)
			continue
		}
		announce(t, d, visit(9999))
		if _, err := d.Totals(t.Context()); err != nil {
			t.Error(err)
		}
		d.Close()
	}
}

// A journal that is damaged in its middle is set aside, also where no batch can be told from its
// length. What precedes the damage is used, and is in the new journal at once.
func TestDurableDamagedMiddle(t *testing.T) {
	for _, harm := range []func(b []byte, second int){
		func(b []byte, second int) { b[second+100] ^= 1 },
		func(b []byte, second int) { binary.BigEndian.PutUint32(b[second:], 0) },
		func(b []byte, second int) { binary.BigEndian.PutUint32(b[second:], ^uint32(0)) },
		func(b []byte, second int) { copy(b[second:], b[12:second]) }, // an earlier batch again
	} {
		dir := t.TempDir()
		name := filepath.Join(dir, "swarms.journal")
		d := openDurable(t, dir, swarm.Limits{})
		for n := range 200 {
			announce(t, d, visit(n))
		}
		if err := d.Sync(); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 300 {
			announce(t, d, visit(1000+n))
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		harm(b, int(st.Size()))
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 { // a crash right after the start loses nothing
			d = openDurable(t, dir, swarm.Limits{})
			if n, _ := d.Totals(t.Context()); n.Members != 200 {
				t.Errorf("%d members of a damaged journal, want 200", n.Members)
			}
			if _, err := os.Stat(name + ".damaged"); err != nil {
				t.Error(err)
			}
			crashed := t.TempDir()
			if err := os.CopyFS(crashed, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			announce(t, d, visit(1))
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			dir = crashed
		}
	}
}

// The journal contains all members, and is at most a few times larger than they are, even if many
// peers have come and gone.
func TestDurableStaysShort(t *testing.T) {
	dir := t.TempDir()
	d := openDurable(t, dir, swarm.Limits{})
	for round := range 40 {
		for n := range 1000 {
			v := visit(n)
			announce(t, d, v)
			v.Event = wire.Stopped
			if n >= 100 {
				announce(t, d, v)
			}
			if v.Addr.Port = uint16(2 + round); n%50 == 0 {
				v.Event = wire.Completed
				v.Seed = round%2 == 0
				announce(t, d, v)
			}
		}
		if err := d.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	want, _ := d.Totals(t.Context())
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(filepath.Join(dir, "swarms.journal")); err != nil || st.Size() > 2<<20 {
		t.Errorf("%d bytes for %d members, %v", st.Size(), want.Members, err)
	}
	d = openDurable(t, dir, swarm.Limits{})
	if got, _ := d.Totals(t.Context()); got != want {
		t.Errorf("%+v, after a restart %+v", want, got)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// More than there is room for is not read, and then not kept. A sixteenth of the room is for IPv6.
func TestDurableSmaller(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct{ room, want int }{{0, 500}, {100, 94}, {0, 94}} {
		d := openDurable(t, dir, swarm.Limits{Members: tt.room})
		for n := range 500 {
			if tt.want == 500 {
				announce(t, d, visit(n))
			}
		}
		if n, _ := d.Totals(t.Context()); n.Members != tt.want {
			t.Errorf("room for %d: %+v, want %d members", tt.room, n, tt.want)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A peer with more addresses than 16 bits can count is one peer.
func TestManyAddresses(t *testing.T) {
	m := swarm.NewMemory(swarm.Limits{PerHost: 1 << 20})
	v := visit(1)
	for n := range 1<<16 + 1 {
		v.Addr.Host = netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
		announce(t, m, v)
	}
	if c := counts(t, m, v.InfoHash); c.Incomplete != 1 || c.Downloaders != 1 {
		t.Errorf("%+v", c)
	}
}

// While the disk is full the tracker goes on, says that it is not well, and its memory is bounded;
// when there is room again the journal has what memory has.
func TestDurableFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=8m", "braid-test", dir).Run(); err != nil {
		t.Skip("a small file system cannot be mounted here:", err)
	}
	t.Cleanup(func() {
		if err := exec.Command("umount", dir).Run(); err != nil { //nolint:noctx // the test's context has ended
			t.Error("umount:", err)
		}
	})
	d := openDurable(t, dir, swarm.Limits{})
	for n := range 100 {
		announce(t, d, visit(n))
	}
	if err := errors.Join(d.Sync(), d.Healthy()); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 8<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	// Peers come and go, many more than the journal holds back.
	for n := range 160_000 {
		v := visit(n % 80_000)
		v.InfoHash = wire.InfoHash{1, byte(n), byte(n >> 8)}
		v.Addr.Port = uint16(2 + n/80_000)
		announce(t, d, v)
		if n >= 1000 {
			v.Event = wire.Stopped
			announce(t, d, v)
		}
		if n%40_000 == 39_999 { // a few changes may fit behind the journal's end
			if err := d.Sync(); err == nil || d.Healthy() == nil {
				t.Fatalf("it writes on a full disk: %v, %v", err, d.Healthy())
			}
		}
	}
	if n := d.Waiting(); n > 90_000 {
		t.Errorf("%d changes wait for the disk", n)
	}
	gone := visit(7)
	gone.Event = wire.Stopped
	announce(t, d, gone)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Sync(), d.Healthy()); err != nil {
		t.Fatal(err)
	}
	want, _ := d.Totals(t.Context())
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = openDurable(t, dir, swarm.Limits{})
	if got, _ := d.Totals(t.Context()); got != want || got.Members != 99+1000 {
		t.Errorf("%+v, after a restart %+v", want, got)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// While a sync hangs, the tracker takes changes as before. The changes that wait are bounded. In the
// end, the journal has the same peers as memory.
func TestDurableManyChanges(t *testing.T) {
	dir := t.TempDir()
	d := openDurable(t, dir, swarm.Limits{})
	v := visit(1)
	for range 20_000 {
		announce(t, d, v)
		leaves := v
		leaves.Event = wire.Stopped
		announce(t, d, leaves)
	}
	announce(t, d, v)
	if n := d.Waiting(); n > 20_000 {
		t.Errorf("%d changes wait for the disk", n)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		t.Fatal(err)
	}
	d = openDurable(t, dir, swarm.Limits{})
	defer d.Close()
	if got, _ := d.Totals(t.Context()); got.Members != 1 {
		t.Errorf("after a restart: %+v", got)
	}
}

// What is wrong with the journal is said once, however long it lasts, and when it is over.
func TestDurableSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := &syncBuffer{}
		d, err := swarm.OpenDurable(t.TempDir(), swarm.Limits{}, time.Second, slog.New(slog.NewTextHandler(said, nil)))
		if err != nil {
			t.Fatal(err)
		}
		mend := d.Break(t)
		announce(t, d, visit(1))
		time.Sleep(time.Hour)
		if d.Healthy() == nil {
			t.Error("nothing is wrong, it says")
		}
		if err := d.Sweep(t.Context()); err != nil {
			t.Error("old peers are removed all the same:", err)
		}
		mend()
		time.Sleep(time.Minute)
		if err := errors.Join(d.Healthy(), d.Close()); err != nil {
			t.Error(err)
		}
		if text := said.String(); strings.Count(text, "cannot be written") != 1 || strings.Count(text, "written again") != 1 {
			t.Error(text)
		}
	})
}

// While the disk hangs, the tracker says so without waiting, and removes old peers.
func TestDurableHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := openDurable(t, t.TempDir(), swarm.Limits{Lifetime: time.Hour})
		announce(t, d, visit(1))
		time.Sleep(59 * time.Minute)
		if err := errors.Join(d.Healthy(), d.Close()); err != nil {
			t.Error(err)
		}
		defer d.Hang()()
		time.Sleep(time.Hour)
		if d.Healthy() == nil {
			t.Error("the disk does not answer, and nothing is wrong")
		}
		if err := d.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		if got, err := d.Totals(t.Context()); err != nil || got.Members != 0 {
			t.Error("old peers stay:", got, err)
		}
	})
}

// A note is there after a restart, and of no use to the one that has written it.
func TestDurableNote(t *testing.T) {
	dir := t.TempDir()
	kept := func(d *swarm.Durable) string {
		t.Helper()
		notes, err := d.Kept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return string(bytes.Join(notes, []byte("|")))
	}
	for i, tt := range []struct{ before, keep string }{{"", "one"}, {"one", "two"}, {"two", ""}, {"", ""}} {
		d := openDurable(t, dir, swarm.Limits{})
		announce(t, d, visit(i))
		if got := kept(d); got != tt.before {
			t.Errorf("start %d: %q, want %q", i, got, tt.before)
		}
		if err := d.Keep(t.Context(), []byte(tt.keep), time.Hour); err != nil {
			t.Fatal(err)
		}
		if got := kept(d); got != "" {
			t.Errorf("start %d: %q is given again", i, got)
		}
		if err := d.Keep(t.Context(), make([]byte, swarm.MaxNote+1), time.Hour); err == nil {
			t.Error("a note of any size is kept")
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDurableOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		d := openDurable(t, dir, swarm.Limits{Lifetime: time.Hour})
		announce(t, d, visit(1))
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			away time.Duration
			want int
		}{{50 * time.Minute, 1}, {70 * time.Minute, 0}, {0, 0}} {
			time.Sleep(tt.away)
			d = openDurable(t, dir, swarm.Limits{Lifetime: time.Hour})
			if n, _ := d.Totals(t.Context()); n.Members != tt.want {
				t.Errorf("away for %v: %d members, want %d", tt.away, n.Members, tt.want)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestDurableLocked(t *testing.T) {
	dir := t.TempDir()
	d := openDurable(t, dir, swarm.Limits{})
	defer d.Close()
	if _, err := swarm.OpenDurable(dir, swarm.Limits{}, 0, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), dir) {
		t.Error("two trackers write one journal")
	}
}

// fill enters n members in swarms of ten.
func fill(s swarm.Store, n int) {
	for i := range n {
		v := swarm.Visit{Identity: rand.Uint64(), Reaches: swarm.IPv4}
		binary.BigEndian.PutUint32(v.InfoHash[:], uint32(i/10)*2654435761)
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], rand.Uint32()|1<<24)
		v.Addr = wire.Addr{Host: netip.AddrFrom4(b), Port: uint16(1 + i%1000)}
		_, _ = s.Announce(context.Background(), v)
	}
}

func BenchmarkAnnounce(b *testing.B) {
	m := swarm.NewMemory(swarm.Limits{PerAS: 1 << 20})
	fill(m, 1_000_000)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			v := swarm.Visit{Identity: rand.Uint64(), Reaches: swarm.IPv4, Want: 50}
			binary.BigEndian.PutUint32(v.InfoHash[:], uint32(rand.IntN(100_000))*2654435761)
			v.Addr = wire.Addr{Host: netip.AddrFrom4([4]byte{10, 1, 1, byte(rand.IntN(20))}), Port: 1}
			_, _ = m.Announce(context.Background(), v)
		}
	})
}

// A member that announces while a sweep waits for the lock of its shard stays.
func TestSweepKeepsTheNewest(t *testing.T) {
	m := swarm.NewMemory(swarm.Limits{})
	announce(t, m, visit(1))
	m.Later()
	if err := m.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, _ := m.Totals(t.Context()); n.Members != 1 {
		t.Errorf("%d members", n.Members)
	}
}
