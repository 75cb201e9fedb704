package main

import (
	"time"

	"github.com/urfave/cli/v3"
)

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

// isOn reads a flag that is on or off.
func (f *flags) isOn(name string) bool {
	where := f.String(name)
	f.want(where == "on" || where == "off", "--%s %q: want on or off", name, where)
	return where == "on"
}

// stopTimeout reads --stop-timeout.
func (f *flags) stopTimeout() time.Duration {
	stop := f.Duration("stop-timeout")
	f.want(stop > 0 || !f.IsSet("stop-timeout"), "--stop-timeout %v: want more than 0", stop)
	return stop
}
