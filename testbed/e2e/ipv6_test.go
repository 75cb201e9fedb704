package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"braid/testbed"
)

// Routers and hosts whose underlay is IPv6: a download uses both paths, and with either packet
// connection a connection stays on its path.
func TestIPv6Underlay(t *testing.T) {
	t.Parallel()
	topology, err := os.ReadFile("../topologies/two-paths.topo")
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "ipv6.topo")
	sixth := strings.ReplaceAll(string(topology), "}\n", ", underlay: UDP/IPv6}\n")
	if err := os.WriteFile(name, []byte(sixth), 0o644); err != nil {
		t.Fatal(err)
	}
	network := startNetwork(t, name, testbed.Options{BFD: patientBFD})
	for _, as := range network.Topology().ASes {
		if !as.IPv6 || !network.HostIP(as.IA).Is6() {
			t.Skip("this machine has no IPv6")
		}
	}

	a, b := openHost(t, network, ia(t, "1-ff00:0:110")), openHost(t, network, ia(t, "1-ff00:0:111"))
	n := ends{network: network, a: a, b: b, between: 2}
	t.Run("Fast", n.staysOnItsPath)
	n.listen.PlainPackets = true
	t.Run("Plain", n.staysOnItsPath)
	t.Run("Download", func(t *testing.T) { startSwarm(t, network, 2<<20).onPaths(t, "all", 2) })
}
