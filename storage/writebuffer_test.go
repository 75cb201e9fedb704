package storage

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anacrolix/torrent/metainfo"
	"go.etcd.io/bbolt"

	"braid/storage/boltdb"
)

// slowDisk takes some time for each sync, and counts them.
type slowDisk struct {
	realSystem
	takes time.Duration
	syncs atomic.Int64
	begin func() // called at the beginning of each sync
}

func (d *slowDisk) work() {
	d.begin()
	d.syncs.Add(1)
	time.Sleep(d.takes)
}

func (d *slowDisk) Sync(*os.File) error     { d.work(); return nil }
func (d *slowDisk) syncAll(*os.File) error  { d.work(); return nil }
func (d *slowDisk) isSynced(*os.File) error { return nil }

func (d *slowDisk) update(db *boltdb.DB, do func(tx *bbolt.Tx) error) error {
	d.work()
	return db.Update(do)
}

// arrival is a download as the store sees it: blocks of several connections, out of order.
type arrival struct {
	kind        Kind
	connections int
	pieceLength int64
	window      int           // how many blocks are under way, in random order
	disk        time.Duration // that the disk takes for a sync
}

// Nobody waits for a timer of the store: whoever waits for room waits for the disk only. And what a
// kill may lose stays bounded meanwhile.
func TestNobodyWaitsForATimer(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind Kind) {
		random := rand.New(rand.NewPCG(7, 1))
		for _, pieceLength := range []int64{16 << 10, 512 << 10, 1 << 20, 16 << 20} {
			for _, disk := range []time.Duration{0, 20 * time.Millisecond, 200 * time.Millisecond} {
				a := arrival{
					kind: kind, pieceLength: pieceLength, disk: disk,
					connections: 1 + random.IntN(32), window: 1 + random.IntN(2000),
				}
				seed := random.Uint64()
				t.Run(fmt.Sprintf("%d connections, pieces of %d KiB, window %d, disk %v",
					a.connections, pieceLength>>10, a.window, disk), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { a.arrive(t, seed) })
				})
			}
		}
	})
}

func (a arrival) arrive(t *testing.T, seed uint64) {
	const size = 32 << 20
	info, l, data := shape(t, a.pieceLength, size)
	disk := &slowDisk{takes: a.disk, begin: func() {}}
	s, tor := openStore(t, a.kind, fastDir(t), info, Options{system: disk})
	w := BlocksOf(s, metainfo.Hash{9}).t.writer
	disk.begin = func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if most := w.bytes + w.blocks.unrecorded + inPut; most > maxBuffered {
			t.Errorf("a kill would lose %d bytes", most)
		}
	}

	type block struct{ piece, number int }
	var order []block
	missing := make([]atomic.Int32, l.Pieces())
	for p := range l.Pieces() {
		missing[p].Store(int32(l.blocksIn(p)))
		for i := range l.blocksIn(p) {
			order = append(order, block{p, i})
		}
	}
	random := rand.New(rand.NewPCG(seed, 2))
	for part := range slices.Chunk(order, a.window) {
		random.Shuffle(len(part), func(i, j int) { part[i], part[j] = part[j], part[i] })
	}

	disk.syncs.Store(0)
	start := time.Now()
	var next atomic.Int64
	var connections sync.WaitGroup
	for range a.connections {
		connections.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(order) {
					return
				}
				piece, at := order[i].piece, int64(order[i].number)*blockSize
				mp := info.Piece(piece)
				impl := tor.Piece(mp)
				b := data[mp.Offset()+at:][:l.blockLength(piece, order[i].number)]
				if _, err := impl.WriteAt(b, at); err != nil {
					t.Error(err)
					return
				}
				if missing[piece].Add(-1) > 0 {
					continue
				}
				if _, err := impl.(io.WriterTo).WriteTo(io.Discard); err != nil {
					t.Error(err)
				}
				if err := impl.MarkComplete(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	connections.Wait()
	took, syncs := time.Since(start), disk.syncs.Load()
	if most := time.Duration(syncs) * a.disk; took > most {
		t.Errorf("%v for %d syncs of %v: somebody waited for something else", took, syncs, a.disk)
	}
	t.Logf("%d syncs in %v", syncs, took)
	closeStore(t, s, tor)
}

// While blocks wait for the disk, everybody can see that.
func TestBusyDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const pieceLength = 16 << 20
		info, _, data := shape(t, pieceLength, pieceLength)
		disk := &slowDisk{takes: time.Minute, begin: func() {}}
		s, tor := openStore(t, KindFile, fastDir(t), info, Options{system: disk})
		busy := func() bool { return IsBusy(s, metainfo.Hash{9}) }
		var writing sync.WaitGroup
		writing.Go(func() {
			for at := int64(0); at < pieceLength; at += blockSize {
				if _, err := tor.Piece(info.Piece(0)).WriteAt(data[at:at+blockSize], at); err != nil {
					t.Error(err)
				}
			}
		})
		if synctest.Wait(); !busy() {
			t.Error("a block that waits for the disk is not noticed")
		}
		if writing.Wait(); busy() {
			t.Error("nobody waits any more, and the disk counts as busy")
		}
		closeStore(t, s, tor)
	})
}
