//go:build unix

package main

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"braid/commands/program"
)

// A command that hangs where no context reaches it (here in opening a pipe that nobody writes to)
// ends with the second Ctrl-C, also if the shell that started braid had SIGINT ignored.
func TestSecondInterruptEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.torrent"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := braid(t, dir, "info", "pipe.torrent")
	cmd.Args = append([]string{"sh", "-c", `trap '' INT TERM; echo ready; exec "$0" "$@"`}, cmd.Args...)
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Path = shell
	cmd.Stdout = nil
	said, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(said).ReadString('\n'); line != "ready\n" { // an earlier signal would end the shell
		t.Errorf("the shell says %q, %v", line, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	// Two signals may not be enough: braid ignores those that come before it listens, and the system
	// merges pending ones.
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for enough := time.After(2 * time.Minute); ; {
		select {
		case <-ended:
			if code := cmd.ProcessState.ExitCode(); code != program.Interrupted {
				t.Errorf("exit code %d, want %d", code, program.Interrupted)
			}
			return
		case <-again.C:
			_ = cmd.Process.Signal(syscall.SIGINT)
		case <-enough:
			_ = cmd.Process.Kill()
			t.Fatal("Ctrl-C does not end braid")
		}
	}
}
