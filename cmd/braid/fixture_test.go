package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"braid/pathsel"
	"braid/testbed"
)

// startNetwork starts a SCION network of that topology until the end of the test. It returns its
// first two ASes. With -short, as under the race detector, the test is skipped: a network needs the
// processors for itself.
func startNetwork(t *testing.T, topology string) (n *testbed.Network, from, to pathsel.IA) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a SCION network")
	}
	topo, err := testbed.LoadTopology(topology)
	if err != nil {
		t.Fatal(err)
	}
	n, err = testbed.Start(t.Context(), testbed.Options{Topology: topo, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n, topo.ASes[0].IA, topo.ASes[1].IA
}

// randomFile writes dir/file, with the same bytes for the same seed.
func randomFile(t *testing.T, dir string, seed byte, size int) []byte {
	t.Helper()
	data := make([]byte, size)
	rand.NewChaCha8([32]byte{seed}).Read(data)
	if err := os.WriteFile(filepath.Join(dir, "file"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	return data
}
