package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsnotify/fsnotify"

	"braid/client"
	"braid/node"
	"braid/node/event"
	"braid/units/await"
)

func open(t *testing.T) *node.Node { return openIn(t, t.TempDir()) }

// openIn opens a node that keeps its state in a directory.
func openIn(t *testing.T, state string) *node.Node {
	t.Helper()
	at, err := client.ParseListen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Open(t.Context(), node.Config{
		Client: client.Config{Listen: []client.Peer{at}}, Service: true, State: state, Settings: node.Settings{Dir: t.TempDir()},
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// create makes a torrent in dir.
func create(t *testing.T, dir, name string) client.Source {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte(name), 5000), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := client.Create(t.Context(), filepath.Join(dir, name), client.CreateOptions{PieceLength: 32 << 10})
	if err != nil {
		t.Fatal(err)
	}
	return c.Source
}

// Files that appear are added, and then kept, renamed or deleted. Other things stay alone.
func TestWatch(t *testing.T) {
	n := open(t)
	from := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	ended, d := make(chan struct{}), Open(n, slog.New(slog.NewTextHandler(t.Output(), nil)))
	go func() { defer close(ended); d.Run(ctx) }()
	defer func() { stop(); <-ended }()
	for i, then := range []string{"keep", "rename", "delete"} {
		dir := t.TempDir()
		if err := n.Change(func(s *node.Settings) error { s.Watch = node.Watch{Dir: dir, Then: then}; return nil }); err != nil {
			t.Fatal(err)
		}
		src := create(t, from, then)
		secret := filepath.Join(from, "secret.torrent")
		name := filepath.Join(dir, "x.torrent")
		if err := errors.Join(
			os.WriteFile(filepath.Join(dir, "broken.torrent"), []byte("no"), 0o644), os.WriteFile(filepath.Join(dir, "x.txt"), src.Torrent(), 0o644),
			os.WriteFile(secret, create(t, from, "secret"+then).Torrent(), 0o644), os.Symlink(secret, filepath.Join(dir, "link.torrent")),
			os.WriteFile(name, src.Torrent(), 0o644),
		); err != nil {
			t.Fatal(err)
		}
		await.True(t, "the torrent of a file to "+then, func() bool {
			_, err := n.Torrent(src.InfoHash.HexString())
			return err == nil
		})
		want := map[string]string{"keep": "x.torrent", "rename": "x.torrent.added", "delete": ""}[then]
		await.True(t, "the daemon to "+then+" the file", func() bool {
			found, _ := filepath.Glob(filepath.Join(dir, "x.torrent*"))
			return len(found) == 0 && want == "" || len(found) == 1 && filepath.Base(found[0]) == want
		})
		if got := len(n.Torrents()); got != i+1 {
			t.Errorf("%d torrents", got)
		}
	}
}

// Changes of a directory that has gone and come back are reported again.
func TestDirectoryComesBack(t *testing.T) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer notify.Close()
	dir, w := filepath.Join(t.TempDir(), "watch"), &watcher{}
	file := filepath.Join(dir, "x.torrent")
	for range 2 {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		w.follow(notify, dir)
		if err := errors.Join(os.WriteFile(file, nil, 0o644), os.RemoveAll(dir)); err != nil {
			t.Fatal(err)
		}
		for name := ""; name != dir; { // its removal is the last event
			name = await.Value(t, "an event", notify.Events).Name
		}
	}
}

// A file that cannot be added because the system refuses something is added once it does not. The
// log has one entry until then.
func TestWatchAgain(t *testing.T) {
	state := t.TempDir()
	n, dir, away := openIn(t, state), t.TempDir(), state+".away"
	var log bytes.Buffer
	w := &watcher{node: n, log: slog.New(slog.NewTextHandler(&log, nil)), seen: map[string]stamp{}}
	src := create(t, t.TempDir(), "file")
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "x.torrent"), src.Torrent(), 0o644), os.Rename(state, away),
	); err != nil {
		t.Fatal(err)
	}
	look := func() { w.look(t.Context(), node.Watch{Dir: dir}) }
	look()
	look()
	if got := strings.Count(log.String(), "not added"); got != 1 || len(n.Torrents()) > 0 {
		t.Errorf("without a directory for the state: %d torrents, and the log says %s", len(n.Torrents()), &log)
	}
	if err := os.Rename(away, state); err != nil {
		t.Fatal(err)
	}
	if look(); len(n.Torrents()) != 1 {
		t.Errorf("%d torrents, and the log says %s", len(n.Torrents()), &log)
	}
}

