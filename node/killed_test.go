package node

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"braid/client"
	"braid/units/await"
)

// scripts/crash sets it.
var kills = flag.Int("kills", 3, "kill a service so many times")

// killedEnv has the directory of a test in which this process is the service that is killed.
const killedEnv = "BRAID_KILLED_SERVICE"

// killedTorrents is the number of torrents in that directory.
const killedTorrents = 8

// seen is what a service shows of a torrent after a start.
type seen struct {
	Hash, Label, Dir string
	Complete         bool
	Why              string // it is not complete
}

// report is what it shows of all, and one of its settings.
type report struct {
	Torrents []seen
	Seeds    int
}

// TestKilledChild is the service: it shows what it has, and then adds, changes, moves and removes
// torrents until it is killed. It tells of each step before and after it.
func TestKilledChild(t *testing.T) {
	dir := os.Getenv(killedEnv)
	if dir == "" {
		t.Skip("it is part of TestKilledService")
	}
	n := openService(t, filepath.Join(dir, "state"), filepath.Join(dir, "a"))
	var sources []client.Source
	for i := range killedTorrents {
		src, err := client.OpenSource(t.Context(), filepath.Join(dir, fmt.Sprint(i, ".torrent")))
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, src)
		if _, err := n.Torrent(src.InfoHash.HexString()); err != nil {
			back(t, dir, src.Name) // it was removed just before the kill
		}
	}
	show := func() (r report, settled bool) {
		settled = true
		for _, s := range n.Statuses() {
			x := seen{Hash: s.InfoHash, Dir: s.Storage.Dir, Complete: s.Phase == client.Complete}
			if !x.Complete {
				x.Why = fmt.Sprintf("%s, %s, %d of %d bytes, reason %q, error %v", s.State, s.Phase, s.Have, s.Total, s.Reason, s.Err)
			}
			if len(s.Labels) > 0 {
				x.Label = s.Labels[0]
			}
			settled = settled && x.Complete
			r.Torrents = append(r.Torrents, x)
		}
		r.Seeds = n.Settings().Queue.Seeds
		return r, settled
	}
	for end := await.Deadline(t); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, settled := show(); settled {
			break
		}
	}
	r, _ := show()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\nshow %s\n", b)
	for step := range 1_000_000 {
		src := sources[rand.N(len(sources))]
		hash := src.InfoHash.HexString()
		x, _ := n.Torrent(hash)
		do := func(what, value string, f func() error) {
			fmt.Printf("\ntry %s %s %s\n", what, hash, value)
			if err := f(); err == nil {
				fmt.Printf("\nok %s %s %s\n", what, hash, value)
			}
		}
		switch op := rand.N(8); {
		case x == nil && op < 6:
			label := fmt.Sprint("new", step)
			do("label", label, func() error {
				_, err := n.Add(t.Context(), Options{Source: src, Labels: []string{label}})
				return err
			})
		case op < 3 && x != nil:
			label := fmt.Sprint("label", step)
			do("label", label, func() error { return set(x, func(o *Options) { o.Labels = []string{label} }) })
		case op < 4:
			do("seeds", fmt.Sprint(1000+step), func() error { return n.Change(func(s *Settings) error { s.Queue.Seeds = 1000 + step; return nil }) })
		case op < 7 && x != nil:
			to := filepath.Join(dir, string("ab"[rand.N(2)]))
			do("move", to, func() error { return x.Move(to, true) })
		case op == 7 && x != nil && x.State() == Running:
			do("remove", "-", func() error { return n.Remove(hash, false) })
			back(t, dir, src.Name)
		}
	}
}

