package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"braid/node/event"
	"braid/pathsel"
	"braid/testbed/linkemu"
	"braid/tracker/server"
)

const threeLinks = `
ASes:
  "1-ff00:0:110": {core: true, voting: true, authoritative: true, issuing: true}
  "1-ff00:0:111": {core: true, cert_issuer: 1-ff00:0:110}
links:
  - {a: "1-ff00:0:110#1", b: "1-ff00:0:111#1", linkAtoB: CORE, rate: 8mbit, delay: 5ms}
  - {a: "1-ff00:0:110#2", b: "1-ff00:0:111#2", linkAtoB: CORE, rate: 8mbit, delay: 5ms}
  - {a: "1-ff00:0:110#3", b: "1-ff00:0:111#3", linkAtoB: CORE, rate: 8mbit, delay: 5ms}
`

// Three links announce the same, of which one keeps the promise. The first download finds out
// which, by using all; the second one, which may use one path, is told by the tracker and begins
// with it. A third one does not want to know.
func TestPathKnowledge(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "three.topo")
	if err := os.WriteFile(name, []byte(threeLinks), 0o600); err != nil {
		t.Fatal(err)
	}
	n, from, to := startNetwork(t, name)
	for id := range uint64(2) {
		if err := n.SetLink(pathsel.Interface{IA: from, ID: id + 1}, func(c *linkemu.Config) { c.Rate = 1_000_000 }); err != nil {
			t.Fatal(err)
		}
	}
	good := pathsel.FingerprintOf([]pathsel.Interface{{IA: to, ID: 3}, {IA: from, ID: 3}})
	data := randomFile(t, dir, 11, 6<<20)
	urls := ready(t, dir, "tracker", "--json", "--min-interval", "1s", "--config-dir", n.ConfigDir(from),
		"--listen", fmt.Sprintf("scion://%s,[%s]:0", from, n.HostIP(from)), "--listen", statsAnywhere)
	torrent := filepath.Join(dir, "file.torrent")
	if code, _, said := ends(t, dir, "create", "file", "-o", torrent, "--tracker", urls[0]); code != 0 {
		t.Fatal(said)
	}
	seed := func() *exec.Cmd {
		t.Helper()
		_, cmd := started(t, dir, "seed", torrent, "--json", "--config-dir", n.ConfigDir(from), "--listen", fmt.Sprintf("%s,[%s]:0", from, n.HostIP(from)))
		return cmd
	}
	known := func() server.PathStats { return trackerStats(t, urls[1]).Paths }
	serving := seed()

	download := func(args ...string) (selected []event.PathStep) {
		t.Helper()
		out := t.TempDir()
		code, events, said := ends(t, out, append([]string{"download", torrent, "-o", out, "--json", "--config-dir", n.ConfigDir(to), "--local", n.HostIP(to).String()}, args...)...)
		if code != 0 {
			t.Fatal(said)
		}
		if got, err := os.ReadFile(filepath.Join(out, "file")); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		for line := range strings.Lines(events) {
			var e event.PathStep
			if json.Unmarshal([]byte(line), &e) == nil && e.Event == "path-selected" {
				selected = append(selected, e)
			}
		}
		if len(selected) == 0 {
			t.Fatalf("no path was selected: %s", events)
		}
		return selected
	}
	hinted := func(e event.PathStep) bool { return strings.Contains(e.Reason, "hint") }
	if first := download("--max-paths", "3"); slices.ContainsFunc(first, hinted) {
		t.Errorf("hints before anybody has measured: %+v", first)
	}
	// A report at the end gets two seconds, in which a busy machine may not deliver it.
	soon(t, "knowledge of three paths", func() bool {
		if s := known(); s.Paths >= 3 && s.Reports >= 3 {
			return true
		}
		download("--max-paths", "3")
		return false
	})
	// If a router stood still, the first download has measured another path as the best.
	soon(t, "a second download that begins with the best path, by hint", func() bool {
		second := download("--max-paths", "1")
		if second[0].Fingerprint == good && strings.Contains(second[0].Reason, "hint 1") {
			return true
		}
		t.Logf("a second download begins with %+v, want %s by hint", second[0], good)
		download("--max-paths", "3")
		return false
	})
	for tries := 0; ; tries++ {
		before := known()
		if third := download("--max-paths", "3", "--path-knowledge", "off"); slices.ContainsFunc(third, hinted) {
			t.Errorf("hints that nobody has asked for: %+v", third)
		}
		after := known()
		if after.Reports == before.Reports && after.PassedOver == before.PassedOver {
			break
		}
		// The report of another one may have come meanwhile: that of the second download late, and
		// that of the seed a minute after its start.
		if tries == 2 {
			t.Fatalf("reports by one that shares nothing: %+v, then %+v", before, after)
		}
	}
	// The seed tells at its end how the packets fared that it has sent.
	soon(t, "the seed's report", func() bool {
		if err := serving.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := serving.Wait(); err != nil {
			t.Error(err)
		}
		if s := known(); s.Pairs == 2 && s.Paths > 3 {
			return true
		}
		serving = seed()
		download("--max-paths", "3")
		return false
	})
}
