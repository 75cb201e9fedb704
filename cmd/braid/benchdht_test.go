package main

import (
	"bufio"
	"os"
	"strings"
	"testing"
)

// An interrupted benchmark still shows what it has measured.
func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	cmd := braid(t, t.TempDir(), "bench", "dht", "--case", "calm", "--nodes", "10", "--nodes", "100000")
	var out strings.Builder
	cmd.Stdout = &out
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if strings.Contains(lines.Text(), "100000") {
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(out.String(), "calm     10") {
		t.Errorf("%v, and on standard output %q", err, out.String())
	}
}