// The log says once that a directory has too many .torrent files.
func TestWatchLargeDirectory(t *testing.T) {
	dir := t.TempDir()
	var log bytes.Buffer
	w := &watcher{node: open(t), log: slog.New(slog.NewTextHandler(&log, nil)), seen: map[string]stamp{}}
	for i := range maxSeen + 1 {
		if err := os.Symlink("nowhere", filepath.Join(dir, fmt.Sprint(i, ".torrent"))); err != nil {
			t.Fatal(err)
		}
	}
	w.look(t.Context(), node.Watch{Dir: dir})
	w.look(t.Context(), node.Watch{Dir: dir})
	if got := strings.Count(log.String(), "are looked at"); got != 1 {
		t.Errorf("the log says %s", &log)
	}
}

// The program is run for a torrent that becomes complete, and its name is no part of a command.
func TestScript(t *testing.T) {
	seed, n := open(t), open(t)
	dir := t.TempDir()
	src := create(t, dir, "$(touch pwned) file")
	if _, err := seed.Add(t.Context(), node.Options{Source: src, Storage: node.Storage{Kind: "file", Dir: dir, Complete: true}}); err != nil {
		t.Fatal(err)
	}
	result := filepath.Join(t.TempDir(), "result")
	script := filepath.Join(t.TempDir(), "script")
	text := fmt.Sprintf("#!/bin/sh\necho \"$#|$BRAID_NAME|$BRAID_INFO_HASH|$BRAID_DIR|$BRAID_BYTES|$BRAID_LABELS\" >%s.new && mv %s.new %s\n", result, result, result)
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := n.Change(func(s *node.Settings) error { s.Script = script; return nil }); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended, d := make(chan struct{}), Open(n, slog.New(slog.NewTextHandler(t.Output(), nil)))
	go func() { defer close(ended); d.Run(ctx) }()
	defer func() { stop(); <-ended }()
	if _, err := n.Add(t.Context(), node.Options{Source: src, Peers: seed.Listening(), Labels: []string{"a", "b"}}); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the program", func() bool { _, err := os.Stat(result); return err == nil })
	got, err := os.ReadFile(result)
	want := fmt.Sprintf("0|%s|%s|%s|%d|a,b\n", src.Name, src.InfoHash.HexString(), n.Dir(), src.Layout.Length)
	if err != nil || string(got) != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

// A torrent whose complete data goes to another directory has its program run afterwards, also if
// the data cannot be moved.
func TestScriptAfterMove(t *testing.T) {
	for name, fits := range map[string]bool{"moved": true, "stays": false} {
		t.Run(name, func(t *testing.T) {
			seed, n := open(t), open(t)
			dir, complete, out := t.TempDir(), t.TempDir(), t.TempDir()
			src := create(t, dir, "file")
			if _, err := seed.Add(t.Context(), node.Options{Source: src, Storage: node.Storage{Kind: "file", Dir: dir, Complete: true}}); err != nil {
				t.Fatal(err)
			}
			want := complete
			if !fits { // a file of somebody else is in the way
				want = n.Dir()
				if err := os.WriteFile(filepath.Join(complete, "file"), []byte("foreign"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			script, result := filepath.Join(out, "script"), filepath.Join(out, "result")
			text := fmt.Sprintf("#!/bin/sh\necho \"$BRAID_DIR $(wc -c <\"$BRAID_DIR/file\")\" >%s.new && mv %s.new %s\n", result, result, result)
			if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := n.Change(func(s *node.Settings) error { s.Script, s.CompleteDir = script, complete; return nil }); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended, d := make(chan struct{}), Open(n, slog.New(slog.NewTextHandler(t.Output(), nil)))
			go func() { defer close(ended); d.Run(ctx) }()
			defer func() { stop(); <-ended }()
			if _, err := n.Add(t.Context(), node.Options{Source: src, Peers: seed.Listening()}); err != nil {
				t.Fatal(err)
			}
			await.True(t, "the program", func() bool { _, err := os.Stat(result); return err == nil })
			if got, err := os.ReadFile(result); err != nil || string(got) != fmt.Sprintf("%s %d\n", want, src.Layout.Length) {
				t.Errorf("%q, %v; want %d bytes in %s", got, err, src.Layout.Length, want)
			}
		})
	}
}

// A program that was due when a process ended is run by the next one.
func TestScriptAfterRestart(t *testing.T) {
	t.Parallel()
	state, result := t.TempDir(), filepath.Join(t.TempDir(), "result")
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho >"+result+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	n := openIn(t, state)
	if err := n.Change(func(s *node.Settings) error { s.Script = script; return nil }); err != nil {
		t.Fatal(err)
	}
	src := create(t, n.Dir(), "file")
	x, err := n.Add(t.Context(), node.Options{Source: src})
	if err != nil {
		t.Fatal(err)
	}
	<-x.Done()
	next := func() *node.Node {
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		n = openIn(t, state)
		return n
	}
	ctx, stop := context.WithCancel(t.Context())
	ended, d := make(chan struct{}), Open(next(), slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err := n.Restore(ctx); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(ended); d.Run(ctx) }()
	await.True(t, "the program", func() bool { _, err := os.Stat(result); return err == nil })
	await.True(t, "the daemon to remember it", func() bool {
		b, err := os.ReadFile(filepath.Join(state, x.InfoHash()+".json"))
		return err == nil && !bytes.Contains(b, []byte(`"due":true`))
	})
	stop()
	<-ended
	if err := next().Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if x, err = n.Torrent(x.InfoHash()); err != nil || x.TakeProgram() {
		t.Errorf("the program is run again: %v", err)
	}
}

// The program is run once for a torrent, also if its complete data is checked again, and not at all
// while it is switched off.
func TestScriptOnce(t *testing.T) {
	t.Parallel()
	for _, off := range []bool{false, true} {
		n := open(t)
		if err := n.Change(func(s *node.Settings) error { s.Script, s.ScriptOff = "true", off; return nil }); err != nil {
			t.Fatal(err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		s := newScripts(ended, slog.New(slog.DiscardHandler)) // programs stay in the queue
		defer s.wait()
		heard := n.Subscribe(100)
		defer heard.Close()
		x, err := n.Add(t.Context(), node.Options{Source: create(t, n.Dir(), "file")})
		for range 2 {
			if err != nil {
				t.Fatal(err)
			}
			for done := false; !done; {
				e, err := heard.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				s.hear(n, e)
				_, done = e.(event.Done)
			}
			if (len(s.queue) == 1) == off {
				t.Errorf("%d programs; switched off: %v", len(s.queue), off)
			}
			err = x.Verify()
		}
	}
}

// A program that leaves another one running in the background has not failed.
func TestScriptInBackground(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nsleep 20 &\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := newScripts(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
	s.run(t.Context(), script, node.Status{Name: "x"})
	s.wait()
	if text := log.String(); !strings.Contains(text, "was run") {
		t.Errorf("the log says %s", text)
	}
}

// A program that fails is reported with the end of its output.
func TestScriptFails(t *testing.T) {
	var log bytes.Buffer
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nyes no | head -c 100000\necho the end\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := newScripts(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
	s.run(t.Context(), script, node.Status{Name: "x"})
	s.wait()
	if text := log.String(); !strings.Contains(text, "the end") || !strings.Contains(text, "exit status 3") || len(text) > 2*maxOutput {
		t.Errorf("the log says %s", text)
	}
}
