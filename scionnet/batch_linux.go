package scionnet

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// receiveMessages is how many messages one call fetches where each is a packet or two, as stock routers send them,
	// and receiveRuns how many where they are runs. A run has up to 64 KiB, some 45 packets: with more than a few,
	// one call would fetch more than quic-go lets wait for one connection.
	receiveMessages = 32
	receiveRuns     = 4
	runBytes        = 1 << 16
	// mostSegments is what the kernel takes in one call (UDP_MAX_SEGMENTS), mostRun what fits one UDP datagram over
	// IPv4 or IPv6, before it is cut.
	mostSegments = 64
	mostRun      = 65000
)

// offload is whether the kernel cuts runs of packets.
type offload struct{ off atomic.Bool }

// probe asks the kernel what it can, and switches on that it joins what arrives.
func (o *offload) probe(raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) {
		// A kernel that does not know the option would ignore it in a message: ask first.
		_, err := unix.GetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT)
		o.off.Store(err != nil)
		// Without it packets come one by one, in batches all the same.
		_ = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_GRO, 1)
	})
}

type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
	_   [unsafe.Sizeof(uintptr(0)) - 4]byte
}

// batchReceiver fetches packets with recvmmsg and UDP_GRO. It is for one goroutine.
type batchReceiver struct {
	raw      syscall.RawConn
	call     func(fd uintptr) bool
	messages [receiveMessages]mmsghdr
	iovecs   [receiveMessages]unix.Iovec
	controls [receiveMessages][64]byte
	names    [receiveMessages][unix.SizeofSockaddrInet6]byte
	buffers  [receiveMessages][]byte // backed by memory only as far as packets have reached
	errno    unix.Errno

	want  int    // messages to ask for
	given int    // packets that next has given since the last call
	count int    // messages received
	at    int    // the message that next reads
	run   []byte // what is left of it
	size  int    // of its packets
	many  bool   // the last call has fetched full messages
}

func newBatchReceiver(raw syscall.RawConn) *batchReceiver {
	b := &batchReceiver{raw: raw}
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
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&b.messages[0])), uintptr(b.want), unix.MSG_DONTWAIT, 0, 0)
		b.count, b.errno = int(n), errno
		if errno != 0 {
			b.count = 0
		}
		return errno != unix.EAGAIN
	}
	return b
}

// receive waits for packets and fetches them. next gives them.
func (b *batchReceiver) receive() error {
	for i := range b.messages {
		h := &b.messages[i].hdr
		h.Namelen = unix.SizeofSockaddrInet6
		h.SetControllen(len(b.controls[i]))
	}
	b.want = receiveMessages
	if b.given > 2*b.count {
		b.want = receiveRuns
	}
	b.at, b.run, b.count, b.given, b.errno, b.many = -1, nil, 0, 0, 0, false
	if err := b.raw.Read(b.call); err != nil {
		return err
	}
	b.many = b.count == b.want
	if b.errno != 0 && b.errno != unix.EINTR {
		return b.errno
	}
	return nil
}

// next is the next of the packets fetched.
func (b *batchReceiver) next() ([]byte, bool) {
	for len(b.run) == 0 {
		if b.at+1 >= b.count {
			return nil, false
		}
		b.at++
		m := &b.messages[b.at]
		b.run = b.buffers[b.at][:m.n]
		b.size = groSize(b.controls[b.at][:m.hdr.Controllen])
		if m.hdr.Flags&unix.MSG_TRUNC != 0 {
			b.run = nil
		}
	}
	n := len(b.run)
	if b.size > 0 && b.size < n {
		n = b.size
	}
	b.given++
	p := b.run[:n:n]
	b.run = b.run[n:]
	return p, true
}

// groSize finds the size of the packets in a message; 0: it is one packet.
func groSize(control []byte) int {
	for len(control) >= unix.CmsgLen(0) {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
		n := int(h.Len)
		if n < unix.CmsgLen(0) || n > len(control) {
			return 0
		}
		if h.Level == unix.SOL_UDP && h.Type == unix.UDP_GRO && n >= unix.CmsgLen(4) {
			return int(int32(binary.NativeEndian.Uint32(control[unix.CmsgLen(0):])))
		}
		control = control[min(len(control), unix.CmsgSpace(n-unix.CmsgLen(0))):]
	}
	return 0
}

// segmentSize finds the packet size in control data for sending that quic-go has made; 0: it is one packet.
func segmentSize(control []byte) int {
	for len(control) >= unix.CmsgLen(0) {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
		n := int(h.Len)
		if n < unix.CmsgLen(0) || n > len(control) {
			return 0
		}
		if h.Level == unix.SOL_UDP && h.Type == unix.UDP_SEGMENT && n >= unix.CmsgLen(2) {
			return int(binary.NativeEndian.Uint16(control[unix.CmsgLen(0):]))
		}
		control = control[min(len(control), unix.CmsgSpace(n-unix.CmsgLen(0))):]
	}
	return 0
}

