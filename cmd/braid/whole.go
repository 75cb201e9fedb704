//go:build !small

package main

import "github.com/urfave/cli/v3"

// labCommands are the testbed and the benchmarks. A build with the tag small lacks them.
func labCommands() []*cli.Command { return []*cli.Command{testbedCommand(), benchCommand()} }
