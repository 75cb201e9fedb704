package flags

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"braid/commands/program"
)

// These functions make flags of a name, a default, a usage text, and further names of one letter.
// Backquotes in the usage text name the flag's value.

func String(name, value, usage string, short ...string) cli.Flag {
	return &cli.StringFlag{Name: name, Value: value, Usage: usage, Aliases: short}
}

// File names a file or a directory.
func File(name, value, usage string, short ...string) cli.Flag {
	return &program.FileFlag{Name: name, Value: value, Usage: usage, Aliases: short}
}

// Parsed wants a value that parse can read, or an empty one.
func Parsed[T any](
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

// Env can also be set by an environment variable.
func Env(name, variable, usage string) cli.Flag {
	return &cli.StringFlag{Name: name, Sources: cli.EnvVars(variable), Usage: usage}
}

// Needed has no default: the command does not run without it.
func Needed(name, usage string, short ...string) cli.Flag {
	return &cli.StringFlag{Name: name, Required: true, Usage: usage, Aliases: short}
}

func Bool(name, usage string, short ...string) cli.Flag {
	return &cli.BoolFlag{Name: name, Usage: usage, Aliases: short}
}

// Int wants at least 0.
func Int(name string, value int, usage string) cli.Flag {
	return &cli.IntFlag{Name: name, Value: value, Usage: usage, Validator: AtLeast(0)}
}

// Count wants at least 1. A default of 0 stands for one that the usage text names.
func Count(name string, value int, usage string) cli.Flag {
	return &cli.IntFlag{Name: name, Value: value, Usage: usage, Validator: AtLeast(1)}
}

func AtLeast(least int) func(int) error {
	return func(n int) error {
		if n < least {
			return fmt.Errorf("want at least %d", least)
		}
		return nil
	}
}

// Choice wants one of the choices.
func Choice(name, value, usage string, choices ...string) cli.Flag {
	isChoice := func(s string) error {
		if slices.Contains(choices, s) {
			return nil
		}
		last := len(choices) - 1
		return fmt.Errorf("want %s or %s", strings.Join(choices[:last], ", "), choices[last])
	}
	return &cli.StringFlag{Name: name, Value: value, Usage: usage, Validator: isChoice}
}

// Float has the default 0, which the help does not show. It wants a number that JSON can hold.
func Float(name, usage string) cli.Flag {
	isNumber := func(v float64) error {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return errors.New("want a number")
		}
		return nil
	}
	return &cli.FloatFlag{Name: name, Usage: usage, HideDefault: true, Validator: isNumber}
}

// List is repeatable. It drops white space around values.
func List(name, usage string) cli.Flag {
	return &cli.StringSliceFlag{
		Name: name, Usage: usage, Config: cli.StringConfig{TrimSpace: true},
	}
}

// Pattern is repeatable. It keeps white space, which file names may contain.
func Pattern(name, usage string) cli.Flag {
	return &cli.StringSliceFlag{Name: name, Usage: usage}
}

// InCategory puts flags under a heading of the help.
func InCategory(heading string, flags ...cli.Flag) []cli.Flag {
	for _, f := range flags {
		f.(cli.CategorizableFlag).SetCategory(heading)
	}
	return flags
}

// Events is for commands that work for a while.
func Events() cli.Flag {
	return Bool("json", "print events on standard output, one JSON object a line")
}

func Verbose() cli.Flag {
	return Bool("verbose", "log what happens on standard error; twice for all of it", "v")
}

// Arguments is for commands that want least to most arguments. Otherwise the error is message, with
// the arguments in the place of ARGS.
func Arguments(least, most int, message string) cli.ArgValidatorFunc {
	return func(_ context.Context, c *cli.Command) error {
		if n := c.NArg(); least <= n && n <= most {
			return nil
		}
		args := strings.Join(c.Args().Slice(), " ")
		return program.UsageErrorf("%s", strings.ReplaceAll(message, "ARGS", args))
	}
}

// Reader reads the flags of a command. It keeps the first error, so that a command checks for errors
// once, after it has read all flags. After an error the values mean nothing.
type Reader struct {
	*cli.Command
	Err error
}

// Note keeps err if it is the first error.
func (f *Reader) Note(err error) {
	if f.Err == nil {
		f.Err = err
	}
}

// Wrongf notes that a flag is wrong.
func (f *Reader) Wrongf(format string, args ...any) { f.Note(program.UsageErrorf(format, args...)) }

// Wantf notes that a flag is wrong, unless right.
func (f *Reader) Wantf(right bool, format string, args ...any) {
	if !right {
		f.Wrongf(format, args...)
	}
}

// source is flags, or a type that embeds it.
type source interface {
	String(name string) string
	StringSlice(name string) []string
	Wrongf(format string, args ...any)
}

// Read parses the value of a flag.
func Read[T any](f source, name string, parse func(string) (T, error)) T {
	v, err := parse(f.String(name))
	if err != nil {
		f.Wrongf("--%s: %w", name, err)
	}
	return v
}

// ReadAll parses the values of a repeatable flag.
func ReadAll[T any](f source, name string, parse func(string) (T, error)) (all []T) {
	for _, text := range f.StringSlice(name) {
		v, err := parse(text)
		if err != nil {
			f.Wrongf("--%s: %w", name, err)
		}
		all = append(all, v)
	}
	return all
}

// Check notes the values of a repeatable flag that are not allowed.
func (f *Reader) Check(name string, check func(string) error) {
	for _, text := range f.StringSlice(name) {
		if err := check(text); err != nil {
			f.Wrongf("--%s: %w", name, err)
		}
	}
}

func (f *Reader) AnySet(names ...string) bool { return slices.ContainsFunc(names, f.IsSet) }

// Override sets a value to that of a flag, if the flag is given.
func Override[T any](cmd *cli.Command, flag string, to *T, value func(string) T) {
	if cmd.IsSet(flag) {
		*to = value(flag)
	}
}

// IfSet returns a flag's value, or nil if the flag is not given.
func IfSet[T any](cmd *cli.Command, flag string, value func(string) T) *T {
	if !cmd.IsSet(flag) {
		return nil
	}
	return new(value(flag))
}

// CheckHostPort is an error unless text is HOST:PORT. The port may have a name, such as http.
func CheckHostPort(text string) error {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return fmt.Errorf("address %q: want HOST:PORT, such as 127.0.0.1:8080", text)
	}
	return nil
}
