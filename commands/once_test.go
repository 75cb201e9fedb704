package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A command that fails prints its error once, as a line on standard error, and nothing on standard
// output but the result that the error is about.
func TestErrorIsPrintedOnce(t *testing.T) {
	dir := t.TempDir()
	smallTorrent(t, dir)
	for name, text := range map[string]string{
		"bad.torrent": "this is no torrent",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	const peer = " --peer 127.0.0.1:1 file.torrent"
	for _, tt := range []struct {
		command string
		says    string // part of the message
		result  string // part of standard output
	}{
		{command: "downlod file.torrent", says: `unknown command "downlod"`},
		{command: "info", says: "name one torrent"},
		{command: "info missing.torrent", says: "no such file"},
		{command: "info bad.torrent", says: "bad.torrent: "},
		{command: "create missing", says: "no such file"},
		{command: "create --piece-length 64 file", says: `--piece-length "64": want a number with B`},
		{command: "verify missing.torrent", says: "no such file"},
		{command: "verify --data empty file.torrent", says: "file: 1 of 1 file", result: "missing"},
		{command: "export missing.torrent", says: "no such file"},
		{command: "seed --listen 127.0.0.1:0 --data empty file.torrent", says: "is not complete"},
		{command: "seed --listen nowhere file.torrent", says: "nowhere"},
		{command: "download missing.torrent", says: "no such file"},
		{command: "download --selct x file.torrent", says: "unknown flag --selct"},
		{command: "download --download-rate 10" + peer, says: `--download-rate "10": want a number with kbit/s`},
		{command: "download --stop-timeout 5" + peer, says: `--stop-timeout "5": want a number with ms`},
		{command: "download --path-selection luck" + peer, says: `path selection "luck"`},
		{command: "paths nowhere", says: `ISD-AS "nowhere"`},
		{command: "tracker --listen nowhere", says: "--listen nowhere: want"},
		{command: "tracker --config missing.toml", says: "no such file"},
	} {
		code, out, said := ends(t, dir, strings.Fields(tt.command)...)
		message, begins := strings.CutPrefix(said, "braid: ")
		if code == 0 || !begins || strings.Count(message, "\n") != 1 || strings.Count(message, tt.says) != 1 {
			t.Errorf("braid %s: exit code %d, want an error and once %q\n%s", tt.command, code, tt.says, said)
		}
		if !strings.Contains(out, tt.result) || (out == "") != (tt.result == "") {
			t.Errorf("braid %s: prints %q, want %q", tt.command, out, tt.result)
		}
	}
	// A tracker that does not answer is no error of create.
	code, _, said := ends(t, dir, "create", "-o", "far.torrent", "--tracker", "http://127.0.0.1:1/announce", "file")
	if code != 0 || strings.Contains(said, "braid: ") || strings.Count(said, "could not ask") != 1 {
		t.Errorf("create with an unreachable tracker: exit code %d\n%s", code, said)
	}
}
