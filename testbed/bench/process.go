package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"braid/testbed"
)

// Process is a program that a benchmark has started. It does not outlive the benchmark, however
// that ends.
type Process struct {
	name     string
	cmd      *exec.Cmd
	launcher *testbed.Launcher
	stdout   io.Reader
	values   *json.Decoder // of stdout
	said     bytes.Buffer  // on standard error; complete once the process has ended
	ended    bool
}

// AnyCore lets a process run on all cores.
const AnyCore = -1

// Start starts a program on one core, or on AnyCore, and writes input as JSON to its standard
// input. The program is killed when ctx ends.
func Start(ctx context.Context, core int, input any, command ...string) (*Process, error) {
	p := &Process{name: command[0], launcher: testbed.NewLauncher()}
	if core != AnyCore {
		command = append([]string{"taskset", "--cpu-list", strconv.Itoa(core)}, command...) // part of util-linux
	}
	p.cmd = exec.CommandContext(ctx, command[0], command[1:]...)
	in, err := json.Marshal(input)
	if err == nil {
		p.cmd.Stdin, p.cmd.Stderr = bytes.NewReader(in), &p.said
		p.stdout, err = p.cmd.StdoutPipe()
	}
	if err == nil {
		p.values = json.NewDecoder(p.stdout)
		err = p.launcher.Start(p.cmd)
	}
	if err != nil {
		p.launcher.Close()
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	return p, nil
}

// Next reads the next JSON value that the process writes. If there is none, it stops the process,
// and the error has what the process said.
func (p *Process) Next(v any) error {
	if err := p.values.Decode(v); err != nil {
		p.Stop()
		return fmt.Errorf("read what %s reports: %w: %s", p.name, err, p.lastWords())
	}
	return nil
}

// Ready waits until a braid says that it is ready, and returns the addresses that it listens on. It
// reads no more of the process's output.
func (p *Process) Ready() ([]string, error) {
	for {
		var e struct {
			Event  string
			Listen []string
		}
		if err := p.Next(&e); err != nil {
			return nil, fmt.Errorf("wait until it is ready: %w", err)
		}
		if len(e.Listen) > 0 {
			p.discard()
			return e.Listen, nil
		}
	}
}

// discard reads the rest of the output, since a full pipe would block the process.
func (p *Process) discard() { go func() { _, _ = io.Copy(io.Discard, p.stdout) }() }

// Listens waits until the process accepts TCP connections at addr. It is for programs that do not
// say when they are ready, and does not keep their output.
func (p *Process) Listens(ctx context.Context, addr netip.AddrPort) error {
	p.discard()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addr.String())
		if err == nil {
			return c.Close()
		}
		if testbed.Sleep(ctx, 20*time.Millisecond) != nil {
			p.Stop()
			return fmt.Errorf("%s does not listen on %s: %w: %s", p.name, addr, err, p.lastWords())
		}
	}
}

// Usage returns what the process has used so far. Once it has ended, only its CPU time is known.
func (p *Process) Usage() testbed.Usage {
	if p.ended {
		s := p.cmd.ProcessState
		return testbed.Usage{CPU: (s.UserTime() + s.SystemTime()).Seconds()}
	}
	return testbed.UsageOf(p.cmd.Process.Pid)
}

// Wait waits until the process has ended, and returns an error unless it succeeded.
func (p *Process) Wait() error {
	if p.ended {
		return nil
	}
	_, _ = io.Copy(io.Discard, p.stdout) // Wait would close the pipe while the process still writes
	err := p.cmd.Wait()
	p.ended = true
	p.launcher.Close()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", p.name, err, p.lastWords())
	}
	return nil
}

// Stop kills the process, if it has not ended, and waits for it.
func (p *Process) Stop() {
	if !p.ended {
		_ = p.cmd.Process.Kill()
		_ = p.Wait() // it was killed: the exit code says nothing
	}
}

func (p *Process) lastWords() string {
	const most = 2000
	s := p.said.String()
	return strings.TrimSpace(s[max(0, len(s)-most):])
}

// Call runs a worker to its end and reads its result; see Work.
func Call(ctx context.Context, core int, job, result any, command ...string) error {
	p, err := Start(ctx, core, job, command...)
	if err != nil {
		return err
	}
	defer p.Stop()
	if err := p.Next(result); err != nil {
		return err
	}
	return p.Wait()
}

// Work is the other side of Start: a process that reads a job from standard input and reports
// results on standard output.
func Work[J any](
	ctx context.Context, in io.Reader, out io.Writer, do func(ctx context.Context, j J, report func(any) error) error,
) error {
	var j J
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return fmt.Errorf("read the job: %w (braid-testbed bench starts this command; it is not for use by hand)", err)
	}
	return do(ctx, j, json.NewEncoder(out).Encode)
}

// FreeAddr returns an address of loopback on which nobody listens, for a program that cannot choose
// a port itself. The system gives the port to no other program, so it stays free until it is used.
func FreeAddr() (addr netip.AddrPort, err error) {
	for range 100 {
		var l net.Listener
		l, err = net.Listen("tcp", fmt.Sprint("127.0.0.1:", 10_000+rand.IntN(20_000)))
		if err == nil {
			return l.Addr().(*net.TCPAddr).AddrPort(), l.Close()
		}
	}
	return addr, err
}
