package e2e

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"testing"

	"braid/pathsel"
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
	os.Exit(run(m))
}

// TestFastRouter has fast routers and stock ones beside and opposite each other: traffic, BFD, SCMP
// and paths as ever.
//
//	110  br-1 stock ---- fast  br-1  111
//	     br-2 fast  ---- stock br-2
func TestFastRouter(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	fastRouter := []string{exe, asRouter}
	network := startNetwork(t, "two-paths", testbed.Options{
		BFD: patientBFD,
		RoutersOf: []testbed.RouterOf{
			{Interface: pathsel.Interface{IA: ia(t, "1-ff00:0:111")}, Command: fastRouter},
			{Interface: pathsel.Interface{IA: ia(t, "1-ff00:0:111"), ID: 2}},
			{Interface: pathsel.Interface{IA: ia(t, "1-ff00:0:110"), ID: 2}, Command: fastRouter},
		},
	})
	n := ends{network: network, a: openHost(t, network, ia(t, "1-ff00:0:110")), b: openHost(t, network, ia(t, "1-ff00:0:111")), between: 2}
	var fast []string
	for _, p := range network.Status(t.Context(), false).Processes {
		if target, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.PID)); err == nil && target == exe {
			fast = append(fast, p.IA.String()+" "+p.Name)
		}
	}
	if want := []string{"1-ff00:0:110 br-2", "1-ff00:0:111 br-1"}; !slices.Equal(fast, want) {
		t.Fatalf("fast routers %q, want %q", fast, want)
	}
	t.Run("Conformance", func(t *testing.T) { conformance.Run(t, n.pair) })
	t.Run("Probe", n.probe)
	t.Run("StockTools", n.stockTools)
	t.Run("Cut", n.cut)
}
