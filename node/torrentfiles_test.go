package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Only .torrent files count towards the limit: a directory keeps those that were added and renamed.
func TestTorrentFiles(t *testing.T) {
	dir := t.TempDir()
	put := func(name string) error { return os.WriteFile(filepath.Join(dir, name), nil, 0o644) }
	err := put("x.TORRENT")
	for i := range 10 {
		err = errors.Join(err, put(fmt.Sprint(i, ".torrent.added")))
	}
	if all, whole, e := TorrentFiles(dir, 1); len(all) != 1 || !whole || errors.Join(err, e) != nil {
		t.Errorf("%v, %v, %v", all, whole, errors.Join(err, e))
	}
	err = put("y.torrent")
	if all, whole, e := TorrentFiles(dir, 1); len(all) != 1 || whole || errors.Join(err, e) != nil {
		t.Errorf("with another one: %v, %v, %v", all, whole, errors.Join(err, e))
	}
}
