package e2e

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"braid/client"
	"braid/pathsel"
	"braid/scionnet"
	"braid/storage"
	"braid/testbed"
	"braid/units/await"
)

// swarm is one seeder in an AS, and a leecher's host in another.
type swarm struct {
	network *testbed.Network
	seeder  client.Peer
	leecher *scionnet.Host
	data    string // the seeder's directory
	torrent client.Created
}

const swarmBytes = 8 << 20

func TestDownload(t *testing.T) {
	t.Parallel()
	s := startSwarm(t, twoPaths(t), swarmBytes)
	t.Run("first", func(t *testing.T) { s.onPaths(t, "first", 1) })
	t.Run("all", func(t *testing.T) { s.onPaths(t, "all", 2) })
	t.Run("adaptive", func(t *testing.T) { s.onPaths(t, "adaptive", 2) })
	t.Run("magnet", s.magnet)
}

// startSwarm seeds a new file of that size in one AS of two, for a leecher in the other.
func startSwarm(t *testing.T, n *testbed.Network, size int) swarm {
	t.Helper()
	from, to := ia(t, "1-ff00:0:110"), ia(t, "1-ff00:0:111")
	s := swarm{network: n, leecher: openHost(t, n, to), data: t.TempDir()}
	b := make([]byte, size)
	rand.NewChaCha8([32]byte{3}).Read(b)
	if err := os.WriteFile(filepath.Join(s.data, "file"), b, 0o644); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.torrent, err = client.Create(t.Context(), filepath.Join(s.data, "file"), client.CreateOptions{PieceLength: 64 << 10}); err != nil {
		t.Fatal(err)
	}
	seeder := s.session(t, openHost(t, n, from), "all")
	if _, err := seeder.Add(s.torrent.Source, storage.OpenVerified(s.data, logger(t)), client.Options{}); err != nil {
		t.Fatal(err)
	}
	s.seeder = seeder.Listening()[0]
	return s
}

// bothPaths waits for the leecher's two paths to the seeder: a busy control service tells one or
// none.
func (s swarm) bothPaths(t *testing.T) (paths []pathsel.Path) {
	t.Helper()
	await.True(t, "both paths", func() bool {
		var err error
		paths, err = s.leecher.Paths(t.Context(), ia(t, "1-ff00:0:110"))
		return err == nil && len(paths) == 2
	})
	return paths
}

func logger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}

func (s swarm) session(t *testing.T, h *scionnet.Host, selection string) *client.Session {
	t.Helper()
	sel, err := pathsel.New(selection)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(t.Context(), client.Config{Host: h, Selector: sel, Logger: logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// download fetches the source into a new directory, calling during while it is under way, and
// compares every byte.
func (s swarm) download(t *testing.T, src client.Source, selection string, during func(*client.Transfer)) client.Progress {
	t.Helper()
	return s.downloadWith(t, src, selection, client.Options{}, during)
}

func (s swarm) downloadWith(t *testing.T, src client.Source, selection string, opts client.Options, during func(*client.Transfer)) client.Progress {
	t.Helper()
	out := t.TempDir()
	store, err := storage.Open("file", out, logger(t), storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	opts.Peers = []client.Peer{s.seeder}
	tr, err := s.session(t, s.leecher, selection).Add(src, store, opts)
	if err != nil {
		t.Fatal(err)
	}
	if during != nil {
		during(tr)
	}
	await.Value(t, "the end of the download", tr.Done())
	p := tr.Progress()
	if p.Err != nil {
		t.Fatal(p.Err)
	}
	tr.Close()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	s.compare(t, out)
	return p
}

func (s swarm) compare(t *testing.T, dir string) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join(s.data, "file"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("the file differs from the seeder's")
	}
}

// onPaths wants data over so many paths. The download is slow until they have carried some, so that
// it does not end before.
func (s swarm) onPaths(t *testing.T, selection string, paths int) {
	s.bothPaths(t)
	var limiter client.Limiter
	limiter.Set(client.Limits{Download: 400_000})
	used := func(p client.Progress) (all []client.PathProgress) {
		for _, x := range p.Paths {
			if x.BytesRead > 0 {
				all = append(all, x)
			}
		}
		return all
	}
	p := s.downloadWith(t, s.torrent.Source, selection, client.Options{Limiter: &limiter}, func(tr *client.Transfer) {
		await.True(t, "data over every path", func() bool {
			p := tr.Progress()
			return len(used(p)) >= paths || p.Phase == client.Complete
		})
		limiter.Set(client.Limits{})
	})
	failures := 0
	for _, x := range p.Paths {
		failures += x.Failures
	}
	for _, x := range used(p) {
		if x.RTT == 0 || x.Handshake == 0 || x.Path.Hops() != 1 {
			t.Errorf("path %s: %+v", x.Path.Fingerprint.Short(), x)
		}
	}
	// Another path replaces one that has failed.
	if n := len(used(p)); n < paths || n > paths+failures {
		t.Errorf("%d paths used, want %d; %d failures", n, paths, failures)
	}
}

func (s swarm) magnet(t *testing.T) {
	src, err := client.ParseMagnet(s.torrent.Source.Magnet(s.seeder))
	if err != nil {
		t.Fatal(err)
	}
	s.download(t, src, "all", nil)
}
