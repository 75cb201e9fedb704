package report

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"braid/pathsel"
	"braid/testbed"
	"braid/testbed/linkemu"
	"braid/testbed/scenario"
)

// A run directory as the runner writes it, of a scenario that never ran: n leechers over two links
// of 10 Mbit/s, the first of which is away from 5 s to 10 s; both carry 8 Mbit/s else. The variant
// slow takes a second longer in each run.
type made struct {
	leechers int
	runs     int
	about    string // of the scenario
	bound    bool   // the first run of slow
	slower   float64
	commit   string
	cpu      string
}

const bandSeconds = 5

func (m made) write(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	var peers strings.Builder
	for i := range m.leechers {
		fmt.Fprintf(&peers, "  - {name: leecher-%d, as: \"1-ff00:0:111\", role: leech}\n", i+1)
	}
	text := "about: " + m.about + `
topology: two-paths
size: 20MB
takes: 20s
links:
  - {at: "1-ff00:0:110#1", rate: 10mbit, delay: 10ms}
  - {at: "1-ff00:0:110#2", rate: 10mbit, delay: 10ms}
peers:
  - {name: seeder, as: "1-ff00:0:110", role: seed}
` + peers.String() + `events:
  - {at: 5s, link: "1-ff00:0:110#1", down: true, for: 5s}
variants:
  - {name: fast, selector: adaptive}
  - {name: slow, selector: slots, baseline: false}
  - {name: never, selector: all}
expect:
  e: ">= 0.9"
  gap: "<= 1"
`
	topology, err := testbed.ShippedTopology("two-paths")
	if err != nil {
		t.Fatal(err)
	}
	file := scenario.ScenarioFile{Name: "made", Seed: 1, Scale: 1, Text: text}
	for _, a := range topology.ASes {
		file.ASes = append(file.ASes, scenario.NetworkAS{IA: a.IA, Core: a.Core, MTU: a.MTU})
	}
	for _, l := range topology.Links {
		file.Topology = append(file.Topology, scenario.NetworkLink{A: l.A.Interface, B: l.B.Interface, Type: l.Type, MTU: l.MTU, Config: linkemu.Config{Rate: 10e6}})
	}
	write(t, filepath.Join(dir, "run.json"), scenario.About{
		Scenarios: []scenario.ScenarioFile{file}, Commit: m.commit, Program: "p", CPU: m.cpu, CPUs: 2, Kernel: "Linux", Emulator: linkemu.CurrentSettings(),
	})
	for v, name := range []string{"fast", "slow"} {
		for run := 1; run <= m.runs; run++ {
			m.writeRun(t, filepath.Join(dir, "made", name, fmt.Sprint(run)), name, run, float64(v)+m.slower)
		}
	}
	return dir
}

