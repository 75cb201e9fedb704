package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"braid/commands/program"
	"braid/node/event"
	"braid/node/send"
)

// followed runs braid get --follow. arrived waits until the state with that info hash is complete,
// and returns its event; again counts the bytes that came.
func followed(t *testing.T, dir string, args ...string) (arrived func(infoHash string) event.Done) {
	t.Helper()
	cmd := braid(t, dir, append([]string{"get", "--follow", "--json"}, args...)...)
	events, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewScanner(events)
	return func(infoHash string) (e event.Done) {
		t.Helper()
		for lines.Scan() {
			if json.Unmarshal(lines.Bytes(), &e) == nil && e.Event == "done" && e.InfoHash == infoHash {
				return e
			}
		}
		t.Fatalf("braid get has ended before %s", infoHash)
		return e
	}
}

// states runs braid send --watch, and returns the events of its states.
func states(t *testing.T, dir string, args ...string) (next func() event.Line) {
	t.Helper()
	cmd := braid(t, dir, append([]string{"send", "--watch", "--json"}, args...)...)
	events, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewScanner(events)
	return func() (e event.Line) {
		t.Helper()
		for lines.Scan() {
			if json.Unmarshal(lines.Bytes(), &e) == nil && e.Event == "line" {
				return e
			}
		}
		t.Fatal("braid send has ended")
		return e
	}
}

// A receiver follows the changes of a directory. It fetches what is new, and keeps what is not.
func TestSendWatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "set"), 0o755); err != nil {
		t.Fatal(err)
	}
	set := filepath.Join(dir, "set")
	data := randomFile(t, set, 41, 4<<20)
	watchAndFollow(t, dir, set, data, local, []string{"--transport", "tcp"})
}

// A receiver that does not follow says so if the sender replaces the state that it fetches. Nobody
// has the old one any more.
func TestStateReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	randomFile(t, dir, 43, 4<<20)
	next := states(t, dir, append([]string{"file", "--upload-rate", "1mbit"}, local...)...)
	line := next().Line
	cmd := braid(t, dir, "get", line, "-o", "out", "--json", "--piece-events", "--transport", "tcp", "--stop-timeout", "30s")
	events, said := piped(t, cmd)
	lines := bufio.NewScanner(events)
	for lines.Scan() && !strings.Contains(lines.Text(), `"event":"piece"`) {
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() { // until its end
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != program.Failed || !strings.Contains(said.String(), "newer state") {
		t.Errorf("exit code %d: %s", code, said)
	}
}

// The same over SCION.
func TestSendWatchOverSCION(t *testing.T) {
	t.Parallel()
	n, from, to := startNetwork(t, "two-paths")
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "set"), 0o755); err != nil {
		t.Fatal(err)
	}
	set := filepath.Join(dir, "set")
	data := randomFile(t, set, 42, 4<<20)
	watchAndFollow(t, dir, set, data, []string{"--transport", "scion", "--config-dir", n.ConfigDir(from), "--local", n.HostIP(from).String()},
		[]string{"--transport", "scion", "--config-dir", n.ConfigDir(to), "--local", n.HostIP(to).String()})
}

func watchAndFollow(t *testing.T, dir, set string, data []byte, from, to []string) {
	t.Helper()
	next := states(t, dir, append([]string{"set"}, from...)...)
	first := next()
	l, err := send.ParseLine(first.Line)
	if err != nil || !l.IsNews() {
		t.Fatalf("%+v, %v", l, err)
	}
	arrived := followed(t, dir, append([]string{first.Line, "-o", "out"}, to...)...)
	arrived(first.InfoHash)
	has(t, filepath.Join(dir, "out/set/file"), data)

	// A new file stands before the other one, so that all pieces are different ones.
	if err := os.WriteFile(filepath.Join(set, "before"), []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	second := next()
	if second.Line != first.Line || second.Files != 2 {
		t.Errorf("%+v after %+v", second, first)
	}
	if e := arrived(second.InfoHash); e.Fetched > 1<<20 {
		t.Errorf("%d bytes were fetched for 3 new ones", e.Fetched)
	}
	has(t, filepath.Join(dir, "out/set/before"), []byte("new"))

	// A file changes, and another one goes. Both happen at once: a machine with other work takes
	// its time to write a file, and a state in between is one that a receiver may pass over.
	copy(data[1<<20:], "changed")
	changed := filepath.Join(dir, "changed")
	if err := errors.Join(os.WriteFile(changed, data, 0o600), os.Rename(changed, filepath.Join(set, "file")), os.Remove(filepath.Join(set, "before"))); err != nil {
		t.Fatal(err)
	}
	third := next()
	if e := arrived(third.InfoHash); e.Fetched > 1<<20 {
		t.Errorf("%d bytes were fetched for 7 changed ones", e.Fetched)
	}
	has(t, filepath.Join(dir, "out/set/file"), data)
	has(t, filepath.Join(dir, "out/set/before"), []byte("new")) // nothing is deleted

	// One state is enough for a receiver that does not follow. Who has another key learns nothing.
	if events := must(t, dir, append([]string{"get", first.Line, "-o", "once", "--json"}, to...)...); !strings.Contains(events, third.InfoHash) {
		t.Errorf("%s", events)
	}
	has(t, filepath.Join(dir, "once/set/file"), data)
	for flags, want := range map[string]int{"-o none --transport quic": program.Usage, "-o set/file": program.Failed} {
		args := slices.Concat([]string{"get", first.Line, "--follow"}, to, strings.Fields(flags))
		if code, _, said := ends(t, dir, args...); code != want {
			t.Errorf("%s: exit code %d, want that no state is waited for: %s", flags, code, said)
		}
	}
	l.Key[0]++
	if code, _, said := ends(t, dir, append([]string{"get", l.String(), "-o", "none", "--stop-timeout", "1s"}, to...)...); code != program.Failed || !strings.Contains(said, "has not answered") {
		t.Errorf("another key: exit code %d: %s", code, said)
	}
}
