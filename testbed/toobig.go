package testbed

import (
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/slayers"
	"github.com/scionproto/scion/pkg/slayers/path/scion"
	"github.com/scionproto/scion/pkg/snet"
	snetpath "github.com/scionproto/scion/pkg/snet/path"

	"braid/pathsel"
)

// quoted is how many bytes of a packet an SCMP error quotes: enough for all headers and the ports,
// but few enough that the error passes links that the packet did not.
const quoted = 400

// answerTooBig returns the answer (SCMP packet too big) of an AS's router at the far end of a link
// to the sender of a packet that is larger than the link's MTU; nil if there is none. scionproto's
// router ignores the MTU of its links, but other routers answer like this.
func answerTooBig(packet []byte, mtu int, router pathsel.IA, at netip.Addr) []byte {
	var s slayers.SCION
	if s.DecodeFromBytes(packet, gopacket.NilDecodeFeedback) != nil || s.NextHdr == slayers.L4SCMP {
		return nil // above all, no errors about errors
	}
	to, err := s.SrcAddr()
	raw, ok := s.Path.(*scion.Raw)
	if err != nil || !ok {
		return nil
	}
	path, err := raw.ToDecoded()
	if err != nil {
		return nil
	}
	// The packet's current hop is the far router's. What that does to the segment identifier as the
	// last router of the way there and as the first of the way back cancels out.
	if _, err := path.Reverse(); err != nil || path.IncPath() != nil {
		return nil
	}
	back := make([]byte, path.Len())
	if path.SerializeTo(back) != nil {
		return nil
	}
	p := snet.Packet{PacketInfo: snet.PacketInfo{
		Source:      snet.SCIONAddress{IA: addr.IA(router), Host: addr.HostIP(at)},
		Destination: snet.SCIONAddress{IA: s.SrcIA, Host: to},
		Path:        snetpath.SCION{Raw: back},
		Payload:     snet.SCMPPacketTooBig{MTU: uint16(mtu), Payload: packet[:min(len(packet), quoted)]},
	}}
	if p.Serialize() != nil {
		return nil
	}
	return p.Bytes
}
