package client

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
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

// setTCPCongestion chooses the congestion controller of a socket; accepted connections have that of
// their listener.
func setTCPCongestion(c syscall.RawConn, name string) error {
	if name == "" {
		return nil
	}
	var failed error
	if err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
	}); err != nil {
		return err
	}
	return os.NewSyscallError("setsockopt TCP_CONGESTION", failed)
}

// hasTCPCongestion says what to do if the kernel lacks the congestion controller or does not let
// this user choose it.
func hasTCPCongestion(name string) error {
	if name == "" {
		return nil
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	err = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
	switch {
	case errors.Is(err, unix.ENOENT):
		has, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
		others := strings.Join(strings.Fields(string(has)), ", ")
		return fmt.Errorf("this kernel has no TCP congestion controller %q, only %s; "+
			"load it with: modprobe tcp_%s", name, others, name)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("TCP congestion controller %q is not for everybody: "+
			"add it to sysctl net.ipv4.tcp_allowed_congestion_control", name)
	}
	return os.NewSyscallError("setsockopt TCP_CONGESTION", err)
}
