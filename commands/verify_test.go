package commands

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"braid/storage"
)

// A download of one file of several, and what verify says of it: as the record has it, as the user
// has it, of all, and when its neighbours are gone.
func TestVerifySelection(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "runs"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 3 { // each of two pieces and a third
		b := bytes.Repeat([]byte(fmt.Sprintf("%c%d...", 'a'+i, i)), 30<<10)
		if err := os.WriteFile(filepath.Join(dir, "runs", fmt.Sprintf("run%d.bin", i+1)), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if code, _, said := ends(t, dir, "create", "runs", "-o", "file.torrent", "--piece-length", "64KiB"); code != 0 {
		t.Fatal(said)
	}
	peer := smallSeed(t, dir)
	for _, kind := range []string{"file", "mmap", "bolt"} {
		t.Run(kind, func(t *testing.T) {
			out := filepath.Join(dir, "out-"+kind)
			code, _, said := ends(t, dir, "download", "file.torrent", "-o", out, "--storage", kind, "--peer", peer, "--select", "run2.bin")
			if code != 0 {
				t.Fatal(said)
			}
			verify := func(want int, says string, args ...string) storage.Report {
				t.Helper()
				args = append([]string{"verify", "file.torrent", "--data", out, "--storage", kind}, args...)
				code, stdout, stderr := ends(t, dir, args...)
				if code != want || !strings.Contains(stdout+stderr, says) {
					t.Errorf("braid %v: exit code %d, want %d and %q\nstdout: %s\nstderr: %s", args, code, want, says, stdout, stderr)
				}
				_, stdout, _ = ends(t, dir, append(args, "--json")...)
				var r storage.Report
				if err := json.Unmarshal([]byte(stdout), &struct {
					Files *[]storage.FileReport `json:"files"`
				}{&r.Files}); err != nil && want != 2 {
					t.Errorf("%v: %s", err, stdout)
				}
				if want != 2 && r.Complete() != (want == 0) {
					t.Errorf("exit code %d with %+v", want, r.Files)
				}
				return r
			}
			verify(0, "runs: the file is right; 2 files not selected by the last download")
			verify(0, "runs: the file is right; 2 files not selected\n", "--select", "run2.bin")
			verify(0, "skipped    runs/run1.bin\nok         runs/run2.bin\nskipped    runs/run3.bin\n")
			verify(2, `no file of runs matches "*.iso"`, "--select", "*.iso")
			r := verify(3, "2 of 3 files and", "--select", "*")
			if r.Files[1].State != storage.FileOK || r.Files[0].State == storage.FileOK {
				t.Errorf("of all files: %+v", r.Files)
			}
			if kind == "bolt" {
				return
			}
			parts, err := filepath.Glob(filepath.Join(out, "runs", "*.part"))
			if err != nil || len(parts) != 2 {
				t.Fatalf("%v, %v", parts, err)
			}
			for _, p := range parts {
				if err := os.Remove(p); err != nil {
					t.Fatal(err)
				}
			}
			verify(3, "unchecked  runs/run2.bin (1 of 3 pieces right; the rest cannot be checked without runs/run1.bin)")
			verify(3, "nothing is known to be wrong, but 1 of 1 file could not be checked in full")
			name := filepath.Join(out, "runs", "run2.bin")
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			b[100_000] ^= 1
			if err := os.WriteFile(name, b, 0o644); err != nil {
				t.Fatal(err)
			}
			verify(3, "damaged    runs/run2.bin (3 of 3 pieces not right)")
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
			verify(3, "missing    runs/run2.bin\n")
		})
	}
}
