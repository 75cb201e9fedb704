package linkemu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"braid/scionnet/udpbatch"
)

// linuxWire moves many packets in a system call:
//
//   - recvmmsg receives a batch of messages. With UDP_GRO a message is a run of packets of one
//     size that were sent together. The kernel's time stamps tell when each came in, so the loop
//     knows when it is due even if it reads the packet late.
//   - sendmmsg with UDP_SEGMENT sends such runs. A socket without UDP_GRO, such as that of a stock
//     router, gets plain datagrams: the kernel cuts the run.
//   - ppoll waits to the fraction of a millisecond, which the timers of the Go runtime cannot.
//
// Go's network poller does not watch the sockets, since each packet would wake it.
type linuxWire struct {
	clock   clock
	fds     [2]int
	event   int // an eventfd, for wake
	sockets [2]*udpbatch.Socket
	in      *udpbatch.Reader
	out     [2]*udpbatch.Writer
}

const (
	inMessages = 32  // for each recvmmsg; the buffers are 64 KiB each, and take memory only where they are used
	inTurns    = 8   // calls of recvmmsg before the other end gets a turn
	outPackets = 512 // for each sendmmsg
)

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
		w.sockets[i] = udpbatch.NewSocket(uintptr(w.fds[i]))
		w.out[i] = udpbatch.NewWriter(w.sockets[i], outPackets, 1)
		// Without time stamps the link works, with less exact arrival times.
		_ = unix.SetsockoptInt(w.fds[i], unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	}
	if w.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		w.close()
		return nil, fmt.Errorf("make an event descriptor for link end %s: %w", ends[0].Local, err)
	}
	w.in = udpbatch.NewReader(inMessages)
	return w, nil
}

// duplicate returns a descriptor of the socket that Go's network poller does not watch once conn is
// closed.
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
	// After an error, wait returns early, which it may.
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

func (w *linuxWire) receive(s End, f func(p []byte, at instant)) error {
	for range inTurns {
		n, errno := w.in.Receive(uintptr(w.fds[s]), inMessages)
		if errno == unix.EAGAIN {
			return nil
		}
		if errno != 0 {
			if passing(errno) {
				continue
			}
			return errno
		}
		wall := time.Now()
		now := wall.Sub(w.clock.epoch)
		for p, ok := w.in.Next(); ok; p, ok = w.in.Next() {
			at := now
			// Somebody may set the clock of the stamps, so an unlikely age does not count.
			if age := wall.Sub(w.in.Stamp()); age > 0 && age < time.Second {
				at = now - age
			}
			f(p, at)
		}
		if n < inMessages {
			return nil
		}
	}
	return nil
}

func (w *linuxWire) send(s End, packets [][]byte) (taken int) {
	out := w.out[s]
	for taken < len(packets) {
		out.Reset()
		for _, p := range packets[taken:] {
			if !out.Add(netip.AddrPort{}, p) {
				break
			}
		}
		through := out.Send(uintptr(w.fds[s]))
		taken += out.Sent()
		if !through {
			break // the socket's buffer is full
		}
	}
	return taken
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

// passing tells whether a link survives an error: the router is not up or restarts, or a route or
// memory is missing for a while.
func passing(err error) bool {
	var errno unix.Errno
	return errors.As(err, &errno) && slices.Contains([]unix.Errno{
		unix.EINTR, unix.ECONNREFUSED, unix.ECONNRESET, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.ENETDOWN,
		unix.EHOSTDOWN, unix.ENOBUFS, unix.ENOMEM, unix.EPERM, unix.EACCES, unix.EMSGSIZE,
	}, errno)
}

// plain switches the offloads off, as in the socket of a stock border router.
func (w *linuxWire) plain() {
	for i, fd := range w.fds {
		w.sockets[i].Plain(uintptr(fd))
	}
}

// threadCPU returns the CPU time of the calling thread.
func threadCPU() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
