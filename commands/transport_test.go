package commands

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"braid/node/event"
)

// The same seed and download, as programs, over each transport.
func TestTransports(t *testing.T) {
	dir := t.TempDir()
	b := make([]byte, 8<<20)
	rand.NewChaCha8([32]byte{5}).Read(b)
	if err := os.WriteFile(filepath.Join(dir, "file"), b, 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, said := ends(t, dir, "create", "file"); code != 0 {
		t.Fatal(said)
	}
	// A host in an AS of its own needs no router.
	as := filepath.Join(dir, "as")
	topo := `{"isd_as":"1-ff00:0:110","mtu":1400,"dispatched_ports":"1024-65535","attributes":["core"],
		"control_service":{"cs1":{"addr":"127.0.0.1:30252"}},"discovery_service":{"cs1":{"addr":"127.0.0.1:30252"}}}`
	if err := os.MkdirAll(filepath.Join(as, "certs"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(as, "topology.json"), []byte(topo), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		transport, listen string
		leecher           []string
	}{
		{"tcp", "127.0.0.2:0", nil},
		{"quic", "127.0.0.2:0", nil},
		{"scion", "1-ff00:0:110,[127.0.0.2]:0", []string{"--config-dir", as, "--local", "127.0.0.3"}},
	} {
		t.Run(tt.transport, func(t *testing.T) {
			own := func(name string) []string {
				return []string{"--transport", tt.transport, "--identity", filepath.Join(t.TempDir(), name), "--json"}
			}
			seeder := append([]string{"seed", "file.torrent", "--listen", tt.listen}, own("seeder")...)
			if tt.transport == "scion" {
				seeder = append(seeder, "--config-dir", as)
			}
			peer := ready(t, dir, seeder...)[0]
			out := t.TempDir()
			leecher := append([]string{"download", "file.torrent", "-o", out, "--peer", peer}, own("leecher")...)
			code, stdout, stderr := ends(t, dir, append(leecher, tt.leecher...)...)
			if code != 0 {
				t.Fatalf("exit code %d: %s", code, stderr)
			}
			var done event.Done
			lines := strings.Split(strings.TrimSpace(stdout), "\n")
			if err := json.Unmarshal([]byte(lines[len(lines)-1]), &done); err != nil {
				t.Fatal(err)
			}
			if len(done.Paths) != 1 {
				t.Fatalf("%+v", done)
			}
			// One structure, filled in by all.
			if p := done.Paths[0]; p.Transport != tt.transport || p.BytesRead < uint64(len(b)) || p.RTT <= 0 || p.MinRTT <= 0 || p.Handshake <= 0 || p.PacketsSent == 0 {
				t.Errorf("%+v", p)
			}
			if code, _, said := ends(t, dir, "verify", "file.torrent", "--data", out); code != 0 {
				t.Error(said)
			}
		})
	}
	for _, wrong := range [][]string{{"carrier-pigeon"}, {"tcp", "quic"}} {
		args := []string{"download", "file.torrent", "--peer", "127.0.0.1:1"}
		for _, w := range wrong {
			args = append(args, "--transport", w)
		}
		if code, _, said := ends(t, dir, args...); code != 2 || !strings.Contains(said, "--transport") {
			t.Errorf("--transport %v: exit code %d, %s", wrong, code, said)
		}
	}
	if code, _, said := ends(t, dir, "download", "file.torrent", "--peer", "127.0.0.1:1", "--transport", "scion"); code != 1 || !strings.Contains(said, "SCION only") {
		t.Errorf("a peer on IP without a transport for it: exit code %d, %s", code, said)
	}
}
