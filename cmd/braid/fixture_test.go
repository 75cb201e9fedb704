package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// networkDir is the directory of the SCION network as which this test binary acts.
const networkDir = "BRAID_TEST_AS_NETWORK"

// networkProcess returns a process with a SCION network of the topology two-paths. It prints a line
// when the network is up.
func networkProcess(t *testing.T, dir, subnet string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, subnet)
	cmd.Env = append(os.Environ(), networkDir+"="+dir)
	return cmd
}

func runNetwork(dir, subnet string) error {
	topology, err := testbed.LoadTopology("two-paths")
	if err != nil {
		return err
	}
	o := testbed.Options{Topology: topology, Dir: dir}
	if subnet != "" {
		if o.Subnet, err = netip.ParsePrefix(subnet); err != nil {
			return err
		}
	}
	n, err := testbed.Start(context.Background(), o)
	if err != nil {
		return err
	}
	defer n.Close()
	fmt.Println("up")
	<-n.Done()
	return nil
}

// documentBlocks are the blocks of code of a document, which a reader would paste.
func documentBlocks(t *testing.T, name string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	for i, block := range strings.Split("\n"+string(text), "\n```\n") {
		if i%2 == 1 {
			blocks = append(blocks, block)
		}
	}
	if len(blocks) < 5 {
		t.Fatalf("docs/%s has %d blocks of commands", name, len(blocks))
	}
	return blocks
}

// cloneForReader makes a directory that stands for a clone: its braid is this test binary.
func cloneForReader(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	self, err := os.Executable()
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, "bin"), 0o755)
	}
	if err == nil {
		err = os.Symlink(self, filepath.Join(dir, "bin", "braid"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
