package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCreateAndInfo(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"set/a", "set/b.tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, "set"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := func(code int, inOut, inErr string, args ...string) {
		t.Helper()
		got, out, said := ends(t, dir, args...)
		if out = strings.Join(strings.Fields(out), " "); got != code || !strings.Contains(out, inOut) || !strings.Contains(said, inErr) {
			t.Errorf("braid %v: exit code %d, want %d\nstdout: %s\nstderr: %s", args, got, code, out, said)
		}
	}
	want(0, "t.torrent: 5 B in 1 file, 1 piece of 64 KiB magnet:?", "", "create", "set", "-o", "t.torrent", "-p", "--source", "here", "--name", "other", "--exclude", "*.tmp",
		"--web-seed", "http://127.0.0.1/", "--tracker", "udp://127.0.0.1:1,udp://127.0.0.1:2", "--tracker", "udp://127.0.0.1:3")
	want(0, "name other", "", "info", "t.torrent")
	want(0, "source here", "", "info", "t.torrent")
	want(0, "tracker 1 udp://127.0.0.1:1 tracker 1 udp://127.0.0.1:2 tracker 2 udp://127.0.0.1:3 web seed http://127.0.0.1/ not used magnet", "", "info", "t.torrent")
	want(0, "web seed http://example.org/ magnet", "", "info", "magnet:?xt=urn:btih:"+strings.Repeat("ab", 20)+"&ws=http://example.org/")
	want(0, `"source":"here"`, "", "info", "t.torrent", "--json")
	want(0, `"web_seeds":["http://127.0.0.1/"]`, "", "info", "t.torrent", "--json")
	want(0, `"files":[{"path":"other/a","length":5}]`, "", "info", "t.torrent", "--json")
	want(0, `"info_hash_v2":"`+strings.Repeat("cd", 32), "", "info", "--json",
		"magnet:?xt.1=urn:btih:"+strings.Repeat("ab", 20)+"&xt.2=urn:btmh:1220"+strings.Repeat("cd", 32))
	want(2, "", "a torrent may not name a server at a loopback address", "download", "t.torrent", "--no-trackers")
	want(0, "", "--tracker", "create", "set", "-p")
	want(2, "", "--web-seed", "create", "set", "--web-seed", "gopher://x/")
	want(2, "", "--tracker", "create", "set", "--tracker", "udp://127.0.0.1:1,gopher://x")
	want(2, "", "--exclude", "create", "set", "--exclude", "/")
	want(2, "", "want a power of two from 16 KiB", "create", "set", "--piece-length", "300KiB")
	want(2, "", `name "a/b"`, "create", "set", "--name", "a/b")
	want(2, "", "the path is empty", "create", "")
	want(1, "", "no data", "create", "set", "--exclude", "a*", "--exclude", "b*")
	large := filepath.Join(dir, "large") // hashing it takes an hour
	if err := errors.Join(os.WriteFile(large, nil, 0o644), os.Truncate(large, 1<<40)); err != nil {
		t.Fatal(err)
	}
	want(1, "", "braid: write none/t.torrent: no such file or directory\n", "create", "large", "-o", "none/t.torrent")
	want(1, "", "braid: write none/t.torrent: no such file or directory\n", "create", "set", "-o", "none/t.torrent")
	want(1, "", "braid: write set: not a regular file\n", "create", "large", "-o", "set")
	// The torrent replaces no file of its own data. It may replace an older torrent.
	want(2, "", "set/a belongs to the data", "create", "set", "-o", "set/a")
	want(2, "", "set/a belongs to the data", "create", "set/a", "-o", "set/a")
	want(0, "set/a.torrent: 14 B in 2 files", "", "create", "set", "-o", "set/a.torrent")
	want(2, "", "set/a.torrent belongs to the data", "create", "set", "-o", "set/a.torrent")
	want(0, "set/a.torrent: 14 B in 2 files", "", "create", "set", "-o", "set/a.torrent", "--exclude", "*.torrent")
}

// The umask decides who may read a new torrent, since it may contain the key of a private tracker.
func TestCreateObeysUmask(t *testing.T) {
	dir := t.TempDir()
	smallTorrent(t, dir)
	cmd := braid(t, dir, "create", "file", "-o", "own.torrent")
	cmd.Args = append([]string{"sh", "-c", `umask 077; exec "$0" "$@"`}, cmd.Args...)
	cmd.Path = "/bin/sh"
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(filepath.Join(dir, "own.torrent"))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}
