package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"braid/client"
	"braid/node/event"
	"braid/pathsel"
	"braid/testbed"
	"braid/testbed/linkemu"
	"braid/tracker/wire"
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

// Three links announce the same, of which one keeps the promise. The first download finds out which, by using all; the
// second one, which may use one path, is told by the tracker and begins with it. A third one does not want to know.
func TestPathKnowledge(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "three.topo")
	if err := os.WriteFile(name, []byte(threeLinks), 0o600); err != nil {
		t.Fatal(err)
	}
	topo, err := testbed.LoadTopology(name)
	if err != nil {
		t.Fatal(err)
	}
	n, err := testbed.Start(t.Context(), testbed.Options{Topology: topo, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	from, to := topo.ASes[0].IA, topo.ASes[1].IA
	for id := range uint64(2) {
		if err := n.SetLink(pathsel.Interface{IA: from, ID: id + 1}, func(c *linkemu.Config) { c.Rate = 1_000_000 }); err != nil {
			t.Fatal(err)
		}
	}
	good := pathsel.FingerprintOf([]pathsel.Interface{{IA: to, ID: 3}, {IA: from, ID: 3}})
	data := make([]byte, 6<<20)
	rand.NewChaCha8([32]byte{11}).Read(data)
	if err := os.WriteFile(filepath.Join(dir, "file"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	urls := ready(t, dir, "tracker", "--json", "--min-interval", "1s", "--config-dir", n.ConfigDir(from),
		"--listen", fmt.Sprintf("scion://%s,[%s]:0", from, n.HostIP(from)), "--listen", statsAnywhere)
	torrent := filepath.Join(dir, "file.torrent")
	if code, _, said := ends(t, dir, "create", "file", "-o", torrent, "--tracker", urls[0]); code != 0 {
		t.Fatal(said)
	}
	seed := braid(t, dir, "seed", torrent, "--json", "--config-dir", n.ConfigDir(from), "--listen", fmt.Sprintf("%s,[%s]:0", from, n.HostIP(from)))
	events, err := seed.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := seed.Start(); err != nil {
		t.Fatal(err)
	}
	if lines := bufio.NewScanner(events); !lines.Scan() {
		t.Fatal("the seed is not ready")
	}
	go func() { _, _ = io.Copy(io.Discard, events) }()

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
	if s := trackerStats(t, urls[1]).Paths; s.Pairs != 1 || s.Paths != 3 || s.Reports < 3 {
		t.Errorf("the tracker knows %+v", s)
	}
	if second := download("--max-paths", "1"); second[0].Fingerprint != good || !strings.Contains(second[0].Reason, "hint 1") {
		t.Errorf("the second download begins with %+v, want %s by hint", second[0], good)
	}
	before := trackerStats(t, urls[1]).Paths
	if third := download("--max-paths", "3", "--path-knowledge", "off"); slices.ContainsFunc(third, hinted) {
		t.Errorf("hints that nobody has asked for: %+v", third)
	}
	if after := trackerStats(t, urls[1]).Paths; after.Reports != before.Reports || after.PassedOver != before.PassedOver {
		t.Errorf("reports by one that shares nothing: %+v, then %+v", before, after)
	}
	// The seed tells at its end how the packets fared that it has sent.
	if err := seed.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := seed.Wait(); err != nil {
		t.Error(err)
	}
	if after := trackerStats(t, urls[1]).Paths; after.Pairs != 2 || after.Paths <= before.Paths {
		t.Errorf("the seed reports nothing: %+v, then %+v", before, after)
	}
}

func TestPathKnowledgeFlags(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, said := ends(t, dir, "create", "file", "-o", "t.torrent"); code != 0 {
		t.Fatal(said)
	}
	for _, args := range [][]string{{"--path-knowledge", "sometimes"}, {"--peer-order", "best"}, {"--path-knowledge", "off", "--peer-order", "nearest"}} {
		if code, _, said := ends(t, dir, append([]string{"download", "t.torrent", "--peer", "127.0.0.1:1"}, args...)...); code != 2 || !strings.Contains(said, args[0]) {
			t.Errorf("%v: exit code %d, %s", args, code, said)
		}
	}
	for value, want := range map[string]string{"true": "path_knowledge = true", "false": "path_knowledge = false"} {
		if code, out, said := ends(t, dir, "tracker", "--path-knowledge="+value, "--print-config"); code != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: %d, %s%s", value, code, out, said)
		}
	}
}

func TestReportsOf(t *testing.T) {
	now := time.Unix(1e9, 0)
	path := func(id uint64) pathsel.Path {
		ifs := []pathsel.Interface{{IA: 1<<48 | 1, ID: id}, {IA: 1<<48 | 2, ID: id}}
		return pathsel.Path{Fingerprint: pathsel.FingerprintOf(ifs), Interfaces: ifs}
	}
	row := func(id uint64, change func(*client.PathProgress)) client.PathProgress {
		p := client.PathProgress{Path: path(id), State: pathsel.Active, BytesRead: 1000 * id, LastRead: now.Add(-time.Second)}
		p.MinRTT, p.PacketsSent, p.PacketsLost = time.Duration(id)*time.Millisecond, 100, id
		p.Carried, p.CarriedUntil = pathsel.Estimate{Rate: 1e6, Slots: 5}, now.Add(-2*time.Second)
		if change != nil {
			change(&p)
		}
		return p
	}
	got := reportsOf(client.Progress{Paths: []client.PathProgress{
		row(1, nil),
		row(1, func(p *client.PathProgress) { p.Conn, p.MinRTT = 1, time.Microsecond }),                         // they add up
		row(1, func(p *client.PathProgress) { p.Peer, p.State, p.Carried.Rate = "other", pathsel.Idle, 1.5e6 }), // an earlier one does not
		row(2, func(p *client.PathProgress) {
			p.State, p.CarriedUntil, p.LastRead = pathsel.Parked, time.Time{}, now.Add(-time.Minute)
		}),
		row(3, func(p *client.PathProgress) { p.Accepted = true }), // it has carried too little
		row(8, func(p *client.PathProgress) { // served
			p.Accepted, p.BytesWritten, p.BytesRead, p.Carried = true, 1<<20, 100, pathsel.Estimate{}
			p.FirstRead, p.CarriedUntil = now.Add(-time.Hour), time.Time{}
		}),
		row(4, func(p *client.PathProgress) { p.MinRTT = 0 }),
		row(5, func(p *client.PathProgress) { p.Path.Interfaces = nil }),
		row(6, func(p *client.PathProgress) { p.CarriedUntil, p.LastRead = time.Time{}, time.Time{} }),
		row(7, func(p *client.PathProgress) { p.MinRTT = time.Hour }),
	}}, now)
	want := []wire.PathReport{
		{Interfaces: path(8).Interfaces, RTT: 8 * time.Millisecond, Sent: 100, Lost: 8, Age: time.Second},
		{Interfaces: path(1).Interfaces, RTT: time.Microsecond, Rate: 2e6, Sent: 300, Lost: 3, Age: time.Second},
		{Interfaces: path(2).Interfaces, RTT: 2 * time.Millisecond, Rate: 1e6, Sent: 100, Lost: 2, Age: time.Minute},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if again, err := wire.ParseReports(wire.AppendReports(nil, got)); err != nil || len(again) != 3 {
		t.Errorf("%+v, %v", again, err)
	}
	slow := row(1, func(p *client.PathProgress) {
		p.Carried, p.BytesRead, p.FirstRead = pathsel.Estimate{}, 1<<20, p.LastRead.Add(-16*time.Second)
	})
	if got := reportsOf(client.Progress{Paths: []client.PathProgress{slow}}, now); len(got) != 1 || got[0].Rate != 64<<10 {
		t.Errorf("one too slow to be judged: %+v", got)
	}
	slow.BytesRead = 1000 // a handshake
	if got := reportsOf(client.Progress{Paths: []client.PathProgress{slow}}, now); len(got) != 1 || got[0].Rate != 0 {
		t.Errorf("one that carried next to nothing: %+v", got)
	}
	var many []client.PathProgress
	for id := range uint64(100) {
		many = append(many, row(id+1, nil))
	}
	if got := reportsOf(client.Progress{Paths: many}, now); len(got) != wire.MaxReports || got[0].Interfaces[0].ID != 100 {
		t.Errorf("%d reports, the first is of %v", len(got), got[0].Interfaces)
	}
}
