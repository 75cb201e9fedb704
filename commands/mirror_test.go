package commands

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"braid/commands/program"
)

// Wrong flags are found before anything is made on disk.
func TestWrongFlagsMakeNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "in"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{
		"daemon --state made --transport pigeon",
		"daemon --state made --api here",
		"mirror in --state made --output made --once --transport pigeon",
	} {
		code, _, said := ends(t, dir, strings.Fields(args)...)
		if _, err := os.Stat(filepath.Join(dir, "made")); code != program.Usage || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("braid %s: exit code %d, %v: %s", args, code, err, said)
		}
	}
}
