package commands

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"braid/commands/program"
	"braid/commands/terminal"
)

// An interrupt while braid looks for a SCION configuration does not look like a network without one.
func TestInterruptedBootstrap(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range []string{"bootstrap", "paths 64-2:0:9"} {
		var said bytes.Buffer
		code := Run(ctx, testEnv(t.TempDir(), io.Discard, &said), strings.Fields(args))
		if code != program.Interrupted {
			t.Errorf("braid %s: exit code %d: %s", args, code, said.String())
		}
	}
}

// TestOneDefault: the help of each flag shows one default at most.
func TestOneDefault(t *testing.T) {
	var walk func(c *cli.Command, path string)
	walk = func(c *cli.Command, path string) {
		for _, f := range c.Flags {
			if _, ok := f.(*cli.DurationFlag); ok {
				t.Errorf("%s: --%s: want a durationFlag, which reads what braid prints", path, f.Names()[0])
			}
			if text := f.String(); strings.Count(text, "default") > 1 || strings.Contains(text, "(default: 0") {
				t.Errorf("%s: %s", path, text)
			}
		}
		for _, sub := range c.Commands {
			walk(sub, path+" "+sub.Name)
		}
	}
	walk(testEnv("", nil, nil).Tree(tree(&Env{}), nil, nil), "braid")
}

// No line of any help is longer than the terminal is wide, but for words that are.
func TestHelpFits(t *testing.T) {
	var walk func(c *cli.Command)
	walk = func(c *cli.Command) {
		for _, width := range []int{60, 80, 100} {
			for _, line := range strings.Split(program.HelpText(c, width), "\n") {
				if n := terminal.ColumnsOfText(line); n > width && strings.Contains(strings.TrimSpace(line), " ") {
					t.Errorf("%s: %d columns of %d: %s", c.Name, n, width, line)
				}
			}
		}
		for _, sub := range c.Commands {
			walk(sub)
		}
	}
	walk(testEnv("", nil, nil).Tree(tree(&Env{}), nil, nil))
}
