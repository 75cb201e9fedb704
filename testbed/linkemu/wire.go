package linkemu

import (
	"fmt"
	"net"
	"net/netip"
	"time"
)

// wire is the pair of sockets of a link, with the little that its loop needs from the system. Only wake
// may be called while another call runs.
type wire interface {
	// wait returns at the instant until, when wake is called, or, if listen is set, when packets can be
	// received; it may return earlier without a reason. A negative until is no limit.
	wait(until instant, listen bool)
	wake()
	// receive calls f with the packets that have come in at side s, and when each of them did. f must
	// not keep the bytes. more is true if it stopped before the end, to give others a turn.
	receive(s side, f func(p []byte, at instant)) (more bool, err error)
	// send sends packets to the router of side s and returns how many the system took or refused for
	// good, as a link does not tell whether anybody listens. The others are to be offered again later.
	send(s side, packets [][]byte) int
	close() error
}

// side is an end of the link; 0 is a, 1 is b. It also names the direction that comes from there.
type side int

func (s side) other() side { return 1 - s }

// clock is the link's monotonic clock.
type clock struct{ epoch time.Time }

func newClock() clock { return clock{time.Now()} }

func (c clock) now() instant { return time.Since(c.epoch) }

// listen opens both sockets, connected, so that the kernel drops what does not come from the router.
func listen(ends [2]Endpoint) (conns [2]*net.UDPConn, err error) {
	for i, e := range ends {
		conns[i], err = net.DialUDP("udp", net.UDPAddrFromAddrPort(unmap(e.Local)), net.UDPAddrFromAddrPort(unmap(e.Router)))
		if err != nil {
			if i == 1 {
				conns[0].Close()
			}
			return conns, fmt.Errorf("bind link end %s for router %s: %w", e.Local, e.Router, err)
		}
		// As much as the system grants (net.core.rmem_max): what comes in while the machine is busy
		// elsewhere would be lost otherwise. A failure leaves the default, which works too.
		_ = conns[i].SetReadBuffer(socketBuffer)
		_ = conns[i].SetWriteBuffer(socketBuffer)
	}
	return conns, nil
}

// socketBuffer in bytes. Linux grants as much as net.core.rmem_max allows, and doubles it, because it
// counts its bookkeeping too.
const socketBuffer = 4 << 20

func unmap(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }
