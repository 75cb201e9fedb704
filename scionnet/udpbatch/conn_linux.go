package udpbatch

import (
	"fmt"
	"net"
	"syscall"
)

// Conn is a UDP socket for which readers and writers wait in Go's network poller.
type Conn struct {
	syscall.RawConn
	*Socket
}

// NewConn finds out what the kernel can do for the socket; see [NewSocket].
func NewConn(c *net.UDPConn) (*Conn, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("use the socket of %s: %w", c.LocalAddr(), err)
	}
	s := &Conn{RawConn: raw}
	if err := raw.Control(func(fd uintptr) { s.Socket = NewSocket(fd) }); err != nil {
		return nil, fmt.Errorf("use the socket of %s: %w", c.LocalAddr(), err)
	}
	return s, nil
}

// Wait is Receive, but waits until packets have arrived.
func (r *Reader) Wait(c *Conn, most int) (int, error) {
	r.most = most
	if err := c.Read(r.poll); err != nil {
		return 0, err
	}
	if r.errno != 0 {
		return 0, r.errno
	}
	return r.count, nil
}

// Flush is Send, but waits while the socket's buffer is full. The error is that the socket is
// closed; Err tells whether the kernel refused packets. Writers of one socket can flush at the same
// time.
func (w *Writer) Flush(c *Conn) error {
	// Control does not lock the socket against other writers, as Write does to wait for room.
	if err := c.Control(w.try); err != nil || w.sent {
		return err
	}
	return c.Write(w.wait)
}
