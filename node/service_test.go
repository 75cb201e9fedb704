package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"braid/client"
	"braid/units/await"
)

// openService opens a service with the torrents of an earlier one.
func openService(t *testing.T, state, dir string) *Node {
	t.Helper()
	n := open(t, Config{Service: true, State: state, Settings: Settings{Dir: dir}})
	if err := n.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

func torrent(t *testing.T, n *Node, src client.Source) *Torrent {
	t.Helper()
	x, err := n.Torrent(src.InfoHash.HexString())
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// A service takes torrents at once and runs them in the background. Options and counters survive
// it.
func TestService(t *testing.T) {
	t.Parallel()
	data, out, state := t.TempDir(), t.TempDir(), t.TempDir()
	src, other := create(t, data, "file", 1<<20), create(t, data, "other", 1<<20)
	seeder, _ := seedOf(t, src, data)
	n := openService(t, state, out)
	x := add(t, n, Options{Source: src, Peers: seeder.Listening(), Labels: []string{"a"}})
	if _, err := n.Add(t.Context(), Options{Source: src}); !errors.Is(err, ErrExists) {
		t.Errorf("added twice: %v", err)
	}
	if _, err := n.Add(t.Context(), Options{Source: other, Labels: []string{""}}); err == nil {
		t.Error("an empty label was taken")
	}
	await.Value(t, "the download", x.Done())
	sameFile(t, filepath.Join(data, "file"), filepath.Join(out, "file"))
	y := add(t, n, Options{Source: other, Paused: true})
	err := y.Change(func(o *Options) error {
		o.Labels, o.Priority, o.Goal, o.IgnoreGlobal = []string{"b", "c"}, PriorityHigh, Goal{Ratio: 7}, true
		o.Rates, o.Policy = Rates{Download: 1e6, DownloadOff: true}, Policy{ACL: "- 1-ff00:0:110, +"}
		return o.SetFiles(map[int]client.Priority{0: client.High})
	})
	if err := errors.Join(err, y.SetPosition(0)); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Options) error{
		"an unknown file":   func(o *Options) error { return o.SetFiles(map[int]client.Priority{1: client.High}) },
		"nothing is wanted": func(o *Options) error { return o.SetFiles(map[int]client.Priority{0: client.Skip}) },
		"a bad policy":      func(o *Options) error { o.Policy.Sequence = "("; return nil },
		"a low rate":        func(o *Options) error { o.Rates = Rates{Upload: 1}; return nil },
	} {
		if err := y.Change(change); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if err := n.Change(func(s *Settings) error { s.Queue.Seeds, s.Rates.Upload = 3, 5e6; return nil }); err != nil {
		t.Fatal(err)
	}
	if err := x.ResumeNow(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := x.Status()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}

	n = openService(t, state, "/elsewhere")
	if s := n.Settings(); s.Queue.Seeds != 3 || s.Rates.Upload != 5e6 || s.Dir != out {
		t.Errorf("settings: %+v", s)
	}
	all := n.Statuses()
	if len(all) != 2 || all[0].Name != "other" || all[0].Phase != "paused" || all[0].Goal.Ratio != 7 || !all[0].IgnoreGlobal ||
		len(all[0].Labels) != 2 || all[0].Priority != PriorityHigh || all[0].Rates.Download != 1e6 || all[0].Policy.ACL == "" {
		t.Errorf("torrents: %+v", all)
	}
	x = torrent(t, n, src)
	await.Value(t, "the download, again", x.Done())
	s := x.Status()
	if s.Fetched != before.Fetched || s.Fetched < 1<<20 || !s.Completed.Equal(before.Completed) || s.ActiveFor < before.ActiveFor ||
		s.Phase != client.Complete || s.QueuePosition != 1 || s.Labels[0] != "a" || !s.Forced || s.Storage.Dir != out || s.LastActive.IsZero() {
		t.Errorf("%+v\nbefore %+v", s, before)
	}
	if f := x.Files(); len(f) != 1 || f[0].Have != 1<<20 || f[0].Path != "file" || f[0].EndPiece != 32 {
		t.Errorf("files: %+v", f)
	}
	if p := x.Pieces(); len(p.State) != 32 || p.State[31] != client.PieceRight {
		t.Errorf("pieces: %+v", p)
	}
	if l := x.Log(); len(l) == 0 {
		t.Error("the log is empty")
	}
	if s := n.Stats().Ever; s.Fetched != before.Fetched || s.Sessions != 2 || s.Added != 2 {
		t.Errorf("totals: %+v", s)
	}
}

// A removed torrent takes its data along, and nothing else.
func TestRemoveWithData(t *testing.T) {
	t.Parallel()
	data, out := t.TempDir(), t.TempDir()
	for _, name := range []string{"set/a", "set/deep/b", "set/shared/c"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(data, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(data, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.Create(t.Context(), filepath.Join(data, "set"), client.CreateOptions{PieceLength: 32 << 10})
	if err != nil {
		t.Fatal(err)
	}
	seeder, _ := seedOf(t, c.Source, data)
	n := openService(t, t.TempDir(), out)
	x := add(t, n, Options{Source: c.Source, Peers: seeder.Listening()})
	await.Value(t, "the download", x.Done())
	foreign := filepath.Join(out, "set", "shared", "foreign")
	if err := os.WriteFile(foreign, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := n.Remove(x.InfoHash(), true); err != nil {
		t.Fatal(err)
	}
	var left []string
	err = filepath.WalkDir(out, func(p string, d os.DirEntry, err error) error {
		if d.IsDir() && d.Name() == ".braid" {
			return filepath.SkipDir
		}
		p, _ = filepath.Rel(out, p)
		left = append(left, p)
		return err
	})
	if err != nil || len(left) != 4 || left[3] != "set/shared/foreign" {
		t.Errorf("left: %q, %v", left, err)
	}
	if files, err := os.ReadDir(filepath.Join(out, ".braid")); err != nil || len(files) != 1 {
		t.Errorf("braid's own files: %v, %v", files, err)
	}
}

// The disk with the data of a torrent is not mounted. Nothing is written or moved in its place, and
// the torrent continues when the disk is back, or fetches all data again if it is verified.
func TestDiskIsAway(t *testing.T) {
	t.Parallel()
	data, out, state, to := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	src := create(t, data, "file", 1<<20)
	seeder, _ := seedOf(t, src, data)
	n := openService(t, state, out)
	await.Value(t, "the download", add(t, n, Options{Source: src, Peers: seeder.Listening()}).Done())
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	away := out + ".away"
	if err := errors.Join(os.Rename(out, away), os.Mkdir(out, 0o755)); err != nil {
		t.Fatal(err)
	}
	n = openService(t, state, out)
	x := torrent(t, n, src)
	failed := func() bool { return x.State() == Failed }
	await.True(t, "the failure", failed)
	if err := x.Move(to, true); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the refusal to move", func() bool {
		return failed() && slices.ContainsFunc(x.Log(), func(e LogEntry) bool {
			return strings.Contains(e.Text, "cannot be moved")
		})
	})
	for _, dir := range []string{out, to} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("in %s: %v, %v", dir, left, err)
		}
	}
	if err := errors.Join(os.Remove(out), os.Rename(away, out), x.Resume(t.Context())); err != nil {
		t.Fatal(err)
	}
	await.Value(t, "the data that is back", x.Done())
	if p := x.Progress(); p.Err != nil || p.Fetched > 1<<20 {
		t.Errorf("%+v", p)
	}
	if err := errors.Join(n.Close(), os.RemoveAll(out)); err != nil {
		t.Fatal(err)
	}
	n = openService(t, state, out)
	x = torrent(t, n, src)
	await.True(t, "the second failure", failed)
	if err := x.Verify(); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the second download", func() bool { return x.Progress().Phase == client.Complete })
	sameFile(t, filepath.Join(data, "file"), filepath.Join(out, "file"))
}

// Torrents have the same file. It stays as long as one of them holds it, also if a process was
// killed while it removed another one, or just before a move would delete the old data.
func TestRemoveSharedData(t *testing.T) {
	t.Parallel()
	data, state, to := t.TempDir(), t.TempDir(), t.TempDir()
	file := filepath.Join(data, "file")
	n := openService(t, state, data)
	var all []*Torrent
	src := create(t, data, "file", 1<<20)
	for _, length := range []int64{64 << 10, 128 << 10, 256 << 10, 512 << 10} {
		c, err := client.Create(t.Context(), file, client.CreateOptions{PieceLength: length})
		if err != nil {
			t.Fatal(err)
		}
		x := add(t, n, Options{Source: c.Source})
		await.Value(t, "the check", x.Done())
		all, src = append(all, x), c.Source
	}
	if err := n.Remove(all[0].InfoHash(), true); err != nil {
		t.Fatal(err)
	}
	all[1].setRemoving(true)
	all[2].mu.Lock()
	all[2].options.Storage.Dir, all[2].leaving = to, data
	all[2].mu.Unlock()
	if err := errors.Join(all[1].keep(), all[2].keep(), n.Close()); err != nil {
		t.Fatal(err)
	}
	n = openService(t, state, data)
	x := torrent(t, n, src)
	await.Value(t, "the check, again", x.Done())
	if _, err := n.Torrent(all[1].InfoHash()); err == nil {
		t.Error("a removed torrent is back")
	}
	moved := torrent(t, n, all[2].Options().Source)
	await.True(t, "the end of the move", func() bool { return moved.State() != Moving })
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	if err := n.Remove(x.InfoHash(), true); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file that no torrent holds: %v", err)
	}
}

// A torrent that fails while it runs counts as failed, as its status says.
func TestFailedRun(t *testing.T) {
	t.Parallel()
	n := openService(t, t.TempDir(), t.TempDir())
	x := add(t, n, Options{Source: create(t, t.TempDir(), "file", 1000), StopTimeout: time.Millisecond})
	await.Value(t, "the failure", x.Done())
	if s, all := x.Status(), n.Stats().Torrents; s.State != Failed || all[Failed] != 1 {
		t.Errorf("its state is %s, all: %v", s.State, all)
	}
}

// A start that fails in the background is told, and can be tried again.
func TestFailedStart(t *testing.T) {
	t.Parallel()
	data, out := t.TempDir(), t.TempDir()
	src := create(t, data, "file", 1<<20)
	seeder, _ := seedOf(t, src, data)
	foreign := filepath.Join(out, "file")
	if err := os.WriteFile(foreign, []byte("foreign"), 0o644); err != nil {
		t.Fatal(err)
	}
	n := openService(t, t.TempDir(), out)
	x := add(t, n, Options{Source: src, Peers: seeder.Listening()})
	await.Value(t, "the failure", x.Done())
	if s := x.Status(); s.Err == nil || s.Phase != client.Broken || s.State != Failed {
		t.Errorf("%+v", s)
	}
	if err := os.Remove(foreign); err != nil {
		t.Fatal(err)
	}
	if err := x.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.Value(t, "the download", x.Done())
	sameFile(t, filepath.Join(data, "file"), filepath.Join(out, "file"))
}

// If a torrent cannot be removed, since the disk fails, the next process has it with all its data.
func TestFailedRemove(t *testing.T) {
	t.Parallel()
	data, state := t.TempDir(), t.TempDir()
	src := create(t, data, "file", 1<<20)
	n := openService(t, state, data)
	x := add(t, n, Options{Source: src, Paused: true}) // so that nothing else writes its state
	await.True(t, "the check of its data", func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return !x.unverified
	})
	file := n.stateFile(x.InfoHash(), ".json")
	x.op.Lock() // until the end of the check is saved
	err := errors.Join(os.Remove(file), os.Mkdir(file, 0o755))
	x.op.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Remove(x.InfoHash(), true); err == nil {
		t.Fatal("it was removed, though that cannot be kept")
	}
	if err := errors.Join(os.Remove(file), n.Close()); err != nil {
		t.Fatal(err)
	}
	torrent(t, openService(t, state, data), src)
	if _, err := os.Stat(filepath.Join(data, "file")); err != nil {
		t.Error(err)
	}
}

