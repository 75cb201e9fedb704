package scionnet

import (
	"errors"
	"net/netip"
	"testing"
)

// An endpoint can only have a port to which the AS delivers, unless AnyPort is set.
func TestPortsOfAS(t *testing.T) {
	ip := netip.MustParseAddr("127.0.0.61")
	h := oneASOf(t, ip, 1400, "31990-31999")
	var refused *PortError
	for _, port := range []uint16{31989, 32000, 900} {
		if _, err := h.Listen(t.Context(), ListenConfig{Port: port}); !errors.As(err, &refused) || refused.From != 31990 || refused.To != 31999 {
			t.Errorf("port %d: %v", port, err)
		}
		if _, err := h.OpenHTTP(t.Context(), port); !errors.As(err, &refused) {
			t.Errorf("HTTP on port %d: %v", port, err)
		}
	}
	// Free ports come from the range until none is left.
	for range 5 {
		for _, plain := range []bool{false, true} {
			if e := listen(t, h, ListenConfig{PlainPackets: plain}); e.Addr().Port < 31990 || e.Addr().Port > 31999 {
				t.Errorf("port %d was taken", e.Addr().Port)
			}
		}
	}
	if e, err := h.Listen(t.Context(), ListenConfig{}); err == nil {
		t.Errorf("port %d was taken though all are", e.Addr().Port)
		e.Close()
	}
	forced := oneASOf(t, ip, 1400, "31990-31999", func(c *Config) { c.AnyPort = true })
	listen(t, forced, ListenConfig{Port: 32000})
}
