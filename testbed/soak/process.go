package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"braid/node/event"
	"braid/testbed"
)

// process is a process of braid.
type process struct {
	name, log, socket string
	cmd               *exec.Cmd
	events            chan any // of package event; must be read; closed when the process has ended
	ended             chan struct{}
	err               error // how it ended; read it after that
	signalled         atomic.Bool
	logged            int64    // bytes of the log that earlier processes wrote
	listen            []string // once it is ready
}

// start starts braid with these arguments. Its log is appended to the file of that name.
func (r *run) start(name string, args ...string) (*process, error) {
	p := &process{
		name: name, log: filepath.Join(r.Dir, name+".log"), socket: filepath.Join(r.Dir, name+".socket"),
		events: make(chan any, 64), ended: make(chan struct{}),
	}
	if st, err := os.Stat(p.log); err == nil {
		p.logged = st.Size()
	}
	p.cmd = exec.Command(r.Braid, append(args, "--json")...)
	err := r.launcher.Follow(p.cmd, p.log, func(line []byte) {
		if e, err := event.Parse(line); err == nil && e != nil {
			p.events <- e
		}
	}, func(err error) {
		p.err = err
		close(p.ended)
		close(p.events)
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

func (p *process) kill(s syscall.Signal) {
	p.signalled.Store(true)
	_ = p.cmd.Process.Signal(s) // it may have ended already
}

// end signals a process whose events nobody else reads, and waits until it has ended: after
// SIGQUIT, until it has written its stacks. A process whose events are not read never ends.
func (p *process) end(s syscall.Signal) {
	p.kill(s)
	for range p.events {
	}
}

func (p *process) lastWords() string { return testbed.LastWords(p.log, p.logged) }

// serve starts a long-lived process, and waits until it is ready. From then on it must not end by
// itself.
func (r *run) serve(ctx context.Context, name string) error {
	p, err := r.start(name, append(r.args[name], "--debug-socket", filepath.Join(r.Dir, name+".socket"))...)
	if err != nil {
		return err
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	for p.listen == nil {
		select {
		case e, ok := <-p.events:
			if !ok {
				return fmt.Errorf("%s ended before it was ready: %v: %s", name, p.err, p.lastWords())
			}
			if ready, ok := e.(*event.Ready); ok {
				p.listen = ready.Listen
			}
		case <-late.C:
			p.end(syscall.SIGQUIT)
			return fmt.Errorf("%s was not ready after %v; its stacks are in %s", name, patience, p.log)
		case <-ctx.Done():
			p.end(syscall.SIGKILL)
			return context.Cause(ctx)
		}
	}
	r.locked(func() { r.serving[name] = p })
	r.work.Go(func() {
		for range p.events {
		}
		if !p.signalled.Load() {
			r.fail(fmt.Errorf("%s ended by itself: %v: %s", name, p.err, p.lastWords()))
		}
	})
	return nil
}

// Level is the resources that a process has in use.
type Level struct {
	Goroutines  int    `json:"goroutines"`
	Heap        int64  `json:"heap_bytes"`   // in use, after a garbage collection
	Memory      int64  `json:"memory_bytes"` // resident and not a file's, after it
	Descriptors int    `json:"descriptors"`
	stacks      []byte // and a heap profile for `go tool pprof`
}

func (l Level) String() string {
	return fmt.Sprintf("%.1f MB, heap %.1f MB, %d goroutines, %d descriptors",
		float64(l.Memory)/1e6, float64(l.Heap)/1e6, l.Goroutines, l.Descriptors)
}

// level asks a long-lived process for its level after a garbage collection. Descriptors of files in
// data do not count.
func (p *process) level(data string) (l Level, err error) {
	c, err := net.Dial("unix", p.socket)
	if err != nil {
		return l, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return l, err
	}
	answer, err := io.ReadAll(c)
	if err != nil {
		return l, fmt.Errorf("ask %s for its state: %w", p.name, err)
	}
	line, stacks, _ := bytes.Cut(answer, []byte("\n"))
	if err := json.Unmarshal(line, &l); err != nil {
		return l, fmt.Errorf("the state of %s: %w", p.name, err)
	}
	l.stacks = stacks
	proc, err := procfs.NewProc(p.cmd.Process.Pid)
	if err != nil {
		return l, err
	}
	files, err := proc.FileDescriptorTargets()
	for _, name := range files {
		if !strings.HasPrefix(name, data) { // a seeder keeps requested files open
			l.Descriptors++
		}
	}
	return l, err
}

// memory returns the anonymous resident memory in bytes (proc(5)); 0 if the process has ended. It
// is good for a bound, but not for comparing levels, since answering takes memory.
func (p *process) memory() int64 {
	proc, err := procfs.NewProc(p.cmd.Process.Pid)
	if err != nil {
		return 0
	}
	s, _ := proc.NewStatus()
	return int64(s.RssAnon)
}

// within returns an error for what exceeds an earlier level by too much.
func (l Level) within(before Level) error {
	var errs []error
	for _, x := range []struct {
		what        string
		now, then   int64
		more, slack int64 // that is allowed
	}{
		{"bytes of heap", l.Heap, before.Heap, before.Heap / 5, heapSlack},
		{"bytes of memory", l.Memory, before.Memory, before.Memory / 5, memorySlack},
		{"descriptors", int64(l.Descriptors), int64(before.Descriptors), int64(before.Descriptors) / 5, 0},
		// A process has one goroutine for each remembered peer. One for each past connection would
		// be far more.
		{"goroutines", int64(l.Goroutines), int64(before.Goroutines), int64(before.Goroutines) / 5, 0},
	} {
		if x.now > x.then+max(x.more, x.slack) {
			errs = append(errs, fmt.Errorf("%d %s, before %d", x.now, x.what, x.then))
		}
	}
	return errors.Join(errs...)
}
