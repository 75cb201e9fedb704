package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a runner has nobody else gets; what one that is gone has left is removed.
func TestScratch(t *testing.T) {
	temp := t.TempDir()
	dir, held, err := newScratch(temp)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := os.WriteFile(filepath.Join(dir, "data"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := claim(dir); err == nil || !strings.Contains(err.Error(), "another braid") {
		t.Errorf("claimed twice: %v", err)
	}
	second, left, err := newScratch(temp)
	if err != nil {
		t.Fatal(err)
	}
	stranger := filepath.Join(temp, scratchPrefix+"without-a-lock")
	if err := os.Mkdir(stranger, 0o755); err != nil {
		t.Fatal(err)
	}
	left.Close() // as when it is killed
	third, last, err := newScratch(temp)
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	for name, there := range map[string]bool{filepath.Join(dir, "data"): true, second: false, third: true, stranger: true} {
		if _, err := os.Stat(name); (err == nil) != there {
			t.Errorf("%s is there: %v, want %v", name, err == nil, there)
		}
	}
	if !strings.HasPrefix(filepath.Base(third), scratchPrefix) {
		t.Errorf("%s", third)
	}
}
