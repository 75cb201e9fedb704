package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"braid/tracker/wire"
)

func TestTrackerFlags(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "tracker.toml")
	if err := os.WriteFile(config, []byte("interval = '10m'\nnum_want = 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, said := ends(t, dir, "tracker", "--config", config, "--listen", "udp://127.0.0.1:1", "--min-interval", "2m", "--print-config")
	if code != 0 || !strings.Contains(out, "interval = '10m0s'") || !strings.Contains(out, "num_want = 7") ||
		!strings.Contains(out, "listen = ['udp://127.0.0.1:1']") || !strings.Contains(out, "min_interval = '2m0s'") {
		t.Errorf("%d: %s%s", code, out, said)
	}
	// What it prints it reads.
	if err := os.WriteFile(config, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, again, said := ends(t, dir, "tracker", "--config", config, "--print-config"); code != 0 || again != out {
		t.Errorf("%d: %s%s", code, again, said)
	}
	for _, tt := range []struct {
		code int
		says string
		args []string
	}{
		{2, "--listen", nil},
		{2, "arguments", []string{"x"}},
		{2, "interval", []string{"--listen", "http://127.0.0.1:0", "--interval", "1ms"}},
		{1, "no such file", []string{"--config", "nothing"}},
		{2, "no such file", []string{"--listen", "http://127.0.0.1:0", "--deny", "nothing"}},
		{2, "gopher", []string{"--listen", "gopher://127.0.0.1:0"}},
		{2, "want http://", []string{"--listen", "127.0.0.1:0"}},
		{2, "want HOST:PORT", []string{"--listen", "http://"}},
		{2, "want HOST:PORT", []string{"--listen", "udp://127.0.0.1"}},
		{2, "want HOST:PORT", []string{"--listen", "stats://127.0.0.1:66000"}},
		{2, "want ISD-AS", []string{"--listen", "scion://127.0.0.1:0"}},
		{2, "port is missing", []string{"--listen", "http://127.0.0.1:"}},
		{1, "topology.json", []string{"--listen", "scion://1-ff00:0:110,[127.0.0.1]:0", "--config-dir", dir}},
	} {
		if code, _, said := ends(t, dir, append([]string{"tracker"}, tt.args...)...); code != tt.code || !strings.Contains(said, tt.says) {
			t.Errorf("%v: exit code %d, %s", tt.args, code, said)
		}
	}
}

// Killed without warning, a tracker forgets at most what came since the last sync; a reload takes
// new lists on.
func TestTrackerKilled(t *testing.T) {
	dir := t.TempDir()
	deny := filepath.Join(dir, "deny")
	if err := os.WriteFile(deny, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"tracker", "--listen", "http://127.0.0.1:0", "--listen", statsAnywhere, "--data", filepath.Join(dir, "data"), "--sync", "100ms", "--deny", deny, "--json"}
	cmd := braid(t, dir, args...)
	events, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(events)
	var e struct{ Listen []string }
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &e) != nil || len(e.Listen) != 2 {
		t.Fatalf("%q", lines.Text())
	}
	const peers = 500
	for n := range peers {
		announceTo(t, e.Listen[0], n)
	}
	for end := time.Now().Add(swarmPatience); ; time.Sleep(20 * time.Millisecond) {
		journal, err := os.ReadFile(filepath.Join(dir, "data", "swarms.journal"))
		written := bytes.Count(journal, []byte(namedPeer))
		if err == nil && written == peers {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d peers are in the journal, %v", written, peers, err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()

	again := braid(t, dir, args...)
	again.Cancel = func() error { return again.Process.Signal(os.Interrupt) }
	if events, err = again.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := again.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = again.Wait() }) // interrupted by the end of the context
	lines = bufio.NewScanner(events)
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &e) != nil || len(e.Listen) != 2 {
		t.Fatalf("%q", lines.Text())
	}
	if s := trackerStats(t, e.Listen[1]); s.Totals.Members != peers {
		t.Errorf("%d peers after the crash, want %d", s.Totals.Members, peers)
	}
	hash := wire.InfoHash{1}
	if err := os.WriteFile(deny, fmt.Appendf(nil, "%x\n", hash), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := again.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(swarmPatience); announceTo(t, e.Listen[0], 1) == nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the list is not read again")
		}
	}
}

// namedPeer begins the ID of a peer that announceTo announces.
const namedPeer = "-named peer-"

func announceTo(t *testing.T, url string, n int) error {
	t.Helper()
	id := wire.PeerID([]byte(fmt.Sprintf("%s%08d", namedPeer, n)))
	a := wire.Announce{InfoHash: wire.InfoHash{1, byte(n / 30)}, PeerID: id, Port: uint16(1 + n), Left: 1, NumWant: 1, Compact: true}
	if n < 30 {
		a.InfoHash[1] = 0
	}
	res, err := http.Get(url + "?" + a.Query())
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b := make([]byte, 2000)
	k, _ := res.Body.Read(b)
	_, err = wire.ParseAnswer(b[:k])
	return err
}
