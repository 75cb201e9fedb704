package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"braid/client"
	"braid/node/event"
	"braid/storage"
	"braid/tracker"
	"braid/units/await"
)

func testLog(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// open opens a node that listens on a free port of the loopback interface.
func open(t *testing.T, cfg Config) *Node {
	t.Helper()
	at, err := client.ParseListen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Client.Listen, cfg.Logger = []client.Peer{at}, testLog(t)
	n, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// create makes a torrent of random data in dir.
func create(t *testing.T, dir, name string, size int) client.Source {
	t.Helper()
	b := make([]byte, size)
	rand.NewChaCha8([32]byte([]byte(fmt.Sprintf("%-32s", name)))).Read(b)
	if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := client.Create(t.Context(), filepath.Join(dir, name), client.CreateOptions{PieceLength: 32 << 10})
	if err != nil {
		t.Fatal(err)
	}
	return c.Source
}

func add(t *testing.T, n *Node, o Options) *Torrent {
	t.Helper()
	x, err := n.Add(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// seedOf serves a torrent from a node of its own.
func seedOf(t *testing.T, src client.Source, dir string) (*Node, *Torrent) {
	n := open(t, Config{})
	return n, add(t, n, Options{Source: src, Storage: Storage{Kind: storage.KindFile, Dir: dir, Complete: true}})
}

func sameFile(t *testing.T, a, b string) {
	t.Helper()
	x, err1 := os.ReadFile(a)
	y, err2 := os.ReadFile(b)
	if err := errors.Join(err1, err2); err != nil || !bytes.Equal(x, y) {
		t.Errorf("%s and %s differ: %v", a, b, err)
	}
}

func fileIn(dir string) Storage { return Storage{Kind: storage.KindFile, Dir: dir} }

// A download is paused, which ends its connections and keeps its data, and goes on where it was.
// Its counters include what came before the pause.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	data, out := t.TempDir(), t.TempDir()
	src := create(t, data, "file", 4<<20)
	seeder, _ := seedOf(t, src, data)
	n := open(t, Config{Service: true})
	// The rate leaves minutes for the pause. It holds until then only.
	x := add(t, n, Options{Source: src, Storage: fileIn(out), Peers: seeder.Listening(), Rates: Rates{Download: 2e5}})
	await.True(t, "a part of the data", func() bool { return x.Progress().Fetched > 0 })
	if err := x.Pause(); err != nil {
		t.Fatal(err)
	}
	p := x.Progress()
	if x.State() != Paused || p.Phase != "paused" || len(p.Paths) != 0 || p.ReadRate != 0 {
		t.Errorf("paused: %s, %+v", x.State(), p)
	}
	if err := x.Pause(); err == nil {
		t.Error("paused twice")
	}
	await.True(t, "the seeder to lose its peer", func() bool { return seeder.Stats().Peers == 0 })
	if again := x.Progress(); again.Fetched != p.Fetched || isClosed(x.Done()) {
		t.Errorf("%d bytes came while it was paused", again.Fetched-p.Fetched)
	}
	if err := set(x, func(o *Options) { o.Rates = Rates{} }); err != nil {
		t.Fatal(err)
	}
	if err := x.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	x.AddPeers(seeder.Listening()...)
	await.Value(t, "the rest", x.Done())
	sameFile(t, filepath.Join(data, "file"), filepath.Join(out, "file"))
	if q := x.Progress(); q.Fetched < 4<<20 || q.Fetched > 5<<20 || q.Since < p.Since || q.Phase != client.Complete {
		t.Errorf("at the end: %+v", q)
	}
	if err := x.Resume(t.Context()); err == nil {
		t.Error("a running torrent was resumed")
	}
}

// A removed torrent is gone, its data stays, and it can be added again, which takes the data over.
func TestRemove(t *testing.T) {
	t.Parallel()
	data, out := t.TempDir(), t.TempDir()
	src := create(t, data, "file", 1<<20)
	seeder, _ := seedOf(t, src, data)
	n := open(t, Config{})
	o := Options{Source: src, Storage: fileIn(out), Peers: seeder.Listening()}
	x := add(t, n, o)
	await.Value(t, "the download", x.Done())
	if _, err := n.Add(t.Context(), o); err == nil {
		t.Error("added twice")
	}
	if err := n.Remove(x.InfoHash(), false); err != nil {
		t.Fatal(err)
	}
	await.Value(t, "its end", x.Ended())
	if _, err := n.Torrent(x.InfoHash()); !errors.Is(err, ErrUnknown) || len(n.Torrents()) != 0 || x.State() != Removed {
		t.Errorf("still there: %v", err)
	}
	if err := n.Remove(x.InfoHash(), false); !errors.Is(err, ErrUnknown) {
		t.Errorf("removed twice: %v", err)
	}
	sameFile(t, filepath.Join(data, "file"), filepath.Join(out, "file"))
	again := add(t, n, Options{Source: src, Storage: fileIn(out)})
	await.Value(t, "the second time", again.Done())
	if p := again.Progress(); p.Fetched != 0 || p.Err != nil {
		t.Errorf("%+v", p)
	}
	if a, b := x.Number(), again.Number(); a != 1 || b != 2 {
		t.Errorf("the numbers are %d and %d, want 1 and 2", a, b)
	}
}

// Two torrents share a directory and want different files of it; the store is closed with the last
// one.
func TestSharedDirectory(t *testing.T) {
	t.Parallel()
	data, out := t.TempDir(), t.TempDir()
	a, b := create(t, data, "a", 1<<20), create(t, data, "b", 1<<20)
	seeder, _ := seedOf(t, a, data)
	add(t, seeder, Options{Source: b, Storage: Storage{Kind: storage.KindFile, Dir: data, Complete: true}})
	n := open(t, Config{})
	first := add(t, n, Options{Source: a, Storage: fileIn(out), Peers: seeder.Listening()})
	second := add(t, n, Options{Source: b, Storage: fileIn(out), Peers: seeder.Listening()})
	await.Value(t, "a", first.Done())
	await.Value(t, "b", second.Done())
	if s := fileIn(out); len(n.stores.all) != 1 {
		t.Errorf("%d stores in %s", len(n.stores.all), s.Dir)
	}
	other := Options{Source: create(t, t.TempDir(), "c", 1), Storage: fileIn(out)}
	other.Storage.Kind = storage.KindMmap
	if _, err := n.Add(t.Context(), other); err == nil || len(n.Torrents()) != 2 {
		t.Errorf("another kind of storage in the same directory: %v", err)
	}
	for _, x := range []*Torrent{first, second} {
		if err := n.Remove(x.InfoHash(), false); err != nil {
			t.Error(err)
		}
	}
	if len(n.stores.all) != 0 {
		t.Error("the store stays open")
	}
}

// A torrent ends when it has been served enough, and can be started again with another goal. The
// last peer, which takes data more slowly than it is sent, gets all of it.
func TestServedEnough(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	src := create(t, data, "file", 1<<20)
	seeder, seed := seedOf(t, src, data)
	events := seeder.Subscribe(100)
	defer events.Close()
	if err := set(seed, func(o *Options) { o.Goal = Goal{Ratio: 1} }); err != nil {
		t.Fatal(err)
	}
	n := open(t, Config{Client: client.Config{Limits: client.Limits{Download: 8e6}}})
	x := add(t, n, Options{Source: src, Storage: fileIn(t.TempDir()), Peers: seeder.Listening()})
	await.Value(t, "the download", x.Done())
	await.Value(t, "the seed's end", seed.Ended())
	if seed.State() != Served {
		t.Errorf("the seed is %s", seed.State())
	}
	found := false
	for !found {
		e, err := events.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		served, ok := e.(event.Served)
		found = ok && served.Ratio >= 1 && served.Torrent == "file"
	}
	if err := set(seed, func(o *Options) { o.Goal = Goal{} }); err != nil {
		t.Fatal(err)
	}
	if err := seed.Resume(t.Context()); err != nil || seed.State() != Running || isClosed(seed.Ended()) {
		t.Errorf("started again: %v, %s", err, seed.State())
	}
}

// Each reader has all events, in order; one that is too slow is told how many it has missed.
func TestSubscriptions(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	src := create(t, data, "file", 1<<20)
	seeder, _ := seedOf(t, src, data)
	n := open(t, Config{})
	fast, slow, left := n.Subscribe(1000), n.Subscribe(2), n.Subscribe(10)
	left.Close()
	x := add(t, n, Options{Source: src, Storage: fileIn(t.TempDir()), Peers: seeder.Listening(), PieceEvents: true})
	await.Value(t, "the download", x.Done())
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	read := func(s *Subscription) (all []any) {
		for {
			e, err := s.Next(t.Context())
			if errors.Is(err, io.EOF) {
				return all
			} else if err != nil {
				t.Fatal(err)
			}
			all = append(all, e)
		}
	}
	pieces, done, added, closed := 0, 0, 0, false
	all := read(fast)
	for _, e := range all {
		switch e := e.(type) {
		case event.Piece:
			pieces++
		case event.Done:
			done++
		case event.Changed:
			added++
		case event.PathStep:
			closed = closed || e.Event == "path-closed"
		}
	}
	if pieces != 32 || done != 1 || added != 1 {
		t.Errorf("%d pieces, done %d times, added %d times", pieces, done, added)
	}
	got := read(slow)
	if missed, ok := got[0].(event.Missed); !ok || len(got) != 3 || missed.Events != len(all)-2 || !reflect.DeepEqual(got[2], all[len(all)-1]) {
		t.Errorf("the slow reader got %v", got)
	}
	if got := read(left); len(got) != 0 {
		t.Errorf("after Close came %v", got)
	}
	if got := read(n.Subscribe(1)); len(got) != 0 {
		t.Errorf("of a closed node came %v", got)
	}
	if _, err := n.Add(t.Context(), Options{Source: src, Storage: fileIn(t.TempDir())}); err == nil {
		t.Error("a closed node takes a torrent")
	}
}

// Several readers of one subscription share its events, and all of them hear of its end.
func TestSharedSubscription(t *testing.T) {
	s := stream{all: map[*Subscription]struct{}{}}
	n := &Node{}
	n.stream.all = s.all
	x := n.Subscribe(1000)
	var got atomic.Int32
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				if _, err := x.Next(t.Context()); err != nil {
					return
				}
				got.Add(1)
			}
		})
	}
	for i := range 1000 {
		n.stream.publish(i)
	}
	n.stream.close()
	readers.Wait()
	if got.Load() != 1000 {
		t.Errorf("%d of 1000 events were read", got.Load())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	y := (&Node{stream: stream{all: map[*Subscription]struct{}{}}}).Subscribe(1)
	if _, err := y.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled reader: %v", err)
	}
}

