package commands

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"braid/commands/program"
	"braid/node/event"
	"braid/units/await"
)

// testEnv is an environment in a directory, in which nobody has set up SCION.
func testEnv(dir string, out, said io.Writer) Env {
	variables := map[string]string{"HOME": dir, "XDG_RUNTIME_DIR": filepath.Join(dir, "run")}
	return Env{Env: program.Env{
		In: strings.NewReader(""), Out: out, Err: said, Dir: dir,
		Getenv: func(name string) string { return variables[name] },
	}}
}

// ends runs braid in this process, to its end. In what it prints, names of files are relative to the
// directory, as a user there would see them.
func ends(t *testing.T, dir string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, said bytes.Buffer
	code = Run(t.Context(), testEnv(dir, &out, &said), args)
	relative := strings.NewReplacer(dir+"/", "", dir, ".")
	return code, relative.Replace(out.String()), relative.Replace(said.String())
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
	if err := os.WriteFile(filepath.Join(dir, "file"), bytes.Repeat([]byte("braid"), 10_000), 0o644); err != nil {
		t.Fatal(err)
	}
	must(t, dir, "create", "file")
}

// running is a command that runs in this process, beside the test.
type running struct {
	out, said locked
	interrupt context.CancelFunc
	ended     chan struct{}
	code      int // of the end
}

// locked is text that one goroutine writes and another one reads.
type locked struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *locked) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(text)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start starts braid, which the end of the test interrupts.
func start(t *testing.T, dir string, args ...string) *running {
	t.Helper()
	r := &running{ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r.interrupt = cancel
	go func() {
		defer close(r.ended)
		r.code = Run(ctx, testEnv(dir, &r.out, &r.said), args)
	}()
	t.Cleanup(func() { cancel(); <-r.ended })
	return r
}

// ready waits until a command says that it is ready, and returns the addresses at which it listens.
func (r *running) ready(t *testing.T) []string {
	t.Helper()
	var e event.Ready
	await.True(t, "the event ready", func() bool {
		for line := range strings.Lines(r.out.String()) {
			if json.Unmarshal([]byte(line), &e) == nil && e.Event == "ready" {
				return true
			}
		}
		select {
		case <-r.ended:
			t.Fatalf("it has ended with exit code %d: %s", r.code, r.said.String())
		default:
		}
		return false
	})
	return e.Listen
}

// ready starts braid, waits until it is ready, and returns the addresses at which it listens. The
// end of the test interrupts it, and it ends well.
func ready(t *testing.T, dir string, args ...string) []string {
	t.Helper()
	r := start(t, dir, args...)
	t.Cleanup(func() {
		r.interrupt()
		if <-r.ended; r.code != 0 {
			t.Errorf("braid %s: exit code %d: %s", args[0], r.code, r.said.String())
		}
	})
	return r.ready(t)
}

// randomFile writes dir/file, with the same bytes for the same seed.
func randomFile(t *testing.T, dir string, seed byte, size int) []byte {
	t.Helper()
	data := make([]byte, size)
	rand.NewChaCha8([32]byte{seed}).Read(data)
	if err := os.WriteFile(filepath.Join(dir, "file"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	return data
}

// wait waits for the end, and returns the exit code.
func (r *running) wait(t *testing.T) int {
	t.Helper()
	await.Value(t, "the end of the command", r.ended)
	return r.code
}

// smallSeed serves file.torrent in the directory until the end of the test.
func smallSeed(t *testing.T, dir string) (peer string) {
	t.Helper()
	return startSeed(t, dir, "file.torrent")
}

// startSeed serves what the arguments name until the end of the test.
func startSeed(t *testing.T, dir string, args ...string) (peer string) {
	t.Helper()
	return seeding(t, dir, args...).ready(t)[0]
}

func seeding(t *testing.T, dir string, args ...string) *running {
	t.Helper()
	return start(t, dir, append([]string{"seed", "--listen", "127.0.0.1:0", "--json"}, args...)...)
}
