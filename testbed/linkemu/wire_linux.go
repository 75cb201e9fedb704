package linkemu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// linuxWire moves many packets in a system call:
//
//   - recvmmsg takes a batch of messages, with UDP_GRO each message is a run of packets of one size
//     that somebody sent in one piece, and the kernel's time stamps say when each came in, so that the
//     loop may come for them late and knows all the same when they are due;
//   - sendmmsg with UDP_SEGMENT sends such runs. A socket without UDP_GRO, as a stock router's, gets
//     plain datagrams: the kernel cuts the run before it;
//   - ppoll waits to the fraction of a millisecond, which the timers of the Go runtime do not.
//
// The sockets are not known to Go's network poller, which would be woken for each packet.
type linuxWire struct {
	clock   clock
	fds     [2]int
	event   int // an eventfd, for wake
	segment [2]bool
	in      inBatch
	out     outBatch
}

const (
	inMessages  = 32  // messages a recvmmsg; the buffers are 64 KiB each, and are only backed where used
	inTurns     = 8   // calls of recvmmsg before others get a turn
	outMessages = 64  // messages a sendmmsg
	outPackets  = 512 // packets a sendmmsg
	// The kernel takes at most 64 segments in a message (UDP_MAX_SEGMENTS, 128 in newer kernels).
	maxSegments = 64
	// maxRun is below the largest payload of a datagram over IPv4 or IPv6.
	maxRun = 65000
)

type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
	_   [unsafe.Sizeof(uintptr(0)) - 4]byte
}

type inBatch struct {
	messages [inMessages]mmsghdr
	iovecs   [inMessages]unix.Iovec
	buffers  [inMessages][]byte
	controls [inMessages][128]byte
}

type outBatch struct {
	messages [outMessages]mmsghdr
	iovecs   [outPackets]unix.Iovec
	packets  [outMessages]int // how many a message has
	controls [outMessages][24]byte
}

func openWire(ends [2]Endpoint, c clock) (wire, error) { return newLinuxWire(ends, c) }

func newLinuxWire(ends [2]Endpoint, c clock) (*linuxWire, error) {
	conns, err := listen(ends)
	if err != nil {
		return nil, err
	}
	defer conns[0].Close()
	defer conns[1].Close()
	w := &linuxWire{clock: c, fds: [2]int{-1, -1}, event: -1}
	for i, conn := range conns {
		if w.fds[i], err = duplicate(conn); err != nil {
			w.close()
			return nil, fmt.Errorf("take over the socket of link end %s: %w", ends[i].Local, err)
		}
		// Without these two the link works, with more system calls and coarser arrival times.
		_ = unix.SetsockoptInt(w.fds[i], unix.SOL_UDP, unix.UDP_GRO, 1)
		_ = unix.SetsockoptInt(w.fds[i], unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
		// A kernel that does not know the option also ignores it in a message: ask first.
		_, err := unix.GetsockoptInt(w.fds[i], unix.SOL_UDP, unix.UDP_SEGMENT)
		w.segment[i] = err == nil
	}
	if w.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		w.close()
		return nil, fmt.Errorf("make an event descriptor for link end %s: %w", ends[0].Local, err)
	}
	for i := range w.in.messages {
		w.in.buffers[i] = make([]byte, 1<<16)
		w.in.iovecs[i].Base = &w.in.buffers[i][0]
		w.in.iovecs[i].SetLen(len(w.in.buffers[i]))
		w.in.messages[i].hdr.Iov = &w.in.iovecs[i]
		w.in.messages[i].hdr.SetIovlen(1)
		w.in.messages[i].hdr.Control = &w.in.controls[i][0]
	}
	return w, nil
}

