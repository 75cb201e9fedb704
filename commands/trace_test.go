package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A trace that cannot be written is worth a warning, and the download is as good as without it.
func TestLostTrace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	smallTorrent(t, dir)
	peer := smallSeed(t, dir)
	if err := os.Symlink("/dev/full", filepath.Join(dir, "full.gz")); err != nil {
		t.Fatal(err)
	}
	for _, trace := range []string{"/dev/full", "full.gz"} {
		code, _, said := ends(t, dir, "download", "file.torrent", "-o", "out"+filepath.Base(trace), "--peer", peer, "--trace", trace)
		if code != 0 || strings.Count(said, "the trace is incomplete") != 1 {
			t.Errorf("--trace %s: exit code %d: %s", trace, code, said)
		}
	}
}
