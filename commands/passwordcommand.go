package commands

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v3"
	"golang.org/x/term"

	v1 "braid/node/web/v1"

	"braid/commands/flags"
	"braid/commands/program"
	"braid/commands/terminal"
)

func passwordCommand() *cli.Command {
	return controlling(&cli.Command{
		Name:  "password",
		Usage: "set the password that programs and browsers need on TCP",
		Description: "Reads the password from the terminal or, if there is none, from the first " +
			"line of standard input. Works only over the daemon's unix socket. Ends all sessions " +
			"of browsers.",
		Flags: []cli.Flag{flags.Bool("remove", "remove the password")},
		ArgValidator: flags.Arguments(0, 0,
			"braid password takes no arguments: it asks for the password"),
	}, setPassword)
}

func setPassword(ctx context.Context, cmd *cli.Command, d *v1.Client) error {
	if cmd.Bool("remove") {
		return d.SetPassword(ctx, "")
	}
	password, err := readPassword(ctx, cmd, envOf(cmd).In)
	if err != nil {
		return err
	}
	if password == "" {
		return program.UsageErrorf("the password is empty; to have none, give --remove")
	}
	return d.SetPassword(ctx, password)
}

func readPassword(ctx context.Context, cmd *cli.Command, stdin io.Reader) (string, error) {
	if !isTerminal(stdin) {
		line, err := interruptible(ctx, func() (string, error) {
			return bufio.NewReader(stdin).ReadString('\n')
		})
		if line == "" && err != nil {
			return "", cmp.Or(ctx.Err(), errors.New("no password on standard input"))
		}
		return strings.TrimRight(line, "\r\n"), nil
	}
	fd := int(stdin.(*os.File).Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}
	ask := func(what string) (string, error) {
		terminal.Stderr(cmd).Printf("%s: ", what)
		defer terminal.Stderr(cmd).Printf("\n")
		b, err := interruptible(ctx, func() ([]byte, error) { return term.ReadPassword(fd) })
		return string(b), errors.Join(err, term.Restore(fd, before)) // an interrupt left it silent
	}
	first, err := ask("New password")
	if err != nil {
		return "", err
	}
	again, err := ask("The same again")
	if err == nil && again != first {
		err = errors.New("the two are different; nothing was changed")
	}
	return first, err
}
