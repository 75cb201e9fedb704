package client

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anacrolix/torrent"
	"github.com/anacrolix/torrent/metainfo"
	pp "github.com/anacrolix/torrent/peer_protocol"
	engine "github.com/anacrolix/torrent/storage"
	"golang.org/x/sync/semaphore"

	"braid/client/wire"
	"braid/pathsel"
	"braid/scionnet"
)

// fakeEngine is a small BitTorrent engine: it dials what it is offered, and asks each peer that has
// unchoked it for one block after another. It keeps no data, and serves nobody.
type fakeEngine struct {
	*common
	greeted chan *link // connections whose handshake is done
}

func (e *fakeEngine) Add(hash metainfo.Hash, name string, _ engine.ClientImpl, _ func(error)) engineTorrent {
	return &fakeTorrent{
		fakeEngine: e, hash: hash, name: name,
		described: make(chan struct{}), completed: make(chan struct{}), dropped: make(chan struct{}),
	}
}

func (e *fakeEngine) BadPeerIPs() []string   { return nil }
func (e *fakeEngine) PeerID() torrent.PeerID { return torrent.PeerID{} }
func (e *fakeEngine) Close() []error         { return nil }

type fakeTorrent struct {
	*fakeEngine
	hash                          metainfo.Hash
	name                          string
	described, completed, dropped chan struct{}
	conns                         sync.WaitGroup

	mu    sync.Mutex
	info  metainfo.Info
	next  []int // pieces to ask for, each of one block
	have  []bool
	stats torrent.TorrentStats
	looks int           // at stats
	runs  int           // looks at the states of all pieces
	slow  time.Duration // that one of them takes
}

func (f *fakeTorrent) Name() string                              { return f.name }
func (f *fakeTorrent) Described() <-chan struct{}                { return f.described }
func (f *fakeTorrent) Completed() <-chan struct{}                { return f.completed }
func (f *fakeTorrent) SetPriority(int, torrent.PiecePriority)    {}
func (f *fakeTorrent) DownloadAll()                              {}
func (f *fakeTorrent) Reader() engineReader                      { return nil }
func (f *fakeTorrent) ReadPiece(int, []byte, int64) (int, error) { return 0, io.EOF }
func (f *fakeTorrent) Pause(bool)                                {}
func (f *fakeTorrent) Verify(context.Context, int) error         { return nil }

func (f *fakeTorrent) SetInfoBytes(b []byte) error {
	info, _, _, err := parseInfo(b)
	f.info = info
	for i := range info.NumPieces() {
		f.next = append(f.next, i)
	}
	f.have = make([]bool, info.NumPieces())
	close(f.described)
	return err
}

func (f *fakeTorrent) Size() (pieces int, bytes int64) {
	return f.info.NumPieces(), f.info.TotalLength()
}

func (f *fakeTorrent) Bytes() (have, missing int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	have = int64(f.stats.PiecesComplete) * f.info.PieceLength
	return have, f.info.TotalLength() - have
}

func (f *fakeTorrent) Stats() torrent.TorrentStats {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	return f.stats
}

func (f *fakeTorrent) PieceState(piece int) (s torrent.PieceState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.Ok, s.Complete = true, f.have[piece]
	return s
}

func (f *fakeTorrent) PieceStateRuns() (runs torrent.PieceStateRuns) {
	f.mu.Lock()
	f.runs++
	slow := f.slow
	f.mu.Unlock()
	time.Sleep(slow)
	for i := range f.have {
		runs = append(runs, torrent.PieceStateRun{PieceState: f.PieceState(i), Length: 1})
	}
	return runs
}

func (f *fakeTorrent) Drop() {
	close(f.dropped)
	f.conns.Wait()
}

func (f *fakeTorrent) Connect(at engineAddr) {
	f.conns.Go(func() {
		c, err := f.offers.Dial(context.Background(), at.String())
		if err == nil {
			err = f.download(c, at)
		}
		_ = err // the connection ends, which is all that the engine does about it
		c.Close()
	})
}

