package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// documentBlocks are the blocks of code of a document, which a reader would paste.
func documentBlocks(t *testing.T, name string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	for i, block := range strings.Split("\n"+string(text), "\n```\n") {
		if i%2 == 1 {
			blocks = append(blocks, block)
		}
	}
	if len(blocks) < 5 {
		t.Fatalf("docs/%s has %d blocks of commands", name, len(blocks))
	}
	return blocks
}

// cloneForReader makes a directory that stands for a clone: its programs are this test binary, and
// its scripts are the repository's.
func cloneForReader(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bin", "scripts"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"braid", "braid-testbed"} {
		if err := os.Symlink(self, filepath.Join(dir, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	build := "#!/bin/sh\nHOME='" + os.Getenv("HOME") + "' exec '" + filepath.Join(repository, "scripts", "build") + "'\n"
	if err := os.WriteFile(filepath.Join(dir, "scripts", "build"), []byte(build), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// All commands of docs/tutorial.md run in one shell, as a reader would paste them. Only the
// addresses differ, since two of these tests may run on one machine.
func TestTutorial(t *testing.T) {
	if testing.Short() {
		t.Skip("starts SCION networks")
	}
	t.Parallel()
	lines := documentBlocks(t, "tutorial.md")
	subnet := fmt.Sprintf("127.%d.%d.", 128+rand.IntN(100), rand.IntN(250))
	script := strings.ReplaceAll(strings.Join(lines, "\n"), "127.77.0.", subnet)

	dir := cloneForReader(t)
	// The shell shows each command before its output, and stops at the first one that fails.
	bash := exec.CommandContext(t.Context(), "bash", "-e", "-v")
	bash.Dir, bash.Stdin = dir, strings.NewReader(script)
	bash.Env = append(os.Environ(), asProgram+"=1", "HOME="+dir)
	var said bytes.Buffer
	bash.Stdout, bash.Stderr = &said, &said
	bash.WaitDelay = 10 * time.Second // for what it has left running
	t.Cleanup(func() {                // if the shell stopped early
		_ = lab(t, dir, "down", "-d", "net").Run()
	})
	if err := bash.Run(); err != nil {
		t.Fatalf("%v:\n%s", err, said.String())
	}
	for _, want := range []string{`dataset: the file is right`, `ready, listening on`, `tracking on`, `SCION peers only: `, `2 of 2`, `adaptive`, `index.html`} {
		if !regexp.MustCompile(want).MatchString(said.String()) {
			t.Errorf("nothing says %q:\n%s", want, said.String())
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, "dataset", "data"))
	if err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{"out", "out2"} {
		if b, err := os.ReadFile(filepath.Join(dir, out, "dataset", "data")); err != nil || !bytes.Equal(b, data) {
			t.Errorf("%s: %d bytes, %v", out, len(b), err)
		}
	}
}
