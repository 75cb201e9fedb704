//go:build !small

package main

import (
	"context"
	"testing"

	"github.com/urfave/cli/v3"
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
