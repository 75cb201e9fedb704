package doctor

import (
	"net"

	"golang.org/x/sys/unix"
)

// offload tells why the kernel does not join received UDP packets; nil if it does.
func offload() error {
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil // another check tells
	}
	defer c.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO, 1)
	})
	if err != nil {
		return nil
	}
	return failed
}
