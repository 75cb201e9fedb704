// Package udpbatch moves many UDP packets in one system call, on Linux (recvmmsg and sendmmsg).
// Each message of a call is a run of packets of one size, which the kernel or the device joins
// (UDP_GRO) or cuts apart (UDP_SEGMENT).
//
// It handles file descriptors and bytes only. Waiting is left to the caller: braid's packet
// connection and its fast router wait in Go's network poller, the link emulator in ppoll.
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
	// mostSegments is the kernel's limit for one message (UDP_MAX_SEGMENTS; newer kernels take
	// 128). mostRun is the limit of a UDP datagram over IPv4 or IPv6 before it is cut.
	mostSegments = 64
	mostRun      = 65000
	// runBytes has room for any received run.
	runBytes = 1 << 16
	// controlBytes has room for the control data of a message: packet size, ECN marks, time, local
	// address.
	controlBytes = 96
)

// Socket holds the kernel's abilities for a socket. Several goroutines may use it.
type Socket struct{ whole atomic.Bool }

// NewSocket finds out what the kernel can do for the socket, and makes it join received packets. If
// the kernel can neither cut nor join, a run is one packet.
func NewSocket(fd uintptr) *Socket {
	s := &Socket{}
	// A kernel that does not know the option would silently ignore it in a message.
	_, err := unix.GetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT)
	s.whole.Store(err != nil)
	_ = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_GRO, 1)
	return s
}

// Plain stops the kernel from cutting and joining from now on.
func (s *Socket) Plain(fd uintptr) {
	s.whole.Store(true)
	_ = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_GRO, 0)
}

// TellLocal makes the kernel tell to which address of this host a packet was sent (Reader.Local).
func (s *Socket) TellLocal(fd uintptr) {
	if unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1) != nil {
		// The socket is for IPv4 only.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
	}
}

// message is struct mmsghdr.
type message struct {
	hdr unix.Msghdr
	n   uint32
	_   [unsafe.Sizeof(uintptr(0)) - 4]byte
}

// mmsg makes a system call that never waits, without telling Go's scheduler. Otherwise the runtime
// would wake its monitor thread whenever packets arrive at an idle process. That thread then checks
// all processors every 20 us and moves the caller's processor to another thread. It costs a sixth
// of the CPU time of both ends of a transfer.
func mmsg(call, fd uintptr, ms []message) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall6(call, fd,
		uintptr(unsafe.Pointer(&ms[0])), uintptr(len(ms)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// control is the content of control data.
type control struct {
	size  int // of the packets of a message; 0: one packet
	stamp time.Time
	local netip.Addr // to which the packets were sent; zero: unknown
}

// readControl parses control data as the kernel or quic-go writes it.
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
		case h.Level == unix.SOL_SOCKET && h.Type == unix.SCM_TIMESTAMPNS &&
			len(data) >= int(unsafe.Sizeof(unix.Timespec{})):
			c.stamp = time.Unix((*unix.Timespec)(unsafe.Pointer(&data[0])).Unix())
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO &&
			len(data) >= unix.SizeofInet6Pktinfo:
			c.local = netip.AddrFrom16([16]byte(data)).Unmap()
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO &&
			len(data) >= unix.SizeofInet4Pktinfo:
			c.local = netip.AddrFrom4([4]byte(data[4:]))
		}
		b = b[min(len(b), unix.CmsgSpace(len(data))):]
	}
	return c
}

// SegmentSize is the size of the packets to send, from control data (UDP_SEGMENT); 0: one packet.
func SegmentSize(oob []byte) int { return readControl(oob).size }

// putSegmentSize writes control data that tells the kernel the packet size of a run.
func putSegmentSize(b []byte, size int) []byte {
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = unix.SOL_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(b[unix.CmsgLen(0):], uint16(size))
	return b[:unix.CmsgSpace(2)]
}

// putLocal writes control data that tells the kernel from which address of this host to send.
func putLocal(b []byte, a netip.Addr) []byte {
	n, at := unix.SizeofInet6Pktinfo, unix.CmsgLen(0)
	clear(b[:unix.CmsgSpace(n)])
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = unix.IPPROTO_IPV6, unix.IPV6_PKTINFO
	if a.Is4() {
		n, at = unix.SizeofInet4Pktinfo, at+4 // the address stands after an interface
		h.Level, h.Type = unix.IPPROTO_IP, unix.IP_PKTINFO
	}
	h.SetLen(unix.CmsgLen(n))
	copy(b[at:], a.AsSlice())
	return b[:unix.CmsgSpace(n)]
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
		scope, _ := strconv.ParseUint(zone, 10, 32) // 0 for an interface's name: the kernel refuses it
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
		ip = ip.WithZone(strconv.FormatUint(uint64(scope), 10)) // WithZone changes IPv6 only
	}
	return netip.AddrPortFrom(ip, port)
}