// download fetches pieces until the connection or the torrent ends.
func (f *fakeTorrent) download(c net.Conn, at engineAddr) error {
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-f.dropped:
			c.Close()
		case <-ended:
		}
	}()
	p := newRaw(c)
	sent := make(chan struct{})
	go func() { // the peer sends its own at the same time
		p.send(greeting(Source{InfoHash: f.hash}, "-FK0001-"))
		close(sent)
	}()
	if _, err := io.ReadFull(p.in, make([]byte, handshakeSize)); err != nil {
		return err
	}
	<-sent
	l := f.offers.linkAt(at)
	x := &gauge{conn: fakeConn{f}, link: l}
	l.gauge.Store(x)
	f.greeted <- l
	go p.send(raw(msgHaveNone), interested)
	for asked := -1; ; {
		m, err := p.next()
		if err != nil {
			f.giveBack(asked)
			return err
		}
		switch m[0] {
		case 0, 1:
			x.unchoked.Store(m[0] == 1)
		case msgReject:
			f.giveBack(asked)
			asked = -1
			x.outstanding.Store(0)
		case msgPiece:
			f.got(int(binary.BigEndian.Uint32(m[1:])), len(m)-9)
			asked = -1
			x.outstanding.Store(0)
		}
		if asked < 0 && x.unchoked.Load() {
			if asked = f.take(); asked >= 0 {
				x.outstanding.Store(1)
				p.send(encode(msgRequest, block{uint32(asked), 0, uint32(f.info.PieceLength)}))
			}
		}
	}
}

func (f *fakeTorrent) take() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.next) == 0 {
		return -1
	}
	i := f.next[0]
	f.next = f.next[1:]
	return i
}

func (f *fakeTorrent) giveBack(piece int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if piece >= 0 {
		f.next = append(f.next, piece)
	}
}

func (f *fakeTorrent) got(piece, bytes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.have[piece] = true
	f.stats.PiecesComplete++
	f.stats.BytesReadData.Add(int64(bytes))
	f.stats.BytesReadUsefulData.Add(int64(bytes))
	if f.stats.PiecesComplete == len(f.have) {
		close(f.completed)
	}
}

// fakeConn has the torrent's counts, since the test looks only at whether there is data.
type fakeConn struct{ *fakeTorrent }

func (fakeConn) TakesPort() bool { return false }

func (fakeConn) WriteExtendedMessage(pp.ExtensionName, []byte) error { return nil }

func (c fakeConn) Pieces() pieceSet { return allPieces(len(c.have)) }

func (c fakeConn) Stats() (s torrent.PeerStats) {
	st := c.fakeTorrent.Stats()
	s.BytesReadUsefulData, s.BytesReadData = st.BytesReadUsefulData, st.BytesReadData
	s.RemotePieceCount = len(c.have)
	return s
}

type allPieces int

func (n allPieces) Contains(piece uint32) bool { return piece < uint32(n) }

func (n allPieces) Iterate(each func(uint32) bool) {
	for i := range uint32(n) {
		if !each(i) {
			return
		}
	}
}

// forked is a simulated transport with two paths to each peer. The second one breaks at some time,
// and works again from another time on.
type forked struct {
	*simulated
	begin        time.Time
	breaks, back time.Duration
}

func (f *forked) Paths(context.Context, Peer) ([]pathsel.Path, error) {
	return []pathsel.Path{{Fingerprint: "a"}, {Fingerprint: "b"}}, nil
}

func (f *forked) Dial(ctx context.Context, p Peer, path pathsel.Path, key *scionnet.PeerKey) (Wire, error) {
	since := time.Since(f.begin)
	if path.Fingerprint == "b" && since >= f.breaks && since < f.back {
		return nil, errors.New("the path is down")
	}
	w, err := f.simulated.Dial(ctx, p, path, key)
	if err == nil && path.Fingerprint == "b" && since < f.breaks {
		time.AfterFunc(f.breaks-since, func() { w.Close() })
	}
	return w, err
}

