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
		m.DeliveryRate, m.PacingRate = float64(i.Delivery_rate), float64(i.Pacing_rate)
		m.Window = int(i.Snd_cwnd) * int(i.Snd_mss)
		m.PacketsSent, m.PacketsLost = uint64(i.Segs_out), uint64(i.Total_retrans)
	})
	return m
}
