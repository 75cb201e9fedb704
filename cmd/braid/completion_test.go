package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// bash completes commands and flags with the script that braid prints, and files where a value of a
// flag comes next. COMP_LINE and the others are what bash sets when somebody presses the tab key.
func TestBashCompletion(t *testing.T) {
	const library = "/usr/share/bash-completion/bash_completion"
	if _, err := os.Stat(library); err != nil {
		t.Skipf("%v: scripts/install-deps installs it", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, "braid")); err != nil {
		t.Fatal(err)
	}
	script := `. ` + library + `
source <(braid completion bash)
while IFS= read -r COMP_LINE; do
  read -ra COMP_WORDS <<<"$COMP_LINE"
  case $COMP_LINE in *" ") COMP_WORDS+=("") ;; esac
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_POINT=${#COMP_LINE} COMP_TYPE=9
  __braid_bash_autocomplete braid
  echo "${COMPREPLY[*]}"
done`
	cases := [][2]string{
		{"braid downl", "download"},
		{"braid re", "resume remove rename"},
		{"braid download --peer-o", "--peer-order"},
		{"braid download --peer ", ""},
		{"braid download -o ", ""},
		{"braid tracker --stor", "--store --store-password-file"},
		{"braid completion f", "fish"},
		{"braid download $(touch run) --peer-o", "--peer-order"},
		{"braid download `touch run`; touch run; --peer-o", "--peer-order"},
		{"braid download > run --peer-o", "--peer-order"},
	}
	var lines, want strings.Builder
	for _, c := range cases {
		lines.WriteString(c[0] + "\n")
		want.WriteString(c[1] + "\n")
	}
	bash := exec.CommandContext(t.Context(), "bash", "--norc", "-c", script)
	bash.Env = append(os.Environ(), braidProcess+"=1", "HOME="+dir, "PATH="+dir+":"+os.Getenv("PATH"))
	bash.Dir = dir
	bash.Stdin = strings.NewReader(lines.String())
	out, err := bash.Output()
	if err != nil {
		t.Fatal(err)
	}
	if string(out) != want.String() {
		t.Errorf("bash completes\n%s\nto\n%s\nwant\n%s", lines.String(), out, want.String())
	}
	if _, err := os.Lstat(filepath.Join(dir, "run")); err == nil {
		t.Error("completion has run a command in what was typed")
	}
}
