package scionnet

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"braid/pathsel"
)

// Addr is a UDP port of a SCION host. It is comparable. Port 0 stands for any free port when
// listening and is refused when dialling.
type Addr struct {
	IA   pathsel.IA
	Host netip.Addr
	Port uint16
}

var _ net.Addr = Addr{}

// Network is "scion+udp".
func (a Addr) Network() string { return "scion+udp" }

// String writes the form 1-ff00:0:111,[127.0.0.1]:31000, for both IPv4 and IPv6 hosts.
func (a Addr) String() string {
	return a.IA.String() + ",[" + a.Host.String() + "]:" + strconv.Itoa(int(a.Port))
}

// MarshalText writes the form of String.
func (a Addr) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what ParseAddr reads.
func (a *Addr) UnmarshalText(b []byte) error {
	v, err := ParseAddr(string(b))
	if err == nil {
		*a = v
	}
	return err
}

// ParseAddr reads 1-ff00:0:111,[127.0.0.1]:31000, [1-ff00:0:111,127.0.0.1]:31000 and, for IPv4
// hosts only, 1-ff00:0:111,127.0.0.1:31000.
func ParseAddr(s string) (Addr, error) {
	a, err := parseAddr(s)
	if err != nil {
		return Addr{}, fmt.Errorf("SCION address %q: %w", s, err)
	}
	return a, nil
}

func parseAddr(s string) (Addr, error) {
	ia, rest, ok := strings.Cut(s, ",")
	if !ok {
		return Addr{}, fmt.Errorf("want ISD-AS,[host]:port such as 1-ff00:0:111,[127.0.0.1]:31000")
	}
	var host, port string
	switch inner, bracketed := strings.CutPrefix(ia, "["); {
	case bracketed:
		ia = inner
		host, port, ok = strings.Cut(rest, "]:")
	case strings.HasPrefix(rest, "["):
		host, port, ok = strings.Cut(rest[1:], "]:")
	default:
		if host, port, ok = strings.Cut(rest, ":"); strings.Contains(port, ":") {
			return Addr{}, fmt.Errorf("an IPv6 host must stand in brackets: %s,[host]:port", ia)
		}
	}
	if !ok {
		return Addr{}, fmt.Errorf("the port is missing, want for example %s,[127.0.0.1]:31000", ia)
	}
	a, err := parseHost(ia, host)
	if err != nil {
		return Addr{}, err
	}
	p, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return Addr{}, fmt.Errorf("port %q: want a number from 0 to 65535", port)
	}
	a.Port = uint16(p)
	return a, nil
}

// parseHost reads an address without a port.
func parseHost(ia, host string) (Addr, error) {
	v, err := pathsel.ParseIA(ia)
	if err != nil {
		return Addr{}, err
	}
	if v.ISD() == 0 || v.AS() == 0 {
		return Addr{}, fmt.Errorf("%s is a wildcard, not the ISD-AS of a host", v)
	}
	h, err := netip.ParseAddr(host)
	if err != nil {
		return Addr{}, fmt.Errorf("host %q is not an IP address", host)
	}
	// A SCION header has no room for a zone or for the IPv6 form of an IPv4 address. Besides, two
	// spellings of one host must not count as two peers.
	if h.Zone() != "" {
		return Addr{}, fmt.Errorf("host %q: zones have no meaning in SCION", host)
	}
	h = h.Unmap()
	if h.IsUnspecified() {
		return Addr{}, fmt.Errorf("host %q is unspecified: name one address of the host", host)
	}
	return Addr{IA: v, Host: h}, nil
}
