package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Builds the container image, and downloads with the program in it: all it gets of this system is the
// network, the SCION configuration and a directory.
func TestLargeImage(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("builds and runs a container image: run as root")
	}
	if _, err := exec.LookPath("buildah"); err != nil {
		t.Skip("needs buildah: run ./scripts/install-deps")
	}
	s := startSwarm(t, twoPaths(t), swarmBytes)
	run := func(name string, args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), name, args...)
		c.Dir = "../.."
		var said bytes.Buffer
		c.Stderr = &said
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%v: %v: %s%s", c.Args, err, out, said.String())
		}
		return strings.TrimSpace(string(out))
	}
	file := run("scripts/package", "--image")
	images := t.TempDir()
	buildah := func(args ...string) string {
		t.Helper()
		return run("buildah", append([]string{"--storage-driver", "vfs", "--root", filepath.Join(images, "all"), "--runroot", filepath.Join(images, "run")}, args...)...)
	}
	container := buildah("from", "--quiet", "oci-archive:"+file)

	to, data := s.leecher.IA(), t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "set.torrent"), s.torrent.Torrent, 0o644); err != nil {
		t.Fatal(err)
	}
	download := func(args ...string) string {
		t.Helper()
		return buildah(append([]string{
			"run", "--isolation", "chroot", "--network", "host",
			"--volume", s.network.ConfigDir(to) + ":/etc/scion:ro", "--volume", data + ":/data", container, "--",
			"/usr/bin/braid", "download", "--peer", s.seeder.String(), "--local", s.network.HostIP(to).String(),
		}, args...)...)
	}
	// A magnet link is described in a temporary directory, which an image need not have.
	magnet := "magnet:?xt=urn:btih:" + s.torrent.Source.InfoHash.HexString()
	if said := download("--list", magnet); !strings.Contains(said, "file") {
		t.Errorf("the files of the magnet link: %s", said)
	}
	download("set.torrent")
	want, err := os.ReadFile(filepath.Join(s.data, "file"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(data, "file")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v: %d bytes downloaded, want %d", err, len(got), len(want))
	}
}
