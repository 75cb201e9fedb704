package main

import (
	"bufio"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// Downloads are killed at random moments, a few times for each kind of storage: the next one goes on where the last one
// was, and in the end all is right. scripts/crash does it hundreds of times.
func TestKilledDownloads(t *testing.T) {
	dir := t.TempDir()
	const size, kills = 24 << 20, 3
	b := make([]byte, size)
	rand.NewChaCha8([32]byte{5}).Read(b)
	if err := os.WriteFile(filepath.Join(dir, "file"), b, 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, said := ends(t, dir, "create", "file", "--piece-length", "64KiB"); code != 0 {
		t.Fatal(said)
	}
	seed := braid(t, dir, "seed", "file.torrent", "--listen", "127.0.0.1:0", "--json", "--upload-rate", "100mbit")
	events, err := seed.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := seed.Start(); err != nil {
		t.Fatal(err)
	}
	type event struct {
		Event   string
		Listen  []string
		Bytes   int64
		Fetched int64 `json:"fetched_bytes"`
	}
	next := func(lines *bufio.Scanner) (e event, ok bool) {
		if !lines.Scan() {
			return e, false
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("event %q: %v", lines.Text(), err)
		}
		return e, true
	}
	lines := bufio.NewScanner(events)
	ready, _ := next(lines)
	if ready.Event != "ready" {
		t.Fatalf("the seed's first event is %+v", ready)
	}
	go func() {
		for lines.Scan() {
		}
	}()

	for _, kind := range []string{"file", "mmap", "bolt"} {
		t.Run(kind, func(t *testing.T) {
			out := filepath.Join(dir, "out-"+kind)
			args := []string{"download", "file.torrent", "-o", out, "--storage", kind, "--peer", ready.Listen[0], "--json", "--sample", "10ms"}
			have := int64(0)
			for range kills {
				cmd := braid(t, dir, args...)
				events, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				lines := bufio.NewScanner(events)
				until := have + 1 + rand.Int64N(size/kills-1)
				for e, ok := next(lines); ok; e, ok = next(lines) {
					if e.Event == "progress" && e.Fetched > 0 && e.Bytes >= until {
						have = e.Bytes
						break
					}
				}
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
			if code, _, said := ends(t, dir, args...); code != 0 {
				t.Fatal(said)
			}
			if code, _, said := ends(t, dir, "verify", "file.torrent", "--data", out, "--storage", kind); code != 0 {
				t.Fatal(said)
			}
		})
	}
}
