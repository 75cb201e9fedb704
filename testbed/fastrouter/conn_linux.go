package fastrouter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/scionproto/scion/private/underlay/conn"
	"github.com/scionproto/scion/router"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"braid/scionnet/udpbatch"
)

const (
	inMessages = 16  // messages in a recvmmsg, each a run of packets of up to 64 KiB
	outPackets = 256 // packets in a sendmmsg: what the data plane gives at once by default
)

// batchConn is a router.BatchConn. In the data plane one goroutine reads and another one writes.
type batchConn struct {
	udp       *net.UDPConn
	batches   *udpbatch.Conn
	connected bool

	in     *udpbatch.Reader
	from   *net.UDPAddr // of the packet that was read last; never modified, since messages refer to it
	sender netip.AddrPort

	out *udpbatch.Writer
}

// opener opens the sockets of scionproto's underlay (udpip.ConnOpener).
type opener struct{}

func (opener) UDPCanReuseLocal() bool { return true }

func (opener) Open(local, remote netip.AddrPort, cfg *conn.Config) (router.BatchConn, error) {
	reuse := func(_, _ string, raw syscall.RawConn) error { // the links of a router share its internal address
		var opt error
		err := raw.Control(func(fd uintptr) {
			opt = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1),
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
		})
		return errors.Join(err, opt)
	}
	c := &batchConn{connected: remote.IsValid()}
	var err error
	if c.connected {
		var s net.Conn
		d := net.Dialer{Control: reuse, LocalAddr: net.UDPAddrFromAddrPort(local)}
		if s, err = d.Dial("udp", remote.String()); err == nil {
			c.udp = s.(*net.UDPConn)
		}
	} else {
		var s net.PacketConn
		l := net.ListenConfig{Control: reuse}
		if s, err = l.ListenPacket(context.Background(), "udp", local.String()); err == nil {
			c.udp = s.(*net.UDPConn)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open router socket %s: %w", local, err)
	}
	// The system may grant less. Then more packets are lost under load.
	_ = c.udp.SetReadBuffer(cfg.ReceiveBufferSize)
	_ = c.udp.SetWriteBuffer(cfg.SendBufferSize)
	if c.batches, err = udpbatch.NewConn(c.udp); err != nil {
		return nil, errors.Join(err, c.udp.Close())
	}
	c.in, c.out = udpbatch.NewReader(inMessages), udpbatch.NewWriter(c.batches.Socket, outPackets, 1)
	return c, nil
}

func (c *batchConn) Close() error { return c.udp.Close() }

// ReadBatch waits for packets and fills as many messages as there are.
func (c *batchConn) ReadBatch(ms conn.Messages) (int, error) {
	n := 0
	for {
		for n < len(ms) {
			p, ok := c.in.Next()
			if !ok {
				break
			}
			m := &ms[n]
			if len(p) <= len(m.Buffers[0]) { // routers do not forward larger ones
				m.N = copy(m.Buffers[0], p)
				m.Addr = c.fromNow()
				n++
			}
		}
		if n > 0 {
			return n, nil
		}
		if _, err := c.in.Wait(c.batches, inMessages); err != nil {
			return 0, err
		}
	}
}

// fromNow returns the sender of the packet that was read last.
func (c *batchConn) fromNow() *net.UDPAddr {
	if from := c.in.From(); c.from == nil || from != c.sender {
		c.from, c.sender = net.UDPAddrFromAddrPort(from), from
	}
	return c.from
}

// WriteBatch sends all messages. The data plane would drop the first message that is reported as
// not sent. So only the closing of the socket is an error; a packet that the system refuses is
// lost, as on a wire.
func (c *batchConn) WriteBatch(ms conn.Messages, _ int) (int, error) {
	for done := 0; done < len(ms); {
		c.out.Reset()
		n := 0
		for n < len(ms)-done && c.out.Add(c.destination(&ms[done+n]), ms[done+n].Buffers[0]) {
			n++
		}
		if err := c.out.Flush(c.batches); err != nil {
			return done, err
		}
		done += n
	}
	return len(ms), nil
}

// destination returns the address of a message; zero if the socket is connected to it.
func (c *batchConn) destination(m *ipv4.Message) netip.AddrPort {
	to, ok := m.Addr.(*net.UDPAddr)
	if !ok || c.connected {
		return netip.AddrPort{}
	}
	a := to.AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
