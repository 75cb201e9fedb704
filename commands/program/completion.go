package program

import (
	"context"
	_ "embed"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"braid/commands/terminal"
)

// configureCompletion sets the help of the command that prints completion scripts. The cli library
// adds this command.
func configureCompletion(c *cli.Command, program string) {
	c.Hidden = false
	c.Usage = "print the script with which a shell completes commands and flags"
	c.Description = strings.ReplaceAll("bash: "+
		"PROGRAM completion bash > ~/.local/share/bash-completion/completions/PROGRAM\n\n"+
		"zsh: PROGRAM completion zsh > DIR/_PROGRAM, with a DIR in $fpath\n\n"+
		"fish: PROGRAM completion fish > ~/.config/fish/completions/PROGRAM.fish\n\n"+
		"PowerShell: PROGRAM completion pwsh | Out-String | Invoke-Expression, in $PROFILE",
		"PROGRAM", program)
	for _, shell := range c.Commands {
		shell.Usage = "for " + shell.Name
		shell.Action = completionScript
	}
	setDefaults(c)
}

// These scripts replace those of the library, which make the shell evaluate the typed words. With
// the library's, the tab key would run a command in $(...).
var (
	//go:embed completion.bash
	bashCompletion string
	//go:embed completion.ps1
	pwshCompletion string
)

// fishFiles makes fish complete files if braid suggests nothing, as bash and zsh do. With the
// library's script alone, fish never completes files.
const fishFiles = "complete -c PROGRAM -F -n 'not count (__PROGRAM_perform_completion) " +
	">/dev/null'\n"

// completionScript prints the script for a shell. It replaces tabs in the library's scripts with
// spaces, since the printer would print escapes for them.
func completionScript(_ context.Context, c *cli.Command) error {
	name := c.Root().Name
	script := map[string]string{"bash": bashCompletion, "pwsh": pwshCompletion}[c.Name]
	if script == "" {
		var written strings.Builder
		library := &cli.Command{
			Name: name, EnableShellCompletion: true, Writer: &written, ErrWriter: &written,
			ExitErrHandler: func(context.Context, *cli.Command, error) {}, // Run returns it
		}
		// ctx would make the library take this command for one of braid's own.
		args := []string{name, "completion", c.Name}
		if err := library.Run(context.Background(), args); err != nil {
			return err
		}
		script = strings.ReplaceAll(written.String(), "\t", "  ")
	}
	if c.Name == "fish" {
		script += fishFiles
	}
	script = strings.ReplaceAll(script, "PROGRAM", name)
	_, _ = terminal.Stdout(c).Write([]byte(script)) // the printer keeps the error
	return nil
}

// complete prints the commands and flags that may come next. If a flag's value comes next, it
// prints nothing, so that the shell completes files.
func complete(ctx context.Context, c *cli.Command) {
	args := c.Args().Slice()
	if len(args) > 0 && takesValue(c, args[len(args)-1]) {
		return
	}
	var written strings.Builder
	root, out := c.Root(), terminal.Stdout(c)
	root.Writer = &written
	cli.DefaultCompleteWithFlags(ctx, c)
	root.Writer = out
	// Backquotes mark the value of a flag for the help.
	text := strings.ReplaceAll(written.String(), "`", "")
	_, _ = out.Write([]byte(text)) // the printer keeps the error
}

// takesValue tells whether the word is the full name of a flag that needs a value.
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
