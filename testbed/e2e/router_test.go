package e2e

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"testing"
	"time"

	"braid/scionnet/conformance"
	"braid/testbed"
	"braid/testbed/fastrouter"
)

// asRouter is the first argument by which this test's program is the fast router.
const asRouter = "be-the-fast-router"

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == asRouter {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		err := fastrouter.Run(ctx, os.Args[3])
		stop()
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestFastRouter has a fast router in one AS and a stock one in the other: traffic, BFD, SCMP and paths as ever.
func TestFastRouter(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The name of the configuration file says in which AS a router is.
	choose := fmt.Sprintf(`case "$2" in *111*) exec %q %s "$@";; *) exec %q "$@";; esac`, exe, asRouter, filepath.Join(programs(t), "router"))
	network := startNetwork(t, "two-paths", testbed.Options{
		BFD: 200 * time.Millisecond, RouterCommand: []string{"/bin/sh", "-c", choose, "router"},
	})
	n := ends{network, openHost(t, network, ia(t, "1-ff00:0:110")), openHost(t, network, ia(t, "1-ff00:0:111"))}
	fast := 0
	for _, p := range network.Status(t.Context(), false).Processes {
		if target, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.PID)); err == nil && target == exe {
			fast++
		}
	}
	if fast == 0 {
		t.Fatal("no router is a fast one")
	}
	t.Run("Conformance", func(t *testing.T) { conformance.Run(t, n.pair) })
	t.Run("Probe", n.probe)
	t.Run("StockTools", n.stockTools)
	t.Run("Cut", n.cut)
}
