package main

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"braid/testbed/dhtbench"
)

// A file without results has no figure; drawing one took all memory. The figure's folder is made.
func TestBenchFigure(t *testing.T) {
	dir := t.TempDir()
	for text, wants := range map[string]string{
		"": "has no results", `{"case":"calm","runs":3}`: "has no results", `{"case":"calm","nodes":100,"found":1}`: "",
	} {
		file := filepath.Join(dir, "rows.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		rows, err := readDHTRows(file)
		if wants == "" && err == nil {
			err = dhtbench.Draw(rows).Write(filepath.Join(dir, "new", "folder"), ".svg")
		}
		if (err == nil) != (wants == "") || err != nil && !strings.Contains(err.Error(), wants) {
			t.Errorf("%q: %d rows, %v", text, len(rows), err)
		}
	}
}

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