// Torrents, their options and their counters survive the node, and removed ones do not come back.
func TestRestore(t *testing.T) {
	t.Parallel()
	data, out, state := t.TempDir(), t.TempDir(), t.TempDir()
	src, paused, removed := create(t, data, "file", 1<<20), create(t, data, "paused", 1<<20), create(t, data, "removed", 1)
	seeder, _ := seedOf(t, src, data)
	n := open(t, Config{State: state})
	u, err := tracker.ParseURL("http://127.0.0.1:1/announce")
	if err != nil {
		t.Fatal(err)
	}
	x := add(t, n, Options{
		Source: src, Storage: fileIn(out), Peers: seeder.Listening(), Goal: Goal{Ratio: 7, Time: time.Hour},
		Trackers: [][]tracker.URL{{u.OfUser()}}, Selection: client.Selection{Sequential: true},
	})
	add(t, n, Options{Source: paused, Storage: fileIn(out), Paused: true})
	gone := add(t, n, Options{Source: removed, Storage: fileIn(out), Paused: true})
	if err := n.Remove(gone.InfoHash(), false); err != nil {
		t.Fatal(err)
	}
	await.Value(t, "the download", x.Done())
	before, added := x.Progress(), x.added
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(state, strings.Repeat("d", 40)+".json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}

	n = open(t, Config{State: state})
	if err := n.Restore(t.Context()); err == nil {
		t.Error("a damaged file is not in the error")
	}
	if all := n.Torrents(); len(all) != 2 {
		t.Fatalf("%d torrents", len(all))
	}
	x, err = n.Torrent(src.InfoHash.HexString())
	if err != nil {
		t.Fatal(err)
	}
	await.Value(t, "the download, again", x.Done())
	o := x.Options()
	if o.Goal != (Goal{Ratio: 7, Time: time.Hour}) || !o.Selection.Sequential || len(o.Peers) != 1 || !o.Trackers[0][0].ByUser() || o.Source.Layout.Length != 1<<20 {
		t.Errorf("options: %+v", o)
	}
	if p := x.Progress(); p.Fetched != before.Fetched || !x.added.Equal(added) {
		t.Errorf("%d bytes were fetched, before %d", p.Fetched, before.Fetched)
	}
	y, err := n.Torrent(paused.InfoHash.HexString())
	if err != nil || y.State() != Paused {
		t.Fatalf("the paused one: %v", err)
	}
	y.Options()
	if err := y.Resume(t.Context()); err != nil {
		t.Error(err)
	}
	if s, ever := n.Stats(), n.Stats().Ever; s.Torrents[Running] != 2 || s.Fetched != 0 || ever.Fetched != before.Fetched {
		t.Errorf("this process: %+v, all: %+v", s, ever)
	}
}

// The next process knows everything that a .torrent file says of trackers, web seeds and nodes of a
// DHT, however long that is.
func TestRestoreLongSource(t *testing.T) {
	t.Parallel()
	out, state := t.TempDir(), t.TempDir()
	info := create(t, out, "file", 1<<20).Torrent()
	text := func(s string) string { return fmt.Sprintf("%d:%s", len(s), s) }
	var tiers string
	for i := range 200 {
		tiers += "l" + text(fmt.Sprintf("http://127.0.0.1:1/%d/%s", i, strings.Repeat("key", 40))) + "e"
	}
	src, err := client.ParseTorrent(fmt.Appendf(nil, "d13:announce-listl%se9:httpseedsl%se%s5:nodesll%si1eee8:url-list%se",
		tiers, text("http://a/script"), info[1:len(info)-1], text("192.0.2.1"), text("http://a/data/")))
	if err != nil {
		t.Fatal(err)
	}
	n := openService(t, state, out)
	add(t, n, Options{Source: src, Paused: true})
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	got := torrent(t, openService(t, state, out), src).Source()
	if !reflect.DeepEqual(got.Trackers, src.Trackers) || !slices.Equal(got.Nodes, src.Nodes) ||
		!slices.Equal(got.WebSeeds, src.WebSeeds) || !slices.Equal(got.HTTPSeeds, src.HTTPSeeds) {
		t.Errorf("%d trackers, nodes %q, web seeds %q, scripts %q", len(got.Trackers), got.Nodes, got.WebSeeds, got.HTTPSeeds)
	}
	if len(src.HTTPSeeds) != 1 || strings.Contains(src.Magnet(), "script") {
		t.Error("a magnet link names a script as a web seed")
	}
}

// A tracker hears of the start, of completion, and of each end; what it says is told.
func TestAnnounces(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	src := create(t, data, "file", 1<<20)
	var mu sync.Mutex
	heard := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		heard[r.FormValue("event")]++
		mu.Unlock()
		_, _ = w.Write([]byte("d8:intervali1800e5:peers0:e"))
	}))
	defer server.Close()
	u, err := tracker.ParseURL(server.URL + "/announce")
	if err != nil {
		t.Fatal(err)
	}
	seeder, _ := seedOf(t, src, data)
	n := open(t, Config{})
	x := add(t, n, Options{Source: src, Storage: fileIn(t.TempDir()), Peers: seeder.Listening(), Trackers: [][]tracker.URL{{u.OfUser()}}, MustFind: true})
	await.Value(t, "the download", x.Done())
	await.True(t, "completion to be told", func() bool { mu.Lock(); defer mu.Unlock(); return heard["completed"] == 1 })
	if s := x.Trackers(); len(s) != 1 || !s[0].Answered || s[0].URL != u.String() {
		t.Errorf("trackers: %+v", s)
	}
	if err := x.Pause(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	if heard["started"] != 1 || heard["stopped"] != 1 {
		t.Errorf("heard %v", heard)
	}
	mu.Unlock()
	// A tracker on SCION cannot be asked from here.
	far, err := tracker.ParseURL("scion://1-ff00:0:110,[10.0.0.1]:31080/announce")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Source: create(t, data, "far", 1), Storage: fileIn(t.TempDir()), Trackers: [][]tracker.URL{{far}}, MustFind: true}
	if _, err := n.Add(t.Context(), o); !errors.Is(err, ErrNoWay) {
		t.Errorf("no way to peers: %v", err)
	}
	o.MustFind = false
	add(t, n, o)
}

