package scionnet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"

	"github.com/scionproto/scion/pkg/private/common"
	"github.com/scionproto/scion/pkg/slayers"
	"github.com/scionproto/scion/pkg/snet"
)

// Where fields of a SCION packet lie (SCION header specification, common header; the UDP header is
// that of RFC 768).
const (
	atNextHeader = 4 // protocol behind the SCION header
	atHeaderLen  = 5 // of the SCION header, in units of 4 bytes
	atPayloadLen = 6 // two bytes: what is behind the SCION header
	atPathType   = 8 // the first byte that does not change from packet to packet

	atUDPLen      = 4 // in the UDP header
	atUDPChecksum = 6

	// mostHeader is the longest SCION header that its length field can tell, and a UDP header.
	mostHeader = 255*4 + udpHeader
)

// template is the SCION and UDP header of the packets to one route, along one way: from one packet
// to the next only two lengths and the checksum differ. It is never changed, only replaced.
type template struct {
	way     *way // that it was made from
	header  []byte
	sum     uint64 // of all that the checksum covers, but for the lengths, the source port and the payload
	nextHop netip.AddrPort
}

// newTemplate lets snet write a packet without a payload. The source port is left 0: the endpoints
// of a host share its routes.
func newTemplate(local, remote Addr, w *way) (*template, error) {
	p := snet.Packet{
		Bytes:      make(snet.Bytes, common.SupportedMTU),
		PacketInfo: packetInfo(local, remote, bytes.Clone(w.raw), snet.UDPPayload{DstPort: remote.Port}),
	}
	if err := p.Serialize(); err != nil {
		return nil, fmt.Errorf("header of packets to %s: %w", remote, err)
	}
	h := bytes.Clone(p.Bytes)
	udp := h[len(h)-udpHeader:]
	// What snet has summed up for a payload of no bytes, less the length that stands in it twice.
	sum := uint64(^binary.BigEndian.Uint16(udp[atUDPChecksum:])) + 2*(0xffff-udpHeader)
	return &template{way: w, header: h, sum: sum, nextHop: w.nextHop}, nil
}

// write makes the header of a packet in h, which has the length of the template's. The payload is
// prefix, whose length is even, and b.
func (t *template) write(h []byte, srcPort uint16, prefix, b []byte) {
	copy(h, t.header)
	n := udpHeader + len(prefix) + len(b)
	binary.BigEndian.PutUint16(h[atPayloadLen:], uint16(n))
	udp := h[len(h)-udpHeader:]
	binary.BigEndian.PutUint16(udp, srcPort)
	binary.BigEndian.PutUint16(udp[atUDPLen:], uint16(n))
	sum := t.sum + uint64(srcPort) + 2*uint64(n) + onesSum(prefix) + onesSum(b)
	binary.BigEndian.PutUint16(udp[atUDPChecksum:], ^fold(sum))
}

// onesSum is the ones' complement sum of the 16-bit words of b (RFC 1071), folded to less than
// 2^17. Sums of words in the other byte order are sums in the other byte order, so that 64 bits can
// be read at a time.
func onesSum(b []byte) uint64 {
	var sum, carry uint64
	for len(b) >= 32 {
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b), carry)
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b[8:]), carry)
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b[16:]), carry)
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b[24:]), carry)
		b = b[32:]
	}
	for len(b) >= 8 {
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b), carry)
		b = b[8:]
	}
	var last [8]byte
	copy(last[:], b)
	sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(last[:]), carry)
	sum, carry = bits.Add64(sum, 0, carry)
	return uint64(fold(sum)) + carry
}

func fold(sum uint64) uint16 {
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// splitHeader finds where the payload of a SCION/UDP packet begins, and whether the packet is one
// at all, as far as the bytes tell that change from packet to packet. All the others are the key of
// the packet's sender, way and receiver; see headerKey.
func splitHeader(p []byte) (header, payload []byte, ok bool) {
	if len(p) < commonAndIAs || slayers.L4ProtocolType(p[atNextHeader]) != slayers.L4UDP {
		return nil, nil, false
	}
	n := int(p[atHeaderLen])*4 + udpHeader
	if len(p) < n || n < commonAndIAs+udpHeader {
		return nil, nil, false
	}
	length := len(p) - (n - udpHeader)
	udp := p[n-udpHeader : n]
	if int(binary.BigEndian.Uint16(p[atPayloadLen:])) != length || int(binary.BigEndian.Uint16(udp[atUDPLen:])) != length {
		return nil, nil, false
	}
	return p[:n], p[n:], true
}

// sameHeader tells whether a header is that of the key.
func sameHeader(header []byte, key string) bool {
	n := len(header) - udpHeader
	return len(header) == len(key) &&
		string(header[atNextHeader:atPayloadLen]) == key[atNextHeader:atPayloadLen] &&
		string(header[atPathType:n+atUDPLen]) == key[atPathType:n+atUDPLen]
}

// headerKey is the header without what differs from packet to packet: traffic class, flow ID,
// lengths and checksum.
func headerKey(scratch, header []byte) []byte {
	k := scratch[:0]
	k = append(k, header...)
	clear(k[:atNextHeader])
	clear(k[atPayloadLen:atPathType])
	clear(k[len(k)-udpHeader+atUDPLen:])
	return k
}
