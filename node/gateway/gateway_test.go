package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"braid/client"
	"braid/node"
	"braid/node/web/webtest"
	"braid/scionnet"
	"braid/storage"
	"braid/tracker"
	"braid/tracker/swarm"
	"braid/tracker/wire"
	"braid/units/await"
)

// Both sides are on loopback here: TestGateway of cmd/braid has one of them on SCION.

func openNode(t *testing.T, sources ...node.Source) *node.Node {
	t.Helper()
	return webtest.Open(t, node.Config{Sources: sources})
}

// seeded makes a torrent of random data in dir, which a node of its own seeds.
func seeded(t *testing.T, dir, name string, size int) (client.Source, wire.Addr) {
	t.Helper()
	b := make([]byte, size)
	rand.NewChaCha8([32]byte([]byte(fmt.Sprintf("%-32s", name)))).Read(b)
	if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := client.Create(t.Context(), filepath.Join(dir, name), client.CreateOptions{PieceLength: 32 << 10})
	if err != nil {
		t.Fatal(err)
	}
	n := openNode(t)
	if _, err := n.Add(t.Context(), node.Options{Source: c.Source, Storage: node.Storage{Kind: storage.KindFile, Dir: dir, Complete: true}}); err != nil {
		t.Fatal(err)
	}
	return c.Source, scionnet.IPAddr(netip.MustParseAddrPort(n.Listening()[0].String()))
}

// opened is a gateway that runs until the end of the test, with its tracker's memory.
func opened(t *testing.T, cfg Config, sources ...client.Source) (*Gateway, swarm.Store, *node.Node) {
	t.Helper()
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := g.Store(swarm.NewMemory(swarm.Limits{}))
	g.Allow(allowed(sources...))
	n := openNode(t, g)
	if err := g.Open(n); err != nil {
		t.Fatal(err)
	}
	return g, s, n
}

func allowed(sources ...client.Source) (all []Allowed) {
	for _, s := range sources {
		all = append(all, Allowed{Source: s})
	}
	return all
}

// running has the gateway do its regular work until the returned function is called.
func running(t *testing.T, g *Gateway) {
	ended := make(chan struct{})
	ctx := t.Context()
	go func() { defer close(ended); g.Run(ctx) }()
	t.Cleanup(func() { <-ended })
}

// leaves has the time go by in which nobody asks for a torrent, and waits until the gateway has
// left it.
func leaves(t *testing.T, g *Gateway, src client.Source) {
	t.Helper()
	now := time.Now()
	await.True(t, "the gateway to leave", func() bool {
		now = now.Add(g.cfg.Idle + time.Minute) // again and again: data may just have been sent, or the join goes on
		g.sweep(now)
		return isAway(g, src)
	})
}

// isAway tells whether a gateway has left a torrent. Until then it refuses clients.
func isAway(g *Gateway, src client.Source) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.torrents[wire.InfoHash(src.InfoHash)].state == away
}

// asks announces a client or a seed, and returns the peers in the answer. It waits until the
// gateway no longer joins the torrent. A client waits two seconds only.
func asks(t *testing.T, s swarm.Store, src client.Source, at wire.Addr, seed bool) ([]wire.Peer, error) {
	t.Helper()
	hash := wire.InfoHash(src.InfoHash)
	v, err := s.Announce(t.Context(), swarm.Visit{
		InfoHash: hash, ID: wire.PeerID{byte(at.Port >> 8), byte(at.Port)}, Identity: uint64(at.Port), Addr: at,
		Event: wire.Started, Seed: seed, Want: 50, Reaches: swarm.IPv4,
	})
	g := s.(store).gateway
	await.True(t, "the end of the join", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.torrents[hash] == nil || g.torrents[hash].state != joining
	})
	return v.Peers, err
}

// diskUsed is the size of all files of torrents in the cache.
func diskUsed(t *testing.T, dir string) (size int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && (e.IsDir() || strings.Contains(path, ".braid")) {
			return nil
		}
		info, err2 := e.Info()
		if err2 == nil {
			size += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return size
}

func clientAt(port uint16) wire.Addr {
	return scionnet.IPAddr(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port))
}

