package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"braid/commands/program"
	"braid/node"
	"braid/node/event"
	v1 "braid/node/web/v1"
)

// runningDaemon is a daemon with its state and its socket in a directory.
type runningDaemon struct {
	*exec.Cmd
	dir   string
	ready event.Ready
	said  *bytes.Buffer
}

// startDaemon starts a daemon, and waits until it is ready.
func startDaemon(t *testing.T, dir string, args ...string) *runningDaemon {
	t.Helper()
	d := &runningDaemon{Cmd: braid(t, dir, append([]string{"daemon", "--json", "--state", "state", "--api", "unix:" + socketIn(dir), "--listen", "127.0.0.1:0"}, args...)...), dir: dir, said: &bytes.Buffer{}}
	d.Stderr = d.said
	out, err := d.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = d.Process.Kill()
		_ = d.Wait()
	})
	line, _ := bufio.NewReader(out).ReadBytes('\n')
	if err := json.Unmarshal(line, &d.ready); err != nil || d.ready.Event != "ready" {
		_ = d.Wait()
		t.Fatalf("no daemon: %v: %s", err, d.said)
	}
	return d
}

func socketIn(dir string) string { return filepath.Join(dir, "s") }

// does runs a command that controls the daemon and must succeed.
func (d *runningDaemon) does(t *testing.T, args ...string) string {
	t.Helper()
	return must(t, d.dir, append(args, "--api", "unix:"+socketIn(d.dir))...)
}

// list returns the torrents of the daemon.
func (d *runningDaemon) list(t *testing.T) (out []v1.Torrent) {
	t.Helper()
	for line := range strings.Lines(d.does(t, "list", "--json")) {
		var x v1.Torrent
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatal(err)
		}
		out = append(out, x)
	}
	return out
}

