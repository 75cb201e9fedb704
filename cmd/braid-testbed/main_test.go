package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"braid/commands"
	"braid/commands/program"
)

// asProgram makes this test binary act as a program: braid if it is started under that name, and
// braid-testbed otherwise.
const asProgram = "BRAID_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		if filepath.Base(os.Args[0]) == "braid" {
			env := commands.Env{Env: program.Process()}
			os.Exit(commands.Run(program.Signals(os.Exit), env, os.Args[1:]))
		}
		main()
		return
	}
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(code)
}

// runTests runs the tests. The processes that they start find braid and the SCION programs.
func runTests(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "braid-testbed-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	braid := filepath.Join(dir, "braid")
	scion, err := filepath.Abs("../../bin/scion")
	if named := os.Getenv("BRAID_SCION_BIN"); named != "" {
		scion = named
	}
	err = errors.Join(err, os.Symlink(self, braid), os.Setenv("BRAID_PROGRAM", braid),
		os.Setenv("BRAID_SCION_BIN", scion))
	if err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// lab returns a process of braid-testbed.
func lab(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), asProgram+"=1", "HOME="+dir)
	return cmd
}

// runs runs a process of braid-testbed to its end.
func runs(t *testing.T, dir string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := lab(t, dir, args...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), said.String()
}

// ends runs a command in this process, to its end.
func ends(t *testing.T, dir string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, said bytes.Buffer
	env := program.Env{In: strings.NewReader(""), Out: &out, Err: &said, Dir: dir, Getenv: os.Getenv}
	code = env.Run(t.Context(), tree(), args, nil)
	return code, out.String(), said.String()
}
