package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"braid/commands/program"
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

// Ctrl-C kills the processes of a benchmark, too. Their errors do not hide what has happened.
func TestBenchInterruptedByUser(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	killed := benchAction(func(context.Context, benchmark) error {
		interrupt()
		return errors.New("signal: killed")
	})
	err := (&cli.Command{Action: killed}).Run(ctx, []string{"dht"})
	if program.Code(err) != program.Interrupted {
		t.Errorf("exit code %d: %v", program.Code(err), err)
	}
}

// Results of a file are only drawn, so there must be a folder for the figure.
func TestBenchFromWithoutFigure(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rows.json")
	if err := os.WriteFile(file, []byte(`{"case":"calm","nodes":100,"found":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	err := benchDHTCommand().Run(t.Context(), []string{"dht", "--from", file})
	if program.Code(err) != program.Usage || !strings.Contains(err.Error(), "--figure") {
		t.Errorf("exit code %d: %v", program.Code(err), err)
	}
}

// An interrupted benchmark still shows what it has measured.
func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	cmd := lab(t, t.TempDir(), "bench", "dht", "--case", "calm", "--nodes", "10", "--nodes", "100000")
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
