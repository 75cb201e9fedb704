package scionnet

import (
	"context"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

// oneAS is a host in an AS of its own, without any other process: the path inside the AS needs no router.
func oneAS(t testing.TB) *Host {
	t.Helper()
	dir := t.TempDir()
	topo := `{"isd_as":"1-ff00:0:110","mtu":1400,"dispatched_ports":"1024-65535","attributes":["core"],
		"control_service":{"cs1":{"addr":"127.0.0.1:30252"}},"discovery_service":{"cs1":{"addr":"127.0.0.1:30252"}}}`
	if err := os.WriteFile(filepath.Join(dir, "topology.json"), []byte(topo), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "certs"), 0o700); err != nil {
		t.Fatal(err)
	}
	h, err := Open(t.Context(), Config{ConfigDir: dir, LocalIP: netip.MustParseAddr("127.0.0.1")})
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

func TestSmoke(t *testing.T) {
	h := oneAS(t)
	ctx := context.Background()
	a, err := h.Listen(ctx, ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := h.Listen(ctx, ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ps, err := h.Paths(ctx, h.IA())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		c, err := b.Accept(ctx)
		if err != nil {
			return
		}
		io.Copy(c, c)
		c.Close()
	}()
	key := b.Key()
	c, err := a.Dial(ctx, b.Addr(), ps[0], &key)
	if err != nil {
		t.Fatal(err)
	}
	c.Write([]byte("hello"))
	buf := make([]byte, 5)
	if _, err := io.ReadFull(c, buf); err != nil {
		t.Fatal(err)
	}
	t.Log(string(buf), c.Stats(), c.RemoteAddr())
	c.Close()
}
