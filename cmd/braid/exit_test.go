package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"braid/commands/program"
)

// smallTorrent makes file and file.torrent in the directory.
func smallTorrent(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "file"), bytes.Repeat([]byte("braid"), 10_000), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, said := ends(t, dir, "create", "file"); code != 0 {
		t.Fatal(said)
	}
}

// smallSeed serves file.torrent in the directory until the end of the test.
func smallSeed(t *testing.T, dir string) (peer string) {
	t.Helper()
	return startSeed(t, dir, "file.torrent")
}

// startSeed serves what the arguments name until the end of the test.
func startSeed(t *testing.T, dir string, args ...string) (peer string) {
	t.Helper()
	peer, _ = runningSeed(t, dir, args...)
	return peer
}

// runningSeed serves what the arguments name. wait returns its events after its end, which the end
// of the test is at the latest.
func runningSeed(t *testing.T, dir string, args ...string) (peer string, wait func() (events string, err error)) {
	t.Helper()
	seed := braid(t, dir, append([]string{"seed", "--listen", "127.0.0.1:0", "--json"}, args...)...)
	out, err := seed.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	seed.Stderr = &said
	if err := seed.Start(); err != nil {
		t.Fatal(err)
	}
	events := bufio.NewReader(out)
	var ready struct{ Listen []string }
	first, _ := events.ReadBytes('\n')
	if err := json.Unmarshal(first, &ready); err != nil || len(ready.Listen) == 0 {
		_ = seed.Wait()
		t.Fatalf("no seed: %v: %s", err, said.String())
	}
	t.Cleanup(func() {
		_ = seed.Process.Kill()
		_ = seed.Wait()
	})
	return ready.Listen[0], func() (string, error) {
		rest, err := io.ReadAll(events)
		return string(rest), errors.Join(err, seed.Wait())
	}
}

// Results that cannot be written are an error, which is reported once, for every command.
func TestLostOutput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	smallTorrent(t, dir)
	peer := smallSeed(t, dir)
	for _, args := range [][]string{
		{"--help"},
		{"create", "file"}, {"create", "file", "--json"},
		{"info", "file.torrent"}, {"info", "file.torrent", "--json"},
		{"verify", "file.torrent"}, {"verify", "file.torrent", "--json"},
		{"verify", "file.torrent", "--data", "nothing", "--json"},
		{"download", "file.torrent", "--list"}, {"download", "file.torrent", "--list", "--json"},
		{"download", "file.torrent", "-o", "out", "--peer", peer, "--json"},
		{"seed", "file.torrent", "--listen", "127.0.0.1:0", "--json"},
		{"tracker", "--print-config"}, {"tracker", "--listen", "udp://127.0.0.1:0", "--json"},
	} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Skip(err) // not Linux
		}
		cmd := braid(t, dir, args...)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = full, &said
		err = cmd.Run()
		full.Close()
		if code := cmd.ProcessState.ExitCode(); code != program.Failed || strings.Count(said.String(), "no space left") != 1 {
			t.Errorf("%v: %v: exit code %d: %s", args, err, code, said.String())
		}
	}
}

// A seed whose events nobody reads any more ends cleanly, and not by a signal: its trackers hear
// that it has stopped.
func TestReaderGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	smallTorrent(t, dir)
	started, stopped := make(chan struct{}, 1), make(chan struct{}, 1)
	tracker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.FormValue("event") {
		case "started":
			started <- struct{}{}
		case "stopped":
			stopped <- struct{}{}
		}
		fmt.Fprint(w, "d8:intervali1800e5:peers0:e")
	}))
	defer tracker.Close()
	seed := braid(t, dir, "seed", "file.torrent", "--listen", "127.0.0.1:0", "--json", "--sample", "10ms", "--tracker", tracker.URL+"/announce")
	var said bytes.Buffer
	seed.Stderr = &said
	out, err := seed.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := seed.Start(); err != nil {
		t.Fatal(err)
	}
	for lines, n := bufio.NewScanner(out), 0; n < 2; n++ {
		if !lines.Scan() {
			t.Fatalf("no events: %s", said.String())
		}
	}
	<-started // a tracker that knows nothing of the seed is told nothing of its end
	out.Close()
	_ = seed.Wait() // with the code that is looked at
	if code := seed.ProcessState.ExitCode(); code != program.Failed || strings.Count(said.String(), "broken pipe") != 1 {
		t.Errorf("%v: %s", seed.ProcessState, said.String())
	}
	select {
	case <-stopped:
	case <-time.After(swarmPatience):
		t.Errorf("the tracker was not told: %s", said.String())
	}
}
