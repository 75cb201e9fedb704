package linkemu

import (
	"fmt"
	"net"
	"net/netip"
	"time"
)

// wire is the pair of sockets of a link. Only wake may be called while another call runs.
type wire interface {
	// wait returns at the instant until, when wake is called, or, if listen is set, when packets
	// can be received. It may return earlier. A negative until is no limit.
	wait(until instant, listen bool)
	wake()
	// receive calls f with the packets that have come in at end s and the times of their arrival. f
	// must not keep the bytes. Packets may be left, because the other end gets a turn.
	receive(s End, f func(p []byte, at instant)) error
	// send sends packets to the router of end s. It returns how many the system took or refused
	// for good: a link does not notice whether anybody listens. The caller sends the others again
	// later.
	send(s End, packets [][]byte) int
	close() error
}

// End is an end of a link, in the order of New. It also names the direction that comes from there.
type End int

const (
	A End = iota
	B
)

func (s End) other() End { return 1 - s }

// clock is the link's monotonic clock.
type clock struct{ epoch time.Time }

func (c clock) now() instant { return time.Since(c.epoch) }

// listen opens both sockets. They are connected, so that the kernel drops packets that do not come
// from the router.
func listen(ends [2]Endpoint) (conns [2]*net.UDPConn, err error) {
	for i, e := range ends {
		local, router := net.UDPAddrFromAddrPort(unmap(e.Local)), net.UDPAddrFromAddrPort(unmap(e.Router))
		if conns[i], err = net.DialUDP("udp", local, router); err != nil {
			if i == 1 {
				conns[0].Close()
			}
			return conns, fmt.Errorf("bind link end %s for router %s: %w", e.Local, e.Router, err)
		}
		// Large buffers keep packets that come in while the machine is busy. A failure leaves the
		// default, which works too.
		_ = conns[i].SetReadBuffer(socketBuffer)
		_ = conns[i].SetWriteBuffer(socketBuffer)
	}
	return conns, nil
}

// socketBuffer is in bytes. Linux grants at most net.core.rmem_max, and doubles it for its
// bookkeeping.
const socketBuffer = 4 << 20

func unmap(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }
