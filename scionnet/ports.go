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
	return fmt.Sprintf("AS %s delivers packets to ports %d-%d of its hosts only, not to port %d", e.IA, e.From, e.To, e.Port)
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
	if !h.anyPort {
		return &PortError{port, h.ia, r.Start, r.End}
	}
	h.log.Warn("the AS does not deliver to this port: packets arrive only through a shim dispatcher on this host",
		"port", port, "from", r.Start, "to", r.End)
	return nil
}

// leastPort is the first port that needs no privileges.
const leastPort = 1024

// atPort opens a socket at the port. For port 0 it takes a free port that the AS delivers to: the
// system's choice if that is one of them, otherwise a random one.
func (h *Host) atPort(port uint16, open func(*net.UDPAddr) error) error {
	at := net.UDPAddr{IP: h.localIP.AsSlice(), Port: int(port)}
	from, to := max(leastPort, int(h.topo.PortRange.Start)), int(h.topo.PortRange.End)
	if port != 0 || to < from {
		return h.opened(at.Port, open(&at))
	}
	if free, err := net.ListenUDP("udp", &at); err != nil {
		return h.opened(0, err)
	} else {
		at.Port = free.LocalAddr().(*net.UDPAddr).Port
		free.Close()
	}
	n := to - from + 1
	start := rand.IntN(n)
	if at.Port >= from && at.Port <= to {
		start = at.Port - from
	}
	var err error
	for i := range n {
		at.Port = from + (start+i)%n
		if err = open(&at); !errors.Is(err, syscall.EADDRINUSE) {
			return h.opened(at.Port, err)
		}
	}
	return fmt.Errorf("open a UDP port of %s: all ports from %d to %d are taken: %w", h.localIP, from, to, err)
}

func (h *Host) opened(port int, err error) error {
	if err != nil {
		return fmt.Errorf("open UDP port %d of %s: %w", port, h.localIP, err)
	}
	return nil
}

// Ports is the range of ports to which the AS delivers. Without a range, both are 0: every host of
// the AS needs a dispatcher.
func (h *Host) Ports() (from, to uint16) { return h.topo.PortRange.Start, h.topo.PortRange.End }
