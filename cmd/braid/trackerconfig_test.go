package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"braid/tracker/wire"
)

// A reload takes on keys, limits, intervals and lists, of which a wrong one changes nothing;
// addresses stay.
func TestTrackerReload(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	keys := file("keys", "first-key\n")
	config := func(rest string) string {
		return file("tracker.toml", fmt.Sprintf("listen = ['http://127.0.0.1:0']\nkeys = '%s'\ninterval = '30m'\n%s", keys, rest))
	}
	cmd := braid(t, dir, "tracker", "--config", config("requests_per_host = 0"), "--json")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	events, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	var e struct{ Listen []string }
	if lines := bufio.NewScanner(events); !lines.Scan() || json.Unmarshal(lines.Bytes(), &e) != nil || len(e.Listen) != 1 {
		t.Fatalf("%q", lines.Text())
	}
	said := bufio.NewScanner(stderr)
	// reload waits for what the tracker says of it.
	reload := func(want string) {
		t.Helper()
		if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if !said.Scan() || !strings.Contains(said.Text(), want) {
			t.Fatalf("%q, want %q", said.Text(), want)
		}
	}
	ask := func(key string) (wire.Answer, error) {
		t.Helper()
		a := wire.Announce{InfoHash: wire.InfoHash{1}, PeerID: wire.PeerID{1}, Port: 1, Left: 1, NumWant: 50, Compact: true, Passkey: key}
		res, err := http.Get(e.Listen[0] + "?" + a.Query())
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return wire.ParseAnswer(b)
	}
	expect := func(key string, ok bool, interval time.Duration) {
		t.Helper()
		a, err := ask(key)
		if (err == nil) != ok || ok && (a.Interval < interval*9/10 || a.Interval > interval*11/10) {
			t.Errorf("key %q: %+v, %v", key, a, err)
		}
	}
	expect("first-key", true, 30*time.Minute)
	expect("second-key", false, 0)
	file("keys", "second-key\n")
	config("requests_per_host = 0\ninterval = '20m'") // twice
	reload("not reloaded")
	expect("first-key", true, 30*time.Minute)
	file("tracker.toml", fmt.Sprintf("listen = ['udp://127.0.0.1:0']\nkeys = '%s'\ninterval = '20m'\nlifetime = '25m'\nrequests_per_host = 0", keys))
	reload("configuration reloaded")
	expect("first-key", false, 0)
	expect("second-key", true, 20*time.Minute)
	file("keys", "short\n")
	reload("keys:1:")
	expect("second-key", true, 20*time.Minute)
	file("keys", "second-key\n")
	file("tracker.toml", fmt.Sprintf("keys = '%s'\nrequests_per_host = 0.001", keys))
	reload("configuration reloaded")
	expect("second-key", true, 20*time.Minute)
	if _, err := ask("second-key"); err == nil || !strings.Contains(err.Error(), "too many requests") {
		t.Errorf("the limit is not reloaded: %v", err)
	}
}

// What is wrong is said before anything is opened or made, also by --print-config.
func TestTrackerConfigChecked(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "list")
	if err := os.WriteFile(bad, []byte("0123\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		config, says string
	}{
		{"interval = '25h'", "interval: want 1s to 24h"},
		{"interval = '10m'\nmin_interval = '20m'", "min_interval: want 0s up to interval"},
		{"lifetime = '20m'", "lifetime: want more than interval"},
		{"sync = '1ms'", "sync: want at least 10ms"},
		{"max_peers_per_as = 0", "want at least 1"},
		{"max_connections = 0", "max_connections: want at least 1"},
		{"num_want = 300", "num_want, max_num_want"},
		{"requests_per_as = -1", "requests_per_host, requests_per_as: want 0 or more"},
		{"allow = '" + bad + "'", bad + ":1: "},
		{"tracker_id = '" + strings.Repeat("x", 65) + "'", "tracker_id: want at most 64 bytes"},
		{"store = 'redis://127.0.0.1:1'", "data, store: want one of them, not both"},
	} {
		config := filepath.Join(dir, "tracker.toml")
		if err := os.WriteFile(config, []byte(tt.config), 0o600); err != nil {
			t.Fatal(err)
		}
		data := filepath.Join(dir, "data")
		for _, more := range [][]string{{"--listen", "http://127.0.0.1:0"}, {"--print-config"}} {
			code, _, said := ends(t, dir, append([]string{"tracker", "--config", config, "--data", data}, more...)...)
			if code != 2 || !strings.Contains(said, tt.says) {
				t.Errorf("%s with %v: exit code %d, %s", tt.config, more, code, said)
			}
		}
		if _, err := os.Stat(data); err == nil {
			t.Fatalf("%s: the journal is made before the configuration is looked at", tt.config)
		}
	}
	for _, more := range [][]string{{"--listen", "http://127.0.0.1:0"}, {"--print-config"}} {
		code, _, said := ends(t, dir, append([]string{"tracker", "--store", "nonsense"}, more...)...)
		if code != 2 || !strings.Contains(said, "store: want redis://") {
			t.Errorf("a wrong store with %v: exit code %d, %s", more, code, said)
		}
	}
}

// The unit starts a tracker in the way in which trackers are started.
func TestTrackerUnit(t *testing.T) {
	const unit = "../../scripts/braid-tracker.service"
	b, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "tracker.toml")
	code, text, said := ends(t, dir, "tracker", "--print-config", "--listen", "http://127.0.0.1:0")
	if code != 0 {
		t.Fatal(said)
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ran := false
	for line := range strings.Lines(string(b)) {
		args, ok := strings.CutPrefix(strings.TrimSpace(line), "ExecStart=/usr/local/bin/braid ")
		if !ok {
			continue
		}
		ran = true
		args = strings.NewReplacer("/etc/braid/tracker.toml", config, "${STATE_DIRECTORY}", dir).Replace(args)
		ready(t, dir, append(strings.Fields(args), "--json")...)
	}
	if !ran {
		t.Errorf("%s starts nothing", unit)
	}
	// Where there is systemd, it has the last word. That the program is not installed is no fault
	// of the unit.
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Logf("systemd does not look at %s: %v", unit, err)
		return
	}
	out, _ := exec.CommandContext(t.Context(), verify, "verify", "--man=no", unit).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "braid-tracker.service") && !strings.Contains(line, "is not executable") {
			t.Errorf("systemd-analyze: %s", line)
		}
	}
}
