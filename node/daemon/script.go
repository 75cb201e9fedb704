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
)

const (
	// scriptsAtOnce is how many programs run at a time; maxWaiting how many torrents wait for theirs.
	scriptsAtOnce = 2
	maxWaiting    = 10_000
	// scriptTime is how long a program may run. Without it, one that hangs would hold up all others.
	scriptTime = time.Hour
	maxOutput  = 2000 // bytes of a program's output that are logged if it fails
)

// scripts runs the program of the settings for torrents that have become complete.
type scripts struct {
	ctx     context.Context
	log     *slog.Logger
	slots   chan struct{}
	running sync.WaitGroup

	mu      sync.Mutex
	waiting int
	moving  map[string]bool // complete torrents whose data is on its way to another directory
}

func newScripts(ctx context.Context, log *slog.Logger) *scripts {
	return &scripts{ctx: ctx, log: log, slots: make(chan struct{}, scriptsAtOnce), moving: map[string]bool{}}
}

func (s *scripts) wait() { s.running.Wait() }

// completed is called when a torrent is complete: also at the start of one that has long been.
func (s *scripts) completed(n *node.Node, infoHash string, began time.Time) {
	t, err := n.Torrent(infoHash)
	if err != nil {
		return // removed meanwhile
	}
	status := t.Status()
	if status.Completed.Before(began) {
		return
	}
	if status.Moving != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.moving) < maxWaiting {
			s.moving[infoHash] = true
		}
		return
	}
	s.start(n.Settings(), status)
}

// arrived is called when the data of a torrent may be where it belongs, or stay where it is after a move
// that has failed.
func (s *scripts) arrived(n *node.Node, infoHash string) {
	t, err := n.Torrent(infoHash)
	var status node.Status
	if err == nil {
		if status = t.Status(); status.Moving != nil {
			return
		}
	}
	s.mu.Lock()
	due := s.moving[infoHash]
	delete(s.moving, infoHash)
	s.mu.Unlock()
	if due && err == nil {
		s.start(n.Settings(), status)
	}
}

// start runs the program, if there is one, as soon as fewer others run.
func (s *scripts) start(settings node.Settings, t node.Status) {
	if settings.Script == "" || settings.ScriptOff {
		return
	}
	s.mu.Lock()
	full := s.waiting >= maxWaiting
	if !full {
		s.waiting++
	}
	s.mu.Unlock()
	if full {
		s.log.Warn("the program is not run for a torrent: too many wait for it", "torrent", t.Name, "program", settings.Script)
		return
	}
	s.running.Go(func() {
		select {
		case s.slots <- struct{}{}:
			s.run(settings.Script, t)
			<-s.slots
		case <-s.ctx.Done():
		}
		s.mu.Lock()
		s.waiting--
		s.mu.Unlock()
	})
}

// environment is what the program learns. Names come from strangers: they are never part of a
// command line.
func environment(t node.Status) []string {
	clean := func(s string) string { return strings.ReplaceAll(s, "\x00", "") }
	return []string{
		"BRAID_NAME=" + clean(t.Name), "BRAID_INFO_HASH=" + t.InfoHash, "BRAID_DIR=" + clean(t.Storage.Dir),
		"BRAID_BYTES=" + strconv.FormatInt(t.Total, 10), "BRAID_LABELS=" + clean(strings.Join(t.Labels, ",")),
	}
}

// run runs the program to its end.
func (s *scripts) run(program string, t node.Status) {
	ctx, cancel := context.WithTimeout(s.ctx, scriptTime)
	defer cancel()
	c := exec.CommandContext(ctx, program)
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 5 * time.Second
	c.Env = append(os.Environ(), environment(t)...)
	out := &tail{}
	c.Stdout, c.Stderr = out, out
	err := c.Run()
	switch {
	case err == nil:
		s.log.Info("the program for complete torrents was run", "torrent", t.Name, "program", program)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		s.log.Warn("the program for complete torrents was ended: it ran for too long", "torrent", t.Name, "program", program, "limit", scriptTime)
	default:
		s.log.Warn("the program for complete torrents has failed", "torrent", t.Name, "program", program, "error", err, "output", out.String())
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
