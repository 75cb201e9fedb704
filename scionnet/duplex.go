package scionnet

import (
	"cmp"
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
	// ErrSilent says that the path or the peer must be gone, since nothing has arrived from the
	// peer for the idle timeout.
	ErrSilent = errors.New("nothing received from the peer")
	// ErrReset says that the peer, or its host, has aborted the connection.
	ErrReset = errors.New("connection aborted by the peer")
	// ErrRefused says that the peer has no room for the connection.
	ErrRefused = errors.New("connection refused by the peer")
)

// linger is how long a closed connection stays to deliver written data: enough for some
// retransmissions over the longest paths. Without a limit, a peer that stops reading would keep it
// forever.
const linger = 2 * time.Second

// duplex is a QUIC connection with one stream, as a net.Conn, over SCION or IP. Each side first
// sends a byte of feature bits (see ALPN).
type duplex struct {
	quic       *quic.Conn
	stream     *quic.Stream
	remote     net.Addr
	key        PeerKey
	handshake  time.Duration
	packetSize int // 0: QUIC finds it by itself
	control    *quic.Controller
	onFeatures func(byte)        // handles the peer's feature bits
	spawn      func(func()) bool // runs a function for which the endpoint's Close waits; false if it is closed

	reading       sync.Mutex // serialises Read, and guards featuresRead
	featuresRead  bool       // the peer's feature byte has been read
	writing       sync.Mutex // serialises Write with the end of the stream
	read, written atomic.Uint64
	closing       atomic.Bool   // Close or Abort was called
	lingers       time.Duration // for tests; overrides linger
	deadline      sync.Mutex    // keeps the write deadline that Close sets
}

