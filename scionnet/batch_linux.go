package scionnet

import (
	"time"

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

// batchReceiver is for one goroutine.
type batchReceiver struct {
	*udpbatch.Reader
	conn *udpbatch.Conn

	count int  // messages received
	given int  // packets that next has returned since
	many  bool // the last call fetched as many messages as it could
}

// receive waits for packets and fetches them. Then next returns them.
func (b *batchReceiver) receive() (err error) {
	most := receiveMessages
	if b.given > 2*b.count {
		most = receiveRuns
	}
	b.count, err = b.Wait(b.conn, most)
	b.given, b.many = 0, b.count == most
	return err
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
	epic    epicScratch
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
		if k := t.way.epic; k != nil {
			k.stamp(h[:head-prefix], time.Now(), &s.epic)
		}
		if !s.Add(t.nextHop, h[:head], body) {
			break
		}
		done += len(body)
	}
	return done
}

// send sends the packets that fill has made.
func (s *batchSender) send(c *udpbatch.Conn) error {
	if err := s.Flush(c); err != nil {
		return err
	}
	return s.Err()
}
