package main

import (
	"context"
	"strings"

	"github.com/urfave/cli/v3"
)

//go:generate sh -c "go run . manual > ../../docs/manual.md"

const manualColumns = 100

// manualCommand prints docs/manual.md, or writes the man pages. It is hidden, since users see the
// same with --help.
func manualCommand() *cli.Command {
	return &cli.Command{
		Name:   "manual",
		Usage:  "print the manual, in Markdown: the help of every command",
		Hidden: true,
		Flags:  []cli.Flag{stringFlag("man", "", "write a man page for each command into `DIR`")},
		Action: func(_ context.Context, c *cli.Command) error {
			if dir := c.String("man"); dir != "" {
				return writeManPages(c.Root(), dir)
			}
			_, _ = stdout(c).Write([]byte(manual(c.Root()))) // the printer keeps the error
			return nil
		},
	}
}

// manual returns the help of every command, each command before its subcommands.
func manual(root *cli.Command) string {
	var b strings.Builder
	b.WriteString("# Manual\n\n" +
		"All commands and flags of braid, as `braid help COMMAND` prints them. This file is\n" +
		"generated: `go generate ./cmd/braid` writes it.\n")
	for _, c := range withSubcommands(root) {
		b.WriteString("\n## " + c.FullName() + "\n\n```\n" + helpText(c, manualColumns) + "```\n")
	}
	return b.String()
}

// withSubcommands returns a command and its visible subcommands, at any depth.
func withSubcommands(c *cli.Command) []*cli.Command {
	all := []*cli.Command{c}
	for _, sub := range c.VisibleCommands() {
		all = append(all, withSubcommands(sub)...)
	}
	return all
}