// duplicate returns a descriptor of the socket that Go's network poller does not watch once conn is closed.
func duplicate(conn *net.UDPConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd, dupErr := -1, error(nil)
	err = raw.Control(func(s uintptr) { fd, dupErr = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(err, dupErr)
}

func (w *linuxWire) wait(until instant, listen bool) {
	var timeout *unix.Timespec
	if until >= 0 {
		d := until - w.clock.now()
		if d <= 0 {
			return
		}
		t := unix.NsecToTimespec(int64(d))
		timeout = &t
	}
	fds := [3]unix.PollFd{{Fd: int32(w.event), Events: unix.POLLIN}}
	n := 1
	if listen {
		for i, fd := range w.fds {
			fds[1+i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
		}
		n = 3
	}
	// An error is an early return, which the contract allows.
	if ready, err := unix.Ppoll(fds[:n], timeout, nil); err == nil && ready > 0 && fds[0].Revents != 0 {
		var count [8]byte
		_, _ = unix.Read(w.event, count[:])
	}
}

func (w *linuxWire) wake() {
	one := [8]byte{}
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(w.event, one[:]) // EAGAIN: it is awake already
}

func (w *linuxWire) receive(s side, f func(p []byte, at instant)) (more bool, err error) {
	for range inTurns {
		for i := range w.in.messages {
			w.in.messages[i].hdr.SetControllen(len(w.in.controls[i]))
		}
		n, errno := mmsg(unix.SYS_RECVMMSG, w.fds[s], w.in.messages[:])
		if errno == unix.EAGAIN {
			return false, nil
		}
		if errno != 0 {
			if passing(errno) {
				continue
			}
			return false, errno
		}
		wall := time.Now()
		now := wall.Sub(w.clock.epoch)
		for i := range n {
			m := &w.in.messages[i]
			size, stamp := parseControl(w.in.controls[i][:m.hdr.Controllen])
			at := now
			// The stamp is of a clock that may be set; one that does not make sense does not count.
			if age := wall.Sub(stamp); age > 0 && age < time.Second {
				at = now - age
			}
			p := w.in.buffers[i][:m.n]
			for size > 0 && len(p) > size {
				f(p[:size], at)
				p = p[size:]
			}
			f(p, at)
		}
		if n < len(w.in.messages) {
			return false, nil
		}
	}
	return true, nil
}

// parseControl finds the size of the packets of a message (0: it is one packet) and when it came in.
func parseControl(b []byte) (size int, at time.Time) {
	for len(b) >= unix.CmsgLen(0) {
		header, data, rest, err := unix.ParseOneSocketControlMessage(b)
		if err != nil {
			break
		}
		switch {
		case header.Level == unix.SOL_UDP && header.Type == unix.UDP_GRO && len(data) >= 4:
			size = int(int32(binary.NativeEndian.Uint32(data)))
		case header.Level == unix.SOL_SOCKET && header.Type == unix.SCM_TIMESTAMPNS &&
			len(data) >= int(unsafe.Sizeof(unix.Timespec{})):
			at = time.Unix((*unix.Timespec)(unsafe.Pointer(&data[0])).Unix())
		}
		b = rest
	}
	return size, at
}

func (w *linuxWire) send(s side, packets [][]byte) (taken int) {
	again := false
	for taken < len(packets) {
		messages := w.out.fill(packets[taken:], w.segment[s])
		n, errno := mmsg(unix.SYS_SENDMMSG, w.fds[s], w.out.messages[:messages])
		for i := range n {
			taken += w.out.packets[i]
		}
		switch {
		case errno == 0:
			again = false
		case errno == unix.EAGAIN, errno == unix.ENOBUFS:
			return taken // the socket's buffer is full
		case errno == unix.EINTR:
		case w.segment[s] && w.out.packets[0] > 1 && (errno == unix.EIO || errno == unix.EINVAL):
			w.segment[s] = false // the device cannot do it, or its MTU is too small for a packet
		case passing(errno) && !again:
			again = true // the error is of an earlier packet, and reported only once
		default:
			taken += w.out.packets[0]
			again = false
		}
	}
	return taken
}

// fill makes messages of as many packets as fit; each is one packet, or a run of packets of one size
// whose last may be shorter.
func (b *outBatch) fill(packets [][]byte, segment bool) (messages int) {
	next := 0
	for next < len(packets) && next < outPackets && messages < outMessages {
		first := next
		size := len(packets[first])
		total := 0
		for next < len(packets) && next < outPackets {
			p := packets[next]
			if next > first && (!segment || len(p) == 0 || len(p) > size || total+len(p) > maxRun || next-first == maxSegments) {
				break
			}
			b.iovecs[next] = unix.Iovec{}
			if len(p) > 0 {
				b.iovecs[next].Base = &p[0]
				b.iovecs[next].SetLen(len(p))
			}
			total += len(p)
			next++
			if len(p) < size {
				break
			}
		}
		h := &b.messages[messages].hdr
		*h = unix.Msghdr{Iov: &b.iovecs[first]}
		h.SetIovlen(next - first)
		if next-first > 1 {
			control := b.controls[messages][:]
			c := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
			c.Level, c.Type = unix.SOL_UDP, unix.UDP_SEGMENT
			c.SetLen(unix.CmsgLen(2))
			binary.NativeEndian.PutUint16(control[unix.CmsgLen(0):], uint16(size))
			h.Control = &control[0]
			h.SetControllen(unix.CmsgSpace(2))
		}
		b.packets[messages] = next - first
		messages++
	}
	return messages
}

// mmsg calls recvmmsg or sendmmsg without blocking.
func mmsg(call uintptr, fd int, messages []mmsghdr) (int, unix.Errno) {
	n, _, errno := unix.Syscall6(call, uintptr(fd), uintptr(unsafe.Pointer(&messages[0])), uintptr(len(messages)),
		unix.MSG_DONTWAIT, 0, 0)
	runtime.KeepAlive(messages)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

func (w *linuxWire) close() error {
	var errs []error
	for _, fd := range []int{w.fds[0], w.fds[1], w.event} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	w.fds, w.event = [2]int{-1, -1}, -1
	return errors.Join(errs...)
}

// passing tells the errors that do not end a link: the router is not up yet or restarts, a route or
// memory is missing for a while.
func passing(err error) bool {
	for _, e := range []unix.Errno{unix.EINTR, unix.ECONNREFUSED, unix.ECONNRESET, unix.EHOSTUNREACH,
		unix.ENETUNREACH, unix.ENETDOWN, unix.EHOSTDOWN, unix.ENOBUFS, unix.ENOMEM, unix.EPERM, unix.EACCES, unix.EMSGSIZE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// plain switches the offloads off, to do as a socket of a stock border router does.
func (w *linuxWire) plain() {
	for i, fd := range w.fds {
		w.segment[i] = false
		_ = unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, 0)
	}
}

// threadCPU is the CPU time of the calling thread.
func threadCPU() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
