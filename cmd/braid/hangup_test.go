package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"braid/commands/program"
	"braid/node/event"
)

// A terminal that is closed ends a download cleanly, so that the next run resumes it. Under nohup
// it goes on.
func TestHangup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	smallTorrent(t, dir)
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, trap string
		goesOn     bool
	}{
		{"terminal", "", false},
		{"nohup", "trap '' HUP; ", true},
	} {
		cmd := braid(t, dir, "download", "file.torrent", "-o", tt.name, "--peer", "127.0.0.1:1", "--json", "--sample", "10ms")
		cmd.Path, cmd.Args = shell, append([]string{"sh", "-c", tt.trap + `exec "$0" "$@"`}, cmd.Args...)
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer time.AfterFunc(swarmPatience, func() { _ = cmd.Process.Kill() }).Stop()
		events := bufio.NewScanner(out)
		if !events.Scan() { // the first event: it is at work
			t.Fatalf("%s: no event: %s", tt.name, said.String())
		}
		if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		// Events of this age are made after the signal: the process was started after the clock
		// here. A process that ends does so by itself, however long it takes.
		later, goesOn := time.Since(began)+time.Second, false
		for !goesOn && events.Scan() {
			var e event.Progress
			if err := json.Unmarshal(events.Bytes(), &e); err != nil {
				t.Fatalf("%s: event %q: %v", tt.name, events.Text(), err)
			}
			goesOn = tt.goesOn && e.T > later.Seconds()
		}
		if goesOn != tt.goesOn {
			t.Errorf("%s: it has ended: %s", tt.name, said.String())
		}
		if tt.goesOn {
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
		for events.Scan() {
		}
		_ = cmd.Wait() // with the code that is looked at
		if code := cmd.ProcessState.ExitCode(); code != program.Interrupted || !strings.Contains(said.String(), "interrupted at") {
			t.Errorf("%s: %v: %s", tt.name, cmd.ProcessState, said.String())
		}
	}
}

// It also ends a command that hashes for hours.
func TestHangupWhileHashing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	big := filepath.Join(dir, "data", "big")
	err := errors.Join(os.Mkdir(filepath.Dir(big), 0o755), os.WriteFile(big, nil, 0o644),
		os.Truncate(big, 100<<30), os.Symlink("big", filepath.Join(dir, "data", "link")))
	if err != nil {
		t.Fatal(err)
	}
	cmd := braid(t, dir, "create", "data")
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(swarmPatience, func() { _ = cmd.Process.Kill() }).Stop()
	lines := bufio.NewScanner(said)
	if !lines.Scan() || !strings.Contains(lines.Text(), "left out") { // it is at work
		t.Fatalf("%q", lines.Text())
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
	}
	_ = cmd.Wait() // with the code that is looked at
	if code := cmd.ProcessState.ExitCode(); code != program.Interrupted {
		t.Errorf("%v", cmd.ProcessState)
	}
}
