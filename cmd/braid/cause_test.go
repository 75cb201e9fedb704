package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"braid/client"
	"braid/node/event"
	"braid/pathsel"
	"braid/testbed/linkemu"
)

// said is what a download tells of why it makes no progress.
type said struct {
	Event   string
	Error   string
	Cause   *event.Cause
	Fetched int64 `json:"fetched_bytes"`
}

// stopped runs a download to its end, calling during for each event, and returns the causes that it
// has told, the event of its failure and the last line on standard error.
func stopped(t *testing.T, dir string, during func(said), args ...string) (causes []event.Cause, failed said, last string) {
	t.Helper()
	cmd := braid(t, dir, append([]string{"download", "file.torrent", "-o", t.TempDir(), "--json", "--sample", "50ms"}, args...)...)
	var errors bytes.Buffer
	cmd.Stderr = &errors
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	shown := false
	lines := bufio.NewScanner(out)
	for lines.Buffer(nil, 1<<20); lines.Scan(); {
		var e said
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("event %q: %v", lines.Text(), err)
		}
		switch e.Event {
		case "cause":
			if e.Cause != nil {
				causes = append(causes, *e.Cause)
			}
		case "progress":
			shown = shown || e.Cause != nil
		case "failed":
			failed = e
		}
		if during != nil {
			during(e)
		}
	}
	_ = cmd.Wait() // with the code that is looked at
	if code := cmd.ProcessState.ExitCode(); code != exitFailed {
		t.Errorf("%v: exit code %d: %s", args, code, errors.String())
	}
	if len(causes) > 0 && !shown {
		t.Errorf("%v: the cause is not part of the progress", args)
	}
	text := strings.Split(strings.TrimSpace(errors.String()), "\n")
	return causes, failed, text[len(text)-1]
}

// Each cause is brought about on a real network, and the download names it: while it waits, as its
// last event, and in its last line.
func TestCauses(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a SCION network")
	}
	t.Parallel()
	n, from, to := startNetwork(t, "two-paths")
	dir := t.TempDir()
	randomFile(t, dir, 12, 8<<20)
	if code, _, errors := ends(t, dir, "create", "file"); code != 0 {
		t.Fatal(errors)
	}
	here := []string{"--config-dir", n.ConfigDir(to), "--local", n.HostIP(to).String(), "--stop-timeout", "6s"}
	there := func(ia pathsel.IA, port int) string { return fmt.Sprintf("%s,[%s]:%d", ia, n.HostIP(from), port) }
	must := func(t *testing.T, kind client.CauseKind, about string, during func(said), args ...string) {
		t.Helper()
		causes, failed, last := stopped(t, dir, during, append(args, here...)...)
		if failed.Cause == nil || failed.Cause.Kind != string(kind) || !strings.Contains(failed.Cause.Text, about) {
			t.Errorf("failed with %+v (%+v), want %s about %s", failed, failed.Cause, kind, about)
		} else if !strings.Contains(last, failed.Cause.Text) && kind != client.NameUnknown {
			t.Errorf("the last line is %q, which does not say %q", last, failed.Cause.Text)
		}
		if len(causes) > 0 && causes[len(causes)-1].Kind != string(kind) || len(causes) == 0 && kind != client.NameUnknown {
			t.Errorf("told of %+v, want %s", causes, kind)
		}
	}
	seed := func(t *testing.T, port int) *exec.Cmd {
		t.Helper()
		cmd := braid(t, dir, "seed", "file.torrent", "--listen", there(from, port), "--config-dir", n.ConfigDir(from), "--json")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		if lines := bufio.NewScanner(out); !lines.Scan() {
			t.Fatal("the seed is not ready")
		}
		return cmd
	}

	t.Run("network whole", func(t *testing.T) {
		t.Run("seed stopped", func(t *testing.T) {
			t.Parallel()
			cmd := seed(t, 31001)
			killed := false
			must(t, client.PeerSilent, there(from, 31001), func(e said) {
				if !killed && e.Fetched > 100_000 {
					_ = cmd.Process.Kill()
					killed = true
				}
			}, "--peer", there(from, 31001), "--download-rate", "2Mbit/s")
			if !killed {
				t.Error("the download has not begun")
			}
		})
		t.Run("no peer else", func(t *testing.T) {
			t.Parallel()
			url := ready(t, dir, "tracker", "--json", "--config-dir", n.ConfigDir(from), "--listen", "scion://"+there(from, 31080))[0]
			must(t, client.NobodyThere, url, nil, "--tracker", url)
		})
		t.Run("no tracker", func(t *testing.T) {
			t.Parallel()
			must(t, client.TrackerFailed, there(from, 31081), nil, "--tracker", "scion://"+there(from, 31081)+"/announce")
		})
		t.Run("no pieces", func(t *testing.T) {
			t.Parallel()
			started(t, dir, "download", "file.torrent", "-o", t.TempDir(), "--config-dir", n.ConfigDir(from), "--listen", there(from, 31002), "--json")
			must(t, client.PiecesMissing, "missing pieces", nil, "--peer", there(from, 31002))
		})
		t.Run("unknown AS", func(t *testing.T) {
			t.Parallel()
			must(t, client.ASUnknown, "1-ff00:0:999", nil, "--peer", there(pathsel.IA(1<<48|0xff00_0000_0999), 31001))
		})
		t.Run("unknown name", func(t *testing.T) {
			t.Parallel()
			must(t, client.NameUnknown, "nobody.invalid", nil, "--peer", "scion://nobody.invalid:31000")
			must(t, client.NameUnknown, "nobody.invalid", nil, "--tracker", "scion://nobody.invalid:31000/announce")
		})
	})
	t.Run("links down", func(t *testing.T) {
		seed(t, 31003)
		set := func(down bool) {
			for _, id := range []uint64{1, 2} {
				if err := n.SetLink(pathsel.Interface{IA: from, ID: id}, func(c *linkemu.Config) { c.Down = down }); err != nil {
					t.Error(err)
				}
			}
		}
		defer set(false)
		isDown := false
		causes, failed, _ := stopped(t, dir, func(e said) {
			if !isDown && e.Fetched > 100_000 {
				set(true)
				isDown = true
			}
		}, append([]string{"--peer", there(from, 31003), "--download-rate", "2Mbit/s"}, here...)...)
		if failed.Cause == nil || failed.Cause.Kind != string(client.PathDown) || len(failed.Cause.Down) == 0 {
			t.Fatalf("failed with %+v, told of %+v", failed, causes)
		}
		for _, b := range failed.Cause.Down {
			if b.By != to.String() && b.By != from.String() {
				t.Errorf("%+v: no router has said so", b)
			}
		}
	})
	t.Run("control service killed", func(t *testing.T) {
		for _, p := range n.Glance().Processes {
			if p.IA == to && strings.HasPrefix(p.Name, "cs") {
				if process, err := os.FindProcess(p.PID); err != nil || process.Kill() != nil {
					t.Fatal(err)
				}
			}
		}
		must(t, client.ControlUnreachable, to.String(), nil, "--peer", there(from, 31001))
	})
}
