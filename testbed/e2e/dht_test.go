package e2e

import (
	"testing"
	"time"

	"braid/testbed"
	"braid/testbed/dhtbench"
)

// Nodes in three ASes find peers of all torrents over the real network.
func TestDHTOnNetwork(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a SCION network")
	}
	star, err := dhtbench.Star(3, 40*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	net, err := dhtbench.Open(t.Context(), testbed.Options{Topology: star, Dir: t.TempDir(), SCIONBin: programs(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { net.Close() })
	cfg := dhtbench.OnNetwork(12)
	cfg.Torrents, cfg.Searches = 3, 9
	cfg.Joining, cfg.Settling, cfg.Keeping, cfg.Searching = time.Second, time.Second, time.Second, time.Second
	eventually(t, "searches that find all peers", func() bool { // where the machine is busy, messages get lost
		r, err := net.Measure(t.Context(), dhtbench.Cases[0], cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v", r)
		return r.Found == 1
	})
}
