package scionnet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"

	"braid/pathsel"
)

// An AS delivers packets directly to hosts only for a range of ports (dispatched_ports in
// topology.json). Packets to other ports go to port 30041 of the host, where a shim dispatcher may
// pass them on.

// PortError says that the AS does not deliver to a port, so that an endpoint there would be
// unreachable.
type PortError struct {
	Port     uint16
	IA       pathsel.IA
	From, To uint16 // the range to which it delivers
}

func (e *PortError) Error() string {
	return fmt.Sprintf("AS %s delivers packets to ports %d-%d of its hosts only, not to port %d",
		e.IA, e.From, e.To, e.Port)
}

// underlayPort is the underlay port for a port of a host in this AS: the port itself if the AS
// delivers to it, otherwise that of the shim dispatcher.
func (h *Host) underlayPort(port uint16) uint16 {
	if port >= h.topo.PortRange.Start && port <= h.topo.PortRange.End {
		return port
	}
	return shimPort
}

// mayListen returns an error if no endpoint may be opened at the port; 0 is any free port. In an AS
// without a range, every host has a dispatcher.
func (h *Host) mayListen(port uint16) error {
	r := h.topo.PortRange
	if port == 0 || h.underlayPort(port) == port || r.End == 0 {
		return nil
	}
	if !h.cfg.AnyPort {
		return &PortError{port, h.ia, r.Start, r.End}
	}
	h.log.Warn("the AS does not deliver to this port: packets arrive only through a shim dispatcher on this host",
		"port", port, "from", r.Start, "to", r.End)
	return nil
}

// leastPort is the first port that needs no privileges.
const leastPort = 1024

// listenUDP opens a socket at the port. For port 0 it takes a free port that the AS delivers to:
// the system's choice if that is one of them, otherwise one from a random place on.
func (h *Host) listenUDP(port uint16) (*net.UDPConn, error) {
	at := net.UDPAddr{IP: h.localIP.AsSlice(), Port: int(port)}
	c, err := net.ListenUDP("udp", &at)
	from, to := max(leastPort, int(h.topo.PortRange.Start)), int(h.topo.PortRange.End)
	n := to - from + 1
	if err == nil && port == 0 && n > 0 {
		if free := c.LocalAddr().(*net.UDPAddr).Port; free >= from && free <= to {
			return c, nil
		}
		c.Close()
		start := rand.IntN(n)
		for i := range n {
			at.Port = from + (start+i)%n
			if c, err = net.ListenUDP("udp", &at); !errors.Is(err, syscall.EADDRINUSE) {
				break
			}
		}
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("open a UDP port of %s: all ports from %d to %d are taken: %w",
				h.localIP, from, to, err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open UDP port %d of %s: %w", at.Port, h.localIP, err)
	}
	return c, nil
}

// Ports is the range of ports to which the AS delivers. Without a range, both are 0: every host of
// the AS needs a dispatcher.
func (h *Host) Ports() (from, to uint16) { return h.topo.PortRange.Start, h.topo.PortRange.End }
