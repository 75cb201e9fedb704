package client

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"braid/pathsel"
	"braid/scionnet"
)

// pipes connects sessions by pipes in memory: in a synctest bubble they live in simulated time, and
// only limits take any.
type pipes struct {
	mu   sync.Mutex
	at   map[string]*pipeTransport
	made int
}

// pipeTransport is a host that listens at an address of its own.
type pipeTransport struct {
	onIP
	net  *pipes
	self Peer
}

func (n *pipes) host() *pipeTransport {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.at == nil {
		n.at = map[string]*pipeTransport{}
	}
	x := &pipeTransport{onIP: newOnIP(""), net: n, self: Peer{host: fmt.Sprintf("10.0.%d.1", len(n.at)), port: 1}}
	n.at[x.self.String()] = x
	return x
}

func (x *pipeTransport) Name() string      { return "tcp" }
func (x *pipeTransport) Listening() []Peer { return []Peer{x.self} }

func (x *pipeTransport) Close() error {
	x.stop()
	return nil
}

func (x *pipeTransport) Dial(_ context.Context, p Peer, _ pathsel.Path, _ *scionnet.PeerKey) (Wire, error) {
	x.net.mu.Lock()
	defer x.net.mu.Unlock()
	to := x.net.at[p.String()]
	if to == nil || to.ctx.Err() != nil {
		return nil, fmt.Errorf("dial %s: nobody listens", p)
	}
	ours, theirs := net.Pipe()
	x.net.made++
	back := Peer{host: x.self.host, port: uint16(1024 + x.net.made)}
	go to.handOver(simulatedWire{theirs, back, time.Millisecond})
	return simulatedWire{ours, p, time.Millisecond}, nil
}

// sessionOver opens a session over one transport.
func sessionOver(t *testing.T, cfg Config, x Transport) *Session {
	t.Helper()
	s, err := newSession(cfg, testLog(t), []Transport{x})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// simulateWait waits in simulated time until the transfer is complete.
func simulateWait(t *testing.T, tr *Transfer) Progress {
	t.Helper()
	select {
	case <-tr.Done():
	case <-time.After(time.Hour):
		t.Fatalf("not done in an hour: %+v", tr.Progress())
	}
	p := tr.Progress()
	if p.Err != nil {
		t.Fatal(p.Err)
	}
	return p
}
