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

// Positions of fields in a SCION packet (SCION header specification, common header; RFC 768 for
// UDP).
const (
	atNextHeader = 4 // the protocol after the SCION header
	atHeaderLen  = 5 // of the SCION header, in units of 4 bytes
	atPayloadLen = 6 // two bytes: the length of everything after the SCION header
	atPathType   = 8 // from here on, all of a connection's packets have the same bytes, but for EPIC's fields
	atHostTypes  = 9 // of the destination, in the upper half, and of the source
	atSourceIA   = 20

	atUDPLen      = 4 // in the UDP header
	atUDPChecksum = 6

	// mostHeader is the length of the longest possible SCION header plus a UDP header.
	mostHeader = 255*4 + udpHeader
)

// template is the SCION and UDP header of the packets along one way of a route. Between packets
// only two lengths and the checksum differ. A template is never changed, only replaced.
type template struct {
	way     *way       // from which it was made
	host    netip.Addr // source in the header
	header  []byte
	sum     uint64 // checksum of all but the lengths, the source port and the payload
	nextHop netip.AddrPort
}

// newTemplate has snet write a packet without a payload. The source port is 0, since the endpoints
// of a host share its routes.
func newTemplate(local, remote Addr, w *way) (*template, error) {
	p := snet.Packet{
		Bytes:      make(snet.Bytes, common.SupportedMTU),
		PacketInfo: packetInfo(local, remote, w.dataplane(bytes.Clone(w.raw)), snet.UDPPayload{DstPort: remote.Port}),
	}
	if err := p.Serialize(); err != nil {
		return nil, fmt.Errorf("header of packets to %s: %w", remote, err)
	}
	h := bytes.Clone(p.Bytes)
	udp := h[len(h)-udpHeader:]
	// This is snet's checksum for an empty payload, less the length, which it counts twice.
	sum := uint64(^binary.BigEndian.Uint16(udp[atUDPChecksum:])) + 2*(0xffff-udpHeader)
	return &template{way: w, host: local.Host, header: h, sum: sum, nextHop: w.nextHop}, nil
}

// write writes the header of a packet into h, which has the length of the template. The payload is
// prefix, of even length, and b.
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
// 2^17. It adds 64 bits at a time, since the order of the words does not matter.
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

// splitHeader splits a SCION/UDP packet into headers and payload. It checks only the fields that
// differ between packets of one connection; headerKey identifies all others.
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
	inSCION, inUDP := binary.BigEndian.Uint16(p[atPayloadLen:]), binary.BigEndian.Uint16(udp[atUDPLen:])
	if int(inSCION) != length || int(inUDP) != length {
		return nil, nil, false
	}
	return p[:n], p[n:], true
}

// sameHeader tells whether the header has that key.
func sameHeader(header []byte, key string) bool {
	end := len(header) - udpHeader + atUDPLen
	from, to := epicFields(header)
	return len(header) == len(key) &&
		string(header[atNextHeader:atPayloadLen]) == key[atNextHeader:atPayloadLen] &&
		string(header[atPathType:from]) == key[atPathType:from] && string(header[to:end]) == key[to:end]
}

// headerKey is the header with zeros for the fields that differ between packets of one connection:
// traffic class, flow ID, lengths, checksum, and those of EPIC.
func headerKey(scratch, header []byte) []byte {
	k := scratch[:0]
	k = append(k, header...)
	clear(k[:atNextHeader])
	clear(k[atPayloadLen:atPathType])
	from, to := epicFields(k)
	clear(k[from:to])
	clear(k[len(k)-udpHeader+atUDPLen:])
	return k
}
