package checks

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// imported are the packages that the program braid consists of.
func imported(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "braid/cmd/braid").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

// The laboratory is a program of its own. With its routers came a library that changes the process.
func TestBraidHasNoLaboratory(t *testing.T) {
	all := imported(t)
	if len(all) < 500 {
		t.Fatalf("%d packages", len(all))
	}
	for _, p := range all {
		if p == "github.com/scionproto/scion/private/env" || strings.HasPrefix(p+"/", "braid/testbed/") {
			t.Errorf("braid imports %s", p)
		}
	}
	if !slices.Contains(all, "time/tzdata") {
		t.Error("braid has no time zones")
	}
}

// A program that imports all packages of braid is started as any other one: with the signals ignored
// that its caller ignores (Go keeps these two), in the time zone, with the variables and in the directory of its caller.
func TestImportsChangeNoProcess(t *testing.T) {
	dir := t.TempDir()
	var text strings.Builder
	text.WriteString("package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n\t\"os/signal\"\n\t\"syscall\"\n\t\"time\"\n")
	for _, p := range imported(t) {
		if strings.HasPrefix(p, "braid/") && !strings.HasPrefix(p, "braid/cmd/") {
			fmt.Fprintf(&text, "\t_ %q\n", p)
		}
	}
	text.WriteString(`)

func main() {
	where, err := os.Getwd()
	_, offset := time.Date(2026, 1, 1, 0, 0, 0, 0, time.Local).Zone()
	var ignored []bool
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		ignored = append(ignored, signal.Ignored(s))
	}
	fmt.Println(ignored, offset, where, err)
	for _, v := range os.Environ() {
		fmt.Println(v)
	}
}
`)
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(source, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	shell := exec.CommandContext(t.Context(), "sh", "-c", `trap '' HUP INT; exec "$0"`, program)
	shell.Dir, shell.Env = dir, []string{"TZ=Asia/Tokyo", "PWD=" + dir, "HOME=" + dir}
	out, err := shell.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if want := "[true true] 32400 " + dir + " <nil>"; lines[0] != want {
		t.Errorf("the process has %s, want %s", lines[0], want)
	}
	for _, v := range lines[1:] {
		// The shell adds variables of its own.
		name, _, _ := strings.Cut(v, "=")
		if !slices.Contains(shell.Env, v) && name != "OLDPWD" && name != "_" {
			t.Errorf("the process has the variable %s", v)
		}
	}
}
