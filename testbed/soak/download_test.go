package soak

import (
	"os"
	"path/filepath"
	"testing"

	"braid/storage"
	"braid/testbed"
)

// A download that breaks a promise ends, although it has more to say than the run reads.
func TestBrokenPromiseEndsTheDownload(t *testing.T) {
	dir := t.TempDir()
	const script = `#!/bin/sh
yes '{"event":"piece","piece":0}' | head -n 1000
echo '{"event":"progress"}'
exec yes '{"event":"piece","piece":0}'
`
	braid := filepath.Join(dir, "braid")
	if err := os.WriteFile(braid, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	launcher := testbed.NewLauncher()
	defer launcher.Close()
	r := &run{Options: Options{Dir: dir, Braid: braid}, launcher: launcher}
	p, err := r.start("download")
	if err != nil {
		t.Fatal(err)
	}
	// The only file of the torrent is missing.
	layout := storage.Layout{PieceLength: 1, Length: 1, Files: []storage.File{{Path: "missing", Length: 1}}}
	stored := storage.Stored{Kind: storage.KindFile, Dir: dir, Layout: layout}
	if err := r.follow(t.Context(), p, torrent{content: []byte{1}}, stored); err == nil {
		t.Error("a piece that is not on disk counts as verified")
	}
	select {
	case <-p.ended:
	default:
		t.Error("the download still runs")
	}
}
