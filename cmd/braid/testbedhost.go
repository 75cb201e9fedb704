//go:build !small

package main

import (
	"context"
	"net/netip"

	"github.com/urfave/cli/v3"

	"braid/testbed"
)

// testbedHostCommand runs a program on a host of its own. It is for the testbed, not for users.
func testbedHostCommand() *cli.Command {
	return &cli.Command{
		Name: "host", Hidden: true,
		Usage:     "run a command in a network namespace that a testbed has made",
		ArgsUsage: "COMMAND [ARG...]",
		Flags: []cli.Flag{
			stringFlag("address", "", "IPv4 `ADDRESS/BITS` of the host"),
			intFlag("mtu", 0, "`BYTES` of an IP packet"),
		},
		Action: func(_ context.Context, cmd *cli.Command) error {
			p, err := netip.ParsePrefix(cmd.String("address"))
			if err != nil {
				return usageErrorf("--address: %w", err)
			}
			return testbed.RunInNamespace(p, cmd.Int("mtu"), cmd.Args().Slice())
		},
	}
}