// back brings the data of a removed torrent to where the next Add expects it. If it was removed
// while it was checked, the name ends in .part.
func back(t *testing.T, dir, name string) {
	for _, name := range []string{name, name + ".part"} {
		if err := os.Rename(filepath.Join(dir, "b", name), filepath.Join(dir, "a", name)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
}

// A service is killed at random moments, while it adds, changes, moves and removes torrents. The
// next one has all that was done: no torrent, label or setting is lost, and all data is complete in
// one place.
func TestKilledService(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "state"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for i := range killedTorrents {
		src := create(t, filepath.Join(dir, "a"), fmt.Sprint("file", i), 200_000)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i, ".torrent")), src.Torrent(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w := killedWorld{labels: map[string]string{}, doubt: map[string]string{}}
	for range *kills + 1 {
		w.run(t, dir)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d kills, %d steps, %d torrents in the end", *kills, w.steps, len(w.labels))
}

// killedWorld is what was done, and the one step that may have been.
type killedWorld struct {
	labels map[string]string // of each torrent
	seeds  int
	doubt  map[string]string // the step that was tried and not confirmed: torrent to label, "-" if it was removed
	steps  int
	log    string // what the last process has said
	seeds2 int    // tried and not confirmed
}

// run starts a service, compares what it shows, and kills it.
func (w *killedWorld) run(t *testing.T, dir string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestKilledChild$", "-test.timeout", "10m")
	c.Env = append(os.Environ(), killedEnv+"="+dir)
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	lines := bufio.NewScanner(io.TeeReader(out, &all))
	lines.Buffer(nil, 1<<20)
	shown := false
	for lines.Scan() {
		f := strings.SplitN(lines.Text(), " ", 4)
		switch {
		case f[0] == "show":
			shown = true
			w.compare(t, strings.TrimPrefix(lines.Text(), "show "))
			time.AfterFunc(rand.N(400*time.Millisecond), func() { _ = c.Process.Kill() })
		case f[0] == "try" && len(f) == 4:
			w.doubt, w.seeds2 = map[string]string{}, w.seeds
			w.step(f[1], f[2], f[3], w.doubt, &w.seeds2)
		case f[0] == "ok" && len(f) == 4:
			w.steps++
			w.step(f[1], f[2], f[3], w.labels, &w.seeds)
			if f[1] == "remove" {
				delete(w.labels, f[2])
			}
			w.doubt, w.seeds2 = map[string]string{}, w.seeds
		}
	}
	_ = c.Wait()
	if !shown {
		t.Fatalf("the service ended early:\n%s", all.String())
	}
	if t.Failed() {
		t.Logf("the steps of the process before:\n%s", w.log[max(0, len(w.log)-4000):])
		_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				info, err := d.Info()
				t.Log(name, info, err)
			}
			return nil
		})
	}
	w.log = all.String()
}

func (*killedWorld) step(what, hash, value string, labels map[string]string, seeds *int) {
	switch what {
	case "label", "remove":
		labels[hash] = value
	case "seeds":
		_, _ = fmt.Sscan(value, seeds)
	}
}

// compare looks whether a service has what was done.
func (w *killedWorld) compare(t *testing.T, line string) {
	t.Helper()
	var r report
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		t.Fatal(err)
	}
	if r.Seeds != w.seeds && r.Seeds != w.seeds2 {
		t.Errorf("the setting is %d, want %d or %d", r.Seeds, w.seeds, w.seeds2)
	}
	there := map[string]string{}
	for _, x := range r.Torrents {
		there[x.Hash] = x.Label
		want, known := w.labels[x.Hash]
		if maybe, ok := w.doubt[x.Hash]; x.Label != want && !(ok && x.Label == maybe) {
			t.Errorf("torrent %s has the label %q, want %q (known %v) or %q", x.Hash, x.Label, want, known, maybe)
		}
		if !x.Complete {
			t.Errorf("the data of torrent %s is not complete in %s: %s", x.Hash, x.Dir, x.Why)
		}
	}
	for hash := range w.labels {
		if _, ok := there[hash]; !ok && w.doubt[hash] != "-" {
			t.Errorf("torrent %s is lost", hash)
		}
	}
	w.labels, w.seeds, w.doubt, w.seeds2 = there, r.Seeds, map[string]string{}, r.Seeds
}
