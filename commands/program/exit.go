package program

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"
)

// The exit codes of braid, which scripts rely on.
const (
	Failed      = 1
	Usage       = 2
	Data        = 3
	Interrupted = 130 // as a shell says of a process that SIGINT has ended
)

const ExitCodes = `Exit codes: 0 done; 1 failed; 2 the command line is wrong;
3 data is missing or wrong; 130 interrupted (the same command resumes a download).`

// codedError is an error with an exit code of its own.
type codedError struct {
	error
	code int
}

func (e codedError) Unwrap() error { return e.error }

// WithCode gives an error an exit code.
func WithCode(err error, code int) error { return codedError{err, code} }

// HasCode tells whether an error has an exit code of its own.
func HasCode(err error) bool { return errors.As(err, new(codedError)) }

func UsageErrorf(format string, args ...any) error {
	return WithCode(fmt.Errorf(format, args...), Usage)
}

// Code returns the exit code for an error.
func Code(err error) int {
	var coded codedError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &coded):
		return coded.code
	case errors.Is(err, context.Canceled):
		return Interrupted
	}
	return Failed
}

// outcome returns the exit code and the error that braid reports when it ends. Results that could
// not be written are a failure in any case, since the caller relies on them.
func outcome(err, lost error) (code int, said error) {
	if lost == nil {
		return Code(err), inWords(err)
	}
	failure := fmt.Errorf("standard output is lost: %w", lost)
	// Lost output interrupts the command: see main. That error would say nothing new.
	if err != nil && !errors.Is(err, lost) && Code(err) != Interrupted {
		failure = errors.Join(err, failure)
	}
	return Failed, failure
}

var words = strings.NewReplacer(
	context.Canceled.Error(), "interrupted", context.DeadlineExceeded.Error(), "no answer in time")

// inWords returns an error that calls an interrupt, and the end of a timeout, by their names.
func inWords(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return errors.New(words.Replace(err.Error()))
	}
	return err
}

// setDefaults prepares every command of the tree. Wrong flags get braid's exit code and messages,
// and there is help at any depth. If its usage names no arguments, a command takes none. A comma
// does not split a value, since SCION addresses contain commas. A default of 0 is not shown: it
// stands for no default, or for one that the usage names.
func setDefaults(c *cli.Command) {
	c.DisableSliceFlagSeparator = true
	c.UseShortOptionHandling = true // -vv
	c.ShellComplete = complete
	c.OnUsageError = func(_ context.Context, c *cli.Command, err error, _ bool) error {
		return usageError(c, err)
	}
	if c.HideHelpCommand = true; len(c.Commands) > 0 {
		c.Action, c.Commands = groupAction, append(c.Commands, helpCommand())
	} else if c.ArgsUsage == "" && c.ArgValidator == nil {
		c.ArgValidator = noArguments
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

// noArguments is for commands that take no arguments.
func noArguments(_ context.Context, c *cli.Command) error {
	if c.Args().Present() {
		return UsageErrorf("%s takes no arguments, got %q", c.FullName(), c.Args().First())
	}
	return nil
}
