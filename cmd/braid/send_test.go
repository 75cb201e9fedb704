package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"braid/client"
	"braid/commands/program"
	"braid/node/event"
	"braid/node/send"
	"braid/pathsel"
)

// sending runs braid send until the end of the test. stop kills it.
func sending(t *testing.T, dir string, args ...string) (e event.Line, stop func()) {
	t.Helper()
	cmd := braid(t, dir, append([]string{"send", "--json"}, args...)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	events, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(events)
	for e.Event != "line" {
		if !lines.Scan() {
			_ = cmd.Wait()
			t.Fatalf("braid send has ended: %s", said.String())
		}
		_ = json.Unmarshal(lines.Bytes(), &e)
	}
	drained := make(chan struct{})
	go func() { defer close(drained); _, _ = io.Copy(io.Discard, events) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		_ = cmd.Process.Kill()
		<-drained
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("braid send said: %s", said.String())
		}
	}
	t.Cleanup(stop)
	return e, stop
}

// local has send and get meet on the loopback address, which is none that a line has by itself.
var local = []string{"--transport", "tcp", "--listen", "127.0.0.1:0"}

func has(t *testing.T, name string, want []byte) {
	t.Helper()
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes, %v", name, len(got), err)
	}
}

// Who has the line gets the files; who has another key, or the info hash and the address, gets
// nothing.
func TestSend(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := randomFile(t, dir, 21, 1<<20)
	for _, d := range []string{"set/deep", "other"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"set/deep/a", "set/b", "other/c"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	e, _ := sending(t, dir, append([]string{"file", "set"}, local...)...)
	if e.Files != 3 || e.Bytes != 1<<20+int64(len("set/deep/aset/b")) || len(e.Peers) != 1 {
		t.Errorf("%+v", e)
	}
	if code, events, said := ends(t, dir, "get", e.Line, "-o", "out", "--json", "--transport", "tcp"); code != 0 || !strings.Contains(events, `"event":"done"`) {
		t.Fatalf("%d: %s%s", code, events, said)
	}
	has(t, filepath.Join(dir, "out", filepath.Base(dir), "file"), data)
	has(t, filepath.Join(dir, "out", filepath.Base(dir), "set/deep/a"), []byte("set/deep/a"))
	// braid get has no --list, which the same error of braid download names.
	if code, _, said := ends(t, dir, "get", e.Line, "-o", "out", "--select", "z"); code != program.Usage || !strings.HasSuffix(said, "matches \"z\"\n") {
		t.Errorf("%d: %s", code, said)
	}

	l, err := send.ParseLine(e.Line)
	if err != nil {
		t.Fatal(err)
	}
	if l.Key[0]++; l.String() == e.Line {
		t.Fatal("the key is not in the line")
	}
	for name, args := range map[string][]string{
		"wrong key":  {"get", l.String()},
		"hash alone": {"download", "magnet:?xt=urn:btih:" + e.InfoHash, "--peer", e.Peers[0], "--dht", "off"},
	} {
		code, events, _ := ends(t, dir, append(args, "-o", "none", "--json", "--transport", "tcp", "--stop-timeout", "1s")...)
		if code != program.Failed || strings.Contains(events, `"event":"done"`) {
			t.Errorf("%s: exit code %d: %s", name, code, events)
		}
	}
	if got, err := filepath.Glob(filepath.Join(dir, "none", "[^.]*")); err != nil || len(got) > 0 {
		t.Errorf("%v, %v", got, err)
	}
	for args, want := range map[string]string{
		"get":                                  "name the line",
		"get " + e.Line[:60]:                   "damaged",
		"get magnet:?xt=x":                     "begins with braid1",
		"send":                                 "name at least one",
		"send file --key short":                "at least 12",
		"send file --transport quic":           "scion or tcp",
		"send file --address nonsense":         "--address",
		"get " + e.Line + " --transport scion": "no SCION",
	} {
		if code, _, said := ends(t, dir, strings.Fields(args)...); code != program.Usage || !strings.Contains(said, want) {
			t.Errorf("braid %s: exit code %d: %s", args, code, said)
		}
	}
	if code, events, _ := ends(t, dir, "send", "missing", "--json"); code == 0 || !strings.Contains(events, `{"event":"failed"`) {
		t.Errorf("braid send of a file that is not there: exit code %d: %s", code, events)
	}
}

// A sender that is killed comes back with the same line, while its receiver waits for it. A
// receiver that is killed goes on where it was. A key of one's own survives a lost state.
func TestSendResumes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := randomFile(t, dir, 22, 8<<20)
	args := []string{"file", "--transport", "tcp", "--key", "a phrase of one's own", "--address", "127.0.0.1:1"}
	first, stop := sending(t, dir, args...)
	l, err := send.ParseLine(first.Line)
	if err != nil {
		t.Fatal(err)
	}
	// The sender listens everywhere, so also at the loopback address.
	if l.Peers[0], err = loopback(l); err != nil {
		t.Fatal(err)
	}
	get := func(more ...string) *exec.Cmd {
		return braid(t, dir, append([]string{"get", l.String(), "-o", "out", "--json", "--sample", "10ms", "--transport", "tcp"}, more...)...)
	}
	half := runUntil(t, get("--download-rate", "8mbit"), os.Kill, func(e killEvent, _ time.Duration) bool { return e.Bytes >= 2<<20 })
	if half.Event != "progress" {
		t.Fatalf("it was not killed: %+v", half)
	}
	killed := false
	end := runUntil(t, get("--download-rate", "20mbit"), nil, func(e killEvent, _ time.Duration) bool {
		if killed || e.Bytes < 4<<20 {
			return false
		}
		killed = true
		stop()
		again, _ := sending(t, dir, args...)
		if again.Line != first.Line {
			t.Errorf("the line was %s and is %s", first.Line, again.Line)
		}
		return false
	})
	if end.Event != "done" || !killed || end.Fetched > 7<<20 {
		t.Errorf("killed: %v; %+v", killed, end)
	}
	has(t, filepath.Join(dir, "out", "file"), data)
	if err := os.RemoveAll(filepath.Join(dir, ".local")); err != nil {
		t.Fatal(err)
	}
	other, _ := sending(t, dir, args...)
	if o, err := send.ParseLine(other.Line); err != nil || o.Key != l.Key || o.InfoHash != l.InfoHash {
		t.Errorf("the key of one's own gives another line: %v", err)
	}
}

