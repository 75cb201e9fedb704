package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v3"
)

// The exit codes of braid, which scripts rely on.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitData        = 3
	exitInterrupted = 130 // as a shell says of a process that SIGINT has ended
)

const exitCodes = `Exit codes: 0 done; 1 failed; 2 the command line is wrong; 3 data is missing or wrong; 130 interrupted
(a download goes on when the same command is run again).`

// codedError is an error with an exit code of its own.
type codedError struct {
	error
	code int
}

func (e codedError) Unwrap() error { return e.error }

func usageErrorf(format string, args ...any) error {
	return codedError{fmt.Errorf(format, args...), exitUsage}
}

// exitCode is how braid ends with this error.
func exitCode(err error) int {
	var coded codedError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &coded):
		return coded.code
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	}
	return exitFailed
}

// outcome returns the error that braid reports at its end, and its exit code. Results that could
// not be written are a failure whatever else happened, for the caller believes that they are there.
func outcome(err, lost error) (code int, said error) {
	err = doctorAdvice(storageAdvice(err))
	if lost == nil {
		return exitCode(err), err
	}
	failure := fmt.Errorf("standard output is lost: %w", lost)
	if err != nil && !errors.Is(err, lost) && exitCode(err) != exitInterrupted { // that is what it led to
		failure = errors.Join(err, failure)
	}
	return exitFailed, failure
}

// setDefaults gives every command of the tree the exit code and the words for wrong flags, and help
// at any depth; leaves commas in values alone, since a SCION address has one; and shows no default
// of 0, which stands for a default that the usage names, or for none.
func setDefaults(c *cli.Command) {
	c.DisableSliceFlagSeparator = true
	c.UseShortOptionHandling = true // -vv
	c.ShellComplete = complete
	c.OnUsageError = func(_ context.Context, c *cli.Command, err error, _ bool) error {
		return usageError(c, err)
	}
	if c.HideHelpCommand = true; len(c.Commands) > 0 {
		c.Action = groupAction
		defer func() { c.Commands = append(c.Commands, helpCommand()) }()
	}
	for _, f := range c.Flags {
		if f, ok := f.(*cli.IntFlag); ok {
			f.HideDefault = f.HideDefault || f.Value == 0
		}
	}
	for _, sub := range c.Commands {
		setDefaults(sub)
	}
}
