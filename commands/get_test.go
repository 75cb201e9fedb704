package commands

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/urfave/cli/v3"
)

// An interrupt ends braid get - while it waits for the line.
func TestInterruptedLine(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	never, w := io.Pipe()
	defer w.Close()
	get := &cli.Command{}
	get.Action = func(_ context.Context, c *cli.Command) error {
		_, err := readLine(ctx, c, never)
		return err
	}
	if err := get.Run(t.Context(), []string{"get", "-"}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
