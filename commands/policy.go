package commands

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/term"

	"braid/commands/flags"
	"braid/commands/terminal"
	"braid/pathsel"
	"braid/scionnet"
	"braid/units/lists"
)

// Policies restrict the paths that any selector may use.

func policyFlags() []cli.Flag {
	return flags.InCategory("Path policy (for connections that this braid opens)",
		flags.String("sequence", "", "only paths whose hops match `SEQUENCE`, such as "+
			"'1-ff00:0:110#1 0* 1-ff00:0:112'"),
		flags.List("acl", "allow or deny paths by `ENTRIES`, of which the first that matches an "+
			"interface decides: '- 1-ff00:0:110#2, +' (repeatable; the last one is the default)"),
		flags.String("preference", "", "try paths in the order of `CRITERIA`: latency, bandwidth, "+
			"hops, mtu, as announced, with commas between them"),
		flags.Time("max-latency", 0, "only paths with at most `TIME` of announced one-way "+
			"latency; links without an announced latency count as 0"),
		flags.Int("min-mtu", 0, "only paths that carry SCION packets of `BYTES`"),
		flags.Bool("interactive", "list the paths and ask which ones to use", "i"),
	)
}

// policy reads the flags. The paths that the user chooses with --interactive are added later, when
// the node is opened.
func (f *cmdline) policy() pathsel.Policy {
	p := pathsel.Policy{
		Sequence:   flags.Read(f, "sequence", pathsel.ParseSequence),
		Preference: flags.Read(f, "preference", pathsel.ParsePreference),
		MaxLatency: f.Duration("max-latency"), MinMTU: f.Int("min-mtu"),
	}
	var err error
	if p.ACL, err = pathsel.ParseACL(f.acl()); err != nil {
		f.Wrongf("--acl: %w; such as '- 1-ff00:0:110#2, +'", err)
	}
	canAsk := isTerminal(envOf(f.Command).In) && terminal.Stderr(f.Command).IsTerminal()
	f.Wantf(canAsk || !f.Bool("interactive"),
		"--interactive: there is no terminal to ask on; choose paths with --sequence or --acl")
	return p
}

func isTerminal(in io.Reader) bool {
	f, ok := in.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// acl joins the values of --acl.
func (f *cmdline) acl() string { return strings.Join(f.StringSlice("acl"), " ") }

// questions asks the user at a terminal.
type questions struct {
	in  *bufio.Reader
	out *terminal.Printer
}

func newQuestions(in io.Reader, out *terminal.Printer) questions {
	return questions{bufio.NewReader(in), out}
}

// paths asks which of the paths to use.
func (q questions) paths(
	ctx context.Context, h *scionnet.Host, dst pathsel.IA, paths []pathsel.Path,
) ([]pathsel.Fingerprint, error) {
	l := pathList{Destination: dst}
	l.fill(h, paths, nil)
	l.print(q.out, false, time.Now())
	numbers, err := q.numbers(ctx, len(paths))
	if err != nil {
		return nil, err
	}
	fingerprint := func(i int) pathsel.Fingerprint { return paths[i].Fingerprint }
	return lists.Map(numbers, fingerprint), nil
}

// numbers asks until the answer is a valid choice of numbers below n.
func (q questions) numbers(ctx context.Context, n int) ([]int, error) {
	for {
		q.out.Printf("Paths to use, such as 0,2-3 or all: ")
		line, err := interruptible(ctx, func() (string, error) { return q.in.ReadString('\n') })
		if err != nil && line == "" {
			return nil, cmp.Or(ctx.Err(), errors.New("no paths were chosen: the input has ended"))
		}
		chosen, err := parseChoice(strings.TrimSpace(line), n)
		if err == nil {
			return chosen, nil
		}
		q.out.Printf("%s\n", err)
	}
}

// parseChoice reads numbers below n and ranges of them, or "all". The result is sorted and has each
// number once.
func parseChoice(s string, n int) ([]int, error) {
	number := func(s string) (int, error) {
		i, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || i < 0 || i >= n {
			return 0, fmt.Errorf("%q is not a number from 0 to %d", s, n-1)
		}
		return i, nil
	}
	var out []int
	if strings.TrimSpace(s) == "all" {
		s = fmt.Sprintf("0-%d", n-1)
	}
	for part := range strings.SplitSeq(s, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		i, err1 := number(from)
		j, err2 := number(to)
		if err := cmp.Or(err1, err2); err != nil {
			return nil, err
		}
		if j < i {
			return nil, fmt.Errorf("%q is the wrong way round", part)
		}
		for ; i <= j; i++ {
			out = append(out, i)
		}
		slices.Sort(out)
		out = slices.Compact(out)
	}
	return out, nil
}
