package node

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// Nothing but a regular file is replaced: braid create -o /dev/null would replace the device.
func TestReplaceFile(t *testing.T) {
	dir := t.TempDir()
	socket, link := filepath.Join(dir, "socket"), filepath.Join(dir, "link")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Symlink("socket", link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{socket, link, dir} {
		if CheckReplace(name) == nil {
			t.Errorf("%s could be replaced", name)
		}
		before, _ := os.Lstat(name)
		err := ReplaceFile(name, nil, false)
		if after, _ := os.Lstat(name); err == nil || !os.SameFile(before, after) {
			t.Errorf("%s is replaced: %v", name, err)
		}
	}
	file := filepath.Join(dir, "file")
	for _, text := range []string{"old", "new"} {
		if err := ReplaceFile(file, []byte(text), false); err != nil {
			t.Error(err)
		}
	}
	if b, err := os.ReadFile(file); string(b) != "new" {
		t.Errorf("%q, %v", b, err)
	}
}
