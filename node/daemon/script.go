package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"braid/node"
	"braid/node/event"
)

const (
	// scriptsAtOnce is how many programs run at a time; maxWaiting how many torrents wait for
	// theirs.
	scriptsAtOnce = 2
	maxWaiting    = 10_000
	// scriptTime is how long a program may run. Without it, one that hangs would hold up all
	// others.
	scriptTime = time.Hour
	maxOutput  = 2000 // bytes of a program's output that are logged if it fails
)

// scripts runs the program of the settings for torrents that have become complete. Its methods are
// for one goroutine.
type scripts struct {
	log     *slog.Logger
	queue   chan *script
	running sync.WaitGroup
}

// script is the program for one torrent.
type script struct {
	program string
	torrent *node.Torrent
}

// newScripts starts the workers, which end with the context.
func newScripts(ctx context.Context, log *slog.Logger) *scripts {
	s := &scripts{log: log, queue: make(chan *script, maxWaiting)}
	for range scriptsAtOnce {
		s.running.Go(func() {
			for {
				select {
				case x, ok := <-s.queue:
					if !ok || ctx.Err() != nil {
						return
					}
					if s.run(ctx, x.program, x.torrent.Status()); ctx.Err() == nil {
						x.torrent.ProgramRan()
					}
				case <-ctx.Done():
					return
				}
			}
		})
	}
	return s
}

// wait waits for the programs that are due. No more may become due.
func (s *scripts) wait() {
	close(s.queue)
	s.running.Wait()
}

// hear takes the node's events. Every change of a torrent counts, since its data may have arrived
// where it stays.
func (s *scripts) hear(n *node.Node, e any) {
	hash := ""
	switch e := e.(type) {
	case event.Changed:
		hash = e.InfoHash
	case event.Done:
		hash = e.InfoHash
	case event.Missed:
		s.lookAll(n)
	}
	if t, err := n.Torrent(hash); err == nil {
		s.look(n, t)
	}
}

// lookAll also finds the torrents whose program an earlier process has not run.
func (s *scripts) lookAll(n *node.Node) {
	for _, t := range n.Torrents() {
		s.look(n, t)
	}
}

// look has the program run for a torrent, if it is due, as soon as fewer others run.
func (s *scripts) look(n *node.Node, t *node.Torrent) {
	if !t.TakeProgram() {
		return
	}
	settings := n.Settings()
	if !settings.RunsScript() {
		t.ProgramRan()
		return
	}
	select {
	case s.queue <- &script{settings.Script, t}:
	default:
		s.log.Warn("too many torrents wait for the program: it is run after the next start",
			"torrent", t.Status().Name, "program", settings.Script)
	}
}

// Command returns a command that a user wants to be run for a complete torrent. The end of the
// context interrupts it. Its environment describes the torrent: names come from strangers, so they
// are never part of a command line.
func Command(ctx context.Context, t node.Status, program string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, program, args...)
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 5 * time.Second
	clean := func(s string) string { return strings.ReplaceAll(s, "\x00", "") }
	c.Env = append(os.Environ(),
		"BRAID_NAME="+clean(t.Name),
		"BRAID_INFO_HASH="+t.InfoHash,
		"BRAID_DIR="+clean(t.Storage.Dir),
		"BRAID_BYTES="+strconv.FormatInt(t.Total, 10),
		"BRAID_LABELS="+clean(strings.Join(t.Labels, ",")))
	return c
}

// run runs the program to its end.
func (s *scripts) run(ctx context.Context, program string, t node.Status) {
	ctx, cancel := context.WithTimeout(ctx, scriptTime)
	defer cancel()
	c, out := Command(ctx, t, program), &tail{}
	c.Stdout, c.Stderr = out, out
	err := c.Run()
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // a child of it has kept its output open
		s.log.Info("the program for complete torrents was run",
			"torrent", t.Name, "program", program)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		s.log.Warn("the program for complete torrents was ended: it ran for too long",
			"torrent", t.Name, "program", program, "limit", scriptTime)
	default:
		s.log.Warn("the program for complete torrents has failed",
			"torrent", t.Name, "program", program, "error", err, "output", out.String())
	}
}

// tail keeps the end of what is written.
type tail struct{ b bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	t.b.Write(p[max(0, n-maxOutput):])
	if over := t.b.Len() - maxOutput; over > 0 {
		t.b.Next(over)
	}
	return n, nil
}

func (t *tail) String() string { return strings.TrimSpace(strings.ToValidUTF8(t.b.String(), "?")) }
