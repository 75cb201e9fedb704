// Package program is what braid and braid-testbed have in common: running a tree of commands in an
// environment, exit codes, help, shell completion, the manual and the version.
package program

import (
	"context"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"braid/commands/terminal"
)

// Env is what a run of a program takes from its process. Two runs with an Env of their own do not
// disturb each other in one process. There is no clock: commands take package time, whose clock is
// virtual in a bubble of testing/synctest.
type Env struct {
	In       io.Reader
	Out, Err io.Writer
	// Dir is the directory to which names of files are relative; "" stands for that of the process.
	Dir string
	// Getenv returns the value of a variable; nil: there are no variables.
	Getenv func(name string) string
	// Hangups relays SIGHUPs until stop is called; nil: none ever comes.
	Hangups func() (signals <-chan os.Signal, stop func())
	// Nohup: SIGHUP does not end commands, since nohup has started the process.
	Nohup bool
	// Logs, if not nil, is told where the logs of libraries go. Libraries have one log a process.
	Logs func(io.Writer)
}

// Process returns the environment of this process.
func Process() Env {
	return Env{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Hangups: hangups,
		Nohup: signal.Ignored(syscall.SIGHUP),
	}
}

func hangups() (<-chan os.Signal, func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}

// Signals returns a context that ends at the first SIGINT or SIGTERM. The second one calls exit.
func Signals(exit func(code int)) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	// After signal.Stop the default action would not end braid at the second signal: a shell
	// without job control starts background jobs with SIGINT ignored, and signal.Stop restores
	// that.
	go obeySignals(signals, cancel, func() { exit(Interrupted) })
	// If the reader of a pipe has gone, writes fail, but no signal ends braid in the middle of its
	// work.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return ctx
}

// sameInterrupt is the time in which several signals count as one: timeout(1) signals a process and
// then its group. A user who presses Ctrl-C again because braid hangs is slower.
const sameInterrupt = 300 * time.Millisecond

// obeySignals ends braid cleanly at the first signal, and at once at the second.
func obeySignals(signals <-chan os.Signal, stop, exit func()) {
	<-signals
	stop()
	for first := time.Now(); time.Since(first) < sameInterrupt; {
		<-signals
	}
	exit()
}

// Run runs the command of the tree that args name, without the program's name, and returns the exit
// code. advise, if not nil, adds advice to the error that ends the command.
func (e Env) Run(
	ctx context.Context, root *cli.Command, args []string, advise func(error) error,
) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if e.Getenv == nil {
		e.Getenv = func(string) string { return "" }
	}
	out := &terminal.Printer{W: e.Out, Lost: cancel}
	people := &terminal.Printer{W: e.Err, Private: true}
	out.Obey(e.Getenv)
	people.Obey(e.Getenv)
	terminal.FollowTerminal(out, people)
	if e.Logs != nil {
		e.Logs(people)
	}
	useOwnHelp()
	err := e.Tree(root, out, people).Run(ctx, append([]string{root.Name}, args...))
	if err != nil && advise != nil {
		err = advise(err)
	}
	code, err := outcome(err, out.LostOutput())
	if err != nil {
		people.Say(root.Name, err.Error())
	}
	return code
}

// useOwnHelp makes the cli library print braid's help. The library keeps these functions in
// variables; they have no state of a run, and are set once.
var useOwnHelp = sync.OnceFunc(func() {
	cli.HelpPrinter, cli.ShowCommandHelp = printHelp, showHelp
})

// Tree completes a tree of commands, for Run and for tests. The commands print results to out, and
// everything else to people.
func (e Env) Tree(root *cli.Command, out, people *terminal.Printer) *cli.Command {
	root.Flags = append(root.Flags, &cli.BoolFlag{
		Name:  "version",
		Usage: "print the release, the commit and the Go version",
		Local: true,
	})
	root.Description = ExitCodes
	root.EnableShellCompletion = true
	root.ConfigureShellCompletionCommand = func(c *cli.Command) {
		configureCompletion(c, root.Name)
	}
	root.Commands = append(root.Commands, manualCommand())
	root.Reader, root.Writer, root.ErrWriter = e.In, out, people
	root.ExitErrHandler = func(context.Context, *cli.Command, error) {} // Run reports errors
	if root.Metadata == nil {
		root.Metadata = map[string]any{}
	}
	root.Metadata[envKey] = e
	setDefaults(root)
	e.bind(root)
	root.Action = func(ctx context.Context, c *cli.Command) error {
		if c.Bool("version") {
			terminal.Stdout(c).Printf("%s\n", Version(c.Root().Name))
			return nil
		}
		return groupAction(ctx, c)
	}
	return root
}

const envKey = "environment"

// EnvOf returns the environment in which a command runs.
func EnvOf(c *cli.Command) Env { return c.Root().Metadata[envKey].(Env) }

// EndOnHangup makes SIGHUP end the command as Ctrl-C does. SIGHUP comes when the terminal or the
// SSH session has gone.
func EndOnHangup(action cli.ActionFunc) cli.ActionFunc {
	return func(ctx context.Context, cmd *cli.Command) error {
		env := EnvOf(cmd)
		if env.Nohup || env.Hangups == nil {
			return action(ctx, cmd)
		}
		hup, stop := env.Hangups()
		defer stop()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			select {
			case <-hup:
				cancel()
			case <-ctx.Done():
			}
		}()
		return action(ctx, cmd)
	}
}

// bind makes flags take their values from the environment's variables instead of those of the
// process, and makes names of files relative to its directory.
func (e Env) bind(c *cli.Command) {
	for _, f := range c.Flags {
		switch f := f.(type) {
		case *FileFlag:
			f.Config.dir = e.Dir
		case *cli.StringFlag:
			for i, source := range f.Sources.Chain {
				if v, ok := source.(cli.EnvValueSource); ok {
					f.Sources.Chain[i] = variable{v, e.Getenv}
				}
			}
		}
	}
	for _, sub := range c.Commands {
		e.bind(sub)
	}
}

// variable is the value of a flag that an environment has.
type variable struct {
	cli.EnvValueSource
	getenv func(string) string
}

func (v variable) Lookup() (string, bool) {
	value := v.getenv(v.Key())
	return value, value != ""
}

func (v variable) String() string   { return "environment variable " + v.Key() }
func (v variable) GoString() string { return v.String() }
