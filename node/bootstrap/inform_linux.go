package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// informAll asks the DHCP server behind each interface with an IPv4 address.
func informAll(ctx context.Context) ([]Hint, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var asks []func() ([]Hint, error)
	for _, i := range interfaces {
		const kind = net.FlagUp | net.FlagLoopback | net.FlagBroadcast
		if i.Flags&kind != net.FlagUp|net.FlagBroadcast || len(asks) == maxInterfaces {
			continue
		}
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			p, e := netip.ParsePrefix(a.String())
			if e != nil || !p.Addr().Is4() {
				continue
			}
			asks = append(asks, func() ([]Hint, error) {
				hints, err := inform(ctx, i, p.Addr())
				if err != nil {
					err = fmt.Errorf("DHCP on %s: %w", i.Name, err)
				}
				return hints, err
			})
			break
		}
	}
	found, errs := atOnce(asks)
	return slices.Concat(found...), errors.Join(errs...)
}

// maxInterfaces bounds the interfaces that are asked. informPatience is how long each may take.
const (
	maxInterfaces  = 4
	informPatience = time.Second
)

// inform asks the DHCP server behind one interface.
func inform(ctx context.Context, i net.Interface, own netip.Addr) ([]Hint, error) {
	listen := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = errors.Join(
				// The host's own DHCP client may have the port, too.
				os.NewSyscallError("setsockopt SO_REUSEADDR",
					unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)),
				os.NewSyscallError("setsockopt SO_BROADCAST",
					unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1)),
				os.NewSyscallError("setsockopt SO_BINDTODEVICE",
					unix.BindToDevice(int(fd), i.Name)))
		})
		return errors.Join(err, failed)
	}}
	c, err := listen.ListenPacket(ctx, "udp4", fmt.Sprintf("%s:%d", own, dhcpClientPort))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, informPatience)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Now()) })()
	id := rand.Uint32()
	everybody := &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpServerPort}
	if _, err := c.WriteTo(informPacket(id, own, i.HardwareAddr), everybody); err != nil {
		return nil, err
	}
	for buf := make([]byte, 1500); ; {
		n, _, err := c.ReadFrom(buf)
		if err != nil {
			return nil, fmt.Errorf("no server has answered: %w", err)
		}
		if hints, err := parseAck(buf[:n], id); err == nil {
			return hints, nil
		}
	}
}
