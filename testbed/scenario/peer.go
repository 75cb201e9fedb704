package scenario

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"braid/node/event"
	"braid/testbed"
)

// process is the process of a peer.
type process struct {
	peer   Peer
	host   *testbed.IPHost // nil: it is on SCION
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has been waited for
	log    string        // file with what it says on standard error
	out    string        // where a leecher's data goes
	listen string        // its address, once it is ready
	ended  bool
	// stopped: the runner has interrupted or killed it.
	stopped bool
	leaves  bool // the scenario stops it before the end
	done    bool // its download is complete
}

// message is a line of a peer's events, or its end.
type message struct {
	from *process
	at   time.Time
	line []byte
	said any   // line, as [event.Parse] reads it
	end  error // the process has ended; io.EOF if well
}

// startProcess starts a peer's command, on a host unless that is nil. It sends the peer's events and its end as messages.
func (a *attempt) startProcess(cmd *exec.Cmd, host *testbed.IPHost, p Peer) (*process, error) {
	ps := &process{peer: p, cmd: cmd, host: host, exited: make(chan struct{}), log: filepath.Join(a.dir, p.Name+".log")}
	log, err := os.Create(ps.log)
	if err != nil {
		return nil, fmt.Errorf("start peer %s: %w", p.Name, err)
	}
	defer log.Close()
	ps.cmd.Stderr = log
	out, err := ps.cmd.StdoutPipe()
	if err == nil {
		err = a.launcher.Start(ps.cmd)
	}
	if err == nil && host != nil {
		if err = host.Connect(ps.cmd); err != nil {
			_ = ps.cmd.Wait() // it has no network and ends, or has ended
			err = fmt.Errorf("%w: %s", err, ps.lastWords())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("start peer %s: %w", p.Name, err)
	}
	send := func(m message) {
		m.from, m.at = ps, time.Now()
		select {
		case a.messages <- m:
		case <-a.done:
		}
	}
	go func() {
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, maxLine)
		for lines.Scan() {
			m := message{line: bytes.Clone(lines.Bytes())}
			if p.Client != Braid {
				continue
			}
			var err error
			if m.said, err = event.Parse(m.line); err == nil {
				send(m)
			}
		}
		_, _ = io.Copy(io.Discard, out) // after a line that is too long
		err := ps.cmd.Wait()
		close(ps.exited)
		if err == nil {
			err = io.EOF
		}
		send(message{end: err})
	}()
	return ps, nil
}

// interrupt asks the process to end, as Ctrl-C does; kill does not ask.
func (p *process) interrupt() { p.stopped = true; _ = p.cmd.Process.Signal(os.Interrupt) }

func (p *process) kill() { p.stopped = true; _ = p.cmd.Process.Signal(syscall.SIGKILL) }

// lastWords returns the end of the process's log.
func (p *process) lastWords() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	const most = 2000
	if b = bytes.TrimSpace(b); len(b) > most {
		b = b[len(b)-most:]
	}
	return string(b)
}
