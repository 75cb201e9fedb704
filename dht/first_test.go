package dht

import (
	"crypto/ed25519"
	"fmt"
	"slices"
	"testing"
)

func addrs(t testing.TB, texts ...string) (out []Addr) {
	t.Helper()
	for _, text := range texts {
		a, err := ParseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, a)
	}
	return out
}

// What an operator publishes is what others read, and as large as an item may be.
func TestFirstNodes(t *testing.T) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	nodes := addrs(t, "1-ff00:0:110,[10.0.0.1]:31000", "2-ff00:0:220,[fd00::1]:31000", "192.0.2.1:6881")
	i := FirstNodes(key, 7, nodes)
	if got, err := i.FirstNodes(); err != nil || !slices.Equal(got, nodes[:2]) {
		t.Errorf("%v, %v", got, err)
	}
	if name := FirstNodesOf(key.Public().(ed25519.PublicKey)); !i.Verify(name) {
		t.Error("the item is not at the name of its owner's key")
	}
	var many []Addr
	for n := range 100 {
		many = append(many, addrs(t, fmt.Sprintf("2-ff00:0:220,[fd00::%d]:31000", n+1))...)
	}
	i = FirstNodes(key, 8, many)
	if got, err := i.FirstNodes(); err != nil || !slices.Equal(got, many[:maxFirst]) || len(i.Value) > maxItem {
		t.Errorf("%d nodes in %d bytes, %v", len(got), len(i.Value), err)
	}
	for _, bad := range []string{"", "i1e", "d2:s43:abce", "d2:s4i1ee", "d2:s614:12345678901234e", "le"} {
		if got, err := (&Item{Value: []byte(bad)}).FirstNodes(); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
	unusable := "d2:s414:" + string(make([]byte, 14)) + "e"
	if got, err := (&Item{Value: []byte(unusable)}).FirstNodes(); err != nil || len(got) > 0 {
		t.Errorf("an address that nobody can have: %v, %v", got, err)
	}
}

func FuzzFirstNodes(f *testing.F) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	f.Add(FirstNodes(key, 7, addrs(f, "1-ff00:0:110,[10.0.0.1]:31000", "2-ff00:0:220,[fd00::1]:31000")).Value)
	f.Fuzz(func(t *testing.T, value []byte) {
		nodes, err := (&Item{Value: value}).FirstNodes()
		if err != nil {
			return
		}
		if len(nodes) > maxFirst || slices.ContainsFunc(nodes, func(a Addr) bool { return !a.Dialable() || !a.IsSCION() }) {
			t.Fatalf("%q names %v", value, nodes)
		}
		again, err := FirstNodes(key, 1, nodes).FirstNodes()
		if err != nil || len(again) != len(nodes) {
			t.Fatalf("%v becomes %v, %v", nodes, again, err)
		}
	})
}
