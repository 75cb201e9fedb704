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

// The tour in README.md, all of it, in one shell, as a reader would paste it. Only the addresses are others, since two tours
// may run on one machine.
func TestTour(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a SCION network")
	}
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, tour, _ := strings.Cut(string(readme), "\n## A tour\n")
	tour, _, ok := strings.Cut(tour, "\n## ")
	var lines []string
	for i, block := range strings.Split(tour, "\n```\n") {
		if i%2 == 1 {
			lines = append(lines, block)
		}
	}
	if !ok || len(lines) < 5 {
		t.Fatalf("the tour is not where it was: %d blocks", len(lines))
	}
	subnet := fmt.Sprintf("127.%d.%d.", 128+rand.IntN(100), rand.IntN(250))
	script := strings.ReplaceAll(strings.Join(lines, "\n"), "127.77.0.", subnet)

	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "bin", "braid")); err != nil {
		t.Fatal(err)
	}
	// Each command is shown before what it says, and one that fails ends the tour.
	bash := exec.CommandContext(t.Context(), "bash", "-e", "-v")
	bash.Dir, bash.Stdin = dir, strings.NewReader(script)
	bash.Env = append(os.Environ(), braidProcess+"=1", "HOME="+dir)
	var said bytes.Buffer
	bash.Stdout, bash.Stderr = &said, &said
	bash.WaitDelay = 10 * time.Second // for what it has left running
	t.Cleanup(func() {                // of a tour that did not come to its end
		_ = braid(t, dir, "testbed", "down", "-d", "net").Run()
	})
	if err := bash.Run(); err != nil {
		t.Fatalf("%v:\n%s", err, said.String())
	}
	for _, want := range []string{`dataset: the file is right`, `ready, listening on`, `tracking on`, `SCION peers only: `, `2 of 2`} {
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
