package node

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"braid/client"
	"braid/storage"
	"braid/units/await"
)

// createMany makes a torrent of several files in dir.
func createMany(t *testing.T, dir, name string) client.Source {
	t.Helper()
	for i, path := range []string{"a", "d/b", "d/e/c", "empty"} {
		path = filepath.Join(dir, name, path)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, []byte(strings.Repeat(name+fmt.Sprint(i), 20_000*((3-i)%4))), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.Create(t.Context(), filepath.Join(dir, name), client.CreateOptions{PieceLength: 32 << 10})
	if err != nil {
		t.Fatal(err)
	}
	return c.Source
}

func paths(x *Torrent) (out []string) {
	for _, f := range x.Files() {
		out = append(out, f.Path)
	}
	return out
}

// Files, directories and the torrent itself get other names while the torrent runs and while it is
// paused, with every backend. The torrent goes on, and the next process finds all data without
// fetching any.
func TestRename(t *testing.T) {
	for _, kind := range []storage.Kind{storage.KindFile, storage.KindMmap, storage.KindBolt} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			data, out, state := t.TempDir(), t.TempDir(), t.TempDir()
			src := createMany(t, data, "set")
			seeder, _ := seedOf(t, src, data)
			n := openService(t, state, out)
			x := add(t, n, Options{Source: src, Storage: Storage{Kind: kind}, Peers: seeder.Listening(), Selection: client.Selection{Select: []string{"*/d/*", "*/a", "*empty"}}})
			await.Value(t, "the download", x.Done())
			rename := func(from, to string) {
				t.Helper()
				if err := x.Rename(from, to); err != nil {
					t.Fatal(err)
				}
			}
			started := x.Status().Started
			rename("set/d/b", "set/d/b2")
			rename("set/d", "set/dir/deep")
			rename("set", "other")
			if s := x.Status(); s.State != Running || s.Started != started || s.Name != "other" {
				t.Errorf("it was stopped, or has another name: %+v", s)
			}
			// Somebody fetches all of it under the old names.
			other, mine := open(t, Config{}), t.TempDir()
			y := add(t, other, Options{Source: src, Storage: fileIn(mine), Peers: n.Listening()})
			await.Value(t, "a download of renamed files", y.Done())
			sameFile(t, filepath.Join(data, "set/d/e/c"), filepath.Join(mine, "set/d/e/c"))
			if err := x.Pause(); err != nil {
				t.Fatal(err)
			}
			rename("other/a", "other/dir/a")
			if err := set(x, func(o *Options) { o.Name = "a name: with/signs" }); err != nil {
				t.Fatal(err)
			}
			want := []string{"other/dir/a", "other/dir/deep/b2", "other/dir/deep/e/c", "other/empty"}
			if got := paths(x); !slices.Equal(got, want) {
				t.Errorf("files %v, want %v", got, want)
			}
			for from, c := range map[string]struct {
				to   string
				want error
			}{
				"other/nothing": {"other/x", fs.ErrNotExist}, "other/empty": {"other/dir", fs.ErrExist}, "other": {".hidden", storage.ErrDotName},
			} {
				if err := x.Rename(from, c.to); !errors.Is(err, c.want) {
					t.Errorf("rename %s to %s: %v, want %v", from, c.to, err, c.want)
				}
			}
			if err := n.Close(); err != nil {
				t.Fatal(err)
			}
			n = openService(t, state, out)
			x = torrent(t, n, src)
			if s := x.Status(); s.Name != "a name: with/signs" || !slices.Equal(paths(x), want) {
				t.Errorf("after a restart: %s, %v", s.Name, paths(x))
			}
			before := x.Status().Fetched
			if err := x.Resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			await.Value(t, "the data under its new names", x.Done())
			if s := x.Status(); s.Fetched != before || s.Have != src.Layout.Length || s.Phase != client.Complete {
				t.Errorf("%+v", s)
			}
			if kind != storage.KindBolt {
				sameFile(t, filepath.Join(data, "set/d/e/c"), filepath.Join(out, "other/dir/deep/e/c"))
			}
			to := t.TempDir()
			if err := x.Move(to, true); err != nil {
				t.Fatal(err)
			}
			await.True(t, "the move of renamed files", func() bool { return x.Status().Storage.Dir == to && x.Status().Phase == client.Complete })
			if err := n.Remove(x.InfoHash(), true); err != nil {
				t.Fatal(err)
			}
			for _, dir := range []string{out, to} {
				if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
					t.Errorf("left behind: %v, %v", left, err)
				}
			}
		})
	}
}

const renamerEnv = "BRAID_KILLED_RENAMER"

