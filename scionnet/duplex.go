package scionnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"braid/scionnet/quic"
)

var (
	// ErrSilent says that nothing has come from the peer for so long that the path or the peer must
	// be gone.
	ErrSilent = errors.New("nothing heard from the peer")
	// ErrReset says that the peer, or its host, has given the connection up.
	ErrReset = errors.New("connection given up by the peer")
	// ErrRefused says that the peer does not want the connection: it has too many.
	ErrRefused = errors.New("connection refused by the peer")
)

// linger is how long a closed connection stays to deliver what was written: some retransmissions at
// the round-trip times of the world. Without a limit a peer that stops reading would keep it for
// ever.
const linger = 2 * time.Second

// duplex is a QUIC connection with one stream, as a net.Conn: what a connection is, whatever
// carries its packets. Each side first sends a byte of feature bits (ALPN).
type duplex struct {
	quic       *quic.Conn
	stream     *quic.Stream
	remote     net.Addr
	key        PeerKey
	handshake  time.Duration
	packetSize int // 0: QUIC finds it out by itself
	control    *controller
	onFeatures func(byte)        // takes in the peer's feature bits
	spawn      func(func()) bool // runs a function, for which the end of the endpoint waits; false: it has ended

	reading       sync.Mutex // serialises Read, and guards greeted
	featuresRead  bool       // the peer's feature byte has been read
	writing       sync.Mutex // serialises Write with the end of the stream
	read, written atomic.Uint64
	closing       atomic.Bool // Close or Abort was called
}

// begin opens the stream, or waits for the dialler to open it, sends our feature bits, and notes
// the peer's key.
func (c *duplex) begin(qc *quic.Conn, features byte, open func() (*quic.Stream, error)) (err error) {
	c.quic = qc
	if c.key, err = keyOf(qc.ConnectionState().TLS); err != nil {
		return err
	}
	if c.stream, err = open(); err != nil {
		return fmt.Errorf("open the stream: %w", err)
	}
	if _, err = c.stream.Write([]byte{features}); err != nil {
		return fmt.Errorf("send the feature bits: %w", err)
	}
	return nil
}

// PeerKey is the key that the peer has proved to have.
func (c *duplex) PeerKey() PeerKey { return c.key }

// Stats are measurements of a connection so far.
type Stats struct {
	// BytesRead and BytesWritten count what the application has read and written.
	BytesRead, BytesWritten uint64
	// RTT is smoothed, MinRTT the least seen, RTTVar the mean deviation; 0 before the first sample.
	RTT, MinRTT, RTTVar time.Duration
	// Handshake is how long the QUIC handshake took, seen from this side.
	Handshake time.Duration
	// PacketsSent and PacketsLost count QUIC packets of this side. A packet believed lost may still
	// arrive.
	PacketsSent, PacketsLost uint64
	// PacketsReceived counts QUIC packets of the peer. While the path works there is at least one
	// for every keepAlive and round trip: a connection on which nothing arrives asks for a sign of
	// life.
	PacketsReceived uint64
	// PacketSize is the largest QUIC packet sent, in bytes without the headers of SCION and UDP; 0
	// where QUIC finds out by itself how large they may be.
	PacketSize int
	Congestion
}

// Congestion is what the congestion controller of a connection has measured and decided, for what
// this side sends.
type Congestion struct {
	// State is what it is doing, in a word or two: "startup", "cruise", "slow start".
	State string
	// DeliveryRate is what the path has delivered lately, PacingRate how fast packets leave, both
	// in bytes a second. The former is 0 until it is measured.
	DeliveryRate, PacingRate float64
	// Window is how many bytes may be on their way.
	Window int
}

// Stats may be called at any time, also after Close.
func (c *duplex) Stats() Stats {
	g := c.control.snapshot()
	q := statsOf(c.quic, g)
	return Stats{
		BytesRead: c.read.Load(), BytesWritten: c.written.Load(),
		RTT: q.SmoothedRTT, MinRTT: q.MinRTT, RTTVar: q.MeanDeviation,
		Handshake:   c.handshake,
		PacketsSent: q.PacketsSent, PacketsLost: q.PacketsLost, PacketsReceived: q.PacketsReceived,
		PacketSize: c.packetSize,
		Congestion: Congestion{g.State, g.DeliveryRate, g.PacingRate, g.Window},
	}
}

