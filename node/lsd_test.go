package node

import (
	"crypto/rand"
	"slices"
	"testing"

	"braid/client"
	"braid/storage"
	"braid/units/await"
)

// nearby opens a node that takes part in local discovery. Its addresses are on loopback, so its
// announces stay there.
func nearby(t *testing.T) *Node {
	return open(t, Config{Settings: Settings{LSD: true}, Service: true})
}

// A download hears the announce of a seed of which it knows nothing, and dials it.
func TestLocalDiscovery(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	src := create(t, data, rand.Text(), 1<<20) // other runs of this test are on this host, too
	one := nearby(t)
	x := add(t, one, Options{Source: src, Storage: fileIn(t.TempDir()), MustFind: true})
	await.True(t, "the first announce", one.nearby.server.Announced)
	add(t, nearby(t), Options{Source: src, Storage: Storage{Kind: storage.KindFile, Dir: data, Complete: true}})
	await.Value(t, "the download", x.Done())
	if p := x.Progress().Paths; !slices.ContainsFunc(p, func(p client.PathProgress) bool { return p.Source == client.FromLSD }) {
		t.Errorf("no peer is from the local network: %+v", p)
	}
}

// Local discovery hears nothing of a private torrent, nor of any while it is switched off.
func TestLocalDiscoveryLeavesOut(t *testing.T) {
	n := nearby(t)
	private := true
	s := Swarm{InfoHash: [20]byte{1}, Private: func() bool { return private }, Logger: n.log}
	if _, err := n.nearby.Start(s); err != ErrNoWay {
		t.Errorf("a private torrent: %v", err)
	}
	private = false
	if err := n.Change(func(s *Settings) error { s.LSD = false; return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := n.nearby.Start(s); err != ErrNoWay {
		t.Errorf("while it is off: %v", err)
	}
	if err := n.Change(func(s *Settings) error { s.LSD = true; return nil }); err != nil {
		t.Fatal(err)
	}
	x, err := n.nearby.Start(s)
	if err != nil {
		t.Fatal(err)
	}
	x.Close()
	if y := open(t, Config{Client: client.Config{IP: client.QUIC}}); y.nearby == nil {
		t.Error("none with QUIC")
	}
}
