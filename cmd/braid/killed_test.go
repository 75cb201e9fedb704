package main

import (
	"bufio"
	"crypto/sha1"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"braid/client"
	"braid/storage"
)

// scripts/crash sets these.
var (
	kills     = flag.Int("kills", 3, "kill so many downloads into each kind of storage")
	killSize  = flag.Int("kill-size", 24<<20, "bytes of the data of killed downloads")
	killKinds = []string{"file", "mmap", "bolt"}
)

// Downloads are killed at random moments, a few times for each kind of storage. What the record
// claims after that is right, the next download goes on where the last one was, and in the end all
// is right.
func TestKilledDownloads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	src, peer := seedSet(t, dir, *killSize, "64KiB")
	for _, kind := range killKinds {
		t.Run(kind, func(t *testing.T) {
			out := filepath.Join(dir, "out-"+kind)
			args := []string{"download", "set.torrent", "-o", out, "--storage", kind, "--peer", peer, "--json", "--sample", "10ms"}
			r := rand.New(rand.NewPCG(uint64(*kills), 5))
			var again []int64 // bytes that each kill has cost
			lost := 0         // verified pieces, at most
			finished := 0
			finish := func() {
				e := runUntil(t, braid(t, dir, args...), nil, nil)
				if e.Event != "done" {
					t.Fatalf("a download after a kill ended with %+v", e)
				}
				if code, _, said := ends(t, dir, "verify", "set.torrent", "--data", out, "--storage", kind); code != 0 {
					t.Fatal(said)
				}
				if err := os.RemoveAll(out); err != nil {
					t.Fatal(err)
				}
				finished++
			}
			for len(again) < *kills {
				// Some in the middle, some at any time: while it starts, checks, ends.
				until, after := r.Int64N(src.Layout.Length), time.Duration(0)
				if len(again)%3 == 2 {
					after = time.Duration(r.Int64N(int64(time.Second)))
				}
				last := runUntil(t, braid(t, dir, args...), os.Kill, func(e killEvent, since time.Duration) bool {
					return after > 0 && since >= after || after == 0 && e.Fetched > 0 && e.Bytes >= until
				})
				if last.Event == "done" {
					finish()
					continue
				}
				pieces, bytes := kept(t, src, storage.Kind(kind), out)
				again = append(again, max(0, min(last.Fetched, last.Bytes-bytes)))
				if last.Phase == client.Downloading { // otherwise not all that is there was counted yet
					lost = max(lost, last.Done-pieces)
				}
				if len(again)%5 == 4 {
					finish()
				}
			}
			finish()
			slices.Sort(again)
			t.Logf("%d kills, %d downloads right in the end; fetched again after a kill, in MB: median %.2f, most %.2f",
				len(again), finished, float64(again[len(again)/2])/1e6, float64(again[len(again)-1])/1e6)
			t.Logf("verified pieces that a kill has lost: at most %d", lost)
			// What a file has been given stays when a process is killed. bolt has pieces in memory:
			// fewer than 8 MiB that are whole, and the 8 MiB of every storage, which may be whole by now.
			most := 0
			if kind == "bolt" {
				most = (16 << 20) / int(src.Info.PieceLength)
			}
			if lost > most {
				t.Errorf("a kill has lost %d pieces that were verified, want at most %d", lost, most)
			}
		})
	}
}

