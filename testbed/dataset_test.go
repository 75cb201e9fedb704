package testbed

import (
	"os"
	"path/filepath"
	"testing"
)

func writeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestCopyTreeAndCompare(t *testing.T) {
	src := writeTree(t, map[string]string{"a": "aaaa", "b/c": "cccc", "d": "dddd", "empty": ""})
	for _, tt := range []struct {
		limit       int64
		files, size int64
	}{{0, 4, 12}, {12, 3, 12}, {6, 2, 6}, {4, 1, 4}, {100, 4, 12}} {
		dst := filepath.Join(t.TempDir(), "copy")
		files, size, err := CopyTree(src, dst, tt.limit)
		if err != nil || int64(files) != tt.files || size != tt.size {
			t.Errorf("limit %d: %d files, %d bytes, %v; want %d, %d", tt.limit, files, size, err, tt.files, tt.size)
		}
		if err := SameTree(dst, dst); err != nil {
			t.Errorf("limit %d: %v", tt.limit, err)
		}
	}
	if _, _, err := CopyTree(t.TempDir(), t.TempDir(), 0); err == nil {
		t.Error("an empty data set was accepted")
	}
}

func TestSameTreeSeesEveryDifference(t *testing.T) {
	want := map[string]string{"a": "aaaa", "b/c": "cccc"}
	for name, got := range map[string]map[string]string{
		"missing":   {"a": "aaaa"},
		"flipped":   {"a": "aaaa", "b/c": "cccd"},
		"shorter":   {"a": "aaaa", "b/c": "ccc"},
		"longer":    {"a": "aaaa", "b/c": "ccccc"},
		"truncated": {"a": "", "b/c": "cccc"},
	} {
		if err := SameTree(writeTree(t, want), writeTree(t, got)); err == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
	more := map[string]string{"a": "aaaa", "b/c": "cccc", ".braid/record": "x"}
	if err := SameTree(writeTree(t, want), writeTree(t, more)); err != nil {
		t.Errorf("files beside the data: %v", err)
	}
}
