package main

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/urfave/cli/v3"

	"braid/testbed/trackerbench"
)

// The help promises that -1 stands for any core.
func TestAnyCore(t *testing.T) {
	for text, want := range map[string]int{"-1": -1, "0": 0, "3": 3, "-2": -2} {
		root, got := benchCommand(), -2
		root.Command("tracker").Action = func(_ context.Context, c *cli.Command) error {
			got = c.Int("load-core")
			return nil
		}
		err := root.Run(t.Context(), []string{"bench", "tracker", "--load-core", text})
		if got != want || (err != nil) != (want == -2) {
			t.Errorf("--load-core %s: %d, %v", text, got, err)
		}
	}
}

// Killed while 1000 new peers come in a second, it forgets none that was answered long enough
// before.
func TestTrackerKilledBusy(t *testing.T) {
	t.Setenv(asProgram, "1")
	b := trackerbench.Bench{
		Braid: os.Getenv("BRAID_PROGRAM"), Generator: []string{ownPath(), "bench", "tracker-load"}, TrackerCore: -1, GeneratorCore: -1, Dir: t.TempDir(),
	}
	// The journal is written ten times a second; the margin leaves time to write it on a machine
	// that has much else to do.
	r, err := b.Kill(t.Context(), trackerbench.KillTrial{Swarms: 1000, Rate: 1000, For: 7 * time.Second, Sync: 100 * time.Millisecond, Margin: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if r.Lost != 0 || r.Acknowledged < 10_000 || r.Later == 0 {
		t.Errorf("%+v", r)
	}
}
