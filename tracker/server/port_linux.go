package server

import (
	"net"
	"net/netip"
	"runtime"

	"braid/scionnet/udpbatch"
	"braid/tracker/wire"
)

// ports is a socket that several goroutines serve.
type ports struct{ conn *udpbatch.Conn }

func newPorts(c *net.UDPConn) (*ports, error) {
	conn, err := udpbatch.NewConn(c)
	if err == nil {
		err = conn.Control(conn.TellLocal)
	}
	return &ports{conn}, err
}

// port fetches packets and sends answers, many with one system call. It waits in Go's network
// poller. Each goroutine needs one of its own.
type port struct {
	conn     *udpbatch.Conn
	in       *udpbatch.Reader
	out      *udpbatch.Writer
	batch    int
	answers  []byte // not sent yet
	answered int
}

// open makes a port that fetches up to batch packets at a time.
func (s *ports) open(batch int) *port {
	return &port{
		conn: s.conn, batch: batch, in: udpbatch.NewReader(batch), out: udpbatch.NewWriter(s.conn.Socket, batch, 1),
		answers: make([]byte, 0, batch*wire.MaxUDP),
	}
}

// receive waits for packets and fetches them. Earlier results of next become invalid.
func (p *port) receive() error {
	_, err := p.in.Wait(p.conn, p.batch)
	return err
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

// add queues the answer that was written into the space. It leaves from the address to which the
// request was sent: on a host with several addresses, clients ignore answers from another one.
func (p *port) add(to netip.AddrPort, b []byte) {
	p.out.AddFrom(p.in.Local(), to, b)
	p.answers = p.answers[:len(p.answers)+len(b)]
	p.answered++
}

// send sends the queued answers. Those to one host, which announced many torrents at once, go to
// the kernel together.
func (p *port) send() {
	if p.answered == 0 {
		return
	}
	_ = p.out.Flush(p.conn) // fails only if the socket is closed, and then receive fails too
	runtime.KeepAlive(p.answers)
	p.out.Reset()
	p.answers, p.answered = p.answers[:0], 0
}
