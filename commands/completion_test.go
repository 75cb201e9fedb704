package commands

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What braid suggests has no marks for the help in it.
func TestSuggestions(t *testing.T) {
	const want = "--exclude:leave out torrents whose title matches GLOB (repeatable)\n"
	if out := must(t, t.TempDir(), "mirror", "--excl", "--generate-shell-completion"); out != want {
		t.Errorf("%q, want %q", out, want)
	}
}

// The scripts for the other shells are ones that these shells can read, and do not make a shell
// evaluate what is typed.
func TestCompletionScripts(t *testing.T) {
	dir := t.TempDir()
	for _, shell := range []string{"zsh", "fish", "pwsh"} {
		code, script, said := ends(t, dir, "completion", shell)
		if code != 0 || said != "" || !strings.Contains(script, "--generate-shell-completion") || strings.Contains(script, "Invoke-Expression") {
			t.Errorf("%s: exit code %d, %s: %s", shell, code, said, script)
		}
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("%s does not read its script: %v", shell, err)
			continue
		}
		name := filepath.Join(dir, shell)
		if err := os.WriteFile(name, []byte(script), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), path, "-n", name).CombinedOutput(); err != nil {
			t.Errorf("%s -n: %v: %s", shell, err, out)
		}
	}
}

// Every command has a man page, and mandoc finds nothing to complain about.
func TestManPages(t *testing.T) {
	dir := t.TempDir()
	if code, out, said := ends(t, dir, "manual", "--man", "pages"); code != 0 || out != "" || said != "" {
		t.Fatalf("exit code %d: %s%s", code, out, said)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "pages", "*.1"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadFile("../docs/manual.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(all)) {
		if command, ok := strings.CutPrefix(line, "## "); ok {
			name := strings.ReplaceAll(strings.TrimSpace(command), " ", "-") + ".1"
			if _, err := os.Stat(filepath.Join(dir, "pages", name)); err != nil {
				t.Error(err)
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "pages", "braid-move.1"))
	for _, part := range []string{
		".SH NAME\nbraid\\-move \\-\n",
		".SH SYNOPSIS\n.B braid move\n[FLAGS] TORRENT...\n",
		"\n.TP\n.B \\-\\-to DIR\nmove to DIR, of the daemon",
		".SH SEE ALSO\n.BR braid (1)\n",
	} {
		if err != nil || !strings.Contains(string(text), part) {
			t.Errorf("%v: braid-move.1 lacks %q:\n%s", err, part, text)
		}
	}
	mandoc, err := exec.LookPath("mandoc")
	if err != nil {
		t.Skipf("%v: scripts/install-deps installs it", err)
	}
	if out, err := exec.CommandContext(t.Context(), mandoc, append([]string{"-Tlint", "-Wwarning"}, pages...)...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("mandoc: %v:\n%s", err, out)
	}
}
