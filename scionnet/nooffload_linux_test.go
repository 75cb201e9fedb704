package scionnet

import "context"

// NoOffload opens fast packet connections as on a kernel that neither cuts nor joins runs of
// packets.
var NoOffload = ListenConfig{packetIO: func(ctx context.Context, h *Host, port uint16) (packetConn, error) {
	p, err := openFast(ctx, h, port)
	if err != nil {
		return nil, err
	}
	c := p.(*fastConn)
	return c, c.batches.Control(c.batches.Plain)
}}

// HasBundles says that fast packet connections put several QUIC packets into one large packet.
const HasBundles = true