func (m made) writeRun(t testing.TB, dir, variant string, run int, slower float64) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	const zero = 0.25
	end := 15 + slower + .1*float64(run)
	res := scenario.Result{
		Scenario: "made", Variant: variant, Run: run, ZeroS: zero, Verified: m.leechers, Leechers: m.leechers, CPU: .5, OwnCPU: .4,
		Limit:   []scenario.LimitStep{{T: -.2, MbitS: 18}, {T: 5, MbitS: 9}, {T: 10, MbitS: 18}},
		Figures: map[string]float64{"e": 14 / end, "seconds": end, "t-star": 14, "over-t-star": end / 14, "gap": .1},
	}
	for i, c := range scenario.Components {
		res.Figures["cpu-"+c] = float64(i + 1)
	}
	if m.bound && variant == "slow" && run == 1 {
		res.CPUBound = []string{"91 % of all processors were in use"}
	}
	var lines []string
	add := func(v map[string]any) {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(b))
	}
	at := func(as string, n int) pathsel.Interface {
		i, err := pathsel.ParseInterface(fmt.Sprintf("1-ff00:0:%s#%d", as, n))
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	prints := []string{"aaaaaaaaaaaa", "bbbbbbbbbbbb"}
	for i := range m.leechers {
		name := fmt.Sprintf("leecher-%d", i+1)
		res.Peers = append(res.Peers, scenario.PeerResult{Name: name, Start: -.2, End: end, Bytes: 20e6, Complete: true})
		for k, p := range prints {
			add(map[string]any{"t": 0, "kind": "path", "what": name, "to": "seeder", "fingerprint": p, "share": .9, "interfaces": []pathsel.Interface{at("111", k+1), at("110", k+1)}})
			event := map[string]any{"event": "path-selected", "t": 0, "peer": "s", "fingerprint": p, "reason": "never <tried> & new"}
			add(map[string]any{"t": .05, "kind": "peer", "what": name, "event": event})
			event["event"], event["t"], event["reason"] = "path-opened", .03, "handshake of 30ms"
			add(map[string]any{"t": .08, "kind": "peer", "what": name, "event": event})
		}
	}
	add(map[string]any{"t": .01, "kind": "event", "what": "start", "at": "leecher-1"})
	// The links of a network count on from run to run.
	before := (run - 1) * 1e9
	carried := func(t float64, first bool) float64 {
		if first && t > 5 {
			t = max(5, t-bandSeconds)
		}
		return t * 1e6
	}
	for k := range prints { // the runner looks at the links before the peers start
		add(map[string]any{"t": 0, "kind": "link", "at": at("110", k+1).String(), "bytes": before, "packets": before, "dropped_queue": before, "late": before})
		add(map[string]any{"t": 0, "kind": "link", "at": at("111", k+1).String(), "bytes": before, "packets": before})
	}
	for s := 0.0; s <= end; s += .25 {
		if s == 5 || s == 10 {
			add(map[string]any{"t": s + zero, "kind": "event", "what": "link", "at": "1-ff00:0:110#1", "change": testbed.LinkChange{Interface: at("110", 1), Down: new(s == 5)}})
		}
		for i := range m.leechers {
			var paths []map[string]any
			for k, p := range prints {
				paths = append(paths, map[string]any{"peer": "s", "fingerprint": p, "transport": "scion", "bytes_read": int(carried(s, k == 0)) / m.leechers, "rtt_ms": 22, "min_rtt_ms": 20, "handshake_ms": 30 + 10*k, "packets_sent": 100, "packets_lost": 1})
			}
			event := map[string]any{"event": "progress", "t": s + .2, "fetched_bytes": max(1, int(carried(s, true)+carried(s, false))/m.leechers), "paths": paths}
			if s == 5.5 {
				add(map[string]any{"t": s + zero, "kind": "peer", "what": fmt.Sprintf("leecher-%d", i+1), "event": map[string]any{"event": "path-failed", "t": s + .2, "peer": "s", "fingerprint": prints[0], "reason": "silent"}})
			}
			// A message is under way for a while, but for the luckiest.
			add(map[string]any{"t": s + zero + .01*float64(int(s*4)%3), "kind": "peer", "what": fmt.Sprintf("leecher-%d", i+1), "event": event})
		}
		if int(s*4)%2 == 0 {
			for k := range prints {
				add(map[string]any{"t": s + zero, "kind": "link", "at": at("110", k+1).String(), "bytes": before + int(carried(s, k == 0)*1.1), "packets": before + int(s*100), "dropped_queue": before + int(s), "late": before + int(s)})
				add(map[string]any{"t": s + zero, "kind": "link", "at": at("111", k+1).String(), "bytes": before + 1000, "packets": before + 10})
			}
			for i, p := range []string{"1-ff00:0:110 br-1", "1-ff00:0:111 cs-1", "leecher-1", "runner"} {
				add(map[string]any{"t": s + zero, "kind": "process", "what": p, "cpu_s": s * .1 * float64(i+1), "rss_bytes": 40 << 20, "pss_bytes": 20 << 20})
			}
		}
	}
	for i := range m.leechers {
		add(map[string]any{"t": end + zero, "kind": "event", "what": "end", "at": fmt.Sprintf("leecher-%d", i+1)})
	}
	write(t, filepath.Join(dir, "result.json"), res)
	if err := os.WriteFile(filepath.Join(dir, "samples.jsonl"), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, name string, v any) {
	t.Helper()
	b, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(name, b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
