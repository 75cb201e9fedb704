package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The command of --on-done runs for each complete torrent, also if another torrent or another
// command fails.
func TestOnDone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	smallTorrent(t, dir)
	peer := smallSeed(t, dir)
	for _, name := range []string{"nobody", "again"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
		must(t, dir, "create", name)
	}
	if err := os.Remove(filepath.Join(dir, "nobody")); err != nil {
		t.Fatal(err)
	}
	// The first torrent fails, since no peer has it. The second one is there already. The third one
	// needs a seed that may be slow to answer.
	code, _, said := ends(t, dir, "download", "nobody.torrent", "again.torrent", "file.torrent",
		"-o", ".", "--peer", peer, "--stop-timeout", "20s", "--on-done", "echo $BRAID_NAME >>done; exit 7")
	done, err := os.ReadFile(filepath.Join(dir, "done"))
	failed := strings.Count(said, "exit status 7")
	if code != 1 || err != nil || string(done) != "again\nfile\n" || failed != 2 {
		t.Errorf("exit code %d, %v, the command ran for %q: %s", code, err, done, said)
	}
}
