package dht

import (
	"errors"
	"fmt"
	"net/netip"

	"braid/pathsel"
	"braid/scionnet"
)

// Addr is where a node or a peer is, on SCION or on IP.
type Addr = scionnet.Addr

// ParseAddr reads the address of a node: 1-ff00:0:110,[10.0.0.1]:31000, 192.0.2.1:6881 or
// [2001:db8::1]:6881.
func ParseAddr(s string) (a Addr, err error) {
	if err = a.UnmarshalText([]byte(s)); err == nil && !a.Dialable() {
		err = fmt.Errorf("node %q: no node can have this address", s)
	}
	if err != nil {
		return Addr{}, err
	}
	return a, nil
}

// wants are the families' names in "want" (BEP 32). Those on SCION are this package's own.
var wants = [scionnet.Families]string{"n4", "n6", "s4", "s6"}

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

// NetworkOf is the network of an address.
func NetworkOf(a Addr) Network { return min(Network(a.Family()), OverSCION) }

var errCompact = errors.New("compact addresses have a wrong length")

// group is the unit in which scarce things are shared: an AS, an IPv4 /24 or an IPv6 /48. Addresses
// on IP that are not public, such as those of a test on one machine, have no group: nobody on the
// Internet can have them.
type group struct {
	ia  pathsel.IA
	net netip.Prefix
}

func groupOf(a Addr) group {
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
