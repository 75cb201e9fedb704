package scionnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/scionproto/scion/pkg/snet"
)

// rawConn is a UDP socket for SCION packets. It has snet parse and write them one by one.
type rawConn struct {
	*net.UDPConn
	host  *Host
	local Addr
	nat   *mapper
}

var errSCMP = errors.New("SCMP message")

// openRaw opens a port of the host; 0 is any free one.
func (h *Host) openRaw(ctx context.Context, port uint16) (*rawConn, error) {
	socket, err := h.listenUDP(port)
	if err != nil {
		return nil, err
	}
	c := &rawConn{UDPConn: socket, host: h, local: h.addrOf(socket)}
	if c.nat, err = h.newMapper(ctx, socket); err != nil {
		err = fmt.Errorf("ask the routers for the address of port %d: %w", c.local.Port, err)
		return nil, errors.Join(err, socket.Close())
	}
	return c, nil
}

// readPacket reads the next SCION packet, and the underlay address from which it came. For an SCMP
// message it returns errSCMP. Packets that are not SCION packets are dropped.
func (c *rawConn) readPacket(p *snet.Packet) (from netip.AddrPort, err error) {
	for {
		p.Prepare()
		n, from, err := c.ReadFromUDPAddrPort(p.Bytes)
		if err != nil {
			return from, err
		}
		p.Bytes = p.Bytes[:n]
		from = unmapped(from)
		if isSTUN(p.Bytes) {
			c.nat.handle(p.Bytes, from)
			continue
		}
		if err := p.Decode(); err != nil {
			c.host.log.Debug("packet not accepted", "local", c.local, "error", err)
			continue
		}
		if _, ok := p.Payload.(snet.SCMPPayload); ok {
			return from, errSCMP
		}
		return from, nil
	}
}

// writePacket sends a packet to an underlay address.
func (c *rawConn) writePacket(p *snet.Packet, to netip.AddrPort) error {
	if err := p.Serialize(); err != nil {
		return err
	}
	if e, ok := p.Path.(epicDataplane); ok {
		e.keys.stamp(p.Bytes, time.Now(), new(epicScratch))
	}
	_, err := c.WriteToUDPAddrPort(p.Bytes, to)
	return err
}

func (c *rawConn) mapper() *mapper { return c.nat }

// Close frees the port.
func (c *rawConn) Close() error {
	err := c.UDPConn.Close()
	c.nat.close()
	return err
}
