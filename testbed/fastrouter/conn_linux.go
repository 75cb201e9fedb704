package fastrouter

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/scionproto/scion/private/underlay/conn"
	"golang.org/x/sys/unix"
)

const (
	inMessages  = 16      // messages in a recvmmsg, each a run of packets of up to 64 KiB
	runBytes    = 1 << 16 // of a run that comes in
	mostRun     = 65000   // bytes of a run that goes out, which must fit one datagram over IPv4 or IPv6
	mostPackets = 64      // of a run that goes out (UDP_MAX_SEGMENTS)
)

// batchConn is a router.BatchConn. As the data plane uses it, one goroutine reads and another writes.
type batchConn struct {
	socket    *net.UDPConn
	raw       syscall.RawConn
	connected bool
	in        inBatch
	out       outRun
}

func open(local, remote netip.AddrPort, cfg *conn.Config) (*batchConn, error) {
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
		if s, err = (&net.Dialer{Control: reuse, LocalAddr: net.UDPAddrFromAddrPort(local)}).Dial("udp", remote.String()); err == nil {
			c.socket = s.(*net.UDPConn)
		}
	} else {
		var s net.PacketConn
		if s, err = (&net.ListenConfig{Control: reuse}).ListenPacket(context.Background(), "udp", local.String()); err == nil {
			c.socket = s.(*net.UDPConn)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open router socket %s: %w", local, err)
	}
	// What the system grants: without it more is lost under load, and nothing else.
	_ = c.socket.SetReadBuffer(cfg.ReceiveBufferSize)
	_ = c.socket.SetWriteBuffer(cfg.SendBufferSize)
	if c.raw, err = c.socket.SyscallConn(); err != nil {
		return nil, errors.Join(fmt.Errorf("open router socket %s: %w", local, err), c.socket.Close())
	}
	err = c.raw.Control(func(fd uintptr) {
		_, err := unix.GetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT)
		c.out.single = err != nil
		_ = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_GRO, 1) // without it packets come one by one
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up router socket %s: %w", local, err), c.socket.Close())
	}
	c.in.init()
	c.out.init()
	return c, nil
}

func (c *batchConn) Close() error { return c.socket.Close() }

type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
	_   [unsafe.Sizeof(uintptr(0)) - 4]byte
}

// inBatch is what one recvmmsg has brought, and how much of it has been read.
type inBatch struct {
	call     func(fd uintptr) bool
	messages [inMessages]mmsghdr
	iovecs   [inMessages]unix.Iovec
	controls [inMessages][64]byte
	names    [inMessages][unix.SizeofSockaddrInet6]byte
	buffers  [inMessages][]byte
	errno    unix.Errno
	count    int
	at       int
	run      []byte
	size     int
	from     *net.UDPAddr // of the run; never changed, since packets of earlier runs refer to theirs
	fromName [unix.SizeofSockaddrInet6]byte
}

func (b *inBatch) init() {
	for i := range b.messages {
		b.buffers[i] = make([]byte, runBytes)
		b.iovecs[i].Base = &b.buffers[i][0]
		b.iovecs[i].SetLen(runBytes)
		h := &b.messages[i].hdr
		h.Iov = &b.iovecs[i]
		h.SetIovlen(1)
		h.Name = &b.names[i][0]
		h.Control = &b.controls[i][0]
	}
	b.call = func(fd uintptr) bool {
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&b.messages[0])), inMessages, unix.MSG_DONTWAIT, 0, 0)
		b.count, b.errno = int(n), errno
		if errno != 0 {
			b.count = 0
		}
		return errno != unix.EAGAIN
	}
}

// ReadBatch waits for packets and fills as many messages as there are.
func (c *batchConn) ReadBatch(ms conn.Messages) (int, error) {
	b := &c.in
	n := 0
	for {
		for n < len(ms) && b.next() {
			k := len(b.run)
			if b.size > 0 {
				k = min(b.size, k)
			}
			m := &ms[n]
			if k <= len(m.Buffers[0]) { // larger ones no router passes on
				m.N = copy(m.Buffers[0], b.run[:k])
				m.Addr = b.from
				n++
			}
			b.run = b.run[k:]
		}
		if n > 0 {
			return n, nil
		}
		if err := b.receive(c.raw); err != nil {
			return 0, err
		}
	}
}

func (b *inBatch) receive(raw syscall.RawConn) error {
	for i := range b.messages {
		b.messages[i].hdr.Namelen = unix.SizeofSockaddrInet6
		b.messages[i].hdr.SetControllen(len(b.controls[i]))
	}
	b.at, b.run, b.count, b.errno = -1, nil, 0, 0
	if err := raw.Read(b.call); err != nil {
		return err
	}
	if b.errno != 0 {
		return b.errno
	}
	return nil
}

// next makes sure that there is something left of a run, if anything is left at all.
func (b *inBatch) next() bool {
	for len(b.run) == 0 {
		if b.at+1 >= b.count {
			return false
		}
		b.at++
		m := &b.messages[b.at]
		b.run, b.size = b.buffers[b.at][:m.n], groSize(b.controls[b.at][:m.hdr.Controllen])
		if name := b.names[b.at]; b.from == nil || name != b.fromName {
			b.from, b.fromName = udpAddr(name[:]), name
		}
	}
	return true
}

