package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"braid/client"
)

// A node of the DHT in one AS, a seed there that tells it of a torrent, and a download in another AS
// that has the hash alone.
func TestMagnetOverSCION(t *testing.T) {
	n, from, to := startNetwork(t, "two-paths")
	dir, out := t.TempDir(), t.TempDir()
	data := randomFile(t, dir, 10, 1<<20)
	hub := ready(t, dir, "dht", "--json", "--config-dir", n.ConfigDir(from), "--listen", fmt.Sprintf("%s,[%s]:0", from, n.HostIP(from)))
	must(t, dir, "create", "file", "-o", "x.torrent")
	src, err := client.OpenSource(t.Context(), filepath.Join(dir, "x.torrent"))
	if err != nil {
		t.Fatal(err)
	}
	magnet := "magnet:?xt=urn:btih:" + src.InfoHash.HexString()
	ready(t, dir, "seed", "x.torrent", "--json", "--config-dir", n.ConfigDir(from), "--dht-node", hub[0],
		"--listen", fmt.Sprintf("%s,[%s]:0", from, n.HostIP(from)))
	where := []string{"--config-dir", n.ConfigDir(to), "--local", n.HostIP(to).String(), "--transport", "scion", "--json"}
	code, events, said := ends(t, out, append([]string{"download", magnet, "--dht-node", hub[0], "-o", out}, where...)...)
	if code != 0 {
		t.Fatalf("%d: %s%s", code, events, said)
	}
	if got, err := os.ReadFile(filepath.Join(out, "file")); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
