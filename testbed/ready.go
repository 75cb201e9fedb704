package testbed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"braid/pathsel"
)

// A network is ready when its routers see all links and hosts find all paths that the topology
// implies.

// Progress is how far a starting network is.
type Progress struct {
	Processes int `json:"processes"` // running
	// Links that are up, as their routers see it; control services start when all are. 0 without
	// BFD.
	Links        int `json:"links"`
	ImpliedLinks int `json:"implied_links"`
	// Segments that the control services have found, of those that the topology implies.
	Segments        int `json:"segments"`
	ImpliedSegments int `json:"implied_segments"`
	// Paths that hosts find, over all ordered pairs of ASes; 0 until all segments are there.
	Paths        int `json:"paths"`
	ImpliedPaths int `json:"implied_paths"`
}

const (
	poll          = 100 * time.Millisecond
	lookupWorkers = 4 // control services asked at the same time
)

var errTakenDown = errors.New("the testbed was taken down while it was starting")

// await repeats an attempt until it is done. When time is up, missing says what is missing.
func (n *Network) await(ctx context.Context, attempt func() (done bool), missing func() error) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		if n.life.Err() != nil {
			return errTakenDown
		}
		processes := n.all()
		if i := slices.IndexFunc(processes, (*process).ended); i >= 0 {
			p := processes[i]
			return fmt.Errorf("%s ended while the network was starting: %s", p, p.reason())
		}
		done := attempt()
		n.progress.Processes = len(processes)
		if n.opts.Progress != nil {
			n.opts.Progress(n.progress)
		}
		if done {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
				return fmt.Errorf("start testbed: %w", cause)
			}
			return fmt.Errorf("not up after %v: %w; see the logs in %s", n.opts.Timeout, missing(), n.logDir())
		}
	}
}

// waitForLinks waits until every router sees all its links, and the other routers of its AS.
func (n *Network) waitForLinks(ctx context.Context) error {
	n.progress.ImpliedLinks = len(n.links)
	var down []string
	return n.await(ctx, func() bool {
		seen, siblings := n.routerStates(ctx)
		down = down[:0]
		for _, l := range n.opts.Topology.Links {
			for _, e := range []LinkEnd{l.A, l.B} {
				if seen[e.Interface].state != "up" {
					down = append(down, e.Interface.String())
				}
			}
		}
		n.progress.Links = len(n.links) - (len(down)+1)/2
		return len(down) == 0 && siblings
	}, func() error {
		if len(down) == 0 {
			return errors.New("routers of one AS do not reach each other")
		}
		return fmt.Errorf("links are down at %s", list(down))
	})
}

// waitForSegments waits until the control services have the segments that the topology implies.
func (n *Network) waitForSegments(ctx context.Context) error {
	n.progress.ImpliedSegments, n.progress.ImpliedPaths = wanted(n.surveys), 0
	for _, k := range n.implied {
		n.progress.ImpliedPaths += k
	}
	open := n.surveys
	var last error
	return n.await(ctx, func() bool {
		var missing int
		var err error
		open, missing, err = n.survey(ctx, open)
		n.progress.Segments = n.progress.ImpliedSegments - missing
		last = cmp.Or(err, last)
		return len(open) == 0
	}, func() error {
		var what []string
		for _, s := range open {
			what = append(what, fmt.Sprintf("%s segments of %s to %s", s.SegType, s.Src, s.Dst))
		}
		return missing(what, last)
	})
}

// waitForPaths waits until hosts find all paths.
func (n *Network) waitForPaths(ctx context.Context) error {
	found := map[Pair]int{}
	var last error
	return n.await(ctx, func() bool {
		paths, err := n.findPaths(ctx, func(p Pair) bool { return found[p] < n.implied[p] })
		n.progress.Paths = 0
		for p, k := range n.implied {
			found[p] = max(found[p], len(paths[p]))
			n.progress.Paths += min(found[p], k)
		}
		last = cmp.Or(err, last)
		return n.progress.Paths == n.progress.ImpliedPaths
	}, func() error {
		var what []string
		for p, k := range n.implied {
			if found[p] < k {
				what = append(what, fmt.Sprintf("%s to %s: %d of %d paths", p.Src, p.Dst, found[p], k))
			}
		}
		return missing(what, last)
	})
}

// survey asks the questions. It returns those whose answers lack segments, and the number of
// missing segments.
func (n *Network) survey(ctx context.Context, open []survey) (unanswered []survey, missing int, err error) {
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(lookupWorkers)
	for _, s := range open {
		g.Go(func() error {
			as, _ := n.as(pathsel.IA(s.Src))
			found, err := n.fetch(ctx, as, s.Request)
			mu.Lock()
			defer mu.Unlock()
			if len(found) < s.want {
				unanswered, missing = append(unanswered, s), missing+s.want-len(found)
			}
			return err
		})
	}
	err = g.Wait()
	return unanswered, missing, err
}

// Sleep waits. If ctx ends before, it returns why.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// missing is the error for segments or paths that are missing.
func missing(what []string, last error) error {
	err := fmt.Errorf("missing are %s", list(what))
	if last != nil {
		err = fmt.Errorf("%w (last error: %w)", err, last)
	}
	return err
}

// list joins the first ten of a list.
func list(s []string) string {
	const most = 10
	slices.Sort(s)
	if len(s) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(s[:most], ", "), len(s)-most)
	}
	return strings.Join(s, ", ")
}

// findPaths finds the paths of the pairs that are wanted.
func (n *Network) findPaths(ctx context.Context, wanted func(Pair) bool) (map[Pair][]Way, error) {
	var mu sync.Mutex
	paths := map[Pair][]Way{}
	var g errgroup.Group
	g.SetLimit(lookupWorkers)
	for _, src := range n.plan.ases {
		var dsts []pathsel.IA
		for _, dst := range n.plan.ases {
			if p := (Pair{src.IA, dst.IA}); src.IA != dst.IA && wanted(p) {
				dsts = append(dsts, dst.IA)
			}
		}
		if len(dsts) == 0 {
			continue
		}
		g.Go(func() error {
			found, err := n.ways(ctx, src, dsts)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(paths, found)
			return err
		})
	}
	err := g.Wait()
	return paths, err
}
