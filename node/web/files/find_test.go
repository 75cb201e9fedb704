package files

import (
	"fmt"
	"slices"
	"testing"

	"braid/storage"
)

func filesOf(paths ...string) (out []storage.File) {
	for _, p := range paths {
		out = append(out, storage.File{Path: p})
	}
	return out
}

// A file is found whatever the order of the torrent is.
func TestFind(t *testing.T) {
	for _, all := range [][]storage.File{
		nil, filesOf("a"), filesOf("set/a/b", "set/a-b", "set/ab"), filesOf("set/a-b", "set/a/b", "set/ab"), filesOf("c", "a", "b"),
	} {
		for i, f := range all {
			if got := find(all, f.Path); got != i {
				t.Errorf("%q is number %d of %v, want %d", f.Path, got, all, i)
			}
		}
		for _, name := range []string{"", "set", "set/a", "set/a/", "set/abc"} {
			if got := find(all, name); got != slices.Index(all, storage.File{Path: name}) {
				t.Errorf("%q is number %d of %v", name, got, all)
			}
		}
	}
}

func BenchmarkFind(b *testing.B) {
	var all []storage.File
	for i := range 200_000 {
		all = append(all, storage.File{Path: fmt.Sprintf("set/%03d/file-%06d", i/500, i)})
	}
	for b.Loop() {
		if find(all, "set/399/file-199999") < 0 {
			b.Fatal("it is not found")
		}
	}
}
