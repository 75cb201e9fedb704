package scionnet

import (
	"runtime"
	"syscall"

	"braid/scionnet/udpbatch"
)

const (
	// receiveMessages is how many messages one call fetches where each is a packet or two, as stock
	// routers send them, and receiveRuns how many where they are runs. A run has up to 64 KiB, some
	// 45 packets: with more than a few, one call would fetch more than quic-go lets wait for one
	// connection.
	receiveMessages = 32
	receiveRuns     = 4
	// sendPackets is more than there are in one of quic-go's buffers.
	sendPackets = 32
)

// batchReceiver waits for packets in Go's network poller. It is for one goroutine.
type batchReceiver struct {
	*udpbatch.Reader
	raw   syscall.RawConn
	call  func(fd uintptr) bool
	errno syscall.Errno

	want  int  // messages to ask for
	count int  // messages received
	given int  // packets that next has given since
	many  bool // the last call has fetched full messages
}

func newBatchReceiver(raw syscall.RawConn) *batchReceiver {
	b := &batchReceiver{Reader: udpbatch.NewReader(receiveMessages), raw: raw}
	b.call = func(fd uintptr) bool {
		b.count, b.errno = b.Receive(fd, b.want)
		return b.errno != syscall.EAGAIN
	}
	return b
}

// receive waits for packets and fetches them. next gives them.
func (b *batchReceiver) receive() error {
	b.want = receiveMessages
	if b.given > 2*b.count {
		b.want = receiveRuns
	}
	b.given, b.many = 0, false
	if err := b.raw.Read(b.call); err != nil {
		return err
	}
	b.many = b.count == b.want
	if b.errno != 0 {
		return b.errno
	}
	return nil
}

// next is the next of the packets fetched.
func (b *batchReceiver) next() ([]byte, bool) {
	p, ok := b.Next()
	if ok {
		b.given++
	}
	return p, ok
}

// batchSender sends packets with templates for headers. It is for one goroutine at a time.
type batchSender struct {
	*udpbatch.Writer
	headers []byte
	done    bool
	try     func(fd uintptr)
	wait    func(fd uintptr) bool
}

func newBatchSender(socket *udpbatch.Socket) *batchSender {
	s := &batchSender{Writer: udpbatch.NewWriter(socket, sendPackets, 2)}
	s.try = func(fd uintptr) { s.done = s.Send(fd) }
	s.wait = s.Send
	return s
}

// fill makes the packets for the beginning of b, k payloads of that size in each; with k above 1
// they are bundles. It returns how much of b is in them.
func (s *batchSender) fill(t *template, srcPort uint16, b []byte, size, k int) (done int) {
	s.Reset()
	head, stride, prefix := len(t.header), size*k, 0
	if k > 1 {
		prefix = frameHeader
	}
	head += prefix
	if need := head * sendPackets; len(s.headers) < need {
		s.headers = make([]byte, need)
	}
	for h := s.headers; done < len(b); h = h[head:] {
		body := b[done : done+min(stride, len(b)-done)]
		if len(h) < head {
			break
		}
		frame := h[head-prefix : head]
		if prefix > 0 {
			putFrame(frame, kindBundle, size)
		}
		t.write(h[:head-prefix], srcPort, frame, body)
		if !s.Add(t.nextHop, h[:head], body) {
			break
		}
		done += len(body)
	}
	return done
}

// send sends what fill has made.
func (s *batchSender) send(raw syscall.RawConn) error {
	defer runtime.KeepAlive(s)
	// Control lets connections send at the same time, Write waits for room in the socket's buffer.
	if err := raw.Control(s.try); err != nil {
		return err
	}
	if !s.done {
		if err := raw.Write(s.wait); err != nil {
			return err
		}
	}
	return s.Err()
}
