package commands

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"braid/commands/program"
)

// Labels choose lines of a collection file.
func TestReadCollection(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "collection")
	text := "# ours\na b.torrent\tfilms, public\n\nhttp://x/c.torrent\tpublic\n/d\t\n /e \n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ab := filepath.Join(dir, "a b.torrent")
	for _, tt := range []struct{ labels, want []string }{
		{nil, []string{ab, "http://x/c.torrent", "/d", "/e"}},
		{[]string{"films"}, []string{ab}},
		{[]string{"films", "public"}, []string{ab, "http://x/c.torrent"}},
		{[]string{"film"}, nil},
	} {
		if got, err := readCollection(file, tt.labels); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%q: %q, %v; want %q", tt.labels, got, err, tt.want)
		}
	}
	if code, _, said := ends(t, dir, "gateway", "x.torrent", "--label", "films", "--tracker-listen", "http://127.0.0.1:0", "--listen", "127.0.0.1:0"); code != program.Usage || !strings.Contains(said, "give --collection") {
		t.Errorf("exit code %d: %s", code, said)
	}
	if code, _, said := ends(t, dir, "gateway", "x.torrent", "--tracker-listen", "http://127.0.0.1:0", "--listen", "127.0.0.1:0"); code != program.Failed {
		t.Errorf("exit code %d: %s", code, said)
	}
	if _, err := os.Stat(filepath.Join(dir, "gateway-cache")); !os.IsNotExist(err) {
		t.Errorf("a cache without torrents: %v", err)
	}
}
