package client

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/anacrolix/torrent/metainfo"
	engine "github.com/anacrolix/torrent/storage"

	"braid/storage"
	"braid/units/await"
)

// panicking is a store that panics where the engine holds its lock.
type panicking struct{ storage.Store }

func (panicking) OpenTorrent(context.Context, *metainfo.Info, metainfo.Hash) (engine.TorrentImpl, error) {
	panic("a bug, for the test")
}

// A panic of the engine leaves it locked. Whoever closed the session on the way out waited for that
// lock for ever.
func TestEnginePanicEndsProcess(t *testing.T) {
	const child = "BRAID_TEST_PANIC"
	if os.Getenv(child) != "" {
		data := t.TempDir()
		writeRandom(t, filepath.Join(data, "f"), 1)
		s := openSession(t, Config{})
		defer s.Close()
		_, err := s.Add(makeTorrent(t, filepath.Join(data, "f"), CreateOptions{}).Source, panicking{}, Options{})
		t.Errorf("Add has returned %v", err)
		return
	}
	ctx, cancel := context.WithDeadline(t.Context(), await.Deadline(t))
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$")
	// The child ends without removing its files.
	cmd.Env = append(os.Environ(), child+"=1", "TMPDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil || err == nil || !strings.Contains(string(out), "panic: a bug, for the test") {
		t.Errorf("%v, %v: %s", ctx.Err(), err, out)
	}
}