// A download with pieces of 16 MiB that is interrupted in their middle, twice, goes on where it
// was. Ctrl-C costs no more than what was on its way to the disk, kill -9 at most 8 MiB, and as much
// again with bolt: the rest of a piece that is whole waits in memory for a transaction, too.
func TestInterruptedLargePieces(t *testing.T) {
	t.Parallel()
	const size = 40 << 20
	dir := t.TempDir()
	_, peer := seedSet(t, dir, size, "16MiB")
	for _, how := range []struct {
		signal os.Signal
		most   int64 // bytes that are fetched again each time
	}{{os.Interrupt, 1 << 20}, {os.Kill, 8 << 20}} {
		for _, kind := range killKinds {
			t.Run(how.signal.String()+"/"+kind, func(t *testing.T) {
				most := how.most
				if how.signal == os.Kill && kind == "bolt" {
					most *= 2
				}
				out := filepath.Join(dir, "out-"+kind)
				args := []string{"download", "set.torrent", "-o", out, "--storage", kind, "--peer", peer, "--json", "--sample", "10ms"}
				had, fetched := int64(0), int64(0)
				for _, until := range []int64{size / 4, size * 2 / 3, 2 * size} {
					last := runUntil(t, braid(t, dir, args...), how.signal, func(e killEvent, _ time.Duration) bool { return e.Bytes >= until })
					if again := had + last.Fetched - last.Bytes; again > most {
						t.Errorf("there were %d bytes, %d were fetched and then there were %d: %d came again, want at most %d",
							had, last.Fetched, last.Bytes, again, most)
					}
					had, fetched = last.Bytes, fetched+last.Fetched
				}
				t.Logf("fetched %.2f MB for %.2f MB", float64(fetched)/1e6, float64(had)/1e6)
				if code, _, said := ends(t, dir, "verify", "set.torrent", "--data", out, "--storage", kind); code != 0 {
					t.Error(said)
				}
				if err := os.RemoveAll(out); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

type killEvent struct {
	Event   string
	Listen  []string
	Phase   client.Phase
	Bytes   int64
	Done    int   `json:"pieces_done"`
	Fetched int64 `json:"fetched_bytes"`
}

// seedSet serves a large file and many small ones.
func seedSet(t *testing.T, dir string, size int, pieceLength string) (client.Source, string) {
	r := rand.NewChaCha8([32]byte{5})
	write := func(name string, n int) {
		b := make([]byte, n)
		r.Read(b)
		if err := os.WriteFile(filepath.Join(dir, "set", name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "set", "many"), 0o755); err != nil {
		t.Fatal(err)
	}
	write("large", size*3/4)
	for i := range 100 {
		write(fmt.Sprintf("many/%d", i), 1+int(r.Uint64()%uint64(size/200)))
	}
	if code, _, said := ends(t, dir, "create", "set", "--piece-length", pieceLength); code != 0 {
		t.Fatal(said)
	}
	src, err := client.OpenSource(t.Context(), filepath.Join(dir, "set.torrent"))
	if err != nil {
		t.Fatal(err)
	}
	seed := braid(t, dir, "seed", "set.torrent", "--listen", "127.0.0.1:0", "--json", "--upload-rate", "200mbit")
	events, err := seed.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := seed.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(events)
	var ready killEvent
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &ready) != nil || ready.Event != "ready" {
		t.Fatalf("the seed's first event is %q", lines.Text())
	}
	go func() { _, _ = io.Copy(io.Discard, events) }()
	return src, ready.Listen[0]
}

// runUntil runs a download and sends it a signal when an event is enough. It returns the last event
// of interest.
func runUntil(t *testing.T, cmd *exec.Cmd, signal os.Signal, enough func(e killEvent, since time.Duration) bool) (last killEvent) {
	events, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	lines := bufio.NewScanner(events)
	for lines.Scan() {
		var e killEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			break // cut off
		}
		if e.Event != "progress" && e.Event != "done" || last.Event == "done" {
			continue
		}
		if last = e; e.Event == "progress" && enough != nil && enough(e, time.Since(start)) {
			_ = cmd.Process.Signal(signal)
			enough = nil
		}
	}
	_ = cmd.Wait()
	return last
}

// kept opens the storage as the next download does, and returns what is there: whole pieces, and
// the bytes of these and of single blocks. What the record vouches for must be right.
func kept(t *testing.T, src client.Source, kind storage.Kind, dir string) (pieces int, bytes int64) {
	s, err := storage.Open(kind, dir, slog.New(slog.DiscardHandler), storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tor, err := s.OpenTorrent(t.Context(), src.Info, src.InfoHash)
	if err != nil {
		t.Fatal(err)
	}
	for i := range src.Info.NumPieces() {
		p := tor.Piece(src.Info.Piece(i))
		b := make([]byte, src.Info.Piece(i).Length())
		_, err := p.ReadAt(b, 0)
		right := err == nil && [20]byte(src.Info.Piece(i).V1Hash().Value) == sha1.Sum(b)
		if c := p.Completion(); c.Ok && c.Complete && !right {
			t.Errorf("piece %d is in the record and not right: %v", i, err)
		}
		if right {
			pieces, bytes = pieces+1, bytes+int64(len(b))
			continue
		}
		on := storage.BlocksOf(s, src.InfoHash)
		for begin := int64(0); begin < int64(len(b)); begin += 16 << 10 {
			if n := min(16<<10, int64(len(b))-begin); on.Has(i, begin, n) {
				bytes += n
			}
		}
	}
	if err := tor.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	damaged, err := filepath.Glob(filepath.Join(dir, ".braid", "*.damaged"))
	if err != nil || len(damaged) > 0 {
		t.Errorf("a kill has damaged a database: %v, %v", damaged, err)
	}
	return pieces, bytes
}
