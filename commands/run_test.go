package commands

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"braid/commands/program"
)

// testEnv is an environment in a directory, in which nobody has set up SCION.
func testEnv(dir string, out, said io.Writer) Env {
	variables := map[string]string{"HOME": dir, "XDG_RUNTIME_DIR": filepath.Join(dir, "run")}
	return Env{Env: program.Env{
		In: strings.NewReader(""), Out: out, Err: said, Dir: dir,
		Getenv: func(name string) string { return variables[name] },
	}}
}

// ends runs braid in this process, to its end.
func ends(t *testing.T, dir string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, said bytes.Buffer
	code = Run(t.Context(), testEnv(dir, &out, &said), args)
	return code, out.String(), said.String()
}

// must runs braid, which has to succeed, and returns what it prints.
func must(t *testing.T, dir string, args ...string) (stdout string) {
	t.Helper()
	code, out, said := ends(t, dir, args...)
	if code != 0 {
		t.Fatalf("braid %v: exit code %d: %s", args, code, said)
	}
	return out
}

// smallTorrent makes file and file.torrent in the directory.
func smallTorrent(t *testing.T, dir string) {
	t.Helper()
	b := make([]byte, 300_000)
	rand.NewChaCha8([32]byte{7}).Read(b)
	if err := os.WriteFile(filepath.Join(dir, "file"), b, 0o644); err != nil {
		t.Fatal(err)
	}
	must(t, dir, "create", "file")
}
