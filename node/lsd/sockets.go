package lsd

import (
	"errors"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// socket is a member of the multicast group for IPv4 or IPv6, on some networks.
type socket struct {
	net.PacketConn
	group    netip.AddrPort
	networks []network
	four     *ipv4.PacketConn // nil for IPv6
	six      *ipv6.PacketConn // nil for IPv4
}

// datagram is a received datagram.
type datagram struct {
	from  netip.AddrPort
	index int  // of the interface; 0: unknown
	group bool // it was sent to the group
	bytes []byte
}

// openSockets joins the groups on all networks. It returns the sockets that it could open, and the
// errors about all others.
func openSockets(networks []network) (out []*socket, errs error) {
	for _, group := range []netip.AddrPort{group4, group6} {
		var family []network
		for _, n := range networks {
			if n.is6() == group.Addr().Is6() {
				family = append(family, n)
			}
		}
		s, err := openSocket(group, family)
		if errs = errors.Join(errs, err); s != nil {
			out = append(out, s)
		}
	}
	return out, errs
}

// joined returns the number of networks on which the sockets have joined their groups.
func joined(sockets []*socket) (n int) {
	for _, s := range sockets {
		n += len(s.networks)
	}
	return n
}

// openSocket joins a group on some networks. Other programs may use the same port.
func openSocket(group netip.AddrPort, networks []network) (*socket, error) {
	at, name := net.UDPAddrFromAddrPort(group), "udp4"
	if group.Addr().Is6() {
		name = "udp6"
	}
	s := &socket{group: group}
	var errs error
	for _, n := range networks {
		i := &net.Interface{Index: n.index, Name: n.name}
		var err error
		switch {
		case s.PacketConn == nil:
			var c *net.UDPConn
			if c, err = net.ListenMulticastUDP(name, i, at); err == nil {
				s.PacketConn = c
				err = s.prepare()
			}
		case s.six != nil:
			err = s.six.JoinGroup(i, at)
		default:
			err = s.four.JoinGroup(i, at)
		}
		if errs = errors.Join(errs, err); err == nil {
			s.networks = append(s.networks, n)
		}
	}
	if s.PacketConn == nil {
		return nil, errs
	}
	return s, errs
}

// prepare makes the socket report the interface and the destination of each datagram, and deliver
// its own datagrams to other programs of this host.
func (s *socket) prepare() error {
	if s.group.Addr().Is6() {
		s.six = ipv6.NewPacketConn(s.PacketConn)
		return errors.Join(
			s.six.SetMulticastLoopback(true),
			s.six.SetControlMessage(ipv6.FlagDst|ipv6.FlagInterface, true))
	}
	s.four = ipv4.NewPacketConn(s.PacketConn)
	return errors.Join(
		s.four.SetMulticastLoopback(true),
		s.four.SetControlMessage(ipv4.FlagDst|ipv4.FlagInterface, true))
}

// send sends a message to a network.
func (s *socket) send(n network, b []byte) (err error) {
	to, from := net.UDPAddrFromAddrPort(s.group), n.from.WithZone("").AsSlice()
	if s.six != nil {
		_, err = s.six.WriteTo(b, &ipv6.ControlMessage{IfIndex: n.index, Src: from}, to)
	} else {
		_, err = s.four.WriteTo(b, &ipv4.ControlMessage{IfIndex: n.index, Src: from}, to)
	}
	return err
}

// receive waits for the next datagram, whose bytes it puts into the buffer.
func (s *socket) receive(b []byte) (d datagram, err error) {
	var n int
	var from net.Addr
	d.group = true // if the system does not tell the destination
	if s.six != nil {
		var c *ipv6.ControlMessage
		if n, c, from, err = s.six.ReadFrom(b); c != nil {
			d.index, d.group = c.IfIndex, c.Dst.IsMulticast()
		}
	} else {
		var c *ipv4.ControlMessage
		if n, c, from, err = s.four.ReadFrom(b); c != nil {
			d.index, d.group = c.IfIndex, c.Dst.IsMulticast()
		}
	}
	if err != nil {
		return d, err
	}
	d.bytes = b[:n]
	if a, ok := from.(*net.UDPAddr); ok {
		at := a.AddrPort()
		d.from = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	}
	return d, nil
}

// isFromNeighbour tells whether a datagram was sent to the group, by a host of the network on which
// it arrived. Other hosts can send to the port as well, but are no neighbours.
func (s *socket) isFromNeighbour(d datagram) bool {
	return d.group && slices.ContainsFunc(s.networks, func(n network) bool {
		return (d.index == 0 || d.index == n.index) && n.has(d.from.Addr())
	})
}