// A gateway is nowhere until somebody asks. Then it joins, is named first, and passes on what it
// gets. It leaves when nobody asks any more, and keeps the data.
func TestJoinsOnDemand(t *testing.T) {
	t.Parallel()
	data, cache := t.TempDir(), t.TempDir()
	src, seed := seeded(t, data, "file", 1<<20)
	other, _ := seeded(t, data, "other", 1000)
	g, s, n := opened(t, Config{Dir: cache, Size: 2 << 20, Idle: time.Hour}, src)
	running(t, g)
	if len(n.Torrents()) != 0 {
		t.Error("it has joined before anybody has asked")
	}
	if _, err := asks(t, s, other, clientAt(1), false); !errors.Is(err, errNotAllowed) || len(n.Torrents()) != 0 {
		t.Errorf("a torrent that is not allowed: %v", err)
	}
	if _, err := s.Scrape(t.Context(), []wire.InfoHash{wire.InfoHash(other.InfoHash)}); !errors.Is(err, errNotAllowed) {
		t.Errorf("its scrape: %v", err)
	}
	if _, err := asks(t, s, src, seed, true); err != nil {
		t.Fatal(err)
	}
	fetcher := openNode(t)
	at := fetcher.Listening()[0].String()
	peers, err := asks(t, s, src, scionnet.IPAddr(netip.MustParseAddrPort(at)), false)
	if err != nil || len(peers) != 2 || peers[0].ID != wire.PeerID(n.PeerID()) || peers[0].Addr.String() != n.Listening()[0].String() {
		t.Fatalf("%+v, %v", peers, err)
	}
	if p, err := asks(t, s, src, clientAt(2), false); err != nil || len(p) != 3 {
		t.Errorf("%+v, %v", p, err)
	}
	out := t.TempDir()
	x, err := fetcher.Add(t.Context(), node.Options{Source: src, Storage: node.Storage{Kind: storage.KindFile, Dir: out}, Peers: n.Listening()})
	if err != nil {
		t.Fatal(err)
	}
	await.Value(t, "the download", x.Done())
	want, _ := os.ReadFile(filepath.Join(data, "file"))
	if got, err := os.ReadFile(filepath.Join(out, "file")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	leaves(t, g, src)
	if len(n.Torrents()) != 0 {
		t.Error("its node has not left")
	}
	await.True(t, "all of its data in the cache", func() bool { return diskUsed(t, cache) == 1<<20 })
	g.Allow(nil)
	await.True(t, "the deletion of data that is no longer allowed", func() bool { return diskUsed(t, cache) == 0 })
}

// The cache stays within its bound, whatever is asked for, and what was used last stays.
func TestCacheStaysBounded(t *testing.T) {
	t.Parallel()
	data, cache := t.TempDir(), t.TempDir()
	var all []client.Source
	var seeds []wire.Addr
	const size, most = 100_000, 250_000
	for i := range 5 {
		src, seed := seeded(t, data, fmt.Sprintf("file%d", i), size)
		all, seeds = append(all, src), append(seeds, seed)
	}
	large, _ := seeded(t, data, "large", most+1)
	g, s, n := opened(t, Config{Dir: cache, Size: most, Idle: time.Hour}, append(all, large)...)
	running(t, g)
	if _, err := asks(t, s, large, clientAt(1), false); !errors.Is(err, errNotAllowed) {
		t.Errorf("a torrent that is larger than the cache: %v", err)
	}
	for i, src := range all {
		if _, err := asks(t, s, src, seeds[i], true); err != nil {
			t.Fatal(err)
		}
		await.True(t, "all data of the torrent", func() bool {
			x, err := n.Torrent(src.InfoHash.HexString())
			if used := diskUsed(t, cache); used > most {
				t.Fatalf("%d bytes are on disk, of at most %d", used, most)
			}
			return err == nil && x.Progress().Phase == client.Complete
		})
		leaves(t, g, src)
	}
	if got := diskUsed(t, cache); got != 2*size {
		t.Errorf("%d bytes are on disk", got)
	}
	for i, src := range all {
		_, err := os.Stat(g.dirOf(wire.InfoHash(src.InfoHash)))
		if there := err == nil; there != (i >= 3) {
			t.Errorf("torrent %d is there: %v", i, there)
		}
	}
	// Two are in use, of one network: there is no room for a third.
	for i := range 2 {
		if _, err := asks(t, s, all[i], seeds[i], true); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := asks(t, s, all[2], seeds[2], true); !errors.Is(err, errNoRoom) {
		t.Errorf("no room: %v", err)
	}
}

// If a torrent fails, the gateway leaves it, and the next client makes it join again.
func TestJoinsAfterFailure(t *testing.T) {
	t.Parallel()
	src, seed := seeded(t, t.TempDir(), "file", 100_000)
	g, s, n := opened(t, Config{Dir: t.TempDir(), Size: 1 << 20, Idle: time.Hour}, src)
	running(t, g)
	if _, err := asks(t, s, src, clientAt(1), false); err != nil {
		t.Fatal(err)
	}
	dir := g.dirOf(wire.InfoHash(src.InfoHash))
	if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)); err != nil { // the disk fails
		t.Fatal(err)
	}
	if _, err := asks(t, s, src, seed, true); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the gateway to leave", func() bool { return isAway(g, src) })
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := asks(t, s, src, seed, true); err != nil {
		t.Fatal(err)
	}
	await.True(t, "all data", func() bool {
		x, err := n.Torrent(src.InfoHash.HexString())
		return err == nil && x.Progress().Phase == client.Complete
	})
}