// TestKilledRenamer is the service that is killed: it renames until then.
func TestKilledRenamer(t *testing.T) {
	dir := os.Getenv(renamerEnv)
	if dir == "" {
		t.Skip("it is part of TestRenameAndKill")
	}
	n := openService(t, filepath.Join(dir, "state"), dir)
	x := n.Torrents()[0]
	await.Value(t, "the data", x.Done())
	fmt.Println("ready")
	for i := 0; ; i++ {
		name := x.Source().Layout.Name
		for _, step := range [][2]string{{name, fmt.Sprint("set", i)}, {fmt.Sprint("set", i, "/d"), fmt.Sprint("set", i, "/x/y")}, {fmt.Sprint("set", i, "/x/y"), fmt.Sprint("set", i, "/d")}} {
			if err := x.Rename(step[0], step[1]); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
	}
}

// A service that renames is killed at random moments. The next one has all data, under old or new
// names, and no file besides.
func TestRenameAndKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	src := createMany(t, dir, "set")
	state := filepath.Join(dir, "state")
	n := openService(t, state, dir)
	await.Value(t, "the data", add(t, n, Options{Source: src}).Done())
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	for range *kills {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestKilledRenamer$", "-test.timeout", "10m", "-test.v")
		c.Env = append(os.Environ(), renamerEnv+"="+dir)
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		var said []byte
		for !strings.Contains(string(said), "ready") {
			b := make([]byte, 4096)
			k, err := out.Read(b)
			if said = append(said, b[:k]...); err != nil {
				t.Fatalf("%v:\n%s", err, said)
			}
		}
		time.Sleep(rand.N(100 * time.Millisecond))
		_ = c.Process.Kill()
		_ = c.Wait()
		n := openService(t, state, dir)
		x := torrent(t, n, src)
		await.Value(t, "the data after a kill", x.Done())
		if s := x.Status(); s.Phase != client.Complete || s.Have != src.Layout.Length {
			t.Errorf("%+v", s)
		}
		files := 0
		if err := filepath.WalkDir(filepath.Join(dir, x.Source().Layout.Name), func(_ string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				files++
			}
			return err
		}); err != nil || files != len(src.Layout.Files) {
			t.Errorf("%d files: %v", files, err)
		}
		if left, err := filepath.Glob(filepath.Join(dir, "set*")); err != nil || len(left) != 1 {
			t.Errorf("there is %v", left)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Names of files need not be UTF-8: many torrents from Asia have others. A new name of their
// directory leaves them as they are, also for the next process.
func TestRenameOtherBytes(t *testing.T) {
	t.Parallel()
	data, state := t.TempDir(), t.TempDir()
	odd := filepath.Join(data, "set", "\xb5\xda.txt")
	err := errors.Join(os.Mkdir(filepath.Dir(odd), 0o755), os.WriteFile(odd, []byte("odd"), 0o644))
	if errors.Is(err, syscall.EILSEQ) {
		t.Skip("this file system accepts names in UTF-8 only:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Create(t.Context(), filepath.Dir(odd), client.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n := openService(t, state, data)
	x := add(t, n, Options{Source: c.Source})
	await.Value(t, "the data", x.Done())
	if err := errors.Join(x.Rename("set", "new"), n.Close()); err != nil {
		t.Fatal(err)
	}
	x = torrent(t, openService(t, state, data), c.Source)
	if got := paths(x); !slices.Equal(got, []string{"new/\xb5\xda.txt"}) {
		t.Errorf("%q", got)
	}
	await.Value(t, "the data, again", x.Done())
	if p := x.Progress(); p.Err != nil || p.Have != 3 {
		t.Errorf("%+v", p)
	}
}

// A rename is refused while the disk with the data is not mounted. Otherwise only the torrent would
// get the new names, and its files would not be found later.
func TestRenameDiskIsAway(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	src := createMany(t, data, "set")
	x := add(t, openService(t, t.TempDir(), data), Options{Source: src})
	await.Value(t, "the data", x.Done())
	away := data + ".away"
	if err := errors.Join(x.Pause(), os.Rename(data, away), os.Mkdir(data, 0o755)); err != nil {
		t.Fatal(err)
	}
	before := paths(x)
	if err := x.Rename("set", "other"); err == nil || !slices.Equal(paths(x), before) {
		t.Errorf("%v; the torrent has %q", err, paths(x))
	}
	if err := errors.Join(os.Remove(data), os.Rename(away, data), x.Rename("set", "other")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(data, "other", "a")); err != nil {
		t.Error(err)
	}
}

// A rename in which a process was killed waits until the disk with the files is back.
func TestKilledRenameDiskIsAway(t *testing.T) {
	t.Parallel()
	data, state := t.TempDir(), t.TempDir()
	src := createMany(t, data, "set")
	n := openService(t, state, data)
	x := add(t, n, Options{Source: src})
	await.Value(t, "the data", x.Done())
	_, changed, err := src.Layout.Rename("set", "other")
	x.setRenaming(changed)
	away := data + ".away"
	err = errors.Join(err, x.keep(), n.Close(), os.Rename(data, away), os.Mkdir(data, 0o755))
	if err != nil {
		t.Fatal(err)
	}
	n = open(t, Config{Service: true, State: state})
	if err := n.Restore(t.Context()); err == nil {
		t.Error("nothing was renamed, and nobody was told")
	}
	if err := errors.Join(n.Close(), os.Remove(data), os.Rename(away, data)); err != nil {
		t.Fatal(err)
	}
	x = torrent(t, openService(t, state, data), src)
	if _, err := os.Stat(filepath.Join(data, "other", "a")); err != nil || paths(x)[0] != "other/a" {
		t.Errorf("%v; the torrent has %q", err, paths(x))
	}
}
