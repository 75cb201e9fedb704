package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"braid/commands/program"
)

// A state directory that cannot be locked is not said to be in use.
func TestLockFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "state", "lock"), 0o755); err != nil {
		t.Fatal(err)
	}
	code, _, said := ends(t, dir, "daemon", "--state", "state")
	if code != program.Failed || !strings.Contains(said, "is a directory") || strings.Contains(said, "another") {
		t.Errorf("exit code %d: %s", code, said)
	}
}

// A file in the place of the state directory, or of one above it, is named, with what to do.
func TestFileForStateDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	randomFile(t, dir, 71, 1000)
	for _, state := range []string{"file", filepath.Join("file", "below")} {
		code, _, said := ends(t, dir, "daemon", "--state", state)
		want := "make the directory " + state + ": file is a file; move it away, or name another directory"
		if code != program.Failed || !strings.Contains(said, want) {
			t.Errorf("exit code %d, no %q: %s", code, want, said)
		}
	}
}
