package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"braid/client"
	"braid/pathsel"
	"braid/scionnet"
	"braid/storage"
	"braid/testbed"
	"braid/testbed/linkemu"
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
	n := startNetwork(t, "two-paths", testbed.Options{})
	s := startSwarm(t, n, swarmBytes)
	t.Run("first", func(t *testing.T) { s.shares(t, "first", 1) })
	t.Run("magnet", s.magnet)
	t.Run("cut", s.cut)
	t.Run("killed", s.killed)
	t.Run("image", s.image)

	slow := s.slow(t)
	t.Run("all", func(t *testing.T) { slow.shares(t, "all", 2) })
	t.Run("adaptive", func(t *testing.T) { slow.shares(t, "adaptive", 2) })
}

// slow slows the links down, and seeds a file that takes both of them eight seconds. So the links
// are the limit also on a busy machine, and a router that stops for seconds changes little.
// Otherwise the shares of the paths would be those that the processor leaves them.
func (s swarm) slow(t *testing.T) swarm {
	t.Helper()
	for _, l := range s.network.Topology().Links {
		if err := s.network.SetLink(l.A.Interface, func(c *linkemu.Config) { c.Rate = 1e6 }); err != nil {
			t.Fatal(err)
		}
	}
	return startSwarm(t, s.network, 2<<20)
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
	eventually(t, "both paths", func() bool {
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
	eventually(t, "download", func() bool {
		select {
		case <-tr.Done():
			return true
		default:
			return false
		}
	})
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

// shares wants the data spread evenly over that many equal paths. A router that stops makes its path
// fail; then the download is repeated.
func (s swarm) shares(t *testing.T, selection string, paths int) {
	eventually(t, "even shares", func() bool {
		p := s.download(t, s.torrent.Source, selection, nil)
		var sum uint64
		for _, x := range p.Paths {
			sum += x.BytesRead
		}
		used, failures, wrong := 0, 0, ""
		for _, x := range p.Paths {
			failures += x.Failures
			if x.BytesRead == 0 {
				continue
			}
			used++
			if share := float64(x.BytesRead) / float64(sum); paths == 2 && (share < 0.3 || share > 0.7) {
				wrong = fmt.Sprintf("path %s has carried %.0f %%", x.Path.Fingerprint.Short(), 100*share)
			}
			if x.RTT == 0 || x.Handshake == 0 || x.Path.Hops() != 1 {
				t.Errorf("path %s: %+v", x.Path.Fingerprint.Short(), x)
			}
		}
		if used != paths {
			wrong = fmt.Sprintf("%d paths used, want %d", used, paths)
		}
		if wrong != "" && failures == 0 {
			t.Fatal(wrong)
		}
		return wrong == ""
	})
}

func (s swarm) magnet(t *testing.T) {
	src, err := client.ParseMagnet(s.torrent.Source.Magnet(s.seeder))
	if err != nil {
		t.Fatal(err)
	}
	s.download(t, src, "all", nil)
}

// cut takes one path away in the middle. The other one brings what was under way on it as well.
func (s swarm) cut(t *testing.T) {
	paths := s.bothPaths(t)
	set := func(down bool) {
		if err := s.network.SetLink(paths[0].Interfaces[0], func(c *linkemu.Config) { c.Down = down }); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		set(false)
		eventually(t, "both paths again", func() bool {
			if err := s.leecher.Refresh(t.Context(), ia(t, "1-ff00:0:110")); err != nil {
				return false
			}
			ps, err := s.leecher.Paths(t.Context(), ia(t, "1-ff00:0:110"))
			return err == nil && len(ps) == 2
		})
	}()
	p := s.download(t, s.torrent.Source, "all", func(tr *client.Transfer) {
		eventually(t, "a third on both paths", func() bool {
			p := tr.Progress()
			return p.Have > p.Total/3
		})
		set(true)
	})
	for _, x := range p.Paths {
		if x.Path.Fingerprint != paths[0].Fingerprint && x.BytesRead < swarmBytes/3 {
			t.Errorf("the path that was left has carried %d bytes", x.BytesRead)
		}
	}
}

// killed ends a braid process in the middle, without warning, and starts it again.
func (s swarm) killed(t *testing.T) {
	dir, braid := t.TempDir(), braidProgram(t)
	torrent := filepath.Join(dir, "file.torrent")
	if err := os.WriteFile(torrent, s.torrent.Torrent, 0o644); err != nil {
		t.Fatal(err)
	}
	to := ia(t, "1-ff00:0:111")
	start := func(flags ...string) (*exec.Cmd, *bufio.Scanner, *bytes.Buffer) {
		cmd := exec.CommandContext(t.Context(), braid, append([]string{"download", torrent, "-o", filepath.Join(dir, "out"), "--json",
			"--config-dir", s.network.ConfigDir(to), "--local", s.network.HostIP(to).String(),
			"--identity", filepath.Join(dir, "identity.pem"), "--peer", s.seeder.String()}, flags...)...)
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, bufio.NewScanner(out), &said
	}
	type event struct {
		Event   string
		Bytes   int64
		Total   int64
		Fetched int64 `json:"fetched_bytes"`
	}
	next := func(lines *bufio.Scanner) (e event) {
		if !lines.Scan() {
			t.Fatalf("braid has ended: %v", lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("event %q: %v", lines.Text(), err)
		}
		return e
	}
	// It takes eleven seconds, since a busy machine kills it late.
	first, lines, _ := start("--download-rate", "6mbit")
	for e := next(lines); e.Bytes < e.Total/3 || e.Total == 0; e = next(lines) {
		if e.Event == "done" {
			t.Fatal("done before it could be killed")
		}
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // it was killed, and says so

	second, lines, said := start()
	var e event
	for e = next(lines); e.Event != "done"; e = next(lines) {
	}
	if err := second.Wait(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if e.Fetched == 0 || e.Fetched > e.Bytes*9/10 {
		t.Errorf("%d of %d bytes were fetched after a third was there", e.Fetched, e.Bytes)
	}
	s.compare(t, filepath.Join(dir, "out"))
	if out, err := exec.Command(braid, "verify", torrent, "--data", filepath.Join(dir, "out")).CombinedOutput(); err != nil {
		t.Errorf("braid verify: %v: %s", err, strings.TrimSpace(fmt.Sprint(string(out))))
	}
}
