package storage

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/anacrolix/torrent/metainfo"
)

// A file that may not be read is reported with the reason. Its neighbours are not called wrong.
func TestUnreadableFile(t *testing.T) {
	if os.Geteuid() == 0 {
		// Root may read everything, so another user runs the test.
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestUnreadableFile$", "-test.v")
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		cmd.Dir = "/"
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS")) {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	info, l, data := shape(t, 32<<10, 10_000, 10_000)
	dir := fastDir(t)
	s, tor := openStore(t, KindFile, dir, info)
	if err := writePiece(tor, info, data, 0); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s, tor)
	if err := os.Chmod(filepath.Join(dir, l.Files[0].Path), 0); err != nil {
		t.Fatal(err)
	}
	r, err := Stored{KindFile, dir, metainfo.Hash{9}, l}.Check(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if f := r.Files[0]; f.State != FileDamaged || !strings.Contains(f.Error, "permission denied") {
		t.Errorf("the file: %+v", f)
	}
	if f := r.Files[1]; f.State != FileUnknown || f.Lacks != l.Files[0].Path {
		t.Errorf("its neighbour: %+v", f)
	}

	// A download does not call it, or its neighbour, somebody else's.
	s, err = Open(KindFile, dir, slog.New(slog.DiscardHandler), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, mode := range []os.FileMode{0, 0o200} {
		if err := os.Chmod(filepath.Join(dir, l.Files[0].Path), mode); err != nil {
			t.Fatal(err)
		}
		err = Claim(t.Context(), s, l, metainfo.Hash{8}, nil)
		if err == nil || strings.Count(err.Error(), "cannot be checked: ") != 2 || !strings.Contains(err.Error(), "permission denied") || errors.Is(err, ErrReplaceable) {
			t.Errorf("mode %v: %v", mode, err)
		}
	}
}
