package commands

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/urfave/cli/v3"
)

// The same without a terminal, if the program that should write the password hangs.
func TestInterruptedPasswordPipe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	defer time.AfterFunc(time.Second, func() { w.Close() }).Stop() // if it hangs
	if _, err := readPassword(ctx, &cli.Command{}, r); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
