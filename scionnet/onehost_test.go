package scionnet

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

// oneAS is a host in an AS of its own. It needs no other process, since a path inside an AS has no
// router.
func oneAS(t testing.TB) *Host { return oneASAt(t, netip.MustParseAddr("127.0.0.1")) }

func oneASAt(t testing.TB, ip netip.Addr) *Host { return oneASOf(t, ip, 1400, "1024-65535") }

// oneASOf is a host in an AS with that MTU. Packets to other ports go to the host's shim
// dispatcher.
func oneASOf(t testing.TB, ip netip.Addr, mtu int, ports string, change ...func(*Config)) *Host {
	t.Helper()
	dir := t.TempDir()
	topo := fmt.Sprintf(`{"isd_as":"1-ff00:0:110","mtu":%d,"dispatched_ports":%q,"attributes":["core"],
		"control_service":{"cs1":{"addr":"127.0.0.1:30252"}},"discovery_service":{"cs1":{"addr":"127.0.0.1:30252"}}}`, mtu, ports)
	if err := os.WriteFile(filepath.Join(dir, "topology.json"), []byte(topo), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "certs"), 0o700); err != nil {
		t.Fatal(err)
	}
	c := Config{ConfigDir: dir, LocalIP: ip}
	for _, f := range change {
		f(&c)
	}
	h, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// listen opens an endpoint and closes it at the end of the test.
func listen(t testing.TB, h *Host, cfg ListenConfig) *Endpoint {
	t.Helper()
	e, err := h.Listen(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// OneASAt, OneASOf and ListenOn are for the tests outside the package.
var (
	OneASAt  = oneASAt
	OneASOf  = oneASOf
	ListenOn = listen
)
