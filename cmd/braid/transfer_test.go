package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"braid/node/event"
	"braid/pathsel"
)

// braidProcess is this test binary acting as braid.
const braidProcess = "BRAID_TEST_AS_PROGRAM"

// scionBin says where the SCION programs are, to the tests and to each braid that they start.
const scionBin = "BRAID_SCION_BIN"

func TestMain(m *testing.M) {
	if os.Getenv(braidProcess) != "" {
		main()
		return
	}
	if dir := os.Getenv(networkDir); dir != "" {
		if err := runNetwork(dir, os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(scionBin) == "" {
		bin, err := filepath.Abs("../../bin/scion")
		if err == nil {
			err = os.Setenv(scionBin, bin)
		}
		if err != nil {
			panic(err)
		}
	}
	flag.Parse()
	if _, err := os.Stat(filepath.Join(os.Getenv(scionBin), "router")); err != nil && !testing.Short() {
		fmt.Fprintln(os.Stderr, "some of these tests start SCION networks: run ./scripts/build first, or go test -short")
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func braid(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), braidProcess+"=1", "HOME="+dir)
	return cmd
}

// ends runs braid to its end.
func ends(t *testing.T, dir string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := braid(t, dir, args...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), said.String()
}

// must runs braid, which has to succeed, and returns what it prints.
func must(t *testing.T, dir string, args ...string) (stdout string) {
	t.Helper()
	code, out, said := ends(t, dir, args...)
	if code != 0 {
		t.Fatalf("braid %v: exit code %d: %s", args, code, said)
	}
	return out
}

// The commands together: create, info, verify, seed, download, an interruption and its resumption,
// exit codes.
func TestCommands(t *testing.T) {
	dir := t.TempDir()
	b := make([]byte, 64<<20)
	rand.NewChaCha8([32]byte{4}).Read(b)
	if err := os.WriteFile(filepath.Join(dir, "file"), b, 0o644); err != nil {
		t.Fatal(err)
	}
	want := func(code int, inOut, inErr string, args ...string) (stdout string) {
		t.Helper()
		got, out, said := ends(t, dir, args...)
		if got != code || !strings.Contains(out, inOut) || !strings.Contains(said, inErr) || strings.Contains(said, "panic") {
			t.Fatalf("braid %v: exit code %d, want %d\nstdout: %s\nstderr: %s", args, got, code, out, said)
		}
		return out
	}
	want(0, "magnet:?", "", "create", "file", "--comment", "hello", "--tracker", "http://127.0.0.1:1/announce")
	want(0, `"comment":"hello"`, "", "info", "file.torrent", "--json")
	want(0, "the file is right", "", "verify", "file.torrent")
	want(2, "", "--help", "verify", "--nonsense")
	want(2, "", "name one file", "create")
	want(2, "", "--peer", "download", "file.torrent", "--no-trackers")
	want(2, "", "--tracker", "download", "file.torrent", "--tracker", "gopher://x")
	want(2, "", "--listen", "seed", "file.torrent")
	want(2, "", "path-selection", "download", "file.torrent", "--peer", "127.0.0.1:1", "--path-selection", "nonsense")
	want(2, "", "--slot", "download", "file.torrent", "--peer", "127.0.0.1:1", "--path-selection", "slots", "--slot", "0s")
	want(2, "", "--min-weight", "download", "file.torrent", "--peer", "127.0.0.1:1", "--min-weight", "101")
	want(1, "", "no such file", "info", "nothing.torrent")
	want(1, "", "not a torrent", "info", "file")
	want(1, "", "no data", "create", t.TempDir())
	want(3, "missing", "1 of 1 file", "verify", "file.torrent", "--data", t.TempDir())
	want(3, "", "not complete", "seed", "file.torrent", "--data", t.TempDir(), "--listen", "127.0.0.1:0")

	seed := braid(t, dir, "seed", "file.torrent", "--listen", "127.0.0.1:0", "--json")
	events, err := seed.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := seed.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(events)
	var ready struct {
		Event  string
		Listen []string
	}
	for ready.Event != "ready" {
		if !lines.Scan() {
			t.Fatalf("the seed has ended: %v", lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), &ready); err != nil {
			t.Fatalf("event %q: %v", lines.Text(), err)
		}
	}
	go func() {
		for lines.Scan() {
		}
	}()
	peer := ready.Listen[0]

	// Interrupted before anything can be done, if not in the middle: either way it can go on.
	first := braid(t, dir, "download", "file.torrent", "-o", "out", "--peer", "127.0.0.1:1", "--json")
	var said bytes.Buffer
	first.Stderr = &said
	out, err := first.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	if !bufio.NewScanner(out).Scan() { // the first event: it is at work
		t.Fatalf("no event: %s", said.String())
	}
	if err := first.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // with the code that is looked at
	if code := first.ProcessState.ExitCode(); code != 130 || !strings.Contains(said.String(), "interrupted") {
		t.Errorf("interrupted: exit code %d, %q", code, said.String())
	}

	stdout := want(0, `"event":"done"`, "", "download", "file.torrent", "-o", "out", "--peer", peer, "--json", "--trace", "trace")
	for _, event := range []string{"path-selected", "path-opened"} {
		if n := strings.Count(stdout, `{"event":"`+event+`"`); n != 1 {
			t.Errorf("%d events %s in %s", n, event, stdout)
		}
	}
	trace, err := os.ReadFile(filepath.Join(dir, "trace"))
	if err != nil {
		t.Fatal(err)
	}
	var end pathsel.Step
	for s, err := range pathsel.Steps(bytes.NewReader(trace)) {
		if err != nil {
			t.Fatal(err)
		}
		end = s
	}
	if end.Selector != "adaptive" || len(end.View.Candidates) != 1 {
		t.Errorf("the last step of the trace is %+v: %s", end, trace)
	}
	var done event.Done
	last := strings.Split(strings.TrimSpace(stdout), "\n")
	if err := json.Unmarshal([]byte(last[len(last)-1]), &done); err != nil {
		t.Fatal(err)
	}
	if done.Bytes != int64(len(b)) || done.Fetched != done.Bytes || done.PayloadMbitS <= 0 || len(done.Paths) != 1 || done.Paths[0].BytesRead < uint64(done.Bytes) {
		t.Errorf("done: %+v", done)
	}
	want(0, "the file is right", "", "verify", "file.torrent", "--data", "out")
	// Complete already: nothing is fetched, and nobody needs to be there.
	want(0, `"fetched_bytes":0`, "", "download", "file.torrent", "-o", "out", "--peer", "127.0.0.1:1", "--json")

	if err := seed.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := seed.Wait(); err != nil {
		t.Errorf("an interrupted seed has done its job: %v", err)
	}
}
