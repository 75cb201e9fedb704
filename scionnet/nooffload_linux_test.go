package scionnet

import (
	"context"

	"golang.org/x/sys/unix"
)

// NoOffload opens fast packet connections as in a kernel that neither cuts nor joins runs of packets.
var NoOffload = ListenConfig{packetIO: func(ctx context.Context, h *Host, port uint16) (packetConn, error) {
	p, err := openFast(ctx, h, port)
	if err != nil {
		return nil, err
	}
	c := p.(*fastConn)
	c.segment.off.Store(true)
	err = c.raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_GRO, 0) })
	return c, err
}}