// All clients of a torrent together wait for a slow join for as long as one of them does. Otherwise
// they would take all readers of the tracker.
func TestSlowJoin(t *testing.T) {
	t.Parallel()
	src, _ := seeded(t, t.TempDir(), "file", 1000)
	g, _, _ := opened(t, Config{Dir: t.TempDir(), Size: 1 << 20, Idle: time.Hour}, src)
	running(t, g)
	for range startsAtOnce {
		g.starts <- struct{}{}
	}
	for range 2 {
		joined, err := g.ask(wire.InfoHash(src.InfoHash), "a", false, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		await.Value(t, "the end of the wait", joined)
	}
	for range startsAtOnce {
		<-g.starts
	}
}

// A join that has begun just before the gateway ends is harmless.
func TestJoinAtTheEnd(t *testing.T) {
	t.Parallel()
	src, _ := seeded(t, t.TempDir(), "file", 1000)
	n := openNode(t)
	ended, end := context.WithCancel(t.Context())
	end()
	for range 200 {
		g, err := New(Config{Dir: t.TempDir(), Size: 1 << 20, Idle: time.Hour, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		g.Allow(allowed(src))
		if err := g.Open(n); err != nil {
			t.Fatal(err)
		}
		if _, err := g.ask(wire.InfoHash(src.InfoHash), "a", false, time.Now()); err != nil {
			t.Fatal(err)
		}
		g.Run(ended)
	}
}

// The list of torrents may change while the gateway leaves one.
func TestAllowWhileLeaving(t *testing.T) {
	t.Parallel()
	src, _ := seeded(t, t.TempDir(), "file", 1000)
	g, s, _ := opened(t, Config{Dir: t.TempDir(), Size: 1 << 20, Idle: time.Hour}, src)
	running(t, g)
	if _, err := asks(t, s, src, clientAt(1), false); err != nil {
		t.Fatal(err)
	}
	g.sweep(time.Now().Add(2 * g.cfg.Idle))
	for !isAway(g, src) {
		g.Allow(allowed(src))
	}
}

// A client is not sent to a gateway that could not join the torrent.
func TestFailedJoin(t *testing.T) {
	t.Parallel()
	src, _ := seeded(t, t.TempDir(), "file", 1000)
	g, s, _ := opened(t, Config{Dir: t.TempDir(), Size: 1 << 20, Idle: time.Hour}, src)
	running(t, g)
	if err := os.WriteFile(g.dirOf(wire.InfoHash(src.InfoHash)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the client to hear of it", func() bool { // if the join fails while it waits
		_, err := asks(t, s, src, clientAt(1), false)
		return errors.Is(err, errNotJoined)
	})
	if err := os.Remove(g.dirOf(wire.InfoHash(src.InfoHash))); err != nil {
		t.Fatal(err)
	}
	if p, err := asks(t, s, src, clientAt(1), false); err != nil || len(p) != 1 {
		t.Errorf("%v, %v", p, err)
	}
}

// A torrent that cannot be joined is reported once, however often clients ask for it.
func TestFailedJoinsAreReportedOnce(t *testing.T) {
	t.Parallel()
	src, _ := seeded(t, t.TempDir(), "file", 1000)
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	g, s, _ := opened(t, Config{Dir: t.TempDir(), Size: 1 << 20, Idle: time.Hour, Logger: log}, src)
	if err := os.WriteFile(g.dirOf(wire.InfoHash(src.InfoHash)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for n := range uint16(3) {
		if _, err := asks(t, s, src, clientAt(1+n), false); err != nil && !errors.Is(err, errNotJoined) {
			t.Error(err)
		}
	}
	g.workers.Wait()
	if n := strings.Count(said.String(), "a torrent cannot be joined"); n != 1 {
		t.Errorf("%d reports: %s", n, &said)
	}
}

// A new list changes the trackers of torrents that the gateway has joined, or is about to.
func TestAllowOtherTrackers(t *testing.T) {
	t.Parallel()
	src, _ := seeded(t, t.TempDir(), "file", 1000)
	g, s, n := opened(t, Config{Dir: t.TempDir(), Size: 1 << 20, Idle: time.Hour}, src)
	running(t, g)
	allow := func(url string) [][]tracker.URL {
		u, err := tracker.ParseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		a := Allowed{Source: src, Trackers: [][]tracker.URL{{u}}}
		g.Allow([]Allowed{a})
		return a.Trackers
	}
	asksTracker := func(want [][]tracker.URL) {
		t.Helper()
		await.True(t, "the trackers of the list", func() bool {
			x, err := n.Torrent(src.InfoHash.HexString())
			return err == nil && reflect.DeepEqual(x.Options().Trackers, want)
		})
	}
	for range startsAtOnce {
		g.starts <- struct{}{}
	}
	if _, err := g.ask(wire.InfoHash(src.InfoHash), "a", false, time.Now()); err != nil {
		t.Fatal(err)
	}
	want := allow("http://127.0.0.1:1/announce")
	for range startsAtOnce {
		<-g.starts
	}
	asksTracker(want)
	asksTracker(allow("http://127.0.0.1:2/announce"))
	if _, err := asks(t, s, src, clientAt(1), false); err != nil {
		t.Error(err)
	}
}

// Data that cannot be deleted is reported once, not at each try.
func TestUndeletableData(t *testing.T) {
	t.Parallel()
	src, _ := seeded(t, t.TempDir(), "file", 1000)
	cache := filepath.Join(t.TempDir(), "cache")
	var said bytes.Buffer
	g, s, _ := opened(t, Config{Dir: cache, Size: 1 << 20, Idle: time.Hour, Logger: slog.New(slog.NewTextHandler(&said, nil))}, src)
	if _, err := asks(t, s, src, clientAt(1), false); err != nil {
		t.Fatal(err)
	}
	leaves(t, g, src)
	if err := errors.Join(os.Rename(cache, cache+"2"), os.WriteFile(cache, nil, 0o600)); err != nil { // not even root can delete below a file
		t.Fatal(err)
	}
	g.Allow(nil)
	for range 3 {
		g.sweep(time.Now())
		g.workers.Wait()
	}
	if n := strings.Count(said.String(), "a torrent cannot be left"); n != 1 {
		t.Errorf("%d reports: %s", n, &said)
	}
	if err := errors.Join(os.Remove(cache), os.Rename(cache+"2", cache)); err != nil {
		t.Fatal(err)
	}
	g.sweep(time.Now())
	g.workers.Wait()
	if n := diskUsed(t, cache); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}

// Private torrents and magnet links are refused.
func TestNeverPrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := client.Create(t.Context(), filepath.Join(dir, "file"), client.CreateOptions{Private: true})
	if err != nil {
		t.Fatal(err)
	}
	magnet, err := client.ParseMagnet(c.Source.Magnet())
	if err != nil {
		t.Fatal(err)
	}
	for _, src := range []client.Source{c.Source, magnet} {
		g, s, n := opened(t, Config{Dir: t.TempDir(), Size: 1 << 20, Idle: time.Hour}, src)
		running(t, g)
		if _, err := asks(t, s, src, clientAt(1), false); !errors.Is(err, errNotAllowed) || len(n.Torrents()) != 0 {
			t.Errorf("magnet link: %v: %v", src.IsMagnet(), err)
		}
	}
}

// Data of an earlier process is used again, and what is no longer allowed is deleted. Foreign files
// stay.
func TestCacheSurvives(t *testing.T) {
	t.Parallel()
	data, cache := t.TempDir(), t.TempDir()
	src, _ := seeded(t, data, "file", 1000)
	gone, _ := seeded(t, data, "gone", 1000)
	for _, name := range []string{src.InfoHash.HexString(), gone.InfoHash.HexString(), "notes"} {
		if err := os.MkdirAll(filepath.Join(cache, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(filepath.Join(data, "file"))
	if err == nil {
		err = os.WriteFile(filepath.Join(cache, src.InfoHash.HexString(), "file"), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	g, s, n := opened(t, Config{Dir: cache, Size: 10_000, Idle: time.Hour}, src)
	running(t, g)
	if _, err := os.Stat(filepath.Join(cache, "notes")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(cache, gone.InfoHash.HexString())); err == nil {
		t.Error("data of a torrent that is not allowed is still there")
	}
	if _, err := asks(t, s, src, clientAt(1), false); err != nil {
		t.Fatal(err)
	}
	await.True(t, "all data without any peer", func() bool {
		x, err := n.Torrent(src.InfoHash.HexString())
		return err == nil && x.Progress().Phase == client.Complete
	})
}
