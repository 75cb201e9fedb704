package scionnet_test

import (
	"net"
	"net/netip"
	"testing"

	"braid/pathsel"
	"braid/scionnet"
	"braid/scionnet/conformance"
)

// pairOf is two endpoints of one host.
func pairOf(t *testing.T, ip netip.Addr, cfg scionnet.ListenConfig) conformance.Pair {
	h := scionnet.OneASAt(t, ip)
	paths, err := h.Paths(t.Context(), h.IA())
	if err != nil {
		t.Fatal(err)
	}
	return conformance.Pair{
		Dialer:   scionnet.ListenOn(t, h, cfg),
		Acceptor: scionnet.ListenOn(t, h, cfg),
		Paths:    []pathsel.Path{paths[0]},
		Short:    raceDetector || testing.Short(),
	}
}

func TestPlain(t *testing.T) {
	for name, ip := range map[string]netip.Addr{"IPv4": netip.MustParseAddr("127.0.0.1"), "IPv6": netip.IPv6Loopback()} {
		t.Run(name, func(t *testing.T) {
			if c, err := net.ListenUDP("udp", &net.UDPAddr{IP: ip.AsSlice()}); err != nil {
				t.Skipf("this machine has no %s: %v", ip, err)
			} else {
				c.Close()
			}
			conformance.Run(t, func(t *testing.T) conformance.Pair { return pairOf(t, ip, scionnet.ListenConfig{}) })
		})
	}
}
