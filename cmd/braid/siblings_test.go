package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The tracker is on both kinds of network and the torrent names it on IP only. The only seed is on
// SCION only. A braid on both finds it there and passes the data on to aria2, which is on IP and
// has never heard of SCION.
func TestTorrentNamesOneTracker(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a SCION network")
	}
	t.Parallel()
	needProgram(t, "aria2c", "--version")
	n, from, to := startNetwork(t, "two-paths")
	dir := t.TempDir()
	data := randomFile(t, dir, 14, 3<<20)
	urls := ready(t, dir, "tracker", "--json", "--min-interval", "1s", "--interval", "5s", "--config-dir", n.ConfigDir(from),
		"--listen", fmt.Sprintf("scion://%s,[%s]:0", from, n.HostIP(from)), "--listen", "http://127.0.0.1:0", "--listen", statsAnywhere)
	scion, web := urls[0], urls[1]

	// What the torrent does not name is said when it is made, whichever of the two it names.
	create := func(args ...string) string {
		t.Helper()
		code, _, said := ends(t, dir, append([]string{"create", "file", "-o", "t.torrent"}, args...)...)
		if code != 0 {
			t.Fatal(said)
		}
		return said
	}
	// The tracker's AS: there its address on IP is one that it may name.
	host := []string{"--config-dir", n.ConfigDir(from), "--local", n.HostIP(from).String()}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--tracker", web}, "--tracker '" + scion + "'"},
		{append([]string{"--tracker", scion}, host...), "--tracker '" + web + "'"},
		{append([]string{"--tracker", scion, "--tracker", web}, host...), ""},
		{[]string{"--tracker", "http://127.0.0.1:1/announce"}, "could not ask http://127.0.0.1:1/announce"},
		{[]string{"--tracker", web, "--offline"}, ""},
	} {
		said := create(tt.args...)
		if !strings.Contains(said, tt.want) || tt.want == "" && said != "" || strings.Contains(said, `\u000a`) {
			t.Errorf("create %v says %q; want %q in it", tt.args, said, tt.want)
		}
	}

	create("--tracker", web, "--offline")
	torrent := filepath.Join(dir, "t.torrent")
	ctx, cancel := context.WithTimeout(t.Context(), swarmPatience)
	defer cancel()
	log, err := os.Create(filepath.Join(dir, "seed.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	seed := braid(t, dir, "seed", torrent, "--config-dir", n.ConfigDir(from), "--listen", fmt.Sprintf("%s,[%s]:0", from, n.HostIP(from)))
	seed.Stderr = log
	if err := seed.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = seed.Process.Kill()
		_ = seed.Wait()
	})
	for said := ""; !strings.Contains(said, "SCION peers only: ") || !strings.Contains(said, "only if the tracker "+web); time.Sleep(50 * time.Millisecond) {
		b, err := os.ReadFile(log.Name())
		if said = string(b); ctx.Err() != nil {
			t.Fatalf("the seed does not say who can reach it: %s, %v", said, err)
		}
	}
	bridge := t.TempDir()
	background(t, braid(t, bridge, "download", torrent, "-o", bridge, "--json", "-v", "--config-dir", n.ConfigDir(to), "--local", n.HostIP(to).String(),
		"--listen", fmt.Sprintf("%s,[%s]:0", to, n.HostIP(to)), "--listen", "127.0.0.1:0", "--seed-after"))
	out := t.TempDir()
	for _, c := range swarmClients {
		if c.name == "aria2" {
			c.start(t, torrent, out)
		}
	}
	for _, at := range []string{bridge, out} {
		if err := sameInTheEnd(ctx, filepath.Join(at, "file"), data); err != nil {
			t.Error(err)
		}
	}
}

// A host that should be on SCION and is not downloads over IP all the same.
func TestWithoutSCION(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, 100_000), 0o644); err != nil {
		t.Fatal(err)
	}
	web := ready(t, dir, "tracker", "--json", "--min-interval", "1s", "--interval", "5s", "--listen", "http://127.0.0.1:0")[0]
	must(t, dir, "create", "file", "--tracker", web)
	ready(t, dir, "seed", "file.torrent", "--json", "--listen", "127.0.0.1:0")
	out := t.TempDir()
	cmd := braid(t, dir, "download", "file.torrent", "-o", out)
	cmd.Env = append(cmd.Env, "SCION_DAEMON=127.0.0.1:1")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, said)
	}
}
