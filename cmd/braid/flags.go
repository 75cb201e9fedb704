package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"
)

// These functions make flags of a name, a default, a usage text, and further names of one letter.
// Backquotes in the usage text name the flag's value.

func stringFlag(name, value, usage string, short ...string) cli.Flag {
	return &cli.StringFlag{Name: name, Value: value, Usage: usage, Aliases: short}
}

// parsedFlag wants a value that parse can read, or an empty one.
func parsedFlag[T any](
	name, value, usage string, parse func(string) (T, error), short ...string,
) cli.Flag {
	isRight := func(s string) error {
		if s == "" {
			return nil
		}
		_, err := parse(s)
		return err
	}
	return &cli.StringFlag{
		Name: name, Value: value, Usage: usage, Aliases: short, Validator: isRight,
	}
}

// envFlag can also be set by an environment variable.
func envFlag(name, variable, usage string) cli.Flag {
	return &cli.StringFlag{Name: name, Sources: cli.EnvVars(variable), Usage: usage}
}

// neededFlag has no default: the command does not run without it.
func neededFlag(name, usage string, short ...string) cli.Flag {
	return &cli.StringFlag{Name: name, Required: true, Usage: usage, Aliases: short}
}

func boolFlag(name, usage string, short ...string) cli.Flag {
	return &cli.BoolFlag{Name: name, Usage: usage, Aliases: short}
}

// intFlag wants at least 0.
func intFlag(name string, value int, usage string) cli.Flag {
	return &cli.IntFlag{Name: name, Value: value, Usage: usage, Validator: atLeast(0)}
}

// countFlag wants at least 1. A default of 0 stands for one that the usage text names.
func countFlag(name string, value int, usage string) cli.Flag {
	return &cli.IntFlag{Name: name, Value: value, Usage: usage, Validator: atLeast(1)}
}

func atLeast(least int) func(int) error {
	return func(n int) error {
		if n < least {
			return fmt.Errorf("want at least %d", least)
		}
		return nil
	}
}

// choiceFlag wants one of the choices.
func choiceFlag(name, value, usage string, choices ...string) cli.Flag {
	isChoice := func(s string) error {
		if slices.Contains(choices, s) {
			return nil
		}
		last := len(choices) - 1
		return fmt.Errorf("want %s or %s", strings.Join(choices[:last], ", "), choices[last])
	}
	return &cli.StringFlag{Name: name, Value: value, Usage: usage, Validator: isChoice}
}

// floatFlag has the default 0, which the help does not show. It wants a number that JSON can hold.
func floatFlag(name, usage string) cli.Flag {
	isNumber := func(v float64) error {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return errors.New("want a number")
		}
		return nil
	}
	return &cli.FloatFlag{Name: name, Usage: usage, HideDefault: true, Validator: isNumber}
}

// listFlag is repeatable. It drops white space around values.
func listFlag(name, usage string) cli.Flag {
	return &cli.StringSliceFlag{
		Name: name, Usage: usage, Config: cli.StringConfig{TrimSpace: true},
	}
}

// patternFlag is repeatable. It keeps white space, which file names may contain.
func patternFlag(name, usage string) cli.Flag {
	return &cli.StringSliceFlag{Name: name, Usage: usage}
}

// inCategory puts flags under a heading of the help.
func inCategory(heading string, flags ...cli.Flag) []cli.Flag {
	for _, f := range flags {
		f.(cli.CategorizableFlag).SetCategory(heading)
	}
	return flags
}

// eventsFlag is for commands that work for a while.
func eventsFlag() cli.Flag {
	return boolFlag("json", "print events on standard output, one JSON object a line")
}

func verboseFlag() cli.Flag {
	return boolFlag("verbose", "log what happens on standard error; twice for all of it", "v")
}

// arguments is for commands that want least to most arguments. Otherwise the error is message, with
// the arguments in the place of ARGS.
func arguments(least, most int, message string) cli.ArgValidatorFunc {
	return func(_ context.Context, c *cli.Command) error {
		if n := c.NArg(); least <= n && n <= most {
			return nil
		}
		args := strings.Join(c.Args().Slice(), " ")
		return usageErrorf("%s", strings.ReplaceAll(message, "ARGS", args))
	}
}

// noArguments is for commands that take no arguments.
func noArguments(_ context.Context, c *cli.Command) error {
	if c.Args().Present() {
		return usageErrorf("%s takes no arguments, got %q", c.FullName(), c.Args().First())
	}
	return nil
}

// flags reads the flags of a command. It keeps the first error, so that a command checks for errors
// once, after it has read all flags. After an error the values mean nothing.
type flags struct {
	*cli.Command
	err error
}

// note keeps err if it is the first error.
func (f *flags) note(err error) {
	if f.err == nil {
		f.err = err
	}
}

// wrong notes that a flag is wrong.
func (f *flags) wrong(format string, args ...any) { f.note(usageErrorf(format, args...)) }

// want notes that a flag is wrong, unless right.
func (f *flags) want(right bool, format string, args ...any) {
	if !right {
		f.wrong(format, args...)
	}
}

// read parses the value of a flag.
func read[T any](f *flags, name string, parse func(string) (T, error)) T {
	v, err := parse(f.String(name))
	if err != nil {
		f.wrong("--%s: %w", name, err)
	}
	return v
}

// readAll parses the values of a repeatable flag.
func readAll[T any](f *flags, name string, parse func(string) (T, error)) (all []T) {
	for _, text := range f.StringSlice(name) {
		v, err := parse(text)
		if err != nil {
			f.wrong("--%s: %w", name, err)
		}
		all = append(all, v)
	}
	return all
}

// check notes the values of a repeatable flag that are not allowed.
func (f *flags) check(name string, check func(string) error) {
	for _, text := range f.StringSlice(name) {
		if err := check(text); err != nil {
			f.wrong("--%s: %w", name, err)
		}
	}
}

func (f *flags) anySet(names ...string) bool { return slices.ContainsFunc(names, f.IsSet) }

// override sets a value to that of a flag, if the flag is given.
func override[T any](cmd *cli.Command, flag string, to *T, value func(string) T) {
	if cmd.IsSet(flag) {
		*to = value(flag)
	}
}

// ifSet returns a flag's value, or nil if the flag is not given.
func ifSet[T any](cmd *cli.Command, flag string, value func(string) T) *T {
	if !cmd.IsSet(flag) {
		return nil
	}
	return new(value(flag))
}

// checkHostPort is an error unless text is HOST:PORT. The port may have a name, such as http.
func checkHostPort(text string) error {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return fmt.Errorf("address %q: want HOST:PORT, such as 127.0.0.1:8080", text)
	}
	return nil
}