// Options that change while existing files are checked hold for the run that begins afterwards.
func TestChangeWhileChecking(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	src := createMany(t, dir, "set")
	n := open(t, Config{Service: true})
	changed := false
	x := add(t, n, Options{Source: src, Storage: fileIn(dir), Checking: func(int64) {
		if changed {
			return
		}
		changed = true
		if err := set(torrent(t, n, src), func(o *Options) {
			_ = o.SetFiles(map[int]client.Priority{0: client.Skip})
			o.PeerLimit = 7
		}); err != nil {
			t.Error(err)
		}
	}})
	await.Value(t, "the data", x.Done())
	if !changed {
		t.Fatal("nothing was checked")
	}
	want := x.Options().shapeOf(nil).Total
	if want == src.Layout.Length {
		t.Fatal("the change was lost")
	}
	await.True(t, "the selection", func() bool { return x.Progress().Total == want })
}

// If Restore is cancelled while it ends a removal, the next one ends it.
func TestRemovalAfterCancel(t *testing.T) {
	t.Parallel()
	data, state := t.TempDir(), t.TempDir()
	src := create(t, data, "file", 1<<20)
	n := openService(t, state, data)
	x := add(t, n, Options{Source: src})
	await.Value(t, "the data", x.Done())
	x.setRemoving(true) // a process that was killed in the middle of Remove
	err := errors.Join(x.keep(), n.Close())
	err = errors.Join(err, os.RemoveAll(filepath.Join(data, ".braid"))) // so that data is hashed first
	if err != nil {
		t.Fatal(err)
	}
	n = open(t, Config{Service: true, State: state})
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Restore(cancelled); err == nil {
		t.Fatal("the data was deleted all the same")
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n = openService(t, state, data)
	if _, err := os.Stat(filepath.Join(data, "file")); !os.IsNotExist(err) || len(n.Torrents()) > 0 {
		t.Errorf("the data: %v, %d torrents", err, len(n.Torrents()))
	}
}

// Counters survive a process that ends before Restore, and one in which a torrent cannot be
// restored. The sums contain them all the time: for Prometheus, a counter that falls begins at 0.
func TestCountersWithoutRestore(t *testing.T) {
	t.Parallel()
	data, state := t.TempDir(), t.TempDir()
	src := create(t, data, "file", 1<<20)
	n := openService(t, state, data)
	x := add(t, n, Options{Source: src, Paused: true})
	x.past.Sent = 7
	n.totals.Sent = 5
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	sums := func(when string) {
		if now, ever := n.Stats(), n.Stats().Ever; now.Sent != 0 || ever.Sent != 12 {
			t.Errorf("%s: %d bytes sent since the start, %d ever", when, now.Sent, ever.Sent)
		}
	}
	n = open(t, Config{Service: true, State: state})
	sums("before Restore")
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	file := n.stateFile(x.InfoHash(), ".torrent")
	if err := errors.Join(os.Rename(file, file+".away"), os.Mkdir(file, 0o755)); err != nil {
		t.Fatal(err)
	}
	n = open(t, Config{Service: true, State: state})
	if err := n.Restore(t.Context()); err == nil {
		t.Fatal("a torrent without its description was restored")
	}
	sums("after Restore has failed")
	err := errors.Join(n.Close(), os.Remove(file), os.Rename(file+".away", file))
	if err != nil {
		t.Fatal(err)
	}
	n = openService(t, state, data)
	if sent := torrent(t, n, src).Progress().Sent; sent != 7 {
		t.Errorf("the torrent has sent %d bytes", sent)
	}
	sums("after Restore")
	if err := errors.Join(n.Close(), os.Remove(n.stateFile(x.InfoHash(), ".json"))); err != nil {
		t.Fatal(err)
	}
	n = openService(t, state, data)
	sums("after a kill during its removal")
}

// savedTorrent makes the state of a service that has ended, with one paused torrent.
func savedTorrent(t *testing.T) (data, state string, src client.Source) {
	t.Helper()
	data, state = t.TempDir(), t.TempDir()
	src = create(t, data, "file", 1000)
	n := openService(t, state, data)
	add(t, n, Options{Source: src, Paused: true})
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	return data, state, src
}

// If the kept order cannot be read, all torrents are still restored.
func TestDamagedOrder(t *testing.T) {
	t.Parallel()
	data, state, src := savedTorrent(t)
	if err := os.WriteFile(filepath.Join(state, orderFile), []byte(`["`), 0o600); err != nil {
		t.Fatal(err)
	}
	torrent(t, openService(t, state, data), src)
}

// A restart does not save torrents again, whether they run or not: with thousands of them that would
// take minutes, and on a full disk they would be left out.
func TestRestartSavesNothing(t *testing.T) {
	t.Parallel()
	data, state := t.TempDir(), t.TempDir()
	n := openService(t, state, data)
	x := add(t, n, Options{Source: create(t, data, "file", 1<<20), Labels: []string{"a"}})
	y := add(t, n, Options{Source: createMany(t, data, "set"), Paused: true, Goal: Goal{Ratio: 2}})
	await.Value(t, "the data", x.Done())
	await.True(t, "the check", func() bool { return !y.saved().Verify })
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	look := func() (out []os.FileInfo) {
		for _, x := range []*Torrent{x, y} {
			info, err := os.Stat(n.stateFile(x.InfoHash(), ".json"))
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, info)
		}
		return out
	}
	before := look()
	n = openService(t, state, data)
	await.Value(t, "the data, again", torrent(t, n, x.Source()).Done())
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	for i, now := range look() {
		if !os.SameFile(before[i], now) || !now.ModTime().Equal(before[i].ModTime()) {
			t.Errorf("torrent %d was saved again", i)
		}
	}
}

