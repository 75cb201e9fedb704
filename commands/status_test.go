package commands

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"braid/commands/program"
	"braid/node/event"
	"braid/units/await"
)

// Another command shows the paths of a seed that runs, and says that it has ended.
func TestStatus(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	smallTorrent(t, dir)
	seed := seeding(t, dir, "file.torrent", "--status", "now")
	name := filepath.Join(dir, "now")
	await.True(t, "the status", func() bool {
		b, err := os.ReadFile(name)
		if err == nil && !json.Valid(b) {
			t.Fatalf("a part of the status: %s", b)
		}
		return err == nil
	})
	if text := must(t, dir, "paths", "--status", "now"); !strings.HasPrefix(text, "file: ") || !strings.Contains(text, ", 100%, down ") {
		t.Error(text)
	}
	seed.interrupt()
	if code := seed.wait(t); code != 0 {
		t.Errorf("exit code %d: %s", code, seed.said.String())
	}
	if _, err := os.Stat(name); !os.IsNotExist(err) {
		t.Errorf("the status is left behind: %v", err)
	}
	b, err := json.Marshal(event.Status{Time: time.Now(), Torrents: []event.Progress{{Torrent: "file", Paths: []event.Path{
		{Peer: "1-ff00:0:110,[10.0.0.1]:31000", Name: "111#1 > 110#1", Fingerprint: "0123456789abcdef", Transport: "scion", State: "active", Source: "dht"},
		{Peer: "1-ff00:0:110,[10.0.0.1]:31000", Name: "scion", Transport: "scion", State: "failed"},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if text := must(t, dir, "paths", "--status", "now"); !strings.Contains(text, "from dht") {
		t.Errorf("the peer's source is not shown: %s", text)
	}
	for args, want := range map[string][2]string{
		"":   {"10.0.0.1:31000 111#1 > 110#1 active", "1-ff00:0:110,[10.0.0.1]:31000 scion failed"},
		"-v": {"1-ff00:0:110,[10.0.0.1]:31000 111#1 > 110#1 01234567 active", "1-ff00:0:110,[10.0.0.1]:31000 scion"},
	} {
		text := must(t, dir, append([]string{"paths", "--status", "now"}, strings.Fields(args)...)...)
		if text = strings.Join(strings.Fields(text), " "); !strings.Contains(text, " "+want[0]) || !strings.Contains(text, " "+want[1]) {
			t.Errorf("paths %s: %s", args, text)
		}
	}
	for text, want := range map[string]string{
		`{"process":7,"time":"2020-01-02T03:04:05Z"}`: "process 7, which wrote it, has ended",
		"nonsense": "is no status",
		"{}":       "is no status",
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if code, _, said := ends(t, dir, "paths", "--status", "now"); code != program.Failed || !strings.Contains(said, want) {
			t.Errorf("%s: exit code %d: %s", text, code, said)
		}
	}
	if code, _, _ := ends(t, dir, "seed", "file.torrent", "--listen", "127.0.0.1:0", "--status", "none/now"); code != program.Failed {
		t.Errorf("exit code %d", code)
	}
}
