package node

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"braid/client"
	"braid/storage"
	"braid/units/await"
)

// A peer of a magnet link that hears only of another one gets the description from that one, as
// soon as the other has it. Their handshake was over before.
func TestMagnetFromMagnet(t *testing.T) {
	data := t.TempDir()
	src := create(t, data, "found", 100_000)
	magnet, err := client.ParseMagnet("magnet:?xt=urn:btih:" + src.InfoHash.HexString())
	if err != nil {
		t.Fatal(err)
	}
	first, second, seed := open(t, Config{}), open(t, Config{}), open(t, Config{})
	one := add(t, first, Options{Source: magnet, Storage: Storage{Kind: storage.KindFile, Dir: t.TempDir()}})
	two := add(t, second, Options{Source: magnet, Storage: Storage{Kind: storage.KindFile, Dir: t.TempDir()}, Peers: first.Listening()})
	await.True(t, "a connection of the two", func() bool {
		return ConnectedPeers(two.Progress()) > 0 && len(one.Progress().Paths) > 0
	})
	add(t, seed, Options{Source: src, Storage: Storage{Kind: storage.KindFile, Dir: data, Complete: true}})
	one.AddPeers(seed.Listening()...)
	await.Value(t, "the first one's data", one.Done())
	await.Value(t, "the second one's data", two.Done())
}

// A magnet link that nobody has described can be moved, and its data is in the new place.
func TestMagnetMoves(t *testing.T) {
	t.Parallel()
	data, to := t.TempDir(), t.TempDir()
	src := create(t, data, "found", 100_000)
	seed, n := open(t, Config{}), open(t, Config{Service: true, Settings: Settings{Dir: t.TempDir()}})
	add(t, seed, Options{Source: src, Storage: Storage{Kind: storage.KindFile, Dir: data, Complete: true}})
	magnet, err := client.ParseMagnet("magnet:?xt=urn:btih:" + src.InfoHash.HexString())
	if err != nil {
		t.Fatal(err)
	}
	x := add(t, n, Options{Source: magnet})
	await.True(t, "the start", func() bool { return x.State() == Running })
	if err := x.Move(to, true); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the move", func() bool { return x.State() == Running && x.Options().Storage.Dir == to })
	x.AddPeers(seed.Listening()...)
	await.Value(t, "the data", x.Done())
	sameFile(t, filepath.Join(to, "found"), filepath.Join(data, "found"))
}

// The check of a magnet link that nobody has described is made when somebody has, even if that is
// in another process.
func TestMagnetIsVerifiedLater(t *testing.T) {
	t.Parallel()
	data, to, state := t.TempDir(), t.TempDir(), t.TempDir()
	src := create(t, data, "found", 100_000)
	seed, first := open(t, Config{}), open(t, Config{})
	add(t, seed, Options{Source: src, Storage: Storage{Kind: storage.KindFile, Dir: data, Complete: true}})
	await.Value(t, "the first download", add(t, first, Options{Source: src, Storage: fileIn(to), Peers: seed.Listening()}).Done())
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(to, "found")
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		os.WriteFile(file, make([]byte, before.Size()), 0o644), os.Chtimes(file, before.ModTime(), before.ModTime()),
	); err != nil {
		t.Fatal(err)
	}
	magnet, err := client.ParseMagnet("magnet:?xt=urn:btih:" + src.InfoHash.HexString())
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Service: true, State: state, Settings: Settings{Dir: to}}
	n := open(t, cfg)
	x := add(t, n, Options{Source: magnet, Paused: true})
	if err := x.Verify(); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the order", func() bool { return x.Options().Storage.Recheck })
	if err := x.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the start", func() bool { return x.State() == Running })
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}

	n = open(t, cfg)
	if err := n.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	x = n.Torrents()[0]
	await.True(t, "the second start", func() bool { return x.State() == Running })
	x.AddPeers(seed.Listening()...)
	await.Value(t, "the data", x.Done())
	sameFile(t, file, filepath.Join(data, "found"))
	if x.Options().Storage.Recheck {
		t.Error("the next start checks it once more")
	}
}
