//go:build !small

package main

import (
	"context"

	"github.com/urfave/cli/v3"

	"braid/testbed/scenario"
)

func testbedShowCommand() *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "print a topology or a scenario that comes with braid, to start from",
		ArgsUsage: "TOPOLOGY|SCENARIO",
		ArgValidator: arguments(1, 1, "name one topology or scenario; "+
			"braid testbed up --help and braid testbed run --list name them"),
		Action: func(_ context.Context, c *cli.Command) error {
			text, err := scenario.ShippedText(c.Args().First())
			if err != nil {
				return err
			}
			_, err = stdout(c).Write(text)
			return err
		},
	}
}
