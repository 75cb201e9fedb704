package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v3"

	"braid/commands/flags"
	"braid/commands/program"
	"braid/pathsel"
	"braid/testbed"
	"braid/testbed/fastrouter"
)

// scionBinFlag says where the SCION programs are that a testbed runs.
func scionBinFlag() cli.Flag {
	return flags.String("scion-bin", "", "`DIR` with router, control and scion-pki (default: "+
		"$BRAID_SCION_BIN, else scion beside braid-testbed)")
}

// bfdFlag is read by testbed.ParseBFD.
func bfdFlag() cli.Flag {
	return flags.String("bfd", "1s",
		"`INTERVAL` at which routers watch links (3 missed: down), or off")
}

// routerFlags choose the border router of a testbed.
func routerFlags() []cli.Flag {
	return []cli.Flag{
		flags.String("router", "stock", "run `ROUTER` as border router: stock (scionproto's) or "+
			"fast (the same data plane with batched, offloading sockets)"),
		flags.String("router-cmd", "", "run `COMMAND` as border router: a program and arguments, "+
			"after which braid puts --config FILE"),
	}
}

// routerOfFlag makes exceptions from routerFlags.
func routerOfFlag() cli.Flag {
	return flags.List("router-of", "run another router in one place: `PLACE=ROUTER` is "+
		"1-ff00:0:110=fast for an AS, or 1-ff00:0:110#2=stock for the router that has the "+
		"interface (repeatable; the last match counts)")
}

// readRouter reads routerFlags. It returns nil for the stock router.
func readRouter(f *flags.Reader) []string {
	if !f.IsSet("router-cmd") {
		return flags.Read(f, "router", routerNamed)
	}
	f.Wantf(!f.IsSet("router"), "--router and --router-cmd exclude each other")
	command := strings.Fields(f.String("router-cmd"))
	if len(command) == 0 {
		f.Wrongf("--router-cmd: want a program")
		return nil
	}
	// Routers run in other directories, those of their configuration.
	program, err := exec.LookPath(command[0])
	if err == nil {
		command[0], err = filepath.Abs(program)
	}
	if err != nil {
		f.Note(fmt.Errorf("--router-cmd: %w", err))
	}
	return command
}

func routerNamed(name string) ([]string, error) {
	switch name {
	case "stock":
		return nil, nil
	case "fast":
		return fastRouter(), nil
	}
	return nil, fmt.Errorf("%q: want stock or fast", name)
}

// readRoutersOf reads --router-of.
func readRoutersOf(f *flags.Reader) (all []testbed.RouterOf) {
	for _, s := range f.StringSlice("router-of") {
		place, name, ok := strings.Cut(s, "=")
		f.Wantf(ok, "--router-of %q: want a place and a router, such as 1-ff00:0:110=stock", s)
		var of testbed.RouterOf
		var err error
		if strings.Contains(place, "#") {
			of.Interface, err = pathsel.ParseInterface(place)
		} else {
			of.Interface.IA, err = pathsel.ParseIA(place)
		}
		if err == nil {
			of.Command, err = routerNamed(name)
		}
		f.Wantf(err == nil, "--router-of %q: %w", s, err)
		all = append(all, of)
	}
	return all
}

// fastRouter is the command of the fast router: this program.
func fastRouter() []string { return []string{ownPath(), "router"} }

// findBraid returns the program that peers run: the one that BRAID_PROGRAM names, the one beside
// this program, or the one in PATH.
func findBraid(c *cli.Command) (string, error) {
	if named := program.EnvOf(c).Getenv("BRAID_PROGRAM"); named != "" {
		return filepath.Abs(named)
	}
	beside := filepath.Join(filepath.Dir(ownPath()), "braid")
	if st, err := os.Stat(beside); err == nil && st.Mode().IsRegular() {
		return beside, nil
	}
	found, err := exec.LookPath("braid")
	if err != nil {
		return "", errors.New("the program braid is neither beside braid-testbed nor in PATH: " +
			"install it, or name it in the variable BRAID_PROGRAM")
	}
	return filepath.Abs(found)
}

// ownPath is where this program is, for processes that run it again.
func ownPath() string {
	if name, err := os.Executable(); err == nil {
		return name
	}
	return os.Args[0]
}

func routerCommand() *cli.Command {
	return &cli.Command{
		Name:   "router",
		Hidden: true, // a process of a testbed with --router fast
		Flags:  []cli.Flag{flags.Needed("config", "configuration `FILE` of a border router")},
		Action: func(ctx context.Context, c *cli.Command) error {
			return fastrouter.Run(ctx, c.String("config"))
		},
	}
}
