package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"braid/client"
	"braid/commands/program"
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

// ending is what a download has told until its end.
type ending struct {
	causes []event.Cause
	shown  bool   // a cause was part of the progress
	failed said   // the event of its failure
	last   string // line on standard error
}

// stopped runs a download to its end, and calls during for each event.
func stopped(t *testing.T, dir string, during func(said), args ...string) (end ending) {
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
	lines := bufio.NewScanner(out)
	for lines.Buffer(nil, 1<<20); lines.Scan(); {
		var e said
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("event %q: %v", lines.Text(), err)
		}
		switch e.Event {
		case "cause":
			if e.Cause != nil {
				end.causes = append(end.causes, *e.Cause)
			}
		case "progress":
			end.shown = end.shown || e.Cause != nil
		case "failed":
			end.failed = e
		}
		if during != nil {
			during(e)
		}
	}
	_ = cmd.Wait() // with the code that is looked at
	if code := cmd.ProcessState.ExitCode(); code != program.Failed {
		t.Errorf("%v: exit code %d: %s", args, code, errors.String())
	}
	text := strings.Split(strings.TrimSpace(errors.String()), "\n")
	end.last = text[len(text)-1]
	return end
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
	// must repeats a download until it fails with the cause: a router or service that is busy answers
	// an examination too late, and then another cause is told. Each time begin prepares it, and
	// returns what happens during it.
	must := func(t *testing.T, kind client.CauseKind, wanted func(event.Cause) bool, begin func() func(said), args ...string) {
		t.Helper()
		var end ending
		defer func() {
			if t.Failed() {
				t.Logf("%v ended with %+v, %+v", args, end.failed.Cause, end)
			}
		}()
		soon(t, "a failure with the cause "+string(kind), func() bool {
			var during func(said)
			if begin != nil {
				during = begin()
			}
			end = stopped(t, dir, during, slices.Concat(args, here)...)
			c := end.failed.Cause
			if c == nil || c.Kind != string(kind) || !wanted(*c) {
				return false
			}
			if len(end.causes) == 0 {
				return kind == client.NameUnknown
			}
			toldLast := end.causes[len(end.causes)-1].Kind == c.Kind
			return toldLast && end.shown && (strings.Contains(end.last, c.Text) || kind == client.NameUnknown)
		})
	}
	about := func(text string) func(event.Cause) bool {
		return func(c event.Cause) bool { return strings.Contains(c.Text, text) }
	}
	seed := func(t *testing.T, port int) (stop func()) {
		t.Helper()
		_, cmd := started(t, dir, "seed", "file.torrent", "--listen", there(from, port), "--config-dir", n.ConfigDir(from), "--json")
		return func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	}

	t.Run("network whole", func(t *testing.T) {
		t.Run("seed stopped", func(t *testing.T) {
			t.Parallel()
			at, isStopped, stop := there(from, 31001), false, func() {}
			must(t, client.PeerSilent, func(c event.Cause) bool { return isStopped && strings.Contains(c.Text, at) }, func() func(said) {
				stop()
				isStopped, stop = false, seed(t, 31001)
				return func(e said) {
					if !isStopped && e.Fetched > 100_000 {
						stop()
						isStopped = true
					}
				}
			}, "--peer", at, "--download-rate", "2Mbit/s")
		})
		t.Run("no peer else", func(t *testing.T) {
			t.Parallel()
			url := ready(t, dir, "tracker", "--json", "--config-dir", n.ConfigDir(from), "--listen", "scion://"+there(from, 31080))[0]
			must(t, client.NobodyThere, about(url), nil, "--tracker", url)
		})
		t.Run("no tracker", func(t *testing.T) {
			t.Parallel()
			must(t, client.TrackerFailed, about(there(from, 31081)), nil, "--tracker", "scion://"+there(from, 31081)+"/announce")
		})
		t.Run("no pieces", func(t *testing.T) {
			t.Parallel()
			started(t, dir, "download", "file.torrent", "-o", t.TempDir(), "--config-dir", n.ConfigDir(from), "--listen", there(from, 31002), "--json")
			must(t, client.PiecesMissing, about("missing pieces"), nil, "--peer", there(from, 31002))
		})
		t.Run("unknown AS", func(t *testing.T) {
			t.Parallel()
			must(t, client.ASUnknown, about("1-ff00:0:999"), nil, "--peer", there(pathsel.IA(1<<48|0xff00_0000_0999), 31001))
		})
		t.Run("unknown name", func(t *testing.T) {
			t.Parallel()
			must(t, client.NameUnknown, about("nobody.invalid"), nil, "--peer", "scion://nobody.invalid:31000")
			must(t, client.NameUnknown, about("nobody.invalid"), nil, "--tracker", "scion://nobody.invalid:31000/announce")
		})
	})
	t.Run("links down", func(t *testing.T) {
		seed(t, 31003)
		isDown := false
		set := func(down bool) {
			isDown = down
			for _, id := range []uint64{1, 2} {
				if err := n.SetLink(pathsel.Interface{IA: from, ID: id}, func(c *linkemu.Config) { c.Down = down }); err != nil {
					t.Error(err)
				}
			}
		}
		defer set(false)
		noRouterSaysSo := func(b event.Break) bool { return b.By != to.String() && b.By != from.String() }
		must(t, client.PathDown, func(c event.Cause) bool {
			return isDown && len(c.Down) > 0 && !slices.ContainsFunc(c.Down, noRouterSaysSo)
		}, func() func(said) {
			set(false)
			return func(e said) {
				if !isDown && e.Fetched > 100_000 {
					set(true)
				}
			}
		}, "--peer", there(from, 31003), "--download-rate", "2Mbit/s")
	})
	t.Run("control service killed", func(t *testing.T) {
		for _, p := range n.Glance().Processes {
			if p.IA == to && strings.HasPrefix(p.Name, "cs") {
				if process, err := os.FindProcess(p.PID); err != nil || process.Kill() != nil {
					t.Fatal(err)
				}
			}
		}
		must(t, client.ControlUnreachable, about(to.String()), nil, "--peer", there(from, 31001))
	})
}
