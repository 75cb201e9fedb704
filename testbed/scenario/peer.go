package scenario

import (
	"bytes"
	"cmp"
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
	log    string // file with what it says on standard error
	out    string // where a leecher's data goes
	ready  bool   // it serves
	listen string // where others find it, once it is ready; "" if nowhere
	ended  bool
	// stopped: the runner has interrupted or killed it.
	stopped bool
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

// startProcess starts a peer's command and adds it to the peers. It sends the peer's events and its
// end as messages. If host is nil, the command runs on this machine's own network. out is the
// directory of a leecher's data.
func (a *attempt) startProcess(
	p Peer, host *testbed.IPHost, out string, command []string, env ...string,
) (*process, error) {
	cmd := exec.Command(command[0], command[1:]...)
	if host != nil {
		var err error
		if cmd, err = host.Command(a.lab, command[0], command[1:]...); err != nil {
			return nil, err
		}
	}
	cmd.Env = append(os.Environ(), env...)
	ps := &process{peer: p, cmd: cmd, host: host, log: filepath.Join(a.dir, p.Name+".log"), out: out}
	events := func(line []byte) {
		switch {
		case p.Client == Braid:
			if said, err := event.Parse(line); err == nil {
				a.send(message{from: ps, line: line, said: said})
			}
		case p.Client == Iperf3 && bytes.HasPrefix(line, []byte("Server listening")):
			a.send(message{from: ps, line: []byte(`{"event":"ready"}`), said: &event.Ready{Event: "ready"}})
		}
	}
	os.Remove(ps.log) // of a run that was interrupted
	gone := make(chan struct{})
	err := a.launcher.Follow(cmd, ps.log, events, func(err error) {
		close(gone)
		a.send(message{from: ps, end: cmp.Or(err, io.EOF)})
	})
	if err == nil && host != nil {
		if err = host.Connect(ps.cmd); err != nil {
			<-gone // it has no network and ends, or has ended
			err = fmt.Errorf("%w: %s", err, ps.lastWords())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("start peer %s: %w", p.Name, err)
	}
	a.peers = append(a.peers, ps)
	return ps, nil
}

// send hands over a message, unless nobody reads messages any more.
func (a *attempt) send(m message) {
	m.at = time.Now()
	select {
	case a.messages <- m:
	case <-a.done:
	}
}

// interrupt asks the process to end, as Ctrl-C does; kill does not ask.
func (p *process) interrupt() { p.stopped = true; _ = p.cmd.Process.Signal(os.Interrupt) }

func (p *process) kill() { p.stopped = true; _ = p.cmd.Process.Signal(syscall.SIGKILL) }

func (p *process) lastWords() string { return testbed.LastWords(p.log, 0) }
