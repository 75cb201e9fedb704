package node

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"braid/client"
	"braid/storage"
	"braid/units/await"
)

// A paused torrent that has never run says how large it is, what of it is wanted, and what an
// earlier download has left, also after a restart. What its .torrent file says of itself is kept.
func TestNeverRun(t *testing.T) {
	t.Parallel()
	data, out, state := t.TempDir(), t.TempDir(), t.TempDir()
	made := createMany(t, data, "set")
	b := append([]byte("d7:comment2:hi10:created by5:maker13:creation datei1700000000e"), made.Torrent()[1:]...)
	src, err := client.ParseTorrent(b)
	if err != nil {
		t.Fatal(err)
	}
	n := openService(t, state, out)
	x := add(t, n, Options{Source: src, Paused: true})
	if s := x.Status(); s.State != Paused || s.Total != src.Layout.Length || s.Missing != s.Total || s.Have != 0 || s.Pieces != src.Layout.Pieces() {
		t.Errorf("%+v", s)
	}
	if err := x.Change(func(o *Options) error { return o.SetFiles(map[int]client.Priority{0: client.Skip}) }); err != nil {
		t.Fatal(err)
	}
	wanted := src.Layout.BytesOf([]bool{false, true, true, true})
	if s := x.Status(); s.Total != wanted || s.Missing != src.Layout.Length || s.Pieces >= src.Layout.Pieces() {
		t.Errorf("without a file: %+v", s)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n = openService(t, state, out)
	x = torrent(t, n, src)
	if s := x.Status(); s.Total != wanted || s.Missing != src.Layout.Length {
		t.Errorf("after a restart: %+v", s)
	}
	if s := x.Source(); s.Comment != "hi" || s.Creator != "maker" || !s.Created.Equal(time.Unix(1700000000, 0)) {
		t.Errorf("after a restart: %q, %q, %v", s.Comment, s.Creator, s.Created)
	}
	// It is removed, its data stays, and it comes back.
	if err := x.Change(func(o *Options) error { return o.SetFiles(map[int]client.Priority{0: client.Normal}) }); err != nil {
		t.Fatal(err)
	}
	seeder, _ := seedOf(t, src, data)
	if err := x.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	x.AddPeers(seeder.Listening()...)
	await.True(t, "the download", func() bool { x.AddPeers(seeder.Listening()...); return x.Status().Phase == client.Complete })
	sameFile(t, filepath.Join(data, "set/a"), filepath.Join(out, "set/a"))
	if err := n.Remove(x.InfoHash(), false); err != nil {
		t.Fatal(err)
	}
	x = add(t, n, Options{Source: src, Paused: true})
	if s := x.Status(); s.Have != src.Layout.Length || s.Missing != 0 || s.Done != s.Pieces {
		t.Errorf("with the data of an earlier download: %+v", s)
	}
}

// The existing files of a torrent that is added paused are verified. So are those of a magnet link
// whose description an earlier download has kept.
func TestAddPausedExisting(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	whole, described := create(t, data, "whole", 100_000), create(t, data, "described", 100_000)
	kept := storage.KeptTorrent(data, described.InfoHash)
	if err := os.MkdirAll(filepath.Dir(kept), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kept, described.Torrent(), 0o644); err != nil {
		t.Fatal(err)
	}
	magnet, err := client.ParseMagnet(described.Magnet())
	if err != nil {
		t.Fatal(err)
	}
	n := openService(t, t.TempDir(), data)
	for _, src := range []client.Source{whole, magnet} {
		x := add(t, n, Options{Source: src, Paused: true})
		await.True(t, "the check", func() bool {
			s := x.Status()
			return s.State == Paused && s.Have == 100_000 && s.Done == s.Pieces
		})
		if s := x.Status(); s.Missing != 0 {
			t.Errorf("%d bytes are missing", s.Missing)
		}
	}
}

// The files of a torrent show what they have, also while it is paused.
func TestFilesWhilePaused(t *testing.T) {
	t.Parallel()
	data, out := t.TempDir(), t.TempDir()
	src := createMany(t, data, "set")
	path := src.Layout.Files[0].Path
	b, err := os.ReadFile(filepath.Join(data, path))
	if err == nil {
		err = os.Mkdir(filepath.Join(out, src.Name), 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(out, path), b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	x := add(t, openService(t, t.TempDir(), out), Options{Source: src})
	await.True(t, "the check", func() bool { return x.Status().Have == 7*32<<10 }) // all of its whole pieces
	running := x.Files()
	if err := x.Pause(); err != nil {
		t.Fatal(err)
	}
	if paused := x.Files(); !slices.Equal(paused, running) || paused[0].Have == 0 {
		t.Errorf("%+v; while it runs %+v", paused, running)
	}
}

// The progress of a paused torrent is that of the files that are selected now, also if its data was
// only verified.
func TestSelectOthersWhilePaused(t *testing.T) {
	t.Parallel()
	for _, verified := range []bool{false, true} {
		data, out := t.TempDir(), t.TempDir()
		src := createMany(t, data, "set")
		path := src.Layout.Files[0].Path
		err := os.Mkdir(filepath.Join(out, src.Name), 0o755)
		if err == nil {
			err = os.Rename(filepath.Join(data, path), filepath.Join(out, path))
		}
		if err != nil {
			t.Fatal(err)
		}
		x := add(t, openService(t, t.TempDir(), out), Options{Source: src, Paused: verified})
		await.True(t, "the check", func() bool { return x.Status().Have == 7*32<<10 }) // all of its whole pieces
		if !verified {
			err = x.Pause()
		}
		for _, p := range []client.Priority{client.Skip, client.High} {
			want := int64(0)
			if p != client.Skip {
				want = 7 * 32 << 10
			}
			err = errors.Join(err, x.Change(func(o *Options) error { return o.SetFiles(map[int]client.Priority{0: p}) }))
			if s := x.Status(); err != nil || s.Have != want || s.Done != int(want>>15) || s.Missing != src.Layout.Length-7*32<<10 {
				t.Errorf("verified: %v; priority %d: %v; %+v", verified, p, err, s.Progress)
			}
		}
	}
}

// A torrent that was added or became complete just before a kill shows after it what it has.
func TestProgressAfterKill(t *testing.T) {
	t.Parallel()
	data, state := t.TempDir(), t.TempDir()
	src := create(t, data, "file", 1<<20)
	n := openService(t, state, data)
	x := add(t, n, Options{Source: src})
	await.Value(t, "the data", x.Done())
	if err := x.Pause(); err != nil {
		t.Fatal(err)
	}
	nothing := shape{Total: 1 << 20, Missing: 1 << 20, Pieces: 32}
	for _, saved := range []map[string]counters{{}, {x.InfoHash(): {Shape: nothing}}} {
		killed := filepath.Join(t.TempDir(), "state")
		err := errors.Join(n.write(countersFile, savedCounters{Torrents: saved}), os.CopyFS(killed, os.DirFS(state)))
		if err != nil {
			t.Fatal(err)
		}
		if s := torrent(t, openService(t, killed, data), src).Status(); s.State != Paused || s.Have != 1<<20 || s.Missing != 0 {
			t.Errorf("%s, %+v", s.State, s.Progress)
		}
	}
}
