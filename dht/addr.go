package dht

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"braid/pathsel"
	"braid/scionnet"
)

// Addr is where a node or a peer is: on SCION, or with a zero IA on IP. Its fields are those of
// scionnet.Addr. It is comparable.
type Addr scionnet.Addr

// IPAddr is an address on IP.
func IPAddr(a netip.AddrPort) Addr { return Addr{Host: a.Addr().Unmap(), Port: a.Port()} }

// IsSCION reports whether the address is one on SCION.
func (a Addr) IsSCION() bool { return a.IA != 0 }

// AddrPort is the address on IP.
func (a Addr) AddrPort() netip.AddrPort { return netip.AddrPortFrom(a.Host, a.Port) }

// String is 1-ff00:0:110,[10.0.0.1]:31000 on SCION, and netip's form on IP.
func (a Addr) String() string {
	if a.IsSCION() {
		return scionnet.Addr(a).String()
	}
	return a.AddrPort().String()
}

// MarshalText writes the form of String.
func (a Addr) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads the form of String, also that of an address that no node can have, such as
// the 0.0.0.0 of a socket.
func (a *Addr) UnmarshalText(b []byte) error {
	s := string(b)
	if strings.Contains(s, ",") {
		return (*scionnet.Addr)(a).UnmarshalText(b)
	}
	v, err := netip.ParseAddrPort(s)
	if err != nil {
		return fmt.Errorf("node %q: want host:port, or ISD-AS,[host]:port on SCION", s)
	}
	*a = IPAddr(v)
	return nil
}

// ParseAddr reads the address of a node: 1-ff00:0:110,[10.0.0.1]:31000, 192.0.2.1:6881 or
// [2001:db8::1]:6881.
func ParseAddr(s string) (a Addr, err error) {
	if err = a.UnmarshalText([]byte(s)); err == nil && !a.usable() {
		err = fmt.Errorf("node %q: no node can have this address", s)
	}
	if err != nil {
		return Addr{}, err
	}
	return a, nil
}

// usable reports whether somebody can be at the address.
func (a Addr) usable() bool {
	h := a.Host
	if !h.IsValid() || h.IsUnspecified() || h.IsMulticast() || h.Zone() != "" || h.Is4In6() || a.Port == 0 {
		return false
	}
	return a.IA == 0 || a.IA.ISD() != 0 && a.IA.AS() != 0
}

// Family is a form of compact addresses.
type Family uint8

// The families. The keys of nodes are those of BEP 5, BEP 32 and, for SCION, this package.
const (
	IP4    Family = iota // nodes, 6 bytes
	IP6                  // nodes6, 18 bytes
	SCION4               // nodes_s4, 14 bytes: ISD-AS, IPv4 host, port
	SCION6               // nodes_s6, 26 bytes: ISD-AS, IPv6 host, port
	families
)

// wants are the families' names in "want".
var wants = [families]string{"n4", "n6", "s4", "s6"}

// Network is a set of nodes that reach each other, which makes one DHT. A SCION host reaches hosts
// of both kinds in other ASes, so both families of SCION are one network.
type Network uint8

// The networks.
const (
	OverIP4 Network = iota
	OverIP6
	OverSCION
	networks
)

var networkNames = [networks]string{"ip4", "ip6", "scion"}

func (n Network) String() string { return networkNames[n] }

func (f Family) network() Network { return min(Network(f), OverSCION) }

func (f Family) hostLen() int {
	if f == IP4 || f == SCION4 {
		return 4
	}
	return 16
}

// size is that of a compact address in bytes.
func (f Family) size() int {
	if f >= SCION4 {
		return 8 + f.hostLen() + 2
	}
	return f.hostLen() + 2
}

// Family of the address.
func (a Addr) Family() Family {
	f := IP4
	if a.Host.Is6() {
		f = IP6
	}
	if a.IsSCION() {
		f += SCION4
	}
	return f
}

// Network of the address.
func (a Addr) Network() Network { return a.Family().network() }

// appendCompact writes the AS (on SCION), the host and the port.
func (a Addr) appendCompact(b []byte) []byte {
	if a.IsSCION() {
		b = binary.BigEndian.AppendUint64(b, uint64(a.IA))
	}
	b = append(b, a.Host.AsSlice()...)
	return binary.BigEndian.AppendUint16(b, a.Port)
}

var errCompact = errors.New("compact addresses have a wrong length")

// parseCompact reads one address of that family. ok is false if nobody can have it.
func parseCompact(b []byte, f Family) (a Addr, ok bool) {
	if f >= SCION4 {
		a.IA, b = pathsel.IA(binary.BigEndian.Uint64(b)), b[8:]
	}
	host, _ := netip.AddrFromSlice(b[:f.hostLen()])
	a.Host, a.Port = host, binary.BigEndian.Uint16(b[f.hostLen():])
	return a, a.usable() && a.Family() == f
}

// parsePeer reads a peer, whose length names its family: 6, 18, 14 or 26 bytes.
func parsePeer(b []byte) (Addr, bool) {
	for f := range families {
		if len(b) == f.size() {
			return parseCompact(b, f)
		}
	}
	return Addr{}, false
}

// group is who shares scarce things: an AS, an IPv4 /24 or an IPv6 /48. Near addresses on IP, such
// as those of a test on one machine, have no group: nobody on the Internet can have them.
type group struct {
	ia  pathsel.IA
	net netip.Prefix
}

func (a Addr) group() group {
	if a.IsSCION() {
		return group{ia: a.IA}
	}
	if scionnet.ScopeOf(a.Host) != scionnet.ScopePublic {
		return group{}
	}
	bits := 24
	if a.Host.Is6() {
		bits = 48
	}
	p, _ := a.Host.Prefix(bits)
	return group{net: p}
}

// limited reports whether limits for groups apply.
func (g group) limited() bool { return g != group{} }

func (g group) String() string {
	switch {
	case g.ia != 0:
		return g.ia.String()
	case g.net.IsValid():
		return g.net.String()
	}
	return "local"
}
