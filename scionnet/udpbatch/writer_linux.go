package udpbatch

import (
	"net/netip"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Writer sends packets: call [Writer.Add] for each, then [Writer.Send]. It is for one goroutine at
// a time.
type Writer struct {
	socket   *Socket
	parts    int // of a packet
	messages []message
	runs     []run // one message each
	iovecs   []unix.Iovec
	names    []name
	controls [][controlBytes]byte

	used, packets int // runs and packets added
	next          int // the next run to send
	again         bool
	err           error

	// For Flush.
	try  func(fd uintptr)
	wait func(fd uintptr) bool
	sent bool
}

// run is a sequence of packets of one size, of which the last may be shorter.
type run struct {
	to             netip.AddrPort
	from           netip.Addr // zero: the kernel chooses
	first, packets int
	size, bytes    int
	ended          bool // nothing may follow
}

// NewWriter makes a writer for batches of up to that number of packets, each of that number of parts.
func NewWriter(s *Socket, packets, parts int) *Writer {
	w := &Writer{
		socket: s, parts: parts, messages: make([]message, packets), runs: make([]run, packets),
		names: make([]name, packets), iovecs: make([]unix.Iovec, packets*parts),
		controls: make([][controlBytes]byte, packets),
	}
	w.try = func(fd uintptr) { w.sent = w.Send(fd) }
	w.wait = w.Send
	return w
}

// Reset removes all packets.
func (w *Writer) Reset() {
	w.used, w.packets, w.next, w.again, w.err = 0, 0, 0, false, nil
}

// Add adds a packet for an address; the zero address stands for that of a connected socket. There
// must be as many parts as NewWriter expects, and they must not change until Send returns true. If
// the writer is full, Add does nothing and returns false.
func (w *Writer) Add(to netip.AddrPort, parts ...[]byte) bool {
	return w.AddFrom(netip.Addr{}, to, parts...)
}

// AddFrom is Add for a packet that leaves from that address of this host; zero: the kernel chooses.
func (w *Writer) AddFrom(from netip.Addr, to netip.AddrPort, parts ...[]byte) bool {
	if w.packets == len(w.runs) {
		return false
	}
	size := 0
	for i, b := range parts {
		v := &w.iovecs[w.packets*w.parts+i]
		*v = unix.Iovec{}
		if len(b) > 0 {
			v.Base = &b[0]
			v.SetLen(len(b))
		}
		size += len(b)
	}
	if !w.join(from, to, size) {
		w.runs[w.used] = run{to: to, from: from, first: w.packets, packets: 1, size: size, bytes: size}
		w.runs[w.used].ended = size == 0 || w.socket.whole.Load()
		w.used++
	}
	w.packets++
	return true
}

// join adds the packet to the last run, if possible.
func (w *Writer) join(from netip.Addr, to netip.AddrPort, size int) bool {
	if w.used == 0 {
		return false
	}
	r := &w.runs[w.used-1]
	if r.ended || r.packets == mostSegments || size == 0 || size > r.size || r.bytes+size > mostRun ||
		r.to != to || r.from != from {
		return false
	}
	r.packets++
	r.bytes += size
	r.ended = size < r.size
	return true
}

// Send hands the packets to the kernel. It returns false if the socket's buffer is full; call it
// again when there is room. After that, Err tells whether the kernel refused packets. They are
// lost, as on a wire.
func (w *Writer) Send(fd uintptr) bool {
	defer runtime.KeepAlive(w)
	for w.next < w.used {
		for i := w.next; i < w.used; i++ {
			w.prepare(i)
		}
		n, errno := mmsg(unix.SYS_SENDMMSG, fd, w.messages[w.next:w.used])
		if w.next += n; n > 0 {
			w.again = false
		}
		switch {
		case errno == 0, errno == unix.EINTR:
		case errno == unix.EAGAIN:
			return false
		case w.runs[w.next].packets > 1 && (errno == unix.EIO || errno == unix.EINVAL || errno == unix.EMSGSIZE):
			// EIO: the device cannot cut at all. EINVAL or, since Linux 6.14, EMSGSIZE: these
			// packets are too large for the interface. Alone, they may leave in fragments, and the
			// last one may be small enough.
			w.socket.whole.Store(w.socket.whole.Load() || errno == unix.EIO)
			w.split()
		case !w.again && isOld(errno):
			w.again = true
		default:
			if w.err == nil {
				w.err = errno
			}
			w.next++
			w.again = false
		}
	}
	return true
}

// Err is the first reason since Reset why packets were refused, a [syscall.Errno].
func (w *Writer) Err() error { return w.err }

// Sent is the number of packets that the kernel has taken or refused.
func (w *Writer) Sent() int {
	if w.next == w.used {
		return w.packets
	}
	return w.runs[w.next].first
}

func (w *Writer) prepare(i int) {
	r, h := &w.runs[i], &w.messages[i].hdr
	*h = unix.Msghdr{Iov: &w.iovecs[r.first*w.parts]}
	h.SetIovlen(r.packets * w.parts)
	if r.to.IsValid() {
		h.Name = &w.names[i][0]
		h.Namelen = w.names[i].put(r.to)
	}
	n, c := 0, w.controls[i][:]
	if r.packets > 1 {
		n += len(putSegmentSize(c, r.size))
	}
	if r.from.IsValid() {
		n += len(putLocal(c[n:], r.from))
	}
	if n > 0 {
		h.Control = &c[0]
		h.SetControllen(n)
	}
}

// split makes a run of each unsent packet.
func (w *Writer) split() {
	to := w.next
	for _, r := range w.runs[w.next:w.used] {
		to += r.packets
	}
	end := to
	for i := w.used - 1; i >= w.next; i-- {
		r := w.runs[i]
		for k := r.packets - 1; k >= 0; k-- {
			to--
			w.runs[to] = run{to: r.to, from: r.from, first: r.first + k, packets: 1}
		}
	}
	w.used = end
}

// isOld tells whether an error may belong to an earlier packet, whose destination was unreachable:
// a connected socket reports it once, instead of sending.
func isOld(errno syscall.Errno) bool {
	switch errno {
	case unix.ECONNREFUSED, unix.ECONNRESET, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EHOSTDOWN, unix.ENETDOWN:
		return true
	}
	return false
}