// The loop of a transfer in simulated time, with an engine that is played: it opens both paths,
// notes at once when one breaks, tries it again after the delays that pathsel wants, and completes.
func TestLoopInSimulatedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const length, pieces = 16 << 10, 400
		dir := t.TempDir()
		data := filepath.Join(dir, "file")
		writeRandom(t, data, length*pieces)
		src := makeTorrent(t, data, CreateOptions{PieceLength: length}).Source
		seed := forgetful{data: readFile(t, data), length: length, fast: true, every: 1 << 30, pause: 100 * time.Millisecond}
		tr := &forked{begin: time.Now(), breaks: 5 * time.Second, back: 12 * time.Second}
		tr.simulated = &simulated{onIP: newOnIP(""), peers: map[string]func(net.Conn){
			"10.0.0.1:1": func(c net.Conn) { seed.serve(c, src) },
		}}
		all, err := pathsel.New("all")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		x := &common{
			cfg: Config{Selector: all, MaxPaths: DefaultMaxPaths}, log: testLog(t), offers: newOffers(), transports: []Transport{tr},
			examiners: semaphore.NewWeighted(examineAtOnce), ctx: ctx, web: &webPort{},
		}
		fake := &fakeEngine{common: x, greeted: make(chan *link)}
		x.engine = fake
		var mu sync.Mutex
		var steps []PathEvent
		store := openStore(t, t.TempDir())
		defer store.Close()
		transfer, err := newTransfer(x, src, store, Options{
			Peers:   []Peer{mustPeer(t, "10.0.0.1:1")},
			Decided: func(e PathEvent) { mu.Lock(); steps = append(steps, e); mu.Unlock() },
		})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				select {
				case l := <-fake.greeted:
					transfer.inbox.put(func() { transfer.loop.connector.onGreeted(l) })
				case <-transfer.Ended():
					return
				}
			}
		}()
		select {
		case <-transfer.Done():
		case <-time.After(time.Hour):
			t.Errorf("not done: %+v", transfer.Progress())
		}
		took := time.Since(tr.begin)
		checkRest(t, transfer)
		transfer.Close()

		var failed, opened []time.Duration // of path b
		for _, e := range steps {
			switch {
			case e.Key.Path != "b":
			case e.Name == "path-failed":
				failed = append(failed, e.Since)
			case e.Name == "path-opened":
				opened = append(opened, e.Since)
			}
		}
		at := func(d, want, late time.Duration) bool { return d >= want && d <= want+late }
		const look = 2 * sampleEvery
		if len(opened) != 2 || !at(opened[0], 0, look) {
			t.Fatalf("path b opened at %v, want at once, and once more when it is back", opened)
		}
		if len(failed) < 2 || !at(failed[0], tr.breaks, look) {
			t.Fatalf("path b failed at %v, want at %v first, and then at attempts", failed, tr.breaks)
		}
		for i := range failed[1:] {
			if wait := pathsel.RetryDelay(i + 1); !at(failed[i+1], failed[i]+wait, look) {
				t.Errorf("tried again at %v, %v after failure %d, want %v", failed[i+1], failed[i+1]-failed[i], i+1, wait)
			}
		}
		if last := slices.Max(failed) + pathsel.RetryDelay(len(failed)); !at(opened[1], last, look) {
			t.Errorf("opened again at %v, want at %v", opened[1], last)
		}
		// Ten blocks a second over each path, one path less while b is down.
		if alone := opened[1] - failed[0]; !at(took, 20*time.Second+alone/2, 2*time.Second) {
			t.Errorf("took %v with %v over one path", took, alone)
		}
	})
}

// checkRest checks that a complete transfer does nothing once nobody is connected, and wakes when
// something happens.
func checkRest(t *testing.T, x *Transfer) {
	t.Helper()
	fake := x.torrent.(*fakeTorrent)
	looks := func() int { fake.mu.Lock(); defer fake.mu.Unlock(); return fake.looks }
	x.do(func() { x.loop.connector.closeAll("test") })
	time.Sleep(2 * time.Minute) // until no rate is left
	before := looks()
	time.Sleep(time.Hour)
	if p := x.Progress(); p.Phase != Complete || p.Since < time.Hour || p.Done != p.Pieces {
		t.Errorf("at rest: %+v", p)
	}
	if n := looks() - before; n > 0 {
		t.Errorf("it has looked %d times", n)
	}
	x.AddPeers(mustPeer(t, "10.0.0.1:2"))
	time.Sleep(100 * time.Millisecond)
	if looks() == before {
		t.Error("it does not wake")
	}
}

// transferWithoutPeers is a transfer on a fake engine, for simulated time.
func transferWithoutPeers(t *testing.T, src Source, opts Options) *Transfer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	x := &common{
		cfg: Config{Selector: &script{}}, log: testLog(t), offers: newOffers(), ctx: ctx, web: &webPort{},
		examiners: semaphore.NewWeighted(examineAtOnce),
	}
	x.engine = &fakeEngine{common: x}
	store := openStore(t, t.TempDir())
	t.Cleanup(func() { store.Close() })
	tr, err := newTransfer(x, src, store, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Close)
	return tr
}

// acceptedLink is an accepted connection of 10.0.0.1, as the engine sees it.
func acceptedLink(t *testing.T, conn engineConn) *link {
	t.Helper()
	c, other := net.Pipe()
	t.Cleanup(func() { other.Close() })
	w := simulatedWire{Conn: c, peer: mustPeer(t, "10.0.0.1:1")}
	at := engineAddr{engineAddrOf(w.peer), 1}
	l := newLink(wire.Accepted(w, wire.Options{Addr: at}), w, "tcp", at)
	t.Cleanup(func() { l.Close() })
	l.gauge.Store(&gauge{conn: conn, link: l})
	l.Greet()
	return l
}

