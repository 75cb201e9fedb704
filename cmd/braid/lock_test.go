package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"braid/client"
	"braid/commands/program"
)

// Two downloads into one directory: the second one names the first.
func TestLockNamesHolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	smallTorrent(t, dir)
	args := []string{"download", "file.torrent", "-o", "out", "--peer", "127.0.0.1:1", "--json"}
	first := braid(t, dir, args...)
	out, err := first.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = first.Process.Kill()
		_ = first.Wait()
	}()
	if !bufio.NewScanner(out).Scan() { // the first event: it is at work
		t.Fatal("no event")
	}
	code, _, said := ends(t, dir, args...)
	if want := fmt.Sprintf("another braid is using it (process %d: %s download file.torrent -o out", first.Process.Pid, first.Path); code != program.Failed || !strings.Contains(said, want) {
		t.Errorf("exit code %d, no %q: %s", code, want, said)
	}
}

// A gateway deletes data in its cache that is not of its torrents, but not that of another gateway.
func TestGatewaysShareNoCache(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	smallTorrent(t, dir)
	randomFile(t, dir, 70, 1000)
	must(t, dir, "create", "file", "-o", "other.torrent")
	args := []string{"--transport", "tcp", "--listen", "127.0.0.1:0", "--tracker-listen", "http://127.0.0.1:0", "--dht", "off", "--json"}
	ready(t, dir, append([]string{"gateway", "file.torrent"}, args...)...)
	src, err := client.OpenSource(t.Context(), filepath.Join(dir, "file.torrent"))
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "gateway-cache", src.InfoHash.HexString())
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	code, _, said := ends(t, dir, append([]string{"gateway", "other.torrent"}, args...)...)
	if _, err := os.Stat(data); code != program.Failed || err != nil || !strings.Contains(said, "another braid gateway") {
		t.Errorf("exit code %d: %s, %v", code, said, err)
	}
}
