package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/term"

	"braid/client"
	"braid/pathsel"
	"braid/scionnet"
)

// Policies restrict the paths that any selector may use.

func policyFlags() []cli.Flag {
	const category = "Path policy (for connections that this braid opens)"
	return []cli.Flag{
		&cli.StringFlag{Name: "sequence", Category: category, Usage: "only paths whose hops match `SEQUENCE`, such as '1-ff00:0:110#1 0* 1-ff00:0:112'"},
		&cli.StringSliceFlag{Name: "acl", Category: category, Usage: "allow and deny by `ENTRIES`, the first that matches an interface decides: '- 1-ff00:0:110#2, +' (repeatable; the last one is the default)"},
		&cli.StringFlag{Name: "preference", Category: category, Usage: "try paths in the order of `CRITERIA`: latency, bandwidth, hops, mtu, as announced, with commas between them"},
		&durationFlag{Name: "max-latency", Category: category, Usage: "only paths with at most `TIME` of announced one-way latency; what is not announced counts as 0"},
		&cli.IntFlag{Name: "min-mtu", Category: category, Usage: "only paths that take SCION packets of `BYTES`"},
		&cli.BoolFlag{Name: "interactive", Aliases: []string{"i"}, Category: category, Usage: "list the paths and ask which ones to use"},
	}
}

// parsePolicy reads the flags. What is chosen from a list is not in it yet: see settle.
func parsePolicy(cmd *cli.Command) (p pathsel.Policy, err error) {
	if p.Sequence, err = pathsel.ParseSequence(cmd.String("sequence")); err != nil {
		return p, usageErrorf("--sequence: %w", err)
	}
	if p.ACL, err = pathsel.ParseACL(strings.Join(cmd.StringSlice("acl"), " ")); err != nil {
		return p, usageErrorf("--acl: %w; such as '- 1-ff00:0:110#2, +'", err)
	}
	if p.Preference, err = pathsel.ParsePreference(cmd.String("preference")); err != nil {
		return p, usageErrorf("--preference: %w", err)
	}
	if p.MaxLatency = cmd.Duration("max-latency"); p.MaxLatency < 0 {
		return p, usageErrorf("--max-latency %v: want a time such as 50ms", p.MaxLatency)
	}
	if p.MinMTU = cmd.Int("min-mtu"); p.MinMTU < 0 {
		return p, usageErrorf("--min-mtu %d: want bytes such as 1400", p.MinMTU)
	}
	if cmd.Bool("interactive") && (!term.IsTerminal(int(os.Stdin.Fd())) || !stderr(cmd).isTerminal()) {
		return p, usageErrorf("--interactive: there is no terminal to ask on; choose paths with --sequence or --acl")
	}
	return p, nil
}

// lookupPatience is how long the first lookup of paths may take before the session goes on without knowing them. The
// control service takes seconds under load.
const lookupPatience = 10 * time.Second

// settle applies a policy to the paths that the peers have now, and asks the user to choose from what it leaves if ask is
// not nil. A policy that leaves no path to any peer is an error, unless others may connect: it would wait for a
// path that most likely never comes.
func settle(ctx context.Context, h *scionnet.Host, policy pathsel.Policy, peers []client.Peer, others bool, ask *questions, log *slog.Logger) (pathsel.Policy, error) {
	if policy.IsZero() && ask == nil {
		return policy, nil
	}
	var destinations []pathsel.IA
	for _, p := range peers {
		a, ok := p.SCION()
		if !ok {
			others = true // reached without SCION
		} else if !slices.Contains(destinations, a.IA) {
			destinations = append(destinations, a.IA)
		}
	}
	if ask != nil && len(destinations) == 0 {
		return policy, usageErrorf("--interactive: no SCION peer is named whose paths could be listed")
	}
	var none []error
	chosen := map[pathsel.IA][]pathsel.Fingerprint{}
	for _, dst := range destinations {
		paths, err := pathsWithin(ctx, h, dst)
		if err != nil && ask != nil {
			return policy, fmt.Errorf("list the paths to choose from: %w", err)
		} else if err != nil {
			continue // the session waits for paths, and says so
		}
		allowed, refused := policy.Apply(paths)
		if len(allowed) == 0 {
			none = append(none, noneAllowed(dst, refused))
			continue
		}
		if n := policy.Unjudged(allowed); n > 0 {
			log.Warn("paths without a fully announced latency are allowed: --max-latency cannot judge them", "to", dst, "paths", n)
		}
		if ask == nil {
			continue
		}
		if chosen[dst], err = ask.paths(ctx, h, dst, allowed); err != nil {
			return policy, err
		}
	}
	if len(none) > 0 && len(none) == len(destinations) && !others {
		return policy, errors.Join(none...)
	}
	if len(chosen) > 0 {
		policy.Chosen = chosen
	}
	return policy, nil
}

func pathsWithin(ctx context.Context, h *scionnet.Host, dst pathsel.IA) ([]pathsel.Path, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupPatience)
	defer cancel()
	return h.Paths(ctx, dst)
}

func noneAllowed(dst pathsel.IA, refused []pathsel.Refusal) error {
	return fmt.Errorf("none of the %d paths to %s is allowed: %s", len(refused), dst, pathsel.Summary(refused))
}

// questions asks the user at a terminal.
type questions struct {
	lines <-chan string // closed at the end of the input
	out   io.Writer
}

// newQuestions reads lines until the process ends: a read from a terminal cannot be called off.
func newQuestions(in io.Reader, out io.Writer) *questions {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(in); s.Scan(); {
			lines <- s.Text()
		}
	}()
	return &questions{lines, out}
}

// paths asks which of the paths to use.
func (q *questions) paths(ctx context.Context, h *scionnet.Host, dst pathsel.IA, paths []pathsel.Path) ([]pathsel.Fingerprint, error) {
	l := pathList{Destination: dst}
	l.fill(h, paths, nil)
	if err := l.print(q.out, false, time.Now()); err != nil {
		return nil, fmt.Errorf("list the paths: %w", err)
	}
	numbers, err := q.numbers(ctx, len(paths))
	if err != nil {
		return nil, err
	}
	var out []pathsel.Fingerprint
	for _, i := range numbers {
		out = append(out, paths[i].Fingerprint)
	}
	return out, nil
}

// numbers asks until the answer is a choice of n things.
func (q *questions) numbers(ctx context.Context, n int) ([]int, error) {
	for {
		_ = fprintf(q.out, "Paths to use, such as 0,2-3 or all: ")
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case line, ok := <-q.lines:
			if !ok {
				return nil, errors.New("no paths were chosen: the input has ended")
			}
			chosen, err := parseChoice(line, n)
			if err == nil {
				return chosen, nil
			}
			_ = fprintf(q.out, "%s\n", err)
		}
	}
}

// parseChoice reads numbers below n and ranges of them, or "all". The result is sorted and has each number once.
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
		i, err := number(from)
		if err != nil {
			return nil, err
		}
		j, err := number(to)
		if err != nil {
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
