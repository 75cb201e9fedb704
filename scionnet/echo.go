package scionnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/private/common"
	"github.com/scionproto/scion/pkg/snet"
)

// AnswerEcho answers SCMP echo requests to this host, as 'scion ping' sends them, until Close.
// Routers deliver them to port 30041 of the host, whatever ports its applications use. The error is
// harmless if a shim dispatcher or another braid holds that port: it answers instead.
func (h *Host) AnswerEcho() error {
	c, err := h.openRaw(context.Background(), shimPort)
	if err != nil {
		return fmt.Errorf("answer echo requests: %w", err)
	}
	c.nat.start()
	context.AfterFunc(h.lookup.ctx, func() { c.Close() })
	h.lookup.spawn(func(context.Context) { h.answerEcho(c) })
	return nil
}

func (h *Host) answerEcho(c *rawConn) {
	in := snet.Packet{Bytes: make(snet.Bytes, common.SupportedMTU)}
	out := snet.Packet{Bytes: make(snet.Bytes, common.SupportedMTU)}
	for {
		from, err := c.readPacket(&in)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if !errors.Is(err, errSCMP) {
			continue
		}
		var ok bool
		if out.PacketInfo, ok = h.echoReply(&in, c.nat.target(c.local, from).Host); !ok {
			continue
		}
		if err := c.writePacket(&out, from); err != nil {
			h.log.Debug("echo request not answered", "from", in.Source, "error", err)
		}
	}
}

// echoReply answers an echo request to this host, whose address the sender knows as us, and nothing
// else.
func (h *Host) echoReply(in *snet.Packet, us netip.Addr) (snet.PacketInfo, bool) {
	m, isEcho := in.Payload.(snet.SCMPEchoRequest)
	path, isPath := in.Path.(snet.RawPath)
	if !isEcho || !isPath || in.Destination.IA != addr.IA(h.ia) || in.Destination.Host != addr.HostIP(us) {
		return snet.PacketInfo{}, false
	}
	back, err := snet.DefaultReplyPather{}.ReplyPath(path)
	if err != nil {
		return snet.PacketInfo{}, false
	}
	return snet.PacketInfo{
		Destination: in.Source, Source: in.Destination, Path: back,
		Payload: snet.SCMPEchoReply(m),
	}, true
}
