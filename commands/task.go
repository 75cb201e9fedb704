package commands

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/urfave/cli/v3"

	"braid/commands/flags"
	"braid/commands/program"
)

// cmdline reads the flags of a command as the packages below want them.
type cmdline struct{ flags.Reader }

func newCmdline(cmd *cli.Command) *cmdline { return &cmdline{flags.Reader{Command: cmd}} }

// task is one run of a command that works for a while: its flags, its output, and the functions
// that clean up after it.
type task struct {
	cmdline
	out    *display
	log    *slog.Logger
	opened []func() error // functions that close what the task has opened
}

// working makes the action of such a command. It calls do, and then the functions given to atEnd,
// the last one first. uploads is as in newDisplay.
func working(uploads bool, do func(ctx context.Context, t *task) error) cli.ActionFunc {
	return func(ctx context.Context, cmd *cli.Command) error {
		t := &task{cmdline: *newCmdline(cmd), out: newDisplay(cmd, uploads), log: logger(cmd)}
		if sample := cmd.Duration("sample"); sample > 0 || cmd.IsSet("sample") {
			t.out.sample = sample
			t.Wantf(sample >= 10*time.Millisecond, "--sample %v: want at least 10ms", sample)
		}
		if t.Err != nil {
			return t.Err
		}
		return t.run(func() error {
			if err := t.openDebug(); err != nil {
				return err
			}
			return do(ctx, t)
		})
	}
}

// session is working for commands that emit an event for the error that ends them. They also end
// when their terminal goes away.
func session(uploads bool, do func(ctx context.Context, t *task) error) cli.ActionFunc {
	return program.EndOnHangup(working(uploads, func(ctx context.Context, t *task) error {
		t.out.tellsEnd = true
		return do(ctx, t)
	}))
}

// run calls do, cleans up, and reports the error.
func (t *task) run(do func() error) (err error) {
	defer func() {
		for _, end := range slices.Backward(t.opened) {
			err = errors.Join(err, end())
		}
		t.out.failed(err)
	}()
	return do()
}

// part runs a part of a task, such as one of several downloads, with a display and a clean-up of
// its own.
func (t *task) part(do func(t *task) error) error {
	p := &task{cmdline: *newCmdline(t.Command), out: newDisplay(t.Command, false), log: t.log}
	p.out.sample = t.out.sample
	return p.run(func() error { return do(p) })
}

// atEnd registers a function for the end of the task.
func (t *task) atEnd(end func() error) { t.opened = append(t.opened, end) }

// repeat calls f at every interval until the end of the task.
func (t *task) repeat(interval time.Duration, f func()) {
	stop := every(interval, f)
	t.atEnd(func() error { stop(); return nil })
}

// hangups returns the SIGHUPs from now on. A command calls it first, so that a SIGHUP that comes
// before the command is ready does not end it.
func (t *task) hangups() <-chan os.Signal {
	if env := envOf(t.Command); env.Hangups != nil {
		hup, stop := env.Hangups()
		t.atEnd(func() error { stop(); return nil })
		return hup
	}
	return nil
}

// reloading calls reload at every SIGHUP until the context ends.
func (t *task) reloading(
	ctx context.Context, hup <-chan os.Signal, reload func() error, failed, done string,
) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			if err := reload(); err != nil {
				t.log.Error(failed, "error", err)
			} else {
				t.log.Warn(done)
			}
		}
	}
}

// every calls f at every interval until stop is called. stop waits for f.
func every(interval time.Duration, f func()) (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				f()
			}
		}
	}()
	return func() { close(quit); <-ended }
}

// interruptible returns what read returns, or the error of the context if that ends first. A read
// from a terminal or a pipe cannot be cancelled: it goes on until the process ends.
func interruptible[T any](ctx context.Context, read func() (T, error)) (v T, err error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := read()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		return v, ctx.Err()
	}
}
