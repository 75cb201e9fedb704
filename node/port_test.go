package node

import (
	"testing"

	"braid/client"
	"braid/storage"
	"braid/units/await"
)

// A download knows one peer and no node of the DHT. The peer tells it where its node is.
func TestPortMessage(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	src := create(t, data, "file", 4<<20)
	seed := open(t, Config{DHT: &DHTConfig{OverIP: true}})
	add(t, seed, Options{Source: src, Storage: Storage{Kind: storage.KindFile, Dir: data, Complete: true}})
	n := open(t, Config{DHT: &DHTConfig{OverIP: true}, Client: client.Config{Limits: client.Limits{Download: 1e5}}}) // it takes minutes
	add(t, n, Options{Source: src, Storage: fileIn(t.TempDir()), Peers: seed.Listening()})
	for _, x := range []*Node{n, seed} {
		await.True(t, "the other's node", func() bool { return x.dht.Status().Networks[0].Nodes == 1 })
	}
}

// Nobody is told of a node because of a private torrent.
func TestNoPortMessageForPrivateTorrents(t *testing.T) {
	t.Parallel()
	data, out := t.TempDir(), t.TempDir()
	create(t, data, "file", 1<<20)
	c, err := client.Create(t.Context(), data+"/file", client.CreateOptions{PieceLength: 32 << 10, Private: true})
	if err != nil {
		t.Fatal(err)
	}
	seed := open(t, Config{DHT: &DHTConfig{OverIP: true}})
	add(t, seed, Options{Source: c.Source, Storage: Storage{Kind: storage.KindFile, Dir: data, Complete: true}})
	n := open(t, Config{DHT: &DHTConfig{OverIP: true}, Client: client.Config{Limits: client.Limits{Download: 4e6}}})
	x := add(t, n, Options{Source: c.Source, Storage: fileIn(out), Peers: seed.Listening()})
	await.Value(t, "the download", x.Done()) // which takes two seconds; peers are told each second
	for _, y := range []*Node{n, seed} {
		if d := y.dht.Status().Networks[0]; d.Nodes != 0 || d.Asked != 0 {
			t.Errorf("a node has asked %d times, and knows %d nodes", d.Asked, d.Nodes)
		}
	}
}
