// Package webtest has what the tests of the HTTP interfaces share: nodes that run as a service,
// torrents to put into them, and the foreign programs that talk to them.
package webtest

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"braid/client"
	"braid/node"
	"braid/storage"
	"braid/units/await"
)

// Service opens a node that runs as a service, as in braid daemon. It listens on loopback. Torrents
// that name no directory go to downloads.
func Service(t testing.TB) (n *node.Node, downloads string) {
	t.Helper()
	downloads = t.TempDir()
	return Open(t, node.Config{
		Service:  true,
		State:    t.TempDir(),
		Settings: node.Settings{Dir: downloads},
	}), downloads
}

// ServiceInDHT is Service with a node of a DHT on loopback.
func ServiceInDHT(t testing.TB) *node.Node {
	t.Helper()
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0)
	return Open(t, node.Config{
		Service:  true,
		State:    t.TempDir(),
		Settings: node.Settings{Dir: t.TempDir()},
		DHT:      &node.DHTConfig{IP: []netip.AddrPort{at}},
	})
}

// Open opens a node that listens on loopback, until the end of the test.
func Open(t testing.TB, cfg node.Config) *node.Node {
	t.Helper()
	at, err := client.ParseListen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Client.Listen = []client.Peer{at}
	cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	n, err := node.Open(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// File is a file of a torrent.
type File struct {
	Path string // below the torrent's name; empty: the torrent is this one file
	Size int
}

// Torrent writes random files into dir and makes a torrent of them, in pieces of 32 KiB.
func Torrent(t testing.TB, dir, name string, files ...File) client.Created {
	t.Helper()
	for i, f := range files {
		b := make([]byte, f.Size)
		rand.NewChaCha8([32]byte([]byte(strings.Repeat(name+string(rune('a'+i)), 32)[:32]))).Read(b)
		at := filepath.Join(dir, name, f.Path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.Create(context.Background(), filepath.Join(dir, name), client.CreateOptions{
		PieceLength: 32 << 10,
		Comment:     "a comment",
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Seed serves the data in dir, and returns the addresses at which peers reach it.
func Seed(t testing.TB, src client.Source, dir string) []client.Peer {
	t.Helper()
	n := Open(t, node.Config{})
	if _, err := n.Add(context.Background(), node.Options{
		Source: src, Storage: node.Storage{Kind: storage.KindFile, Dir: dir, Complete: true},
	}); err != nil {
		t.Fatal(err)
	}
	return n.Listening()
}

// Run runs a program and returns what it has said. It fails the test if the program is missing: a
// skipped test would be taken for a passed one.
func Run(t testing.TB, env []string, name string, args ...string) (said string, err error) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%v; run ./scripts/install-deps", err)
	}
	ctx, cancel := context.WithDeadline(context.Background(), await.Deadline(t))
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, time.Second
	err = cmd.Run()
	return out.String(), err
}

// Python runs a script with the libraries that scripts/install-deps has put into bin/python, and
// fails the test if the script fails.
func Python(t testing.TB, script string, args ...string) {
	t.Helper()
	libraries, err := filepath.Abs("../../../bin/python")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(libraries, "installed")); err != nil {
		t.Fatalf("%v; run ./scripts/install-deps", err)
	}
	env := []string{"PYTHONPATH=" + libraries, "PYTHONDONTWRITEBYTECODE=1"}
	said, err := Run(t, env, "/usr/bin/python3", append([]string{script}, args...)...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, said)
	}
}