// batchSender sends one run of packets of one size, the last of which may be shorter, in one call. It is for one
// goroutine at a time.
type batchSender struct {
	headers []byte
	iovecs  [2 * mostSegments]unix.Iovec
	control [32]byte
	name    [unix.SizeofSockaddrInet6]byte
	msg     unix.Msghdr
	count   int // packets
	size    int // of a packet, with its headers
	errno   unix.Errno
	try     func(fd uintptr)
	wait    func(fd uintptr) bool
}

func newBatchSender() *batchSender {
	s := &batchSender{}
	s.try = func(fd uintptr) { s.errno = sendmsg(fd, &s.msg) }
	s.wait = func(fd uintptr) bool {
		s.try(fd)
		return s.errno != unix.EAGAIN
	}
	return s
}

func sendmsg(fd uintptr, m *unix.Msghdr) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(m)), unix.MSG_DONTWAIT)
	return errno
}

// fill makes the packets for the beginning of b, k payloads of that size in each; with k above 1 they are bundles. It
// returns how much of b is in them.
func (s *batchSender) fill(t *template, srcPort uint16, b []byte, size, k int) int {
	head, stride, prefix := len(t.header), size*k, 0
	if k > 1 {
		prefix = frameHeader
	}
	head += prefix
	if need := head * mostSegments; len(s.headers) < need {
		s.headers = make([]byte, need)
	}
	s.size, s.count = head+stride, 0
	done := 0
	for done < len(b) && s.count < mostSegments {
		n := min(stride, len(b)-done)
		if s.count > 0 && s.count*s.size+head+n > mostRun {
			break
		}
		h := s.headers[s.count*head : (s.count+1)*head]
		frame := h[head-prefix:]
		if prefix > 0 {
			putFrame(frame, kindBundle, size)
		}
		t.write(h[:head-prefix], srcPort, frame, b[done:done+n])
		v := s.iovecs[2*s.count : 2*s.count+2]
		v[0].Base, v[1].Base = &h[0], &b[done]
		v[0].SetLen(head)
		v[1].SetLen(n)
		done += n
		s.count++
	}
	s.msg.Namelen = putSockaddr(s.name[:], t.nextHop)
	s.msg.Name = &s.name[0]
	return done
}

// send sends what fill has made.
func (s *batchSender) send(raw syscall.RawConn, o *offload) error {
	if s.count > 1 && !o.off.Load() {
		control := s.segmentControl()
		s.msg.Control = &control[0]
		s.msg.SetControllen(len(control))
		err := s.call(raw, 0, s.count)
		if !errors.Is(err, unix.EIO) && !errors.Is(err, unix.EINVAL) {
			return err
		}
		// The device cannot do it; EINVAL is about this run only, whose packets are too large for the interface.
		if errors.Is(err, unix.EIO) {
			o.off.Store(true)
		}
	}
	s.msg.Control = nil
	s.msg.SetControllen(0)
	var first error
	for i := range s.count {
		if err := s.call(raw, i, 1); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// segmentControl tells the kernel how large the packets of the run are.
func (s *batchSender) segmentControl() []byte {
	c := (*unix.Cmsghdr)(unsafe.Pointer(&s.control[0]))
	c.Level, c.Type = unix.SOL_UDP, unix.UDP_SEGMENT
	c.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(s.control[unix.CmsgLen(0):], uint16(s.size))
	return s.control[:unix.CmsgSpace(2)]
}

// call sends n packets from the first on.
func (s *batchSender) call(raw syscall.RawConn, first, n int) error {
	s.msg.Iov = &s.iovecs[2*first]
	s.msg.SetIovlen(2 * n)
	for {
		// Control lets connections send at the same time, Write waits for room in the socket's buffer.
		if err := raw.Control(s.try); err != nil {
			return err
		}
		if s.errno == unix.EAGAIN {
			if err := raw.Write(s.wait); err != nil {
				return err
			}
		}
		runtime.KeepAlive(s)
		if s.errno == 0 {
			return nil
		}
		if s.errno != unix.EINTR {
			return s.errno
		}
	}
}

func putSockaddr(b []byte, a netip.AddrPort) uint32 {
	clear(b)
	if ip := a.Addr(); ip.Is4() {
		binary.NativeEndian.PutUint16(b, unix.AF_INET)
		v := ip.As4()
		copy(b[4:], v[:])
		binary.BigEndian.PutUint16(b[2:], a.Port())
		return unix.SizeofSockaddrInet4
	}
	binary.NativeEndian.PutUint16(b, unix.AF_INET6)
	v := a.Addr().As16()
	copy(b[8:], v[:])
	binary.BigEndian.PutUint16(b[2:], a.Port())
	return unix.SizeofSockaddrInet6
}

func sockaddr(b []byte) netip.AddrPort {
	port := binary.BigEndian.Uint16(b[2:])
	if binary.NativeEndian.Uint16(b) == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])).Unmap(), port)
}
