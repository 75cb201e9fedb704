package node

import (
	"testing"
	"time"

	"braid/client"
	"braid/storage"
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
	for ConnectedPeers(two.Progress()) == 0 || len(one.Progress().Paths) == 0 {
		select {
		case <-t.Context().Done():
			t.Fatal("the two have not connected")
		case <-time.After(time.Millisecond):
		}
	}
	add(t, seed, Options{Source: src, Storage: Storage{Kind: storage.KindFile, Dir: data, Complete: true}})
	one.AddPeers(seed.Listening()...)
	for _, x := range []*Torrent{one, two} {
		select {
		case <-x.Done():
		case <-time.After(patience):
			t.Fatalf("not complete: %+v", x.Progress())
		}
	}
}