// Read reads what the peer has written.
func (c *duplex) Read(b []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	if !c.featuresRead {
		var first [1]byte
		if _, err := io.ReadFull(c.stream, first[:]); err == io.EOF {
			return 0, c.wrap("read", io.ErrUnexpectedEOF) // an end before the beginning is not ours
		} else if err != nil {
			return 0, c.wrap("read", err)
		}
		c.featuresRead = true
		c.onFeatures(first[0])
	}
	n, err := c.stream.Read(b)
	c.read.Add(uint64(n))
	if errors.Is(err, io.EOF) {
		return n, io.EOF
	}
	return n, c.wrap("read", err)
}

// Write writes to the peer. It returns when the data has been handed to QUIC, which is at most one
// congestion window before it arrives.
func (c *duplex) Write(b []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	n, err := c.stream.Write(b)
	c.written.Add(uint64(n))
	return n, c.wrap("write", err)
}

// CloseWrite ends what this side writes: the peer reads io.EOF behind it, and may go on writing.
func (c *duplex) CloseWrite() error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.wrap("close", c.stream.Close())
}

func (c *duplex) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	if c.closing.Load() {
		return net.ErrClosed
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return os.ErrDeadlineExceeded
	}
	return fmt.Errorf("%s %s: %w", op, c.remote, plainError(err))
}

// plainError says in our words what quic-go says in those of its layers. In particular an idle
// connection is not a timeout in the sense of net.Error, after which one may try again, and an end
// that nobody has announced is never io.EOF.
func plainError(err error) error {
	var wrong *WrongKeyError
	var app *quic.ApplicationError
	var stream *quic.StreamError
	var transport *quic.TransportError
	switch {
	case errors.As(err, &wrong):
		return wrong
	case errors.As(err, new(*quic.IdleTimeoutError)):
		return fmt.Errorf("%w for %v", ErrSilent, idleTimeout)
	case errors.As(err, new(*quic.HandshakeTimeoutError)):
		return fmt.Errorf("%w during the handshake", ErrSilent)
	case errors.As(err, &app) && app.ErrorCode == codePacketSize:
		return ErrPacketSize
	case errors.As(err, &app) && app.Remote && app.ErrorCode == codeRefused:
		return ErrRefused
	case errors.As(err, &app) && app.Remote, errors.As(err, &stream) && stream.Remote, errors.As(err, new(*quic.StatelessResetError)):
		return ErrReset
	case errors.As(err, &transport) && transport.Remote && transport.ErrorCode == quic.ConnectionRefused:
		return ErrRefused
	case errors.As(err, &transport):
		return fmt.Errorf("QUIC: %w", transport)
	case errors.Is(err, net.ErrClosed):
		return net.ErrClosed
	}
	return err
}

// SetDeadline, SetReadDeadline and SetWriteDeadline work as net.Conn says; the error is
// os.ErrDeadlineExceeded.
func (c *duplex) SetDeadline(t time.Time) error { return c.stream.SetDeadline(t) }

// SetReadDeadline sets the deadline for Read.
func (c *duplex) SetReadDeadline(t time.Time) error { return c.stream.SetReadDeadline(t) }

// SetWriteDeadline sets the deadline for Write.
func (c *duplex) SetWriteDeadline(t time.Time) error { return c.stream.SetWriteDeadline(t) }

// Close ends the connection for the application at once. What was written is still delivered in the
// background, for which there are two seconds; the peer then reads io.EOF. What the peer sends from
// now on is thrown away.
func (c *duplex) Close() error {
	if c.closing.Swap(true) {
		return nil
	}
	_ = c.stream.SetWriteDeadline(time.Unix(1, 0)) // ends a Write that waits for the peer
	if !c.spawn(c.linger) {
		c.abort(codeDone)
	}
	return nil
}

func (c *duplex) linger() {
	c.stream.CancelRead(quic.StreamErrorCode(codeDone))
	c.writing.Lock()
	// A peer that reads no more, because it has closed too, has nothing delivered to it either. One
	// that only has nothing more to say still listens.
	gone := errors.As(context.Cause(c.stream.Context()), new(*quic.StreamError)) || c.quic.Context().Err() != nil
	c.stream.Close()
	c.writing.Unlock()
	if !gone {
		t := time.NewTimer(linger)
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.quic.Context().Done():
		}
	}
	c.quic.CloseWithError(codeDone, "")
}

// Abort ends the connection without delivering anything. The peer sees ErrReset.
func (c *duplex) Abort() { c.abort(codeAbort) }

func (c *duplex) abort(code quic.ApplicationErrorCode) {
	c.closing.Store(true)
	c.quic.CloseWithError(code, "")
}

func (c *duplex) lifetime() context.Context { return c.quic.Context() }

func (c *duplex) isClosing() bool { return c.closing.Load() }