// While a slow disk takes the last data, and while it has no room for the record, no peer is blamed
// for the silence. A transfer is not given up while the disk works.
func TestSlowDiskIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := transferWithoutPeers(t, smallTorrent(t), Options{StopTimeout: 10 * time.Second})
		tr.do(func() { tr.loop.confirmer.underWay = true })
		time.Sleep(time.Minute)
		if p := tr.Progress(); p.Err != nil || p.Cause != nil {
			t.Errorf("while the disk works: %v, %+v", p.Err, p.Cause)
		}
		tr.do(func() { tr.loop.confirmer.end(0, syscall.ENOSPC) })
		time.Sleep(5 * time.Second)
		tr.do(func() { tr.loop.confirmer.underWay = true }) // the next attempt
		time.Sleep(time.Second)
		if p := tr.Progress(); p.Cause == nil || p.Cause.Kind != DiskFull {
			t.Errorf("while the disk is full: %+v", p.Cause)
		}
	})
}

// A time in which braid did not run is no reason to give up a transfer: what has come meanwhile is
// yet to be read.
func TestOwnStallIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := transferWithoutPeers(t, smallTorrent(t), Options{StopTimeout: 10 * time.Second})
		tr.do(func() { time.Sleep(time.Minute) })
		time.Sleep(9 * time.Second)
		if err := tr.Progress().Err; err != nil {
			t.Errorf("after 9 s: %v", err)
		}
		time.Sleep(2 * time.Second)
		if tr.Progress().Err == nil {
			t.Error("not given up after 11 s")
		}
	})
}

// A transfer that is given up after a second says why: it waits for the cause, but not for one that
// cannot be found.
func TestGivenUpWithCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := transferWithoutPeers(t, smallTorrent(t), Options{StopTimeout: time.Second})
		time.Sleep(causeWithin)
		stopped, ok := errors.AsType[*StoppedError](tr.Progress().Err)
		if !ok || stopped.Cause == nil || stopped.Cause.Kind != NobodyThere {
			t.Errorf("%v", tr.Progress().Err)
		}
	})
	for _, tt := range []struct {
		known       bool
		limit, idle time.Duration
		want        bool
	}{
		{true, time.Second, time.Second, true}, {true, time.Millisecond, examineAfter - 1, false}, {true, time.Minute, 59 * time.Second, false},
		{false, time.Second, causeWithin - 1, false}, {false, time.Second, causeWithin, true}, {false, time.Minute, time.Minute, true},
	} {
		c := &checkup{}
		if tt.known {
			c.cause = &Cause{}
		}
		if got := c.exceeds(tt.limit, tt.idle); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// slowSelector takes long for each decision, as for hundreds of peers with dozens of paths each.
type slowSelector struct {
	script
	takes time.Duration
	spent atomic.Int64 // ns
}

func (s *slowSelector) Decide(v pathsel.View) pathsel.Plan {
	time.Sleep(s.takes)
	s.spent.Add(int64(s.takes))
	return s.script.Decide(v)
}

// A peer that causes one event after the other keeps the transfer busy for half of the time at most.
func TestManyEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := transferWithoutPeers(t, smallTorrent(t), Options{})
		slow := &slowSelector{takes: 100 * time.Millisecond}
		tr.do(func() { tr.loop.cfg.Selector = slow })
		const during = 10 * time.Second
		for begin := time.Now(); time.Since(begin) < during; time.Sleep(time.Millisecond) {
			tr.inbox.touch()
		}
		if spent := time.Duration(slow.spent.Load()); spent > during/2+slow.takes {
			t.Errorf("decisions took %v of %v", spent, during)
		}
	})
}

// A complete transfer does not go over its pieces again and again while peers are connected.
func TestSeedDoesNotLookAtPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := transferWithoutPeers(t, smallTorrent(t), Options{})
		fake := tr.torrent.(*fakeTorrent)
		l := acceptedLink(t, fakeConn{fake})
		tr.do(func() {
			tr.loop.connector.onAccepted(l)
			tr.loop.complete()
		})
		time.Sleep(time.Minute)
		tr.Progress()
		fake.mu.Lock()
		defer fake.mu.Unlock()
		if fake.looks < 60 || fake.runs > 0 {
			t.Errorf("it has looked %d times, %d times at all pieces", fake.looks, fake.runs)
		}
	})
}

