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

	"braid/testbed/fastrouter"
)

// routerFlags choose the border router of a testbed.
func routerFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "router", Value: "stock", Usage: "stock: scionproto's border router; fast: its data plane with batched, offloading sockets"},
		&cli.StringFlag{Name: "router-cmd", Usage: "run `COMMAND` as border router: a program and arguments, behind which --config FILE is put"},
	}
}

// routerCommand is the command that the flags ask for; none for the stock router.
func routerCommand(c *cli.Command) ([]string, error) {
	if c.IsSet("router-cmd") {
		if c.IsSet("router") {
			return nil, errors.New("--router and --router-cmd exclude each other")
		}
		command := strings.Fields(c.String("router-cmd"))
		if len(command) == 0 {
			return nil, errors.New("--router-cmd: want a program")
		}
		// Routers run in the folders of their configuration.
		program, err := exec.LookPath(command[0])
		if err == nil {
			command[0], err = filepath.Abs(program)
		}
		if err != nil {
			return nil, fmt.Errorf("--router-cmd: %w", err)
		}
		return command, nil
	}
	switch name := c.String("router"); name {
	case "stock":
		return nil, nil
	case "fast":
		exe, err := os.Executable()
		if err != nil {
			return nil, err
		}
		return fastRouter(exe), nil
	default:
		return nil, fmt.Errorf("--router %q: want stock or fast", name)
	}
}

// fastRouter is the command of the fast router: this program.
func fastRouter(exe string) []string { return []string{exe, "testbed", "router"} }

func testbedRouterCommand() *cli.Command {
	return &cli.Command{
		Name:   "router",
		Hidden: true, // a process of a testbed with --router fast
		Flags:  []cli.Flag{&cli.StringFlag{Name: "config", Required: true, Usage: "configuration `FILE` of a border router"}},
		Action: func(ctx context.Context, c *cli.Command) error {
			return fastrouter.Run(ctx, c.String("config"))
		},
	}
}
