package client

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pion/datachannel"
	"github.com/pion/webrtc/v4"
)

// rtcWire is an open data channel as a stream of bytes.
type rtcWire struct {
	remote
	channel *webrtc.DataChannel
	raw     datachannel.ReadWriteCloser
	pc      *webrtc.PeerConnection
	// gone is called once when the connection ends, with the work that is left for the background.
	gone     func(finish func())
	closed   chan struct{}
	once     sync.Once
	ready    time.Time     // of the transport: since when it can be dialled
	ours     atomic.Bool   // we have closed it, not the peer
	writable chan struct{} // has room for one note: there may be room, or the deadline has changed

	reading sync.Mutex
	in      *bufio.Reader // with room for the largest message, since a message is read whole

	mu      sync.Mutex
	writeBy time.Time

	rtt atomic.Int64 // in ns; 0: not measured yet
}

const (
	// maxRTCMessage is the largest message that is read: the size that pion announces. Clients send
	// blocks of 16 KiB with a header.
	maxRTCMessage = 64 << 10
	// maxRTCWrite is the largest message that is written. Every implementation takes it.
	maxRTCWrite = 16 << 10
	// rtcBuffered is how much is given to SCTP before a write waits. It must fill a path of 100
	// Mbit/s and 50 ms.
	rtcBuffered = 1 << 20
	// drainPatience is how long what was written may take to arrive after the end.
	drainPatience = 5 * time.Second
	// rttEvery is the time between two measurements of the round-trip time.
	rttEvery = time.Second
)

func newRTCWire(
	d *webrtc.DataChannel, raw datachannel.ReadWriteCloser, pc *webrtc.PeerConnection, p Peer,
) *rtcWire {
	p.rtc = true
	w := &rtcWire{
		remote: remote{peer: p}, channel: d, raw: raw, pc: pc,
		in:     bufio.NewReaderSize(raw, maxRTCMessage),
		closed: make(chan struct{}), writable: make(chan struct{}, 1),
	}
	d.SetBufferedAmountLowThreshold(rtcBuffered / 2)
	d.OnBufferedAmountLow(w.noteWritable)
	return w
}

func (w *rtcWire) noteWritable() {
	select {
	case w.writable <- struct{}{}:
	default:
	}
}

func (w *rtcWire) Read(b []byte) (int, error) {
	w.reading.Lock()
	defer w.reading.Unlock()
	n, err := w.in.Read(b)
	switch {
	case err == nil:
	case w.ours.Load():
		err = net.ErrClosed
	case !errors.Is(err, os.ErrDeadlineExceeded):
		err = io.EOF // however the peer has ended it
	}
	return n, err
}

func (w *rtcWire) Write(b []byte) (n int, err error) {
	for n < len(b) {
		if err := w.waitWritable(); err != nil {
			return n, err
		}
		m, err := w.raw.Write(b[n:min(len(b), n+maxRTCWrite)])
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// waitWritable waits until SCTP has sent enough of what it was given.
func (w *rtcWire) waitWritable() error {
	for {
		select {
		case <-w.closed:
			return net.ErrClosed
		default:
		}
		w.mu.Lock()
		by := w.writeBy
		w.mu.Unlock()
		var late <-chan time.Time
		if !by.IsZero() {
			left := time.Until(by)
			if left <= 0 {
				return os.ErrDeadlineExceeded
			}
			late = time.After(left)
		}
		if w.channel.BufferedAmount() < rtcBuffered {
			return nil
		}
		select {
		case <-w.writable:
		case <-late:
		case <-w.closed:
		}
	}
}

// Close does not wait, since the engine holds its lock meanwhile.
func (w *rtcWire) Close() error {
	w.ours.Store(true)
	_ = w.SetReadDeadline(time.Now()) // ends a Read
	w.end()
	return nil
}

// end is called when the peer has ended the connection. What it has sent can still be read.
func (w *rtcWire) end() {
	w.once.Do(func() {
		close(w.closed)
		w.gone(func() {
			w.drain()
			_ = w.pc.Close()
		})
	})
}

// drain waits until SCTP has delivered what was written, or the peer takes too long for it.
func (w *rtcWire) drain() {
	w.channel.SetBufferedAmountLowThreshold(0)
	late := time.NewTimer(drainPatience)
	defer late.Stop()
	const connected = webrtc.PeerConnectionStateConnected
	for w.channel.BufferedAmount() > 0 && w.pc.ConnectionState() == connected {
		select {
		case <-w.writable:
		case <-late.C:
			return
		}
	}
}

func (w *rtcWire) SetDeadline(at time.Time) error {
	_ = w.SetWriteDeadline(at)
	return w.SetReadDeadline(at)
}

func (w *rtcWire) SetReadDeadline(at time.Time) error {
	return w.raw.(datachannel.ReadDeadliner).SetReadDeadline(at)
}

func (w *rtcWire) SetWriteDeadline(at time.Time) error {
	w.mu.Lock()
	w.writeBy = at
	w.mu.Unlock()
	w.noteWritable()
	return nil
}

func (w *rtcWire) LocalAddr() net.Addr  { return engineAddr{} }
func (w *rtcWire) RemoteAddr() net.Addr { return engineAddr{} }

// Measure implements Wire.
func (w *rtcWire) Measure() Measurement {
	return Measurement{RTT: time.Duration(w.rtt.Load()), Handshake: w.handshake}
}

// measureRTT measures the round-trip time until the connection ends. It has a goroutine of its own,
// since ICE may take a while to answer.
func (w *rtcWire) measureRTT() {
	for {
		s, ok := w.pc.SCTP().Transport().ICETransport().GetSelectedCandidatePairStats()
		if ok {
			w.rtt.Store(int64(s.CurrentRoundTripTime * float64(time.Second)))
		}
		select {
		case <-w.closed:
			return
		case <-time.After(rttEvery):
		}
	}
}
