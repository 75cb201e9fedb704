package client

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// measureTCP asks the kernel (tcp(7), TCP_INFO). On a closed connection there is nothing to know.
func measureTCP(c *net.TCPConn) Measurement {
	raw, err := c.SyscallConn()
	if err != nil {
		return Measurement{}
	}
	var m Measurement
	_ = raw.Control(func(fd uintptr) { // fails only if the connection is closed
		i, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return
		}
		m.RTT = time.Duration(i.Rtt) * time.Microsecond
		m.MinRTT = time.Duration(i.Min_rtt) * time.Microsecond
		m.PacketsSent, m.PacketsLost = uint64(i.Segs_out), uint64(i.Total_retrans)
	})
	return m
}

// unsentBytes is how much of what was written the kernel takes before it is sent: two blocks, for the program that sends them
// to come back in time.
const unsentBytes = 32 << 10

// limitUnsent keeps what waits to be sent in the program, as far as possible (tcp(7), TCP_NOTSENT_LOWAT): on a slow connection a full
// buffer of the kernel's takes seconds, which all news of pieces would come late, and what a peer takes back be sent all the same.
func limitUnsent(c *net.TCPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // without it all is only slower
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentBytes)
	})
}
