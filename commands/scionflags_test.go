package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"braid/commands/program"
)

// An address to listen on that does not fit the AS is refused with the reason, and no flag is
// blamed that nobody gave.
func TestListenFitsTheAS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	smallTorrent(t, dir)
	as := filepath.Join(dir, "as")
	if err := os.MkdirAll(filepath.Join(as, "certs"), 0o700); err != nil {
		t.Fatal(err)
	}
	topo := `{"isd_as":"1-ff00:0:110","mtu":1400,"dispatched_ports":"31000-32767","attributes":["core"],
		"control_service":{"cs1":{"addr":"127.0.0.1:30252"}},"discovery_service":{"cs1":{"addr":"127.0.0.1:30252"}}}`
	if err := os.WriteFile(filepath.Join(as, "topology.json"), []byte(topo), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ listen, says string }{
		{"1-ff00:0:999,[127.0.0.62]:31000", "this host is in AS 1-ff00:0:110"},
		{"1-ff00:0:110,[127.0.0.62]:42000", "31000-32767"},
	} {
		for _, args := range [][]string{
			{"seed", "file.torrent", "--listen", tt.listen},
			{"download", "file.torrent", "--peer", "1-ff00:0:110,[127.0.0.62]:31001", "-o", "out", "--listen", tt.listen},
			{"tracker", "--listen", "scion://" + tt.listen},
		} {
			code, _, said := ends(t, dir, append(args, "--config-dir", as)...)
			if code != program.Usage || !strings.Contains(said, tt.says) || !strings.Contains(said, tt.listen) || strings.Contains(said, "--isd-as") {
				t.Errorf("%v: exit code %d: %s", args, code, said)
			}
		}
	}
	// Who insists gets it, with a warning.
	seed := ready(t, dir, "seed", "file.torrent", "--listen", "1-ff00:0:110,[127.0.0.62]:42000", "--force", "--config-dir", as, "--json")
	if len(seed) != 1 {
		t.Errorf("listening on %v", seed)
	}
}

// A wrong value is noticed on a host without SCION, too.
func TestWrongNAT(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	smallTorrent(t, dir)
	code, _, said := ends(t, dir, "download", "file.torrent", "-o", "out", "--peer", "127.0.0.1:1", "--nat", "zz")
	if want := `--nat "zz": want auto, on or off`; code != program.Usage || !strings.Contains(said, want) {
		t.Errorf("exit code %d: %s", code, said)
	}
}