// SCION carries the data where both hosts have it, TCP where one of them does not.
func TestSendOverSCION(t *testing.T) {
	t.Parallel()
	n, from, to := startNetwork(t, "two-paths")
	dir := t.TempDir()
	data := randomFile(t, dir, 23, 4<<20)
	at := []string{"--config-dir", n.ConfigDir(from), "--local", n.HostIP(from).String()}
	e, stop := sending(t, dir, append([]string{"file", "--address", "127.0.0.1:1"}, at...)...)
	l, err := send.ParseLine(e.Line)
	if err != nil {
		t.Fatal(err)
	}
	if l.Peers[0], err = loopback(l); err != nil {
		t.Fatal(err)
	}
	there := []string{"--config-dir", n.ConfigDir(to), "--local", n.HostIP(to).String()}
	for name, c := range map[string]struct {
		args []string
		over string
	}{
		"scion": {there, `"transport":"scion"`},
		"tcp":   {nil, `"transport":"tcp"`},
	} {
		code, events, said := ends(t, dir, append([]string{"get", l.String(), "-o", name, "--json"}, c.args...)...)
		if code != 0 || !strings.Contains(events, c.over) {
			t.Errorf("%s: %d: %s%s", name, code, events, said)
		}
		has(t, filepath.Join(dir, name, "file"), data)
	}
	// A host without a configuration gets one from the network, on both sides.
	bare := func(ia pathsel.IA) []string {
		return []string{"--bootstrap", "http://" + n.API(ia).String(), "--local", n.HostIP(ia).String()}
	}
	home := t.TempDir()
	code, events, said := ends(t, home, append([]string{"get", l.String(), "-o", "out", "--json"}, bare(to)...)...)
	if code != 0 || !strings.Contains(events, `"transport":"scion"`) {
		t.Errorf("a receiver without a configuration: %d: %s%s", code, events, said)
	}
	home = t.TempDir()
	if bared, _ := sending(t, home, append([]string{filepath.Join(dir, "file")}, bare(from)...)...); !strings.HasPrefix(bared.Peers[0], from.String()) {
		t.Errorf("a sender without a configuration: %v", bared.Peers)
	}
	stop()
	again, _ := sending(t, dir, append([]string{"file", "--address", "127.0.0.1:1"}, at...)...)
	if again.Line != e.Line {
		t.Errorf("the line was %s and is %s: %v, %v", e.Line, again.Line, e.Peers, again.Peers)
	}
	l.Key[3]++
	code, events, _ = ends(t, dir, append([]string{"get", l.String(), "-o", "none", "--json", "--stop-timeout", "1s"}, there...)...)
	if code != program.Failed || strings.Contains(events, `"event":"done"`) {
		t.Errorf("a wrong key: exit code %d: %s", code, events)
	}
}

// loopback is the address of a line's sender on TCP, seen from the same host.
func loopback(l send.Line) (client.Peer, error) {
	for _, p := range l.Peers[1:] {
		if _, scion := p.SCION(); !scion {
			return client.ParsePeer(fmt.Sprintf("127.0.0.1:%d", p.Port()))
		}
	}
	return client.Peer{}, errors.New("no address on TCP in the line")
}

// Files that change while they are hashed have no torrent: receivers would find wrong data.
func TestSendOfChangingFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "growing"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(64 << 20); err != nil {
		t.Fatal(err)
	}
	var writing sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	writing.Go(func() {
		for ctx.Err() == nil {
			_, _ = f.WriteAt([]byte("x"), 64<<20)
		}
	})
	code, out, said := ends(t, dir, append([]string{"send", "--seed-time", "1ms", "growing"}, local...)...)
	cancel()
	writing.Wait()
	if code != 1 || out != "" || !strings.Contains(said, "--watch") {
		t.Errorf("%d, %q, %q", code, out, said)
	}
}