// Files that are selected while a complete torrent is paused are missing afterwards: it is complete
// again once they have come.
func TestSelectMoreWhilePaused(t *testing.T) {
	t.Parallel()
	data, out := t.TempDir(), t.TempDir()
	src := createMany(t, data, "set")
	seeder, _ := seedOf(t, src, data)
	n := openService(t, t.TempDir(), out)
	x := add(t, n, Options{Source: src, Peers: seeder.Listening(), Selection: client.Selection{Select: []string{"*/d/*"}}})
	await.Value(t, "some of the files", x.Done())
	if err := errors.Join(x.Pause(), set(x, func(o *Options) { o.Selection = client.Selection{} }), x.Resume(t.Context())); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the start", func() bool { return x.State() == Running })
	await.Value(t, "all of the files", x.Done())
	if p := x.Progress(); p.Have != src.Layout.Length || p.Phase != client.Complete {
		t.Errorf("%+v", p)
	}
}

// A newer version of braid may have another format for the state of a torrent. It writes the state
// again when it restores the torrent. On a full disk it cannot, and still restores the torrent.
func TestRestoreOntoFullDisk(t *testing.T) {
	t.Parallel()
	_, state, src := savedTorrent(t)
	n := open(t, Config{Service: true, State: state})
	all, _, err := n.restoredAll()
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	away := state + ".away"
	if err := os.Rename(state, away); err != nil { // so that nothing can be written
		t.Fatal(err)
	}
	all[0].onDisk[0]++
	if _, err := n.add(t.Context(), all[0]); err != nil {
		t.Error(err)
	}
	if err := os.Rename(away, state); err != nil {
		t.Fatal(err)
	}
	torrent(t, n, src)
}

// Settings that do not change are not written again. So a daemon whose command line has settings
// starts also if the disk takes nothing.
func TestSameSettings(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	n := openService(t, state, "/data")
	var before os.FileInfo
	for _, seeds := range []int{3, 3, 4} {
		if err := n.Change(func(s *Settings) error { s.Queue.Seeds = seeds; return nil }); err != nil {
			t.Fatal(err)
		}
		now, err := os.Stat(filepath.Join(state, settingsFile))
		if err != nil {
			t.Fatal(err)
		}
		if before != nil && os.SameFile(before, now) != (seeds == 3) {
			t.Errorf("with %d seeds: written again: %v", seeds, seeds == 3)
		}
		before = now
	}
}
