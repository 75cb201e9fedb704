package server

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"syscall"

	"braid/scionnet/udpbatch"
	"braid/tracker/wire"
)

// ports is a socket that several goroutines serve.
type ports struct {
	raw    syscall.RawConn
	socket *udpbatch.Socket
}

func newPorts(c *net.UDPConn) (*ports, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("use the socket of %s: %w", c.LocalAddr(), err)
	}
	p := &ports{raw: raw}
	if err := raw.Control(func(fd uintptr) { p.socket = udpbatch.NewSocket(fd) }); err != nil {
		return nil, fmt.Errorf("use the socket of %s: %w", c.LocalAddr(), err)
	}
	return p, nil
}

// port fetches packets and sends answers, many with one system call. It waits in Go's network
// poller. Each goroutine needs one of its own.
type port struct {
	raw      syscall.RawConn
	in       *udpbatch.Reader
	out      *udpbatch.Writer
	batch    int
	errno    syscall.Errno
	fetch    func(fd uintptr) bool
	sent     bool
	try      func(fd uintptr)
	wait     func(fd uintptr) bool
	answers  []byte // not sent yet
	answered int
}

// open makes a port that fetches up to batch packets at a time.
func (s *ports) open(batch int) *port {
	p := &port{
		raw: s.raw, batch: batch, in: udpbatch.NewReader(batch), out: udpbatch.NewWriter(s.socket, batch, 1),
		answers: make([]byte, 0, batch*wire.MaxUDP),
	}
	p.fetch = func(fd uintptr) bool {
		_, p.errno = p.in.Receive(fd, p.batch)
		return p.errno != syscall.EAGAIN
	}
	p.try = func(fd uintptr) { p.sent = p.out.Send(fd) }
	p.wait = p.out.Send
	return p
}

// receive waits for packets and fetches them. Earlier results of next become invalid.
func (p *port) receive() error {
	if err := p.raw.Read(p.fetch); err != nil {
		return err
	}
	if p.errno != 0 {
		return p.errno
	}
	return nil
}

// next is the next of the fetched packets, and its sender.
func (p *port) next() ([]byte, netip.AddrPort, bool) {
	b, ok := p.in.Next()
	if !ok {
		return nil, netip.AddrPort{}, false
	}
	return b, p.in.From(), true
}

// space is memory for one answer.
func (p *port) space() []byte {
	if p.answered == p.batch {
		p.send()
	}
	n := len(p.answers)
	return p.answers[n : n : n+wire.MaxUDP]
}

// add queues the answer that was written into the space.
func (p *port) add(to netip.AddrPort, b []byte) {
	p.out.Add(to, b)
	p.answers = p.answers[:len(p.answers)+len(b)]
	p.answered++
}

// send sends the queued answers. Those to one host, which announced many torrents at once, go to
// the kernel together.
func (p *port) send() {
	if p.answered == 0 {
		return
	}
	// Control lets several ports send at the same time; Write waits for room in the socket's
	// buffer. They fail only if the socket is closed, and then receive fails too.
	if err := p.raw.Control(p.try); err == nil && !p.sent {
		_ = p.raw.Write(p.wait)
	}
	runtime.KeepAlive(p.answers)
	p.out.Reset()
	p.answers, p.answered = p.answers[:0], 0
}