// groSize finds the size of the packets of a run in control data; 0: it is one packet.
func groSize(b []byte) int {
	for len(b) >= unix.CmsgLen(0) {
		header, data, rest, err := unix.ParseOneSocketControlMessage(b)
		if err != nil {
			return 0
		}
		if header.Level == unix.SOL_UDP && header.Type == unix.UDP_GRO && len(data) >= 4 {
			return int(int32(binary.NativeEndian.Uint32(data)))
		}
		b = rest
	}
	return 0
}

func udpAddr(name []byte) *net.UDPAddr {
	port := int(binary.BigEndian.Uint16(name[2:]))
	if binary.NativeEndian.Uint16(name) == unix.AF_INET {
		return &net.UDPAddr{IP: append(net.IP(nil), name[4:8]...), Port: port}
	}
	return &net.UDPAddr{IP: append(net.IP(nil), name[8:24]...), Port: port}
}

// outRun is a run of packets for one destination: all of one size, but for the last, which may be shorter.
type outRun struct {
	single  bool // the kernel or the device cannot cut runs
	iovecs  [mostPackets]unix.Iovec
	control [32]byte
	name    [unix.SizeofSockaddrInet6]byte
	msg     unix.Msghdr
	errno   unix.Errno
	call    func(fd uintptr) bool
}

func (o *outRun) init() {
	o.call = func(fd uintptr) bool {
		_, _, o.errno = unix.Syscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&o.msg)), unix.MSG_DONTWAIT)
		return o.errno != unix.EAGAIN
	}
}

// WriteBatch sends all messages. The data plane takes the first that is said not to be sent for one that cannot be, so
// only the closing of the socket is an error; a packet that the system does not take is lost, as on a wire.
func (c *batchConn) WriteBatch(ms conn.Messages, _ int) (int, error) {
	for done := 0; done < len(ms); {
		n := c.out.length(ms[done:])
		if err := c.send(ms[done : done+n]); errors.Is(err, net.ErrClosed) {
			return done, err
		}
		done += n
	}
	return len(ms), nil
}

// length is how many of the messages make a run.
func (o *outRun) length(ms conn.Messages) int {
	size, total := len(ms[0].Buffers[0]), 0
	to, _ := ms[0].Addr.(*net.UDPAddr)
	for i := range ms {
		n := len(ms[i].Buffers[0])
		if i > 0 {
			other, _ := ms[i].Addr.(*net.UDPAddr)
			if o.single || i == mostPackets || n == 0 || n > size || total+n > mostRun || !sameAddr(to, other) {
				return i
			}
		}
		total += n
		if n < size {
			return i + 1
		}
	}
	return len(ms)
}

func sameAddr(a, b *net.UDPAddr) bool {
	return a == b || a != nil && b != nil && a.Port == b.Port && a.Zone == b.Zone && a.IP.Equal(b.IP)
}

func (c *batchConn) send(ms conn.Messages) error {
	o := &c.out
	for i, m := range ms {
		b := m.Buffers[0]
		o.iovecs[i] = unix.Iovec{}
		if len(b) > 0 {
			o.iovecs[i].Base = &b[0]
			o.iovecs[i].SetLen(len(b))
		}
	}
	o.msg = unix.Msghdr{}
	if to, ok := ms[0].Addr.(*net.UDPAddr); ok && !c.connected {
		o.msg.Name = &o.name[0]
		o.msg.Namelen = putSockaddr(o.name[:], to)
	}
	if len(ms) > 1 {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&o.control[0]))
		h.Level, h.Type = unix.SOL_UDP, unix.UDP_SEGMENT
		h.SetLen(unix.CmsgLen(2))
		binary.NativeEndian.PutUint16(o.control[unix.CmsgLen(0):], uint16(len(ms[0].Buffers[0])))
		o.msg.Control = &o.control[0]
		o.msg.SetControllen(unix.CmsgSpace(2))
		err := o.try(c.raw, 0, len(ms))
		if !errors.Is(err, unix.EIO) && !errors.Is(err, unix.EINVAL) {
			return err
		}
		o.single = o.single || errors.Is(err, unix.EIO) // EINVAL: these are too large for the interface
		o.msg.Control = nil
		o.msg.SetControllen(0)
	}
	for i := range ms {
		if err := o.try(c.raw, i, 1); errors.Is(err, net.ErrClosed) {
			return err
		}
	}
	return nil
}

// try sends n packets from the first on. An error that belongs to an earlier packet, whose destination was not there, is
// reported once, and then the packets go out.
func (o *outRun) try(raw syscall.RawConn, first, n int) error {
	o.msg.Iov = &o.iovecs[first]
	o.msg.SetIovlen(n)
	for range 3 {
		if err := raw.Write(o.call); err != nil {
			return err
		}
		runtime.KeepAlive(o)
		switch o.errno {
		case 0:
			return nil
		case unix.EINTR, unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH:
		default:
			return o.errno
		}
	}
	return o.errno
}

func putSockaddr(b []byte, a *net.UDPAddr) uint32 {
	clear(b)
	binary.BigEndian.PutUint16(b[2:], uint16(a.Port))
	if ip := a.IP.To4(); ip != nil {
		binary.NativeEndian.PutUint16(b, unix.AF_INET)
		copy(b[4:], ip)
		return unix.SizeofSockaddrInet4
	}
	binary.NativeEndian.PutUint16(b, unix.AF_INET6)
	copy(b[8:], a.IP.To16())
	return unix.SizeofSockaddrInet6
}