// source is a Source whose work can be looked at.
type source struct {
	peers                                    []client.Peer
	hungry, full, completed, closed, refused atomic.Int32
}

func (s *source) Start(x Swarm) (Search, error) {
	if len(s.peers) == 0 {
		s.refused.Add(1)
		return nil, ErrNoWay
	}
	x.Found(client.FromTracker, s.peers...)
	return s, nil
}

func (s *source) Hungry(is bool) {
	if is {
		s.hungry.Add(1)
	} else {
		s.full.Add(1)
	}
}
func (s *source) Announce()  {}
func (s *source) Completed() { s.completed.Add(1) }
func (s *source) Close()     { s.closed.Add(1) }

// Another source finds the peers.
func TestSource(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	src := create(t, data, "file", 2<<20)
	seeder, _ := seedOf(t, src, data)
	works, not := &source{peers: seeder.Listening()}, &source{}
	n := open(t, Config{Sources: []Source{not, works}, Client: client.Config{Limits: client.Limits{Download: 8e6}}})
	x := add(t, n, Options{Source: src, Storage: fileIn(t.TempDir()), MustFind: true})
	await.Value(t, "the download", x.Done())
	if err := n.Remove(x.InfoHash(), false); err != nil {
		t.Fatal(err)
	}
	// A seed needs no peers, and does not tell that it has become complete.
	quiet := &source{peers: seeder.Listening()}
	add(t, open(t, Config{Sources: []Source{quiet}}), Options{Source: src, Storage: Storage{Kind: storage.KindFile, Dir: data, Complete: true}})
	await.True(t, "the seed to be announced", func() bool { return quiet.full.Load() > 0 })
	if quiet.completed.Load() != 0 || quiet.hungry.Load() != 0 {
		t.Errorf("the seed's completion was told %d times; hungry %d times", quiet.completed.Load(), quiet.hungry.Load())
	}
	if works.completed.Load() != 1 || works.closed.Load() != 1 || works.hungry.Load() == 0 || not.refused.Load() != 1 {
		t.Errorf("completed %d, closed %d, hungry %d, refused %d", works.completed.Load(), works.closed.Load(), works.hungry.Load(), not.refused.Load())
	}
}

