package scionnet

import (
	"runtime"
	"syscall"

	"braid/scionnet/udpbatch"
)

const (
	// receiveMessages is the number of messages that one call fetches while each is a packet or
	// two, as stock routers send them; receiveRuns is that number while messages are runs. A run
	// has up to 64 KiB, some 45 packets, and quic-go drops packets if too many wait for one
	// connection.
	receiveMessages = 32
	receiveRuns     = 4
	// sendPackets is more packets than one of quic-go's send buffers holds.
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
	given int  // packets that next has returned since
	many  bool // the last call fetched as many messages as it could
}

func newBatchReceiver(raw syscall.RawConn) *batchReceiver {
	b := &batchReceiver{Reader: udpbatch.NewReader(receiveMessages), raw: raw}
	b.call = func(fd uintptr) bool {
		b.count, b.errno = b.Receive(fd, b.want)
		return b.errno != syscall.EAGAIN
	}
	return b
}

// receive waits for packets and fetches them. Then next returns them.
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

// next returns the next fetched packet.
func (b *batchReceiver) next() ([]byte, bool) {
	p, ok := b.Next()
	if ok {
		b.given++
	}
	return p, ok
}

// batchSender sends packets whose headers come from templates. It is for one goroutine at a time.
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

// fill makes packets from the beginning of b. Each holds k payloads of that size, as a bundle if k
// is above 1. It returns the number of bytes of b that it used.
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

// send sends the packets that fill has made.
func (s *batchSender) send(raw syscall.RawConn) error {
	defer runtime.KeepAlive(s)
	// Connections can send at the same time within Control. Write waits for room in the socket's
	// buffer.
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
