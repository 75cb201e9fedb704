package udpbatch

import (
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Reader receives packets. It is for one goroutine.
type Reader struct {
	messages []message
	iovecs   []unix.Iovec
	controls [][controlBytes]byte
	names    []name
	buffers  [][]byte // takes real memory only as far as packets have filled it

	count   int    // messages received
	at      int    // the message from which Next reads
	more    bool   // it has unread packets
	run     []byte // its unread rest
	control control

	// For Wait.
	poll  func(fd uintptr) bool
	most  int
	errno syscall.Errno
}

// NewReader makes a reader of batches of up to that number of messages. Each message is a run of
// packets of up to 64 KiB.
func NewReader(messages int) *Reader {
	r := &Reader{
		messages: make([]message, messages), iovecs: make([]unix.Iovec, messages), buffers: make([][]byte, messages),
		controls: make([][controlBytes]byte, messages), names: make([]name, messages),
	}
	for i := range r.messages {
		r.buffers[i] = make([]byte, runBytes)
		r.iovecs[i].Base = &r.buffers[i][0]
		r.iovecs[i].SetLen(runBytes)
		h := &r.messages[i].hdr
		h.Iov = &r.iovecs[i]
		h.SetIovlen(1)
		h.Name = &r.names[i][0]
		h.Control = &r.controls[i][0]
	}
	r.poll = func(fd uintptr) bool {
		_, r.errno = r.Receive(fd, r.most)
		return r.errno != syscall.EAGAIN
	}
	return r
}

// Receive fetches packets that have arrived, in up to most messages, and returns the number of
// messages. It does not wait: if there are none, the error is EAGAIN. It invalidates the packets
// that Next has returned.
func (r *Reader) Receive(fd uintptr, most int) (int, syscall.Errno) {
	most = min(most, len(r.messages))
	for i := range most {
		h := &r.messages[i].hdr
		h.Namelen = unix.SizeofSockaddrInet6
		h.SetControllen(controlBytes)
	}
	r.at, r.more, r.count = -1, false, 0
	n, errno := mmsg(unix.SYS_RECVMMSG, fd, r.messages[:most])
	for errno == unix.EINTR {
		n, errno = mmsg(unix.SYS_RECVMMSG, fd, r.messages[:most])
	}
	r.count = n
	return n, errno
}

// Next returns the next fetched packet, valid until the next call of Receive.
func (r *Reader) Next() ([]byte, bool) {
	for !r.more {
		if r.at+1 >= r.count {
			return nil, false
		}
		r.at++
		m := &r.messages[r.at]
		if m.hdr.Flags&unix.MSG_TRUNC != 0 {
			continue
		}
		r.run, r.more = r.buffers[r.at][:m.n], true
		r.control = readControl(r.controls[r.at][:m.hdr.Controllen])
	}
	n := len(r.run)
	if size := r.control.size; size > 0 && size < n {
		n = size
	}
	p := r.run[:n:n]
	r.run = r.run[n:]
	r.more = len(r.run) > 0
	return p, true
}

// From is the sender of the packet that Next has returned last.
func (r *Reader) From() netip.AddrPort { return r.names[max(r.at, 0)].get() }

// Stamp is when that packet arrived, if the socket has SO_TIMESTAMPNS; otherwise zero.
func (r *Reader) Stamp() time.Time { return r.control.stamp }

// Local is the address of this host to which that packet was sent, if the socket tells (TellLocal).
func (r *Reader) Local() netip.Addr { return r.control.local }
