package main

import (
	"context"
	_ "embed"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"
)

// configureCompletion words the command that prints the completion scripts; the cli library makes
// it.
func configureCompletion(c *cli.Command) {
	c.Hidden = false
	c.Usage = "print the script with which a shell completes commands and flags"
	c.Description = "bash: braid completion bash > ~/.local/share/bash-completion/completions/braid\n\n" +
		"zsh: braid completion zsh > DIR/_braid, with a DIR in $fpath\n\n" +
		"fish: braid completion fish > ~/.config/fish/completions/braid.fish"
	for _, shell := range c.Commands {
		shell.Usage = "for " + shell.Name
		shell.Action = completionScript
	}
	setDefaults(c)
}

// bashCompletion stands for the library's script, which has bash evaluate the words that were
// typed: the tab key would run a command in $(...).
//
//go:embed completion.bash
var bashCompletion string

// fishFiles lets fish complete files where braid names nothing, as bash and zsh do. The library's
// script lets it complete none.
const fishFiles = "complete -c braid -F -n 'not count (__braid_perform_completion) >/dev/null'\n"

// completionScript prints the script for a shell. Those of the library get spaces for tabs, since
// the printer would show those as escapes.
func completionScript(_ context.Context, c *cli.Command) error {
	script := bashCompletion
	if c.Name != "bash" {
		var written strings.Builder
		library := &cli.Command{
			Name: "braid", EnableShellCompletion: true, Writer: &written, ErrWriter: &written,
			ExitErrHandler: func(context.Context, *cli.Command, error) {}, // Run returns it
		}
		// With ctx the library would take this command for one of braid's own.
		if err := library.Run(context.Background(), []string{"braid", "completion", c.Name}); err != nil {
			return err
		}
		script = strings.ReplaceAll(written.String(), "\t", "  ")
	}
	if c.Name == "fish" {
		script += fishFiles
	}
	_, _ = stdout(c).Write([]byte(script)) // the printer keeps the error
	return nil
}

// complete names the commands and flags that may come next. Where a value of a flag comes next, it
// names none, so that the shell completes files.
func complete(ctx context.Context, c *cli.Command) {
	args := c.Args().Slice()
	if len(args) > 0 && takesValue(c, args[len(args)-1]) {
		return
	}
	cli.DefaultCompleteWithFlags(ctx, c)
}

// takesValue tells whether the word is a flag of the command, in full, that needs a value.
func takesValue(c *cli.Command, word string) bool {
	name := strings.TrimLeft(word, "-")
	for _, f := range c.Flags {
		if slices.Contains(f.Names(), name) && word == dashed(name) {
			doc, ok := f.(cli.DocGenerationFlag)
			return ok && doc.TakesValue()
		}
	}
	return false
}
