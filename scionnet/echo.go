package scionnet

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/private/common"
	"github.com/scionproto/scion/pkg/snet"
)

// AnswerEcho answers SCMP echo requests to this host, as 'scion ping' sends them, until Close. Routers deliver
// them to one port of the host (30041), whatever ports its applications have; if that is taken, by a shim
// dispatcher or another braid, that one answers, and the error is of no consequence.
func (h *Host) AnswerEcho() error {
	c, _, err := h.openRaw(context.Background(), shimPort, echoHandler{})
	if err != nil {
		return fmt.Errorf("answer echo requests: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.onClose = append(h.onClose, func() { c.Close() })
	h.workers.Go(func() { h.answerEcho(c) })
	return nil
}

func (h *Host) answerEcho(c *snet.SCIONPacketConn) {
	in := snet.Packet{Bytes: make(snet.Bytes, common.SupportedMTU)}
	out := snet.Packet{Bytes: make(snet.Bytes, common.SupportedMTU)}
	for {
		var from net.UDPAddr
		err := c.ReadFrom(&in, &from)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		var request echoRequest
		if !errors.As(err, &request) {
			continue
		}
		var ok bool
		if out.PacketInfo, ok = h.echoReply(&in, request); !ok {
			continue
		}
		if err := c.WriteTo(&out, &from); err != nil {
			h.log.Debug("echo request not answered", "from", in.Source, "error", err)
		}
	}
}

// echoReply is the answer to an echo request, if it is one to us: we answer in nobody else's name.
func (h *Host) echoReply(in *snet.Packet, request echoRequest) (snet.PacketInfo, bool) {
	path, ok := in.Path.(snet.RawPath)
	if !ok || in.Destination.IA != addr.IA(h.ia) || in.Destination.Host != addr.HostIP(h.localIP) {
		return snet.PacketInfo{}, false
	}
	back, err := snet.DefaultReplyPather{}.ReplyPath(path)
	if err != nil {
		return snet.PacketInfo{}, false
	}
	return snet.PacketInfo{
		Destination: in.Source, Source: in.Destination, Path: back,
		Payload: snet.SCMPEchoReply{Identifier: request.Identifier, SeqNumber: request.SeqNumber, Payload: request.Payload},
	}, true
}

// echoHandler passes echo requests up as errors, which is how snet lets an SCMP message out of ReadFrom.
type echoHandler struct{}

func (echoHandler) Handle(pkt *snet.Packet) error {
	if m, ok := pkt.Payload.(snet.SCMPEchoRequest); ok {
		return echoRequest{m}
	}
	return nil
}

type echoRequest struct{ snet.SCMPEchoRequest }

func (echoRequest) Error() string { return "echo request" }
