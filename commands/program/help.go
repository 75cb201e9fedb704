package program

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"braid/commands/terminal"
	"braid/units/lists"
)

// Help is a function of a command and a width, so that no line of it is longer than the terminal is
// wide.

const (
	maxNames    = 26  // columns of a name; the text of a longer one begins on the next line
	maxHelpWide = 100 // columns; longer lines are hard to read
)

// printHelp is cli.HelpPrinter.
func printHelp(_ io.Writer, _ string, command any) {
	c := command.(*cli.Command)
	out := terminal.Stdout(c)
	columns, _ := out.Size()
	_, _ = out.Write([]byte(HelpText(c, min(columns, maxHelpWide)))) // the printer keeps the error
}

// showHelp is cli.ShowCommandHelp: it prints the help of a subcommand. If c has no subcommands, name
// is an argument beside --help.
func showHelp(_ context.Context, c *cli.Command, name string) error {
	if sub := c.Command(name); sub != nil {
		c = sub
	} else if len(c.Commands) > 0 {
		return unknownCommand(c, name)
	}
	printHelp(nil, "", c)
	return nil
}

func HelpText(c *cli.Command, width int) string {
	var b strings.Builder
	b.WriteString(terminal.Hanging(c.FullName()+": ", 2, c.Usage, width))
	b.WriteString("\n" + terminal.Hanging("Usage: ", 7, usageLine(c), width))
	if c.Description != "" {
		b.WriteString("\n" + paragraphs(c.Description, width))
	}
	for _, x := range sections(c) {
		b.WriteString("\n" + terminal.Hanging("", 0, x.title+":", width) + list(x.rows, width))
	}
	return b.String()
}

// usageLine shows the arguments of a command.
func usageLine(c *cli.Command) string {
	usage := c.FullName()
	if len(c.VisibleFlags()) > 1 { // beyond --help
		usage += " [FLAGS]"
	}
	if len(c.VisibleCommands()) > 0 {
		usage += " COMMAND"
	}
	return strings.TrimSpace(usage + " " + c.ArgsUsage)
}

// section is a list in the help of a command: of its commands, or of flags.
type section struct {
	title string
	rows  [][2]string // name and description
}

// sections lists the visible commands, and the visible flags by category and name.
func sections(c *cli.Command) (out []section) {
	if commands := c.VisibleCommands(); len(commands) > 0 {
		out = append(out, section{"Commands", lists.Map(commands, func(sub *cli.Command) [2]string {
			return [2]string{sub.Name, sub.Usage}
		})})
	}
	category := func(f cli.Flag) string { return f.(cli.CategorizableFlag).GetCategory() }
	flags := c.VisibleFlags()
	slices.SortFunc(flags, func(a, b cli.Flag) int {
		return cmp.Or(
			cmp.Compare(category(a), category(b)),
			cmp.Compare(a.Names()[0], b.Names()[0]))
	})
	for i, f := range flags {
		if i == 0 || category(f) != category(flags[i-1]) {
			out = append(out, section{title: cmp.Or(category(f), "Flags")})
		}
		name, text := flagHelp(f)
		s := &out[len(out)-1]
		s.rows = append(s.rows, [2]string{name, text})
	}
	return out
}

// flagHelp returns a flag's names, the short one first, and its description with the default.
func flagHelp(f cli.Flag) (names, text string) {
	names, text, _ = strings.Cut(f.String(), "\t")
	first := dashed(f.Names()[0])
	_, value, hasValue := strings.Cut(names[len(first):], " ")
	value, _, _ = strings.Cut(value, " [ ") // drop the mark of repeatable flags
	value, _, _ = strings.Cut(value, ", ")  // drop further names
	written := "    "
	for _, n := range slices.Backward(f.Names()) {
		if len(n) == 1 {
			written = "-" + n + ", "
		}
	}
	written += first
	if hasValue && !strings.HasPrefix(value, "-") {
		written += " " + value
	}
	return written, text
}

func dashed(flag string) string {
	if len(flag) == 1 {
		return "-" + flag
	}
	return "--" + flag
}

// list writes a row for each name, with its description beside it.
func list(rows [][2]string, width int) string {
	names := 0
	for _, r := range rows {
		if len(r[0]) <= maxNames {
			names = max(names, len(r[0]))
		}
	}
	var b strings.Builder
	for _, r := range rows {
		title := fmt.Sprintf("  %-*s  ", names, r[0])
		if len(r[0]) > names {
			b.WriteString("  " + r[0] + "\n")
			title = strings.Repeat(" ", names+4)
		}
		b.WriteString(terminal.Hanging(title, names+4, r[1], width))
	}
	return b.String()
}