// begin opens the stream, or waits for the dialler to open it, sends our feature bits, and records
// the peer's key.
func (c *duplex) begin(qc *quic.Conn, features byte, open func() (*quic.Stream, error)) (err error) {
	c.quic = qc
	if c.key, err = KeyOf(qc.ConnectionState().TLS); err != nil {
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

// PeerKey is the key whose possession the peer has proved.
func (c *duplex) PeerKey() PeerKey { return c.key }

// Stats are measurements of a connection since its start.
type Stats struct {
	// BytesRead and BytesWritten count what the application has read and written.
	BytesRead, BytesWritten uint64
	// RTT is the smoothed round trip, MinRTT the shortest, RTTVar the mean deviation; 0 before the
	// first sample.
	RTT, MinRTT, RTTVar time.Duration
	// Handshake is the duration of the QUIC handshake, measured at this side.
	Handshake time.Duration
	// PacketsSent and PacketsLost count this side's QUIC packets. A packet counted as lost may
	// still arrive.
	PacketsSent, PacketsLost uint64
	// PacketsReceived counts the peer's QUIC packets. Keep-alives make it grow on every working
	// path: at least one packet in each keepAlive plus round trip.
	PacketsReceived uint64
	// PacketSize is the size of the largest QUIC packet sent, without the headers of SCION and UDP.
	// It is 0 if QUIC finds the size by itself.
	PacketSize int
	Congestion
}

// Congestion is the state of a connection's congestion controller, for the data that this side
// sends.
type Congestion struct {
	// State is its phase, in a word or two: "startup", "cruise", "slow start".
	State string
	// DeliveryRate is the rate at which the path has recently delivered data, 0 until it is
	// measured; PacingRate is the rate at which packets leave. Both are in bytes per second.
	DeliveryRate, PacingRate float64
	// Window is the number of bytes that may be in flight.
	Window int
}

// Stats may be called at any time, even after Close.
func (c *duplex) Stats() Stats {
	g := c.control.Snapshot()
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

// Read reads data from the peer.
func (c *duplex) Read(b []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	if !c.featuresRead {
		var first [1]byte
		if _, err := io.ReadFull(c.stream, first[:]); err == io.EOF {
			return 0, c.wrap("read", io.ErrUnexpectedEOF) // the peer's stream must begin with a feature byte
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

// Write writes data to the peer. It returns when QUIC has taken the data, at most one congestion
// window before it arrives.
func (c *duplex) Write(b []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	n, err := c.stream.Write(b)
	c.written.Add(uint64(n))
	return n, c.wrap("write", err)
}

// CloseWrite ends this side's data: the peer reads io.EOF after it, and may go on writing.
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

// plainError translates quic-go's errors. An idle connection must not look like a timeout of
// net.Error, after which callers may try again, and an unexpected end must not look like io.EOF.
func plainError(err error) error {
	var wrong *WrongKeyError
	var app *quic.ApplicationError
	var stream *quic.StreamError
	var transport *quic.TransportError
	switch {
	case errors.As(err, &wrong):
		return wrong
	case errors.As(err, new(*quic.IdleTimeoutError)):
		return ErrSilent
	case errors.As(err, new(*quic.HandshakeTimeoutError)):
		return fmt.Errorf("%w during the handshake", ErrSilent)
	case errors.As(err, &app) && app.ErrorCode == codePacketSize:
		return ErrPacketSize
	case errors.As(err, &app) && app.ErrorCode == codeMoved:
		return movedTo(app)
	case errors.As(err, &app) && app.Remote && app.ErrorCode == codeRefused:
		return ErrRefused
	case errors.As(err, &app) && app.Remote, errors.As(err, &stream) && stream.Remote,
		errors.As(err, new(*quic.StatelessResetError)):
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

// SetDeadline, SetReadDeadline and SetWriteDeadline work as in net.Conn; the error is
// os.ErrDeadlineExceeded.
func (c *duplex) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline sets the deadline for Read.
func (c *duplex) SetReadDeadline(t time.Time) error { return c.stream.SetReadDeadline(t) }

// SetWriteDeadline sets the deadline for Write. After Close it fails: a later deadline would let a
// Write wait for the peer, and the connection would not end as long as the peer does not read.
func (c *duplex) SetWriteDeadline(t time.Time) error {
	c.deadline.Lock()
	defer c.deadline.Unlock()
	if c.closing.Load() {
		return net.ErrClosed
	}
	return c.stream.SetWriteDeadline(t)
}

// Close closes the connection for the application at once. Written data is still delivered in the
// background, for up to two seconds; then the peer reads io.EOF. Data that the peer sends from now
// on is discarded.
func (c *duplex) Close() error {
	c.deadline.Lock()
	again := c.closing.Swap(true)
	if !again {
		_ = c.stream.SetWriteDeadline(time.Unix(1, 0)) // unblocks a Write that waits for the peer
	}
	c.deadline.Unlock()
	if again {
		return nil
	}
	if !c.spawn(c.linger) {
		c.abort(codeDone)
	}
	return nil
}

func (c *duplex) linger() {
	c.stream.CancelRead(quic.StreamErrorCode(codeDone))
	c.writing.Lock()
	// A peer that has closed its side reads no more, so waiting for delivery is useless. A peer
	// that has only ended its data still reads.
	gone := errors.As(context.Cause(c.stream.Context()), new(*quic.StreamError)) || c.quic.Context().Err() != nil
	c.stream.Close()
	c.writing.Unlock()
	if !gone {
		t := time.NewTimer(cmp.Or(c.lingers, linger))
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.quic.Context().Done():
		}
	}
	c.quic.CloseWithError(codeDone, "")
}

// Abort ends the connection without delivering anything. The peer gets ErrReset.
func (c *duplex) Abort() { c.abort(codeAbort) }

func (c *duplex) abort(code quic.ApplicationErrorCode) {
	c.closing.Store(true)
	c.quic.CloseWithError(code, "")
}

func (c *duplex) lifetime() context.Context { return c.quic.Context() }

func (c *duplex) isClosing() bool { return c.closing.Load() }
