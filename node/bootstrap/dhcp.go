package bootstrap

import (
	"encoding/binary"
	"errors"
	"net/netip"
)

// A host with an address asks the DHCP server of its network for options with DHCPINFORM (RFC 2131,
// section 4.4.3). This needs the privileged port 68, so root or CAP_NET_BIND_SERVICE. Only two
// options in the one answer matter, so a library for all of DHCP would need more code than this
// file.

const (
	dhcpServerPort = 67
	dhcpClientPort = 68
	dhcpFixed      = 236 // bytes before the magic number
	dhcpMagic      = 0x63825363

	optionWWW      = 72  // RFC 2132, section 8.13: here the discovery server
	optionRequest  = 55  // which options are wanted
	optionMessage  = 53  // what a packet is
	optionVendor   = 125 // RFC 3925
	optionEnd      = 255
	messageInform  = 8
	messageAck     = 5
	anapaya        = 55324 // enterprise number of SCION's option
	vendorIP       = 1
	vendorPort     = 2
	maxDHCPServers = 8
)

// informPacket is a DHCPINFORM packet.
func informPacket(id uint32, own netip.Addr, mac []byte) []byte {
	b := make([]byte, dhcpFixed)
	b[0], b[1], b[2] = 1, 1, byte(min(len(mac), 16)) // a request, Ethernet
	binary.BigEndian.PutUint32(b[4:], id)
	copy(b[12:16], own.AsSlice())
	copy(b[28:44], mac)
	b = binary.BigEndian.AppendUint32(b, dhcpMagic)
	b = append(b, optionMessage, 1, messageInform, optionRequest, 2, optionWWW, optionVendor, optionEnd)
	// Some relays drop packets below 300 bytes (RFC 1542, section 2.1).
	return append(b, make([]byte, 300-len(b))...)
}

var errDHCP = errors.New("not a DHCP answer to this request")

// parseAck reads the answer to a DHCPINFORM packet.
func parseAck(b []byte, id uint32) (out []Hint, err error) {
	if len(b) < dhcpFixed+4 || b[0] != 2 {
		return nil, errDHCP
	}
	number := binary.BigEndian.Uint32
	if number(b[4:]) != id || number(b[dhcpFixed:]) != dhcpMagic {
		return nil, errDHCP
	}
	isAck := false
	var plain, vendor []Hint
	eachOption(b[dhcpFixed+4:], func(code byte, v []byte) {
		switch code {
		case optionMessage:
			isAck = len(v) == 1 && v[0] == messageAck
		case optionWWW:
			for ; len(v) >= 4 && len(plain) < maxDHCPServers; v = v[4:] {
				plain = appendHint(plain, v[:4], DefaultPort, "DHCP")
			}
		case optionVendor:
			vendor = vendorServers(v)
		}
	})
	if !isAck {
		return nil, errDHCP
	}
	return append(vendor, plain...), nil // the vendor's option is SCION's own
}

// eachOption calls do for each option, which is a code, a length and a value. It ends at the first
// malformed option.
func eachOption(b []byte, do func(code byte, value []byte)) {
	for len(b) > 0 && b[0] != optionEnd {
		if b[0] == 0 { // padding
			b = b[1:]
			continue
		}
		if len(b) < 2 || len(b) < 2+int(b[1]) {
			return
		}
		do(b[0], b[2:2+int(b[1])])
		b = b[2+int(b[1]):]
	}
}

// vendorServers reads the vendor-identifying option: for each enterprise a length and options.
func vendorServers(b []byte) (out []Hint) {
	for len(b) >= 5 && len(b) >= 5+int(b[4]) {
		enterprise, data := binary.BigEndian.Uint32(b), b[5:5+int(b[4])]
		if b = b[5+int(b[4]):]; enterprise != anapaya {
			continue
		}
		var ip []byte
		port := uint16(DefaultPort)
		eachOption(data, func(code byte, v []byte) {
			switch {
			case code == vendorIP && len(v) == 4:
				ip = v
			case code == vendorPort && len(v) == 2:
				port = binary.BigEndian.Uint16(v)
			}
		})
		if len(out) < maxDHCPServers {
			out = appendHint(out, ip, port, "DHCP")
		}
	}
	return out
}
