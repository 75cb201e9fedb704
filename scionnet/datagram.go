package scionnet

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/private/common"
	"github.com/scionproto/scion/pkg/snet"
	snetpath "github.com/scionproto/scion/pkg/snet/path"

	"braid/pathsel"
)

// Datagrams is a UDP port of the host for bare SCION datagrams: no connection, no congestion control, nothing is
// repeated. Measurements load paths with it. Send and Receive are for one goroutine each.
type Datagrams struct {
	host    *Host
	raw     *snet.SCIONPacketConn
	local   Addr
	in, out snet.Packet
	path    []byte
}

// OpenDatagrams opens a free port.
func (h *Host) OpenDatagrams(ctx context.Context) (*Datagrams, error) {
	raw, local, err := h.openRaw(ctx, 0, h.scmpHandler())
	if err != nil {
		return nil, err
	}
	d := &Datagrams{host: h, raw: raw, local: local}
	d.in.Bytes = make(snet.Bytes, common.SupportedMTU)
	d.out.Bytes = make(snet.Bytes, common.SupportedMTU)
	return d, nil
}

// Addr is where others send to.
func (d *Datagrams) Addr() Addr { return d.local }

// Send sends one datagram over a path that the host has found before.
func (d *Datagrams) Send(ctx context.Context, b []byte, remote Addr, path pathsel.Path) error {
	f, err := d.host.known(ctx, remote, path)
	if err != nil {
		return fmt.Errorf("send to %s: %w", remote, err)
	}
	d.out.PacketInfo = snet.PacketInfo{
		Destination: snet.SCIONAddress{IA: addr.IA(remote.IA), Host: addr.HostIP(remote.Host)},
		Source:      snet.SCIONAddress{IA: addr.IA(d.local.IA), Host: addr.HostIP(d.local.Host)},
		Path:        snetpath.Empty{},
		Payload:     snet.UDPPayload{SrcPort: d.local.Port, DstPort: remote.Port, Payload: b},
	}
	if len(f.way.raw) > 0 {
		d.path = append(d.path[:0], f.way.raw...) // serialisation writes into it
		d.out.Path = snetpath.SCION{Raw: d.path}
	}
	if err := d.raw.WriteTo(&d.out, net.UDPAddrFromAddrPort(f.way.nextHop)); err != nil {
		return fmt.Errorf("send to %s: %w", remote, err)
	}
	return nil
}

// Receive waits for the next datagram and returns its payload, which holds until the next call. After Close the
// error is net.ErrClosed.
func (d *Datagrams) Receive() ([]byte, error) {
	for {
		var from net.UDPAddr
		err := d.raw.ReadFrom(&d.in, &from)
		if errors.Is(err, net.ErrClosed) {
			return nil, net.ErrClosed
		}
		if err != nil {
			continue // what is not a SCION packet
		}
		if udp, ok := d.in.Payload.(snet.UDPPayload); ok && udp.DstPort == d.local.Port {
			return udp.Payload, nil
		}
	}
}

// Close frees the port and ends Receive.
func (d *Datagrams) Close() error { return d.raw.Close() }
