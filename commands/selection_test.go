package commands

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"braid/commands/program"
)

// fileSet makes a directory of files that share no piece, and its torrent.
func fileSet(t *testing.T, dir, name string, files ...string) {
	t.Helper()
	for _, f := range files {
		f = filepath.Join(dir, name, f)
		if err := os.MkdirAll(filepath.Dir(f), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f, bytes.Repeat([]byte(f), 128<<10)[:128<<10], 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if code, _, said := ends(t, dir, "create", name); code != 0 {
		t.Fatal(said)
	}
}

// Files are chosen by the numbers that --list shows, and by names with brackets. What matches
// nothing is named, and nothing is written.
func TestSelect(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fileSet(t, dir, "set", "a [2020].iso", "b.iso", "docs/c.pdf", "docs/d.pdf")
	smallTorrent(t, dir)
	seed := startSeed(t, dir, "set.torrent")
	var info struct{ Magnet string }
	if err := json.Unmarshal([]byte(must(t, dir, "info", "set.torrent", "--json")), &info); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args string
		code int
		want string // files that are there afterwards, or what is said
	}{
		{"set.torrent --select a~[2020].iso", 0, "a [2020].iso"},
		{"set.torrent --select #1,3-4", 0, "a [2020].iso docs/c.pdf docs/d.pdf"},
		{"set.torrent --select *.pdf --priority #4=skip", 0, "docs/c.pdf"},
		{"set.torrent --select *.isoo", program.Usage, `no file of set matches "*.isoo"; --list shows the files`},
		{"set.torrent --select [x", program.Usage, `no file of set matches "[x"`},
		{"set.torrent --select #5", program.Usage, `"#5": set has files 1 to 4`},
		{"set.torrent --select #0", program.Usage, `"#0": want numbers of files from 1 on`},
		{"set.torrent --select #2 file.torrent", program.Usage, "name one torrent"},
		{"set.torrent file.torrent --select *.isoo", program.Usage, `no file of set, file matches "*.isoo"`},
		{info.Magnet + " --select *.isoo", program.Failed, `no file of set matches "*.isoo"`},
		{info.Magnet + " --list --select *.isoo", program.Usage, `no file of set matches "*.isoo"`},
		{info.Magnet + " --select #2", 0, "b.iso"},
	} {
		out := t.TempDir()
		args := append([]string{"download", "-o", out, "--peer", seed}, strings.Fields(tt.args)...)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "~", " ")
		}
		code, _, said := ends(t, dir, args...)
		if code == 0 {
			said = filesIn(t, filepath.Join(out, "set"))
		}
		there, err := os.ReadDir(out)
		if err != nil {
			t.Fatal(err)
		}
		if code != tt.code || tt.code == 0 && said != tt.want || !strings.Contains(said, tt.want) || tt.code == program.Usage && len(there) > 0 {
			t.Errorf("%s: exit code %d, %d entries, %q", tt.args, code, len(there), said)
		}
	}
	list := must(t, dir, "download", "set.torrent", "--list", "--select", "#2-3")
	for _, line := range []string{"1  skip", "2  normal", "3  normal", "4  skip"} {
		if !strings.Contains(list, line) {
			t.Errorf("no %q in\n%s", line, list)
		}
	}
	if events := must(t, dir, "download", "set.torrent", "--list", "--json"); !strings.Contains(events, `{"number":2,`) {
		t.Error(events)
	}
}

// filesIn are the paths of the files in a directory.
func filesIn(t *testing.T, dir string) string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, err = filepath.Rel(dir, name)
			out = append(out, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, " ")
}
