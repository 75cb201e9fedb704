package scionnet

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"braid/pathsel"
)

// Addr is a port of a host: on SCION, or with a zero IA on IP. It is comparable. Port 0 stands for
// any free port when listening and is refused when dialling.
type Addr struct {
	IA   pathsel.IA
	Host netip.Addr
	Port uint16
}

var _ net.Addr = Addr{}

// IPAddr is an address on IP.
func IPAddr(a netip.AddrPort) Addr { return Addr{Host: a.Addr().Unmap(), Port: a.Port()} }

// AddrPort is the address without its AS.
func (a Addr) AddrPort() netip.AddrPort { return netip.AddrPortFrom(a.Host, a.Port) }

// IsSCION reports whether the address is one on SCION.
func (a Addr) IsSCION() bool { return a.IA != 0 }

// Dialable reports whether somebody can be at the address: it names a single host, in an AS or on
// IP, and a port.
func (a Addr) Dialable() bool {
	h := a.Host
	single := h.IsValid() && !h.IsUnspecified() && !h.IsMulticast() && h.Zone() == "" && !h.Is4In6()
	return single && a.Port != 0 && (a.IA == 0 || a.IA.ISD() != 0 && a.IA.AS() != 0)
}

// Network implements net.Addr.
func (a Addr) Network() string {
	if !a.IsSCION() {
		return "udp"
	}
	return "scion+udp"
}

// String writes the form 1-ff00:0:111,[127.0.0.1]:31000, for both IPv4 and IPv6 hosts, and netip's
// form of an address on IP.
func (a Addr) String() string {
	if !a.IsSCION() {
		return a.AddrPort().String()
	}
	return a.IA.String() + ",[" + a.Host.String() + "]:" + strconv.Itoa(int(a.Port))
}

// MarshalText writes the form of String.
func (a Addr) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what ParseAddr reads, and an address on IP. It may be one that is not
// Dialable, such as the 0.0.0.0 of a socket.
func (a *Addr) UnmarshalText(b []byte) error {
	s := string(b)
	if strings.Contains(s, ",") {
		v, err := ParseAddr(s)
		if err == nil {
			*a = v
		}
		return err
	}
	v, err := netip.ParseAddrPort(s)
	if err != nil {
		return fmt.Errorf("address %q: want host:port, or ISD-AS,[host]:port on SCION", s)
	}
	*a = IPAddr(v)
	return nil
}

// ParseAddr reads an address on SCION: 1-ff00:0:111,[127.0.0.1]:31000,
// [1-ff00:0:111,127.0.0.1]:31000 and, for IPv4 hosts only, 1-ff00:0:111,127.0.0.1:31000.
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

// Family is a form of compact addresses, as trackers and the DHT send them.
type Family uint8

// The families.
const (
	IP4    Family = iota // host and port, 6 bytes (BEP 23)
	IP6                  // 18 bytes (BEP 7)
	SCION4               // ISD-AS, IPv4 host and port, 14 bytes
	SCION6               // 26 bytes
	Families
)

// Size is that of a compact address in bytes.
func (f Family) Size() int { return [...]int{4 + 2, 16 + 2, 8 + 4 + 2, 8 + 16 + 2}[f] }

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

// AppendCompact writes the ISD-AS (on SCION), the host and the port.
func (a Addr) AppendCompact(b []byte) []byte {
	if a.IsSCION() {
		b = binary.BigEndian.AppendUint64(b, uint64(a.IA))
	}
	if v := a.Host.As16(); a.Host.Is4() {
		b = append(b, v[12:]...)
	} else {
		b = append(b, v[:]...)
	}
	return binary.BigEndian.AppendUint16(b, a.Port)
}

// ParseCompact reads an address, whose length names its family. IPv4 in the form of IPv6 becomes
// IPv4. ok is false if it is of no family, or not Dialable.
func ParseCompact(b []byte) (a Addr, ok bool) {
	if len(b) == SCION4.Size() || len(b) == SCION6.Size() {
		if a.IA, b = pathsel.IA(binary.BigEndian.Uint64(b)), b[8:]; a.IA == 0 {
			return Addr{}, false
		}
	}
	if len(b) != IP4.Size() && len(b) != IP6.Size() {
		return Addr{}, false
	}
	port := len(b) - 2
	host, _ := netip.AddrFromSlice(b[:port])
	a.Host, a.Port = host.Unmap(), binary.BigEndian.Uint16(b[port:])
	return a, a.Dialable()
}
