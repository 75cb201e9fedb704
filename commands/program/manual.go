package program

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v3"

	"braid/commands/terminal"
)

const manualColumns = 100

// manualCommand prints the manual, such as docs/manual.md, or writes the man pages. It is hidden,
// since users see the same with --help.
func manualCommand() *cli.Command {
	return &cli.Command{
		Name:   "manual",
		Usage:  "print the manual, in Markdown: the help of every command",
		Hidden: true,
		Flags: []cli.Flag{&FileFlag{
			Name: "man", Usage: "write a man page for each command into `DIR`",
		}},
		Action: func(_ context.Context, c *cli.Command) error {
			if dir := c.String("man"); dir != "" {
				return writeManPages(c.Root(), dir)
			}
			_, _ = terminal.Stdout(c).Write([]byte(manual(c.Root()))) // the printer keeps the error
			return nil
		},
	}
}

// manual returns the help of every command, each command before its subcommands.
func manual(root *cli.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Manual of %[1]s\n\n"+
		"All commands and flags, as `%[1]s help COMMAND` prints them. This file is generated:\n"+
		"`go generate ./cmd/%[1]s` writes it.\n", root.Name)
	for _, c := range withSubcommands(root) {
		b.WriteString("\n## " + c.FullName() + "\n\n```\n" + HelpText(c, manualColumns) + "```\n")
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

// writeManPages writes a page of section 1 for each visible command into the directory:
// braid-download.1 for braid download.
func writeManPages(root *cli.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write the man pages: %w", err)
	}
	for _, c := range withSubcommands(root) {
		name := filepath.Join(dir, pageName(c)+".1")
		if err := os.WriteFile(name, []byte(manPage(c)), 0o644); err != nil {
			return fmt.Errorf("write the man pages: %w", err)
		}
	}
	return nil
}

func pageName(c *cli.Command) string { return strings.ReplaceAll(c.FullName(), " ", "-") }

// manPage returns the help of a command as a man page (the macros of man(7)).
func manPage(c *cli.Command) string {
	page := pageName(c)
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 %s \"braid %s\" \"braid manual\"\n",
		roff(strings.ToUpper(page)), released, release)
	fmt.Fprintf(&b, ".SH NAME\n%s \\-\n%s", roff(page), roffText(c.Usage))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(c.FullName()))
	if rest := strings.TrimSpace(strings.TrimPrefix(usageLine(c), c.FullName())); rest != "" {
		b.WriteString(roffText(rest))
	}
	if c.Description != "" {
		b.WriteString(".SH DESCRIPTION\n")
		for i, p := range strings.Split(strings.TrimSpace(c.Description), "\n\n") {
			if i > 0 {
				b.WriteString(".PP\n")
			}
			b.WriteString(roffText(p))
		}
	}
	related := c.VisibleCommands()
	if l := c.Lineage(); len(l) > 1 {
		related = append(l[1:2], related...)
	}
	for _, x := range sections(c) {
		fmt.Fprintf(&b, ".SH %s\n", roff(strings.ToUpper(x.title)))
		for _, r := range x.rows {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s", roff(strings.TrimSpace(r[0])), roffText(r[1]))
		}
	}
	for i, x := range related {
		before := " ,\n"
		if i == 0 {
			before = ".SH SEE ALSO\n"
		}
		fmt.Fprintf(&b, "%s.BR %s (1)", before, roff(pageName(x)))
	}
	return b.String() + "\n"
}

// roff escapes text that does not begin with a control character (. or ').
func roff(s string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`).Replace(s)
}

// roffText returns a paragraph of short lines, escaped so that none is a macro.
func roffText(s string) string {
	var b strings.Builder
	for line := range strings.Lines(terminal.Hanging("", 0, s, 72)) {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			b.WriteString(`\&`)
		}
		b.WriteString(roff(line))
	}
	return b.String()
}
