// Package udpbatch moves many UDP packets in one system call, on Linux: recvmmsg and sendmmsg, of
// messages that are each a run of packets of one size, which the kernel or the device joins
// (UDP_GRO) and cuts (UDP_SEGMENT).
//
// It knows file descriptors and bytes only. Who waits, and how, is the caller's affair: braid's
// packet connection and its fast router wait in Go's network poller, the link emulator in ppoll.
package udpbatch

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// mostSegments is what the kernel takes in one message (UDP_MAX_SEGMENTS; newer ones take 128),
	// mostRun what fits one UDP datagram over IPv4 or IPv6, before it is cut.
	mostSegments = 64
	mostRun      = 65000
	// runBytes is for a run that comes in.
	runBytes = 1 << 16
	// controlBytes has room for what a kernel says of a message: size of its packets, ECN marks,
	// time.
	controlBytes = 96
)

// Socket is what the kernel does for a socket. It may be used by several goroutines.
type Socket struct{ whole atomic.Bool }

// NewSocket asks the kernel what it can do for the socket, and has it join what arrives. A kernel
// that can do neither is fine: then a run is one packet.
func NewSocket(fd uintptr) *Socket {
	s := &Socket{}
	// A kernel that does not know the option would ignore it in a message: ask first.
	_, err := unix.GetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT)
	s.whole.Store(err != nil)
	_ = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_GRO, 1)
	return s
}

// Plain has the kernel neither cut nor join from now on, as for a program that does not know how.
func (s *Socket) Plain(fd uintptr) {
	s.whole.Store(true)
	_ = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_GRO, 0)
}

// message is struct mmsghdr.
type message struct {
	hdr unix.Msghdr
	n   uint32
	_   [unsafe.Sizeof(uintptr(0)) - 4]byte
}

// mmsg is a system call that Go's scheduler does not hear of. It never waits. Told of it, the
// runtime wakes its monitor thread whenever packets arrive at an idle process, which then looks
// every 20 us after all processors, and hands the caller's on to another thread if it does not come
// back at once: a sixth of what both ends of a transfer cost.
func mmsg(call, fd uintptr, ms []message) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall6(call, fd, uintptr(unsafe.Pointer(&ms[0])), uintptr(len(ms)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// control is what control data says.
type control struct {
	size  int // of the packets of a message; 0: it is one packet
	stamp time.Time
}

// readControl reads control data, which begins and ends where the kernel, or quic-go, says.
func readControl(b []byte) (c control) {
	for len(b) >= unix.CmsgLen(0) {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
		n := int(h.Len)
		if n < unix.CmsgLen(0) || n > len(b) {
			break
		}
		data := b[unix.CmsgLen(0):n]
		switch {
		case h.Level == unix.SOL_UDP && h.Type == unix.UDP_GRO && len(data) >= 4:
			c.size = int(int32(binary.NativeEndian.Uint32(data)))
		case h.Level == unix.SOL_UDP && h.Type == unix.UDP_SEGMENT && len(data) >= 2:
			c.size = int(binary.NativeEndian.Uint16(data))
		case h.Level == unix.SOL_SOCKET && h.Type == unix.SCM_TIMESTAMPNS && len(data) >= int(unsafe.Sizeof(unix.Timespec{})):
			c.stamp = time.Unix((*unix.Timespec)(unsafe.Pointer(&data[0])).Unix())
		}
		b = b[min(len(b), unix.CmsgSpace(len(data))):]
	}
	return c
}

// SegmentSize is the size of the packets to send that control data tells (UDP_SEGMENT); 0: it is
// one packet.
func SegmentSize(oob []byte) int { return readControl(oob).size }

// putSegmentSize tells the kernel how large the packets of a run are.
func putSegmentSize(b []byte, size int) []byte {
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = unix.SOL_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(b[unix.CmsgLen(0):], uint16(size))
	return b[:unix.CmsgSpace(2)]
}

// name is struct sockaddr_in or sockaddr_in6. The zone of a link-local address is the number of its
// interface, in digits.
type name [unix.SizeofSockaddrInet6]byte

func (n *name) put(a netip.AddrPort) uint32 {
	clear(n[:])
	binary.BigEndian.PutUint16(n[2:], a.Port())
	if ip := a.Addr(); ip.Is4() {
		binary.NativeEndian.PutUint16(n[:], unix.AF_INET)
		v := ip.As4()
		copy(n[4:], v[:])
		return unix.SizeofSockaddrInet4
	}
	binary.NativeEndian.PutUint16(n[:], unix.AF_INET6)
	v := a.Addr().As16()
	copy(n[8:], v[:])
	if zone := a.Addr().Zone(); zone != "" {
		scope, _ := strconv.ParseUint(zone, 10, 32) // 0, which has the kernel refuse it, for what get does not give
		binary.NativeEndian.PutUint32(n[24:], uint32(scope))
	}
	return unix.SizeofSockaddrInet6
}

func (n *name) get() netip.AddrPort {
	port := binary.BigEndian.Uint16(n[2:])
	if binary.NativeEndian.Uint16(n[:]) == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(n[4:8])), port)
	}
	ip := netip.AddrFrom16([16]byte(n[8:24])).Unmap()
	if scope := binary.NativeEndian.Uint32(n[24:]); scope != 0 {
		ip = ip.WithZone(strconv.FormatUint(uint64(scope), 10)) // of IPv6 only
	}
	return netip.AddrPortFrom(ip, port)
}