// paragraphs wraps each paragraph; a blank line ends one.
func paragraphs(text string, width int) string {
	all := strings.Split(strings.TrimSpace(text), "\n\n")
	wrap := func(paragraph string) string { return terminal.Hanging("", 0, paragraph, width) }
	return strings.Join(lists.Map(all, wrap), "\n")
}

// groupAction runs if a command with subcommands is called without one.
func groupAction(_ context.Context, c *cli.Command) error {
	if name := c.Args().First(); name != "" {
		return unknownCommand(c, name)
	}
	printHelp(nil, "", c)
	return nil
}

// helpCommand prints the help of the command that its arguments name, at any depth.
func helpCommand() *cli.Command {
	return &cli.Command{
		Name:      "help",
		Aliases:   []string{"h"},
		Usage:     "show the help of a command",
		ArgsUsage: "[COMMAND...]",
		Action: func(_ context.Context, c *cli.Command) error {
			about := c.Lineage()[1]
			for _, name := range c.Args().Slice() {
				next := about.Command(name)
				if next == nil {
					return unknownCommand(about, name)
				}
				about = next
			}
			printHelp(nil, "", about)
			return nil
		},
	}
}

func unknownCommand(c *cli.Command, name string) error {
	known := lists.Map(c.VisibleCommands(), func(sub *cli.Command) string { return sub.Name })
	for _, f := range c.VisibleFlags() {
		known = append(known, dashed(f.Names()[0]))
	}
	within := strings.TrimPrefix(c.FullName()+" ", c.Root().Name+" ")
	return UsageErrorf("unknown command %q%s; see %s --help",
		within+name, didYouMean(name, known, within), c.FullName())
}

// Errors of the cli library for which braid has messages of its own. They have no types.
var (
	noSuchFlag  = regexp.MustCompile(`^flag provided but not defined: -+(.*)$`)
	noValue     = regexp.MustCompile(`^flag needs an argument: (?:-*)(.*)$`)
	badValue    = regexp.MustCompile(`(?s)^invalid value (".*") for flag -+(\S+): (.*)$`)
	missingFlag = regexp.MustCompile(`^Required flags? "(.*)" not set$`)
)

// usageError turns the library's error about flags into braid's, with a hint to the help.
func usageError(c *cli.Command, err error) error {
	text := err.Error()
	if m := noSuchFlag.FindStringSubmatch(text); m != nil {
		known := lists.Map(c.VisibleFlags(), func(f cli.Flag) string { return f.Names()[0] })
		text = "unknown flag " + dashed(m[1]) + didYouMean(m[1], known, "--")
	} else if m := noValue.FindStringSubmatch(text); m != nil {
		text = dashed(m[1]) + " needs a value"
	} else if m := badValue.FindStringSubmatch(text); m != nil {
		what := strings.TrimPrefix(m[3], m[1]+": ")
		switch parser, _, _ := strings.Cut(what, ": "); parser {
		case "strconv.ParseInt":
			what = "want a whole number"
		case "strconv.ParseUint":
			what = "want a whole number of at least 0"
		case "strconv.ParseFloat":
			what = "want a number"
		case "parse error": // of a flag without a value
			what = "want true or false"
		}
		text = fmt.Sprintf("%s %s: %s", dashed(m[2]), m[1], what)
	} else if m := missingFlag.FindStringSubmatch(text); m != nil {
		text = "--" + m[1] + " is missing"
	}
	return UsageErrorf("%s; see %s --help", text, c.FullName())
}

// didYouMean suggests the known name that is closest to a mistyped one. It is empty if none is
// close.
func didYouMean(typed string, known []string, prefix string) string {
	best, least := "", len(typed)/3+1 // one typing error in three letters is plausible
	for _, k := range known {
		d := typos(typed, k)
		if len(typed) > 2 && strings.HasPrefix(k, typed) {
			d = 0
		}
		if d < least || d == least && best == "" {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s%s?)", prefix, best)
}

// typos counts the added, missing, replaced and swapped letters between two words (optimal string
// alignment).
func typos(a, b string) int {
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			differ := 1
			if a[i-1] == b[j-1] {
				differ = 0
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, d[i-1][j-1]+differ)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