// Everything at once, from many goroutines: for the race detector.
func TestManyGoroutines(t *testing.T) {
	t.Parallel()
	data, out := t.TempDir(), t.TempDir()
	const torrents = 4
	var sources []client.Source
	for i := range torrents {
		sources = append(sources, create(t, data, fmt.Sprint("file", i), 256<<10))
	}
	seeder, _ := seedOf(t, sources[0], data)
	for _, s := range sources[1:] {
		add(t, seeder, Options{Source: s, Storage: Storage{Kind: storage.KindFile, Dir: data, Complete: true}})
	}
	n := open(t, Config{State: t.TempDir()})
	ctx, cancel := context.WithCancel(t.Context())
	var queries, work sync.WaitGroup
	for range 3 {
		queries.Go(func() {
			events := n.Subscribe(10)
			defer events.Close()
			for ctx.Err() == nil {
				n.Stats()
				for _, x := range n.Torrents() {
					x.Progress()
					x.Trackers()
					x.Options()
					_ = set(x, func(o *Options) { o.Goal = Goal{} })
					x.Status()
					x.Paths()
					x.Peers()
					x.Files()
					x.Log()
					x.History()
				}
				short, stop := context.WithTimeout(ctx, time.Millisecond)
				_, _ = events.Next(short)
				stop()
			}
		})
	}
	for _, src := range sources {
		work.Go(func() {
			o := Options{Source: src, Storage: fileIn(out), Peers: seeder.Listening()}
			for range 3 {
				x, err := n.Add(t.Context(), o)
				if err != nil {
					t.Error(err)
					return
				}
				var both sync.WaitGroup
				both.Go(func() { _ = x.Pause(); _ = x.Resume(t.Context()) })
				both.Go(func() { _ = x.Pause(); _ = x.Resume(t.Context()) })
				both.Wait()
				if x.State() == Paused {
					if err := x.Resume(t.Context()); err != nil {
						t.Error(err)
					}
				}
				await.Value(t, "a download", x.Done())
				if p := x.Progress(); p.Err != nil {
					t.Error(p.Err)
				}
				if err := n.Remove(x.InfoHash(), false); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	cancel()
	queries.Wait()
	for i := range torrents {
		name := fmt.Sprint("file", i)
		sameFile(t, filepath.Join(data, name), filepath.Join(out, name))
	}
}

// Closing a node ends a start that is under way.
func TestCloseWhileAdding(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	src := create(t, data, "file", 8<<20)
	n := open(t, Config{})
	checking := make(chan struct{})
	var once sync.Once
	result := make(chan error, 1)
	go func() {
		o := Options{Source: src, Storage: fileIn(data)}
		o.Storage.Recheck = true
		o.Checking = func(int64) { once.Do(func() { close(checking); <-n.ctx.Done() }) }
		_, err := n.Add(context.Background(), o)
		result <- err
	}()
	select {
	case <-checking:
	case err := <-result:
		t.Fatalf("nothing was checked: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if err := <-result; err == nil {
		t.Error("it was added")
	}
}

// A torrent is limited while it runs, the other one is not; limits survive the node.
func TestLimits(t *testing.T) {
	t.Parallel()
	data, out, state := t.TempDir(), t.TempDir(), t.TempDir()
	src, other := create(t, data, "file", 4<<20), create(t, data, "other", 1<<20)
	seeder, _ := seedOf(t, src, data)
	add(t, seeder, Options{Source: other, Storage: Storage{Kind: storage.KindFile, Dir: data, Complete: true}})
	if err := seeder.Change(func(s *Settings) error { *s = Settings{Rates: Rates{Upload: 1e6}}; return nil }); err == nil {
		t.Error("limits of a node that is no service were changed")
	}
	n := open(t, Config{Service: true, State: state})
	slow := Rates{Download: 1e5, Upload: 1e5} // minutes, which end with the limit
	x := add(t, n, Options{Source: src, Storage: fileIn(out), Peers: seeder.Listening(), Rates: slow})
	y := add(t, n, Options{Source: other, Storage: fileIn(out), Peers: seeder.Listening()})
	await.Value(t, "the other", y.Done())
	if isClosed(x.Done()) {
		t.Error("4 MiB came at 0.1 Mbit/s before 1 MiB did at any rate")
	}
	if err := set(x, func(o *Options) { o.Rates = Rates{Download: 1} }); err == nil {
		t.Error("too low a limit was taken")
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n = open(t, Config{Service: true, State: state})
	if err := n.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	x, err := n.Torrent(src.InfoHash.HexString())
	if err != nil {
		t.Fatal(err)
	}
	if l := x.Options().Rates; l.Download != slow.Download || l.Upload != slow.Upload {
		t.Errorf("limits: %+v", l)
	}
	if err := set(x, func(o *Options) { o.Rates = Rates{} }); err != nil {
		t.Fatal(err)
	}
	if err := n.Change(func(s *Settings) error { *s = Settings{Rates: Rates{Download: 100e6}}; return nil }); err != nil {
		t.Fatal(err)
	}
	await.Value(t, "the rest without a limit", x.Done())
}

// set changes options of a torrent.
func set(x *Torrent, change func(*Options)) error {
	return x.Change(func(o *Options) error { change(o); return nil })
}

// slowSource is a Source whose first search waits until begin is closed.
type slowSource struct {
	source
	begin   chan struct{}
	started atomic.Int32
}

func (s *slowSource) Start(x Swarm) (Search, error) {
	if s.started.Add(1) == 1 {
		<-s.begin
	}
	return s, nil
}

// If searches begin anew while the first ones begin, all of them end with the torrent.
func TestSearchAgainWhileStarting(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	src := create(t, data, "file", 1)
	slow := &slowSource{begin: make(chan struct{})}
	n := open(t, Config{Sources: []Source{slow}})
	added := make(chan error, 1)
	go func() {
		_, err := n.Add(t.Context(), Options{Source: src, Storage: fileIn(data)})
		added <- err
	}()
	await.True(t, "the first search", func() bool { return slow.started.Load() == 1 })
	x := torrent(t, n, src)
	again := make(chan struct{})
	go func() {
		x.searchAgain(x.current())
		close(again)
	}()
	select {
	case <-again:
	case <-time.After(50 * time.Millisecond): // it waits for the first search
	}
	close(slow.begin)
	if err := <-added; err != nil {
		t.Fatal(err)
	}
	await.Value(t, "the second search", again)
	await.Value(t, "the data", x.Done())
	// Searches of a complete torrent hear that it needs no peers.
	before := slow.full.Load()
	x.searchAgain(x.current())
	await.True(t, "the third search to know", func() bool { return slow.full.Load() > before })
	if err := n.Remove(x.InfoHash(), false); err != nil {
		t.Fatal(err)
	}
	if s, c := slow.started.Load(), slow.closed.Load(); s != 3 || c != s {
		t.Errorf("%d searches have begun, %d have ended", s, c)
	}
}

// After a sleep of the host all torrents are announced again, but not after a clock was corrected.
func TestAnnouncesAfterSleep(t *testing.T) {
	t.Parallel()
	begin := make(chan struct{})
	close(begin)
	s := &slowSource{begin: begin}
	n := open(t, Config{Sources: []Source{s}})
	data := t.TempDir()
	add(t, n, Options{Source: create(t, data, "file", 1), Storage: fileIn(data)})
	for _, d := range []time.Duration{-time.Hour, time.Second, time.Hour} {
		n.announceAfterSleep(d)
	}
	await.True(t, "the second search", func() bool { return s.started.Load() == 2 })
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if s, c := s.started.Load(), s.closed.Load(); s != 2 || c != s {
		t.Errorf("%d searches have begun, %d have ended", s, c)
	}
	if d := lead(n.opened).Abs(); d >= leastSleep {
		t.Errorf("without a sleep, the clocks differ by %v", d)
	}
}

// A wait ends soon after the host has slept, and otherwise in time.
func TestWaitCountsSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		waitFor(t.Context(), 30*time.Minute, func() time.Duration {
			passed := time.Since(began)
			if passed >= time.Minute {
				passed += time.Hour // asleep
			}
			return passed
		})
		if d := time.Since(began); d < time.Minute || d > time.Minute+leastSleep {
			t.Errorf("it ends after %v", d)
		}
		began = time.Now()
		if Wait(t.Context(), 45*time.Second); time.Since(began) != 45*time.Second {
			t.Errorf("without a sleep it ends after %v", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if Wait(ctx, time.Hour); time.Since(began) != time.Second {
			t.Errorf("the context ends it after %v", time.Since(began))
		}
	})
}

// The totals never shrink while a torrent is removed, and the status can be read while settings
// change.
func TestReadWhileChanging(t *testing.T) {
	t.Parallel()
	n := open(t, Config{Service: true, Settings: Settings{Dir: t.TempDir()}})
	src := create(t, t.TempDir(), "file", 1)
	ended := make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() {
		for last := int64(0); !isClosed(ended); {
			now := n.Stats().Ever.Fetched
			if now < last {
				t.Errorf("the total was %d and is %d", last, now)
				return
			}
			last = now
		}
	})
	for i := range 20 {
		x := add(t, n, Options{Source: src, Paused: true})
		x.mu.Lock()
		x.past.Fetched = 1000
		x.mu.Unlock()
		readers.Go(func() { x.Status() })
		err := n.Change(func(s *Settings) error { s.PeerLimit = i; return nil })
		if err := errors.Join(err, n.Remove(x.InfoHash(), false)); err != nil {
			t.Fatal(err)
		}
	}
	close(ended)
	readers.Wait()
}

// A process that was killed just when peers had described a magnet link has left the description
// with the data only. The next one keeps it with the torrent's state.
func TestDescriptionIsKept(t *testing.T) {
	t.Parallel()
	out, state := t.TempDir(), t.TempDir()
	src := create(t, out, "file", 1<<20)
	n := openService(t, state, out)
	x := add(t, n, Options{Source: src, Paused: true, Storage: fileIn(out)})
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	name, kept := filepath.Join(state, x.InfoHash()+".torrent"), storage.KeptTorrent(out, src.InfoHash)
	if err := errors.Join(os.MkdirAll(filepath.Dir(kept), 0o755), os.Rename(name, kept)); err != nil {
		t.Fatal(err)
	}
	openService(t, state, out)
	sameFile(t, kept, name)
}

// A magnet link that nobody describes is given up after the user's time without data.
func TestDescribeStops(t *testing.T) {
	t.Parallel()
	o := Options{Source: client.Source{InfoHash: [20]byte{1}}, StopTimeout: time.Second}
	if _, err := open(t, Config{}).Describe(t.Context(), o); !errors.As(err, new(*client.StoppedError)) {
		t.Errorf("%v", err)
	}
}

// A torrent that cannot be saved is not added, and does not run although the queue has started it.
func TestUnsavedDoesNotRun(t *testing.T) {
	t.Parallel()
	out, state := t.TempDir(), t.TempDir()
	src := create(t, out, "file", 1<<20)
	n := openService(t, state, out)
	if err := os.MkdirAll(filepath.Join(state, src.InfoHash.HexString()+".json", "in the way"), 0o755); err != nil {
		t.Fatal(err)
	}
	x := newTorrent(n, n.withDefaults(Options{Source: src}))
	x.saving.Lock()
	added := make(chan error)
	go func() {
		_, err := n.add(t.Context(), x)
		added <- err
	}()
	await.True(t, "the start", func() bool { return x.State() == Running })
	x.saving.Unlock()
	if err := <-added; err == nil || len(n.Torrents()) > 0 {
		t.Errorf("%v, %d torrents", err, len(n.Torrents()))
	}
	if s := x.State(); s != Removed || x.current() != nil {
		t.Errorf("it is %s", s)
	}
}

// Two paths lead to one directory. Torrents that name it in either way share it.
func TestLinkedDirectory(t *testing.T) {
	t.Parallel()
	dir, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	n := openService(t, t.TempDir(), dir)
	for i, at := range []string{filepath.Join(link, "new"), filepath.Join(dir, "new"), dir, link} {
		x := add(t, n, Options{Source: create(t, dir, fmt.Sprint(i), 1), Storage: fileIn(at)})
		await.True(t, "the start", func() bool { s := x.State(); return s == Running || s == Failed })
		if err := x.Progress().Err; err != nil {
			t.Errorf("in %s: %v", at, err)
		}
	}
	if len(n.stores.all) != 2 {
		t.Errorf("%d stores", len(n.stores.all))
	}
}