// The commands control a daemon. What they have done survives kill -9.
func TestDaemon(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	smallTorrent(t, dir)
	peer := smallSeed(t, dir)
	d := startDaemon(t, dir)
	if said := d.does(t, "add", "file.torrent", "-o", "out", "--peer", peer); said != "added file\n" {
		t.Errorf("add says %q", said)
	}
	d.does(t, "add", "magnet:?xt=urn:btih:"+strings.Repeat("ab", 20)+"&dn=other&ws=http://127.0.0.1:1/a", "--paused", "--web-seed", "http://127.0.0.1:1/b")
	eventually(t, func() error {
		if l := d.list(t); len(l) != 2 || l[0].State != "seeding" || l[0].HaveBytes != 50_000 || l[1].State != "paused" {
			return fmt.Errorf("%+v", l)
		}
		return nil
	})
	if b, err := os.ReadFile(filepath.Join(dir, "out", "file")); err != nil || len(b) != 50_000 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if said := d.does(t, "show", "1"); !strings.Contains(said, "seeding") || !strings.Contains(said, filepath.Join(dir, "out")) {
		t.Errorf("show says %s", said)
	}
	if said := d.does(t, "rename", "file", "file", "renamed"); said != "renamed file to renamed\n" {
		t.Errorf("rename says %q", said)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "out", "renamed")); err != nil || len(b) != 50_000 {
		t.Errorf("after a rename: %d bytes, %v", len(b), err)
	}
	d.does(t, "rename", "renamed", "again")
	d.does(t, "set", "--name", "file", "again")
	if code, _, said := ends(t, dir, "add", "out/again", "--api", "unix:"+socketIn(dir)); code != program.Failed || !strings.Contains(said, "not a torrent file") {
		t.Errorf("add of data: exit code %d: %s", code, said)
	}
	if code, _, said := ends(t, dir, "rename", "file", "again", "a/b", "--api", "unix:"+socketIn(dir)); code != program.Failed || !strings.Contains(said, "without a slash") {
		t.Errorf("rename to a/b: exit code %d: %s", code, said)
	}
	if code, _, said := ends(t, dir, "move", "file", "--to", "", "--api", "unix:"+socketIn(dir)); code != program.Usage || !strings.Contains(said, "--to") {
		t.Errorf("move to nowhere: exit code %d: %s", code, said)
	}
	if code, _, said := ends(t, dir, "set", "file", "--api", "unix:"+socketIn(dir)); code != program.Usage || !strings.Contains(said, "nothing to change") {
		t.Errorf("set without a setting: exit code %d: %s", code, said)
	}
	if code, _, said := ends(t, dir, "set", "file", "--file", "2=skip", "--api", "unix:"+socketIn(dir)); code != program.Usage || !strings.Contains(said, "file 2: the torrent has files 1 to 1") {
		t.Errorf("an unknown file: exit code %d: %s", code, said)
	}
	if code, _, said := ends(t, dir, "set", "file", "--ratio", "nan", "--api", "unix:"+socketIn(dir)); code != program.Usage || !strings.Contains(said, "want a number") {
		t.Errorf("no number: exit code %d: %s", code, said)
	}
	if said := d.does(t, "show", "file", "--files", "--json"); strings.Count(said, "\n") != 2 || !strings.Contains(said, `"path":"again"`) {
		t.Errorf("show --files --json says %s", said)
	}
	if said := d.does(t, "add", "magnet:?xt=urn:btih:"+strings.Repeat("cd", 20), "--paused"); said != "added "+strings.Repeat("cd", 20)+"\n" {
		t.Errorf("add says %q of a torrent without a name", said)
	}
	d.does(t, "remove", "cdcd")
	if said := d.does(t, "pause", "--all"); strings.Count(said, "paused") != 1 { // the other one is paused already
		t.Errorf("pause --all says %s", said)
	}
	d.does(t, "resume", "file")
	if said := d.does(t, "resume", "--all"); strings.Count(said, "resumed") != 1 {
		t.Errorf("resume --all says %s", said)
	}
	d.does(t, "pause", "other")
	if code, _, said := ends(t, dir, "pause", "other", "--api", "unix:"+socketIn(dir)); code != program.Failed || strings.Count(said, "other") != 1 {
		t.Errorf("pause of a paused torrent: exit code %d: %s", code, said)
	}
	d.does(t, "pause", "file")
	if code, _, said := ends(t, dir, "add", "http://127.0.0.1:1/x.torrent", "--api", "unix:"+socketIn(dir)); code != program.Failed || !strings.Contains(said, "refused") {
		t.Errorf("add the torrent of a server that is away: exit code %d: %s", code, said)
	}
	if code, _, said := ends(t, dir, "daemon", "--state", "state", "--api", "unix:"+filepath.Join(dir, "s2")); code != program.Failed || !strings.Contains(said, "another braid daemon") {
		t.Errorf("a second daemon: exit code %d: %s", code, said)
	}
	if err := d.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = d.Wait()
	if code, _, said := ends(t, dir, "list", "--api", "unix:"+socketIn(dir)); code != program.Failed || !strings.Contains(said, "Start one with 'braid daemon'") {
		t.Errorf("without a daemon: exit code %d: %s", code, said)
	}
	d = startDaemon(t, dir)
	l := d.list(t)
	if len(l) != 2 || l[0].Name+l[1].Name != "fileother" && l[0].Name+l[1].Name != "otherfile" || l[0].State != "paused" || l[1].State != "paused" {
		t.Fatalf("after kill -9: %+v", l)
	}
	var other v1.TorrentDetail
	if err := json.Unmarshal([]byte(d.does(t, "show", "abab", "--json")), &other); err != nil || len(other.WebSeeds) != 2 {
		t.Errorf("after kill -9: web seeds %q, %v", other.WebSeeds, err)
	}
	d.does(t, "resume", "file")
	d.does(t, "remove", "abab")
	eventually(t, func() error {
		if l := d.list(t); len(l) != 1 || l[0].State != "seeding" {
			return fmt.Errorf("%+v", l)
		}
		return nil
	})
	if err := d.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := d.Wait(); err != nil {
		t.Errorf("SIGTERM: %v: %s", err, d.said)
	}
	if _, err := os.Stat(socketIn(dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

// A daemon answers once it has all of its torrents. Otherwise programs would add those again that
// seem to be missing, which would replace their options.
func TestDaemonAnswersWithAllTorrents(t *testing.T) {
	t.Parallel()
	const torrents = 2000
	dir := t.TempDir()
	hash := func(i int) string { return fmt.Sprintf("%040x", i+1) }
	d := startDaemon(t, dir)
	d.does(t, "add", "magnet:?xt=urn:btih:"+hash(0), "--paused")
	if err := d.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = d.Wait()
	file := func(i int) string { return filepath.Join(dir, "state", hash(i)+".json") }
	saved, err := os.ReadFile(file(0))
	for i := 1; i < torrents && err == nil; i++ {
		err = os.WriteFile(file(i), bytes.ReplaceAll(saved, []byte(hash(0)), []byte(hash(i))), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := v1.NewClient("unix:"+socketIn(dir), "")
	defer c.Close()
	first := make(chan int, 1)
	go func() {
		for t.Context().Err() == nil {
			if all, err := c.List(t.Context()); err == nil {
				first <- len(all)
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	startDaemon(t, dir)
	if n := <-first; n != torrents {
		t.Errorf("the first answer has %d of %d torrents", n, torrents)
	}
}

// Nothing more happens, so that no write fails.
func TestWatchEndsWithReader(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	startDaemon(t, dir)
	c := braid(t, dir, "watch", "--json", "--api", "unix:"+socketIn(dir))
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	hung := time.AfterFunc(swarmPatience, func() { _ = c.Process.Kill() })
	if line, err := bufio.NewReader(out).ReadString('\n'); !strings.Contains(line, "snapshot") {
		t.Errorf("%q, %v", line, err)
	}
	out.Close()
	_ = c.Wait() // with the code that is looked at
	if !hung.Stop() || c.ProcessState.ExitCode() != program.Failed {
		t.Errorf("no torrent has changed, and the end is: %v", c.ProcessState)
	}
}

// A daemon takes part in the DHT, and keeps the nodes in its state.
func TestDaemonInDHT(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hub := braid(t, dir, "dht", "--listen", "127.0.0.1:0", "--json", "--sample", "100ms")
	said := listen(t, hub)
	var at event.Ready
	said(func(line []byte) bool { return json.Unmarshal(line, &at) == nil && at.Event == "ready" })
	d := startDaemon(t, dir, "--dht", "on", "--dht-node", at.Listen[0])
	said(func(line []byte) bool {
		e, _ := event.Parse(line)
		status, ok := e.(*event.DHT)
		return ok && status.Networks[0].Nodes > 0
	})
	if err := d.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := d.Wait(); err != nil {
		t.Errorf("%v: %s", err, d.said)
	}
	if _, err := os.Stat(filepath.Join(dir, "state", "dht.json")); err != nil {
		t.Error(err)
	}
}

// eventually waits until there is no error.
func eventually(t *testing.T, is func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = is(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// systemd hears when the daemon is ready, reloads, lives and ends.
func TestDaemonNotifies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	hear := func(want ...string) {
		t.Helper()
		b := make([]byte, 1000)
		for _, w := range want {
			_ = l.SetReadDeadline(time.Now().Add(time.Minute))
			n, err := l.Read(b)
			for err == nil && string(b[:n]) == "WATCHDOG=1" && w != "WATCHDOG=1" {
				n, err = l.Read(b)
			}
			if got := string(b[:n]); err != nil || !strings.HasPrefix(got, w) {
				t.Fatalf("systemd hears %q, %v; want %q", got, err, w)
			}
		}
	}
	d := braid(t, dir, "daemon", "--state", "state", "--api", "unix:"+socketIn(dir), "--api", "127.0.0.1:0")
	d.Env = append(d.Env, "NOTIFY_SOCKET="+filepath.Join(dir, "notify"), "WATCHDOG_USEC=200000")
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Process.Kill() })
	hear("READY=1", "WATCHDOG=1")
	if err := d.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	hear("RELOADING=1", "READY=1")
	if err := d.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	hear("STOPPING=1")
	if err := d.Wait(); err != nil {
		t.Error(err)
	}
}

// A password is set over the socket and needed on TCP; without one, only loopback is open.
func TestDaemonPassword(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if code, _, said := ends(t, dir, "daemon", "--state", "state", "--api", "unix:"+socketIn(dir), "--api", "0.0.0.0:0"); code != program.Usage || !strings.Contains(said, "braid password") {
		t.Errorf("exit code %d: %s", code, said)
	}
	d := startDaemon(t, dir, "--api", "127.0.0.1:0")
	tcp := d.ready.API[1]
	must(t, dir, "list", "--api", tcp)
	set := braid(t, dir, "password", "--api", d.ready.API[0])
	set.Stdin = strings.NewReader("secret\n")
	if out, err := set.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if code, _, said := ends(t, dir, "list", "--api", tcp); code != program.Failed || !strings.Contains(said, "none or a wrong one: give --password-file") {
		t.Errorf("without the password: exit code %d: %s", code, said)
	}
	if err := os.WriteFile(filepath.Join(dir, "password"), []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, dir, "list", "--api", tcp, "--password-file", "password")
	set = braid(t, dir, "password", "--api", tcp, "--password-file", "password")
	set.Stdin = strings.NewReader("mine\n")
	if out, err := set.CombinedOutput(); err == nil || !strings.Contains(string(out), "unix socket") {
		t.Errorf("a password over TCP: %v: %s", err, out)
	}
}

// Flags change the settings that an earlier daemon has kept. Without them the settings stay.
func TestDaemonFlags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	settings := func(args ...string) (s node.Settings) {
		d := startDaemon(t, dir, args...)
		if err := d.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(d.Wait(), node.ReadJSON(filepath.Join(dir, "state", "settings.json"), &s)); err != nil {
			t.Fatalf("%v: %s", err, d.said)
		}
		return s
	}
	settings("--directory", "data", "--download-rate", "20mbit")
	settings("--upload-rate", "10mbit", "--rate-limit", "1-ff00:0:110#2=50mbit", "--acl", "- 1-ff00:0:112", "--acl", "+", "--min-mtu", "1400")
	paths := []node.PathRate{{Pattern: "1-ff00:0:110#2", Rate: 50e6}}
	want := node.Settings{
		Dir:         filepath.Join(dir, "data"),
		Rates:       node.Rates{Upload: 10e6, Download: 20e6, Paths: paths},
		Alternative: node.Alternative{Rates: node.Rates{Paths: paths}},
		Policy:      node.Policy{ACL: "- 1-ff00:0:112 +", MinMTU: 1400},
	}
	if got := settings(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
