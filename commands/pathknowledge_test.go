package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPathKnowledgeFlags(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, said := ends(t, dir, "create", "file", "-o", "t.torrent"); code != 0 {
		t.Fatal(said)
	}
	for _, args := range [][]string{{"--path-knowledge", "sometimes"}, {"--peer-order", "best"}, {"--path-knowledge", "off", "--peer-order", "nearest"}} {
		if code, _, said := ends(t, dir, append([]string{"download", "t.torrent", "--peer", "127.0.0.1:1"}, args...)...); code != 2 || !strings.Contains(said, args[0]) {
			t.Errorf("%v: exit code %d, %s", args, code, said)
		}
	}
	for value, want := range map[string]string{"true": "path_knowledge = true", "false": "path_knowledge = false"} {
		if code, out, said := ends(t, dir, "tracker", "--path-knowledge="+value, "--print-config"); code != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: %d, %s%s", value, code, out, said)
		}
	}
}