// transferWithSlowEngine returns a transfer whose engine needs a second to look at all pieces. The
// pieces are in order, so that only the tested code looks at all of them.
func transferWithSlowEngine(t *testing.T) (*Transfer, *fakeTorrent) {
	tr := transferWithoutPeers(t, smallTorrent(t), Options{Selection: Selection{Sequential: true}})
	fake := tr.torrent.(*fakeTorrent)
	fake.mu.Lock()
	defer fake.mu.Unlock()
	fake.slow = time.Second
	return tr, fake
}

// Looking for the cause of a stall takes a small part of the time, however many pieces there are.
func TestCheckupOfManyPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, fake := transferWithSlowEngine(t)
		time.Sleep(20 * time.Minute)
		if p := tr.Progress(); p.Cause == nil || p.Cause.Kind != NobodyThere {
			t.Errorf("cause %+v", p.Cause)
		}
		fake.mu.Lock()
		defer fake.mu.Unlock()
		if n := fake.runs; n < 30 || n > 120 {
			t.Errorf("%d looks of a second each in 20 minutes", n)
		}
	})
}

// To ask for the progress every second takes a small part of the time, too.
func TestProgressOfManyPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, fake := transferWithSlowEngine(t)
		for range 20 * 60 {
			tr.Progress()
			time.Sleep(time.Second)
		}
		fake.mu.Lock()
		defer fake.mu.Unlock()
		if n := fake.runs; n > 240 { // those of the checkup included
			t.Errorf("%d looks of a second each in 20 minutes", n)
		}
	})
}

// So it does if only some files are wanted.
func TestProgressOfSomeFiles(t *testing.T) {
	dir := t.TempDir()
	randomFiles(t, dir, "data", 50_000, 50_000)
	src := makeTorrent(t, filepath.Join(dir, "data"), CreateOptions{PieceLength: 16 << 10}).Source
	synctest.Test(t, func(t *testing.T) {
		tr := transferWithoutPeers(t, src, Options{Selection: Selection{Select: []string{"#1"}}})
		fake := tr.torrent.(*fakeTorrent)
		fake.mu.Lock()
		fake.slow = time.Second
		fake.mu.Unlock()
		for range 20 * 60 {
			tr.Progress()
			time.Sleep(time.Second)
		}
		fake.mu.Lock()
		defer fake.mu.Unlock()
		if n := fake.runs; n > 300 { // those of the checkup and the chooser included
			t.Errorf("%d looks of a second each in 20 minutes", n)
		}
	})
}

// countedSeed is a connection to a seed. The number of its pieces must be enough: to copy them takes
// long, and while the number of pieces in the torrent is not known, the engine says that a seed has
// four billion.
type countedSeed struct {
	fakeConn
	t *testing.T
}

func (s countedSeed) Pieces() pieceSet {
	s.t.Error("somebody copies the pieces of a seed")
	return allPieces(0)
}

// Looks at connections do not copy the pieces of seeds, and seeds are recognised.
func TestPiecesOfSeedsAreNotCopied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := transferWithoutPeers(t, smallTorrent(t), Options{})
		tr.pex.Store(true)
		l := acceptedLink(t, countedSeed{fakeConn{tr.torrent.(*fakeTorrent)}, t})
		l.gauge.Load().port.Store(1)
		tr.inbox.put(func() { tr.loop.connector.onAccepted(l) })
		time.Sleep(examineAfter + sampleEvery) // once nothing comes, the missing pieces are looked at
		if p := tr.Peers(); len(p) != 1 || p[0].Have != 1 {
			t.Errorf("peers %+v", p)
		}
		tr.do(func() {
			rows := tr.peers.connectedPeers()
			if a := tr.loop.exchanger.addresses(rows[0]); len(a) != 1 || a[0].flags != pexFlagSeed {
				t.Errorf("addresses %+v", a)
			}
		})
	})
}

// A seed is connected, and does not say what is in the torrent.
func TestSeedOfAnUndescribedTorrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := transferWithoutPeers(t, Source{InfoHash: smallTorrent(t).InfoHash}, Options{})
		l := acceptedLink(t, countedSeed{fakeConn{tr.torrent.(*fakeTorrent)}, t})
		tr.inbox.put(func() { tr.loop.connector.onAccepted(l) })
		time.Sleep(time.Minute)
		if p := tr.Progress(); p.Cause == nil || p.Cause.Kind != MetadataMissing {
			t.Errorf("cause %+v", p.Cause)
		}
		if p, peers := tr.Pieces(), tr.Peers(); len(p.State)+len(p.Peers) > 0 || len(peers) != 1 {
			t.Errorf("pieces %v, peers %v", p, peers)
		}
	})
}
