package scenario

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"braid/pathsel"
	"braid/testbed"
)

// process is what a run has started for a peer.
type process struct {
	peer   Peer
	host   *testbed.IPHost // nil: it is on SCION
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has been waited for
	log    string        // file with what it says on standard error
	out    string        // where a leecher's data goes
	listen string        // its address, once it is ready
	ended  bool
	// endedAt is when it did.
	endedAt time.Time
	// stopped: it was told to end, or killed, before it was done.
	stopped bool
	leaves  bool // before the end, as the scenario wants
	done    bool // it has all that it wants
}

// peerEvent is what matters here of an event of braid seed or download.
type peerEvent struct {
	Event       string              `json:"event"`
	Listen      []string            `json:"listen"`
	T           float64             `json:"t"`
	Seconds     float64             `json:"seconds"`
	Fetched     int64               `json:"fetched_bytes"`
	Total       int64               `json:"total"`
	Wasted      int64               `json:"wasted_bytes"`
	InfoHash    string              `json:"info_hash"`
	Piece       int                 `json:"piece"`
	Peer        pathsel.PeerID      `json:"peer"`
	Fingerprint pathsel.Fingerprint `json:"fingerprint"`
	Conn        int                 `json:"conn"`
	Paths       []struct {
		Fingerprint pathsel.Fingerprint `json:"fingerprint"`
		BytesRead   uint64              `json:"bytes_read"`
		Handshake   float64             `json:"handshake_ms"`
	} `json:"paths"`
}

// message is a line of a peer's events, or its end.
type message struct {
	from *process
	at   time.Time
	line []byte
	peerEvent
	end error // the process has ended; io.EOF if well
}

// maxLine bounds an event: one of a download with hundreds of paths has some hundred kilobytes.
const maxLine = 4 << 20

// startProcess starts a peer's command, on a host if that is not nil. Its events and its end come over the channel.
func startProcess(l *testbed.Launcher, cmd *exec.Cmd, host *testbed.IPHost, p Peer, dir string, to chan<- message, done <-chan struct{}) (*process, error) {
	ps := &process{peer: p, cmd: cmd, host: host, exited: make(chan struct{}), log: filepath.Join(dir, p.Name+".log")}
	log, err := os.Create(ps.log)
	if err != nil {
		return nil, fmt.Errorf("start peer %s: %w", p.Name, err)
	}
	defer log.Close()
	ps.cmd.Stderr = log
	out, err := ps.cmd.StdoutPipe()
	if err == nil {
		err = l.Start(ps.cmd)
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
		case to <- m:
		case <-done:
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
			if err := json.Unmarshal(m.line, &m.peerEvent); err == nil {
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

// cpu is the processor time that it has used, in seconds, whether it has ended or not.
func (p *process) cpu() float64 {
	if u := testbed.UsageOf(p.cmd.Process.Pid); u != (testbed.Usage{}) {
		return u.CPU
	}
	<-p.exited // nothing is known of it, so it is being waited for
	s := p.cmd.ProcessState
	return (s.UserTime() + s.SystemTime()).Seconds()
}

// lastWords is the end of what the process said.
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
