package commands

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"braid/commands/program"
)

// Files that were there before a download: those of somebody else are left alone unless the user
// says otherwise, by torrent file and by magnet link; one that is too long is right in the end, and
// download, verify and seed agree on it.
func TestExistingFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := make([]byte, 300_000)
	rand.NewChaCha8([32]byte{4}).Read(b)
	foreign := []byte("export PATH=$HOME/bin:$PATH\n")
	write := func(name string, b []byte, mode os.FileMode) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, b, mode); err != nil {
			t.Fatal(err)
		}
	}
	holds := func(name string, want []byte) {
		t.Helper()
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s holds %d bytes, %v", name, len(got), err)
		}
	}
	run := func(code int, said string, args ...string) (stdout string) {
		t.Helper()
		got, out, errs := ends(t, dir, args...)
		if got != code || !strings.Contains(out+errs, said) {
			t.Fatalf("braid %v: exit code %d, want %d and %q\nstdout: %s\nstderr: %s", args, got, code, said, out, errs)
		}
		return out
	}
	write("file", b, 0o644)
	write(".rc", b[:100_000], 0o644)
	magnet := ""
	for _, line := range strings.Fields(run(0, "magnet:?", "create", "file", "--piece-length", "64KiB")) {
		if strings.HasPrefix(line, "magnet:?") {
			magnet = line
		}
	}
	run(0, "", "create", ".rc", "-o", "rc.torrent")
	peer := ready(t, dir, "seed", "file.torrent", "rc.torrent", "--listen", "127.0.0.1:0", "--json")[0]
	download := func(code int, said, torrent, out string, flags ...string) {
		t.Helper()
		run(code, said, append([]string{"download", torrent, "-o", out, "--peer", peer, "--no-trackers"}, flags...)...)
	}
	for name, torrent := range map[string]string{"file": "file.torrent", "magnet": magnet} {
		out := "out-" + name
		at := filepath.Join(out, "file")
		write(at, foreign, 0o444)
		download(1, "file is a write-protected file that is not of this torrent", torrent, out)
		download(1, "write-protected", torrent, out, "--overwrite")
		download(2, "leave one", torrent, out, "--overwrite", "--rename")
		holds(at, foreign)
		if st, err := os.Stat(filepath.Join(dir, at)); err != nil || st.Mode() != 0o444 {
			t.Errorf("mode %v, %v", st.Mode(), err)
		}
		download(0, "file.before-download", torrent, out, "--rename")
		holds(at, b)
		holds(at+".before-download", foreign)
		run(0, "is right", "verify", "file.torrent", "--data", out)

		out += "-2"
		at = filepath.Join(out, "file")
		write(at, foreign, 0o644)
		download(1, "--overwrite", torrent, out)
		holds(at, foreign)
		download(0, "deleted", torrent, out, "--overwrite")
		holds(at, b)

		out += "-longer"
		at = filepath.Join(out, "file")
		write(at, append(bytes.Clone(b), b[:100_000]...), 0o644)
		run(3, "size", "verify", "file.torrent", "--data", out)
		run(3, "not complete", "seed", "file.torrent", "--data", out, "--listen", "127.0.0.1:0")
		download(0, "", torrent, out)
		holds(at, b)
		run(0, "is right", "verify", "file.torrent", "--data", out)
	}
	download(1, "--allow-dotfiles", "rc.torrent", "home")
	download(0, "", "rc.torrent", "home", "--allow-dotfiles")
	holds("home/.rc", b[:100_000])

	download(0, "", "file.torrent", "db", "--storage", "bolt")
	write("exported/file", foreign, 0o644)
	run(program.Data, "there is no database of them in empty", "export", "file.torrent", "--data", "empty", "-o", "none")
	if _, err := os.Stat(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a database, there is a directory of the export: %v", err)
	}
	run(1, "--rename", "export", "file.torrent", "--data", "db", "-o", "exported")
	holds("exported/file", foreign)
	run(0, `"aside":`, "export", "file.torrent", "--data", "db", "-o", "exported", "--rename", "--json")
	holds("exported/file", b)
	holds("exported/file.before-download", foreign)
	download(0, "", "rc.torrent", "db", "--storage", "bolt")
	run(1, "--allow-dotfiles", "export", "rc.torrent", "--data", "db", "-o", "exported")
	run(0, "1 file written", "export", "rc.torrent", "--data", "db", "-o", "exported", "--allow-dotfiles")
	holds("exported/.rc", b[:100_000])
}
