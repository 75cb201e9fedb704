package scenario

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"braid/testbed"
)

const whole = `
about: everything that a file can say
topology: two-paths
bfd: 200ms
path_lifetime: 5m37.5s
links:
  - {at: "1-ff00:0:110#1", rate: 10mbit, delay: 10ms, jitter: 1ms, loss: 0.1%, queue: 64KiB, mtu: 1400, too-big: true}
size: 40MB
takes: 27s
timeout: 1m
runs: 3
seed: 7
sample: 100ms
peers:
  - {name: seeder, as: "1-ff00:0:110", role: seed, args: [--max-paths, "4"]}
  - {name: leecher, as: "1-ff00:0:111", role: leech, selector: all, from: [seeder]}
  - {name: late, as: "1-ff00:0:111", role: leech, start: 5s, stop: 20s, crash: 50%}
variants:
  - {selector: adaptive}
  - {name: one-path, selector: all, args: [--max-paths, "1"]}
traffic:
  - {name: rival, kind: bulk, from: "1-ff00:0:110", to: "1-ff00:0:111", over: "1-ff00:0:110#1", stop: 20s}
  - {name: burst, kind: datagrams, rate: 9mbit, from: "1-ff00:0:110", to: "1-ff00:0:111", over: "1-ff00:0:110#1", start: 5s}
events:
  - {at: 5s, link: "1-ff00:0:110#1", down: true, for: 10s}
  - {at: 40%, link: "1-ff00:0:110#2", rate: 2mbit, direction: out, for: 2s, every: 5s, times: 3}
  - {at: 5s, pause: "1-ff00:0:110#1", for: 15s}
measure:
  - {name: gap-cut, what: gap, of: late, from: 5s, to: 15s}
  - {name: other, what: ratio, over: "1-ff00:0:110#2", from: 5s, to: 15s, base: {from: 1s, to: 5s}}
  - {name: share, what: share, of: rival}
expect:
  gap-cut: "<= 1.0"
  e: ">= 0.9"
`

func parseText(text string) (Scenario, error) {
	return Parse("folder/test.yaml", strings.NewReader(text), testbed.ShippedTopology)
}

func TestParse(t *testing.T) {
	s, err := parseText(whole)
	if err != nil {
		t.Fatal(err)
	}
	if s.Size != 40e6 || s.Runs != 3 || s.Seed != 7 || s.Sample.D() != 100*time.Millisecond || len(s.Peers) != 3 || s.Variants[0].Name != "adaptive" {
		t.Errorf("%+v", s)
	}
	if p := s.Peers[2]; p.Start.After != 5*time.Second || p.Stop.After != 20*time.Second || p.Crash.Done != 0.5 || p.Selector != "adaptive" {
		t.Errorf("peer %+v", p)
	}
	if c := s.topology.Links[0].Config; c.Rate != 10e6 || c.Delay != 10*time.Millisecond || c.Jitter != time.Millisecond || c.Loss != 0.001 || c.MTU != 1400 || !c.TooBig || c.QueueBytes != 64<<10 && c.QueueBytes != 64000 {
		t.Errorf("link %+v", c)
	}
	if c := s.topology.Links[1].Config; c.Rate != 20e6 {
		t.Errorf("a link that was not named: %+v", c)
	}
}

// Times are read as everywhere in braid, with spaces and in minutes and days.
func TestTimes(t *testing.T) {
	for text, want := range map[string]time.Duration{"27 s": 27 * time.Second, "1 min 5 s": 65 * time.Second, "1d": 24 * time.Hour} {
		if s, err := parseText(strings.Replace(whole, "takes: 27s", "takes: "+text, 1)); err != nil || s.Takes.D() != want {
			t.Errorf("%s: %v, %v; want %v", text, s.Takes, err, want)
		}
	}
}

// Every mistake is named; a file that is refused changes one thing of the whole one.
func TestMistakes(t *testing.T) {
	for _, tt := range []struct{ old, new, says string }{
		{"about: everything that a file can say", "", "about"},
		{"seed: 7", "sede: 7", ": field sede not found"},
		{"seed: 7", "dht: 7\nsede: 7", "; line 13: field sede not found"},
		{"size: 40MB", "size: many", "many"},
		{"size: 40MB", "size: 0", "size"},
		{"size: 40MB", "size: 2TB", "size"},
		{"takes: 27s", "takes: 25h", "takes"},
		{"timeout: 1m", "timeout: 1000h", "timeout"},
		{"runs: 3", "runs: -1", "runs"},
		{"seed: 7", "mtu: -1400", "line 12: mtu -1400: want"},
		{"seed: 7", "piece_length: 100kB", "line 12: piece_length: piece length 100000: want a power of two"},
		{"{selector: adaptive}", "{selector: adaptive, piece_length: 128MiB}", "line 19: variant adaptive: piece_length: piece length 134217728: want"},
		{"runs: 3", "runs: 0", "runs"},
		{"sample: 100ms", "sample: 0s", "sample"},
		{"timeout: 1m", "timeout: 0s", "timeout"},
		{"seed: 7", "torrents: 0", "torrents"},
		{"seed: 7", "lasts: 20s", "lasts"},
		{"bfd: 200ms", "bfd: 1ms", "line 4: bfd: BFD interval"},
		{"path_lifetime: 5m37.5s", "path_lifetime: 48h", "line 5: path lifetime"},
		{"{selector: adaptive}", "{selector: adaptive, degree: 3}", "degree needs neighbours"},
		{"{selector: adaptive}", `{selector: adaptive, expect: {mbit: ">= 0.8 of nobody"}}`, `variant adaptive: expect: mbit: no variant is called "nobody"`},
		{"{selector: adaptive}", `{selector: adaptive, expect: {speed: ">= 0.8"}}`, `variant adaptive: expect: no measure is called "speed"`},
		{"{selector: adaptive}", `{selector: adaptive, baseline: true, expect: {e: ">= 0.8"}}`, "nothing is expected of a baseline"},
		{`e: ">= 0.9"`, `e: ">= 0.9 from one-path"`, "expect: e: "},
		{"{selector: adaptive}", "{name: ip, transport: tcp, traffic: []}", "variant ip: pause: "},
		{"name: leecher, as", "name: runner, as", "reserved"},
		{"start: 5s, stop: 20s", "start: 70s, stop: 80s", "1m10s is after the timeout"},
		{"start: 5s, stop: 20s", "start: 5s, stop: 2s", "stops before it starts"},
		{"start: 5s, stop: 20s, crash: 50%", "start: 5s, crash: 2s", "stops before it starts"},
		{"stop: 20s}\n  - {name: burst", "start: 25s, stop: 20s}\n  - {name: burst", "stops before it starts"},
		{"start: 5s}\nevents", "start: 30s}\nevents", "30s is after the end of the run"},
		{"sample: 100ms", "sample: 1ms", "sample"},
		{"bfd: 200ms", "bfd: often", "line 4: bfd: "},
		{"takes: 27s", "takes: 27", `folder/test.yaml, line 9: takes: time "27": want a number with ms, s, m, h or d`},
		{"takes: 27s", "takes: -27s", `line 9: takes: time "-27s": want`},
		{"takes: 27s", "takes: {}", "line 9: takes: want one value"},
		{"path_lifetime: 5m37.5s", "path_lifetime: 337", "line 5: path_lifetime: time"},
		{"timeout: 1m", "timeout: 1", "line 10: timeout: time"},
		{"sample: 100ms", "sample: 0.1", "line 13: sample: time"},
		{"delay: 10ms", "delay: 10", `line 7: delay: delay "10": want a time`},
		{"jitter: 1ms", "jitter: 1", `line 7: jitter: delay "1"`},
		{"queue: 64KiB", "queue: 64", "line 7: queue: "},
		{"rate: 2mbit", "rate: 2", "line 26: rate: "},
		{"for: 10s", "for: 10", "line 25: for: time"},
		{"every: 5s", "every: 5", "line 26: every: time"},
		{"start: 5s, stop", "start: 5, stop", "line 17: start: "},
		{"from: 1s, to: 5s", "from: 1s, to: 5", "line 30: to: time"},
		{"{selector: adaptive}", `{selector: adaptive, links: [{at: "1-ff00:0:110#1", delay: 10}]}`, "line 19: variants: delay: delay"},
		{"topology: two-paths", "topology: nowhere", "nowhere"},
		{"rate: 10mbit, delay", "rate: fast, delay", "fast"},
		{`- {at: "1-ff00:0:110#1", rate`, `- {at: "1-ff00:0:110#9", rate`, "1-ff00:0:110#9"},
		{"role: seed, args", "role: sower, args", "sower"},
		{"name: seeder, as", "name: Seeder/.., as", "name"},
		{"name: late", "name: leecher", "there are two"},
		{"from: [seeder]", "from: [late]", "late"},
		{`name: late, as: "1-ff00:0:111"`, `name: late, as: "1-ff00:0:119"`, "1-ff00:0:119"},
		{"role: leech, selector: all", "role: leech, start: 1s, selector: all", "at 0s"},
		{"role: seed, args", "role: seed, start: 1s, args", "starts at 0s, unless"},
		{"role: seed, args", "role: seed, stays: true, args", "a seed has no"},
		{"role: leech, start: 5s, stop: 20s, crash: 50%}", "role: leech, client: iperf3}", "no seed before it has client iperf3"},
		{`- {name: late, as: "1-ff00:0:111", role: leech, start: 5s, stop: 20s, crash: 50%}`, `- {name: foreign, as: "1-ff00:0:111", role: seed, client: iperf3}
  - {name: late, as: "1-ff00:0:111", role: leech, client: iperf3}
  - {name: later, as: "1-ff00:0:111", role: leech, client: iperf3}`, "serves one leecher"},
		{`- {name: late, as: "1-ff00:0:111", role: leech, start: 5s, stop: 20s, crash: 50%}`, `- {name: foreign, as: "1-ff00:0:111", role: seed, client: iperf3}
  - {name: late, as: "1-ff00:0:111", role: leech, transport: tcp}`, "no peer before it has transport tcp"},
		{"crash: 50%", "crash: 100%", "100%"},
		{"name: one-path", "name: adaptive", "there are two"},
		{"kind: bulk", "kind: bulk, rate: 1mbit", "rate"},
		{"kind: datagrams", "kind: pigeons", "pigeons"},
		{"name: burst, kind", "name: rival, kind", "there are two flows"},
		{"role: leech, selector: all", "role: leech, selector: luck", `test.yaml, line 16: peer leecher: selector: path selection "luck": want one of`},
		{"{selector: adaptive}", "{selector: luck}", `test.yaml, line 19: variant luck: selector: path selection "luck": want one of`},
		{"- {at: 5s, link", "- {link", "test.yaml, line 25: event at 1-ff00:0:110#1: want a time"},
		{"- {at: 5s, link", "- {at: 30s, link", "line 25: event at 1-ff00:0:110#1: 30s is after the end of the run"},
		{`link: "1-ff00:0:110#2"`, `link: "1-ff00:0:110#7"`, "line 26: event at 1-ff00:0:110#7: no link of topology two-paths ends at 1-ff00:0:110#7"},
		{"loss: 0.1%", "direction: out", "line 7: links: 1-ff00:0:110#1: "},
		{"what: gap, of: late", "what: luck, of: late", "line 29: measure gap-cut: "},
		{"down: true, for: 10s", "for: 10s", "property that changes"},
		{"direction: out", "direction: up", "up"},
		{"every: 5s, times: 3", "every: 1s, times: 3", "repeat"},
		{"times: 3", "times: 1000000", "bounds"},
		{`pause: "1-ff00:0:110#1", for: 15s`, `pause: "1-ff00:0:110#1"`, "pause"},
		{"what: gap", "what: luck", "luck"},
		{"what: gap", "what: first", "first has no from and no to"},
		{"what: gap, of: late", "what: gap, of: nobody", "nobody"},
		{"of: rival}", "of: burst}", "bulk"},
		{`from: 5s, to: 15s, base`, `from: 5s, to: 5s, base`, "from"},
		{"{name: gap-cut, what: gap, of: late", "{name: e, what: gap, of: late", "there are two"},
		{`gap-cut: "<= 1.0"`, `gap-cut: "about 1"`, "about 1"},
		{`gap-cut: "<= 1.0"`, `luck: "<= 1.0"`, "luck"},
		{whole, "# nothing yet", "test.yaml: nothing is in it"},
		{"seed: 7", "seed: -1", `test.yaml, line 12: seed: cannot use "-1"`},
		{"{selector: adaptive}", "{selector: adaptive, torrents: a great number}", `test.yaml, line 19: variants: torrents: cannot use "a great number"`},
		{"{selector: adaptive}", "{selector: adaptive, luck: 7}", "test.yaml, line 19: variants: field luck not found"},
	} {
		if !strings.Contains(whole, tt.old) {
			t.Fatalf("%q is not in the file", tt.old)
		}
		_, err := parseText(strings.Replace(whole, tt.old, tt.new, 1))
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%q instead of %q: %v, want something on %q", tt.new, tt.old, err, tt.says)
		} else if strings.ContainsAny(err.Error(), "\n") || strings.Contains(err.Error(), "scenario.") {
			t.Errorf("%q instead of %q: %q has several lines, or Go's types", tt.new, tt.old, err)
		}
	}
	if _, err := parseText(whole + "\n---\nabout: more\n"); err == nil {
		t.Error("two documents are accepted")
	}
	if _, err := parseText(whole + "#" + strings.Repeat("x", maxFile)); err == nil {
		t.Error("an endless file is accepted")
	}
}

func TestShippedText(t *testing.T) {
	for name, want := range map[string]string{
		"cut": "about:", "cut.yaml": "about:", "tiny4": "ASes:", "star-6": "ASes:", "two-paths.yaml": "about:", "two-paths.topo": "ASes:",
	} {
		if b, err := ShippedText(name); err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %.40q, %v", name, b, err)
		}
	}
	for name, says := range map[string]string{"two-paths": "two-paths.yaml or two-paths.topo", "../go": "no such", "cut.topo": "no such"} {
		if _, err := ShippedText(name); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want something on %q", name, err, says)
		}
	}
}

// TestTakes derives the length of a run from the links: 10 and 20 mbit lead to both leechers.
func TestTakes(t *testing.T) {
	s, err := parseText(strings.Replace(whole, "takes: 27s\n", "", 1))
	if err != nil {
		t.Fatal(err)
	}
	if want := time.Second + 2*40*8*time.Second/30; s.Takes.D().Round(time.Second) != want.Round(time.Second) {
		t.Errorf("a run takes %v, want %v", s.Takes, want)
	}
}

// A scenario has a folder in run directories, which have files and a report of their own.
func TestTakenNames(t *testing.T) {
	for _, name := range []string{"report.yaml", "lock.yaml", "run.json.yaml"} {
		_, err := Parse("folder/"+name, strings.NewReader(whole), testbed.ShippedTopology)
		if err == nil || !strings.Contains(err.Error(), "rename the file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(whole)
	f.Add("about: x\n<<: &a [*a]\n")
	for _, n := range Shipped() {
		b, err := os.ReadFile("../scenarios/" + n + ".yaml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseText(text)
		if err != nil {
			return
		}
		if _, err := s.Scaled(0.1); err != nil {
			t.Error(err)
		}
		if _, err := s.options(); err != nil {
			t.Error(err)
		}
	})
}

func TestShipped(t *testing.T) {
	for _, n := range Shipped() {
		s, err := Load(n)
		if err != nil {
			t.Error(err)
			continue
		}
		var rate int64 // of what a seed could send
		for _, l := range s.topology.Links {
			if l.Config.Rate == 0 {
				t.Errorf("%s: a link without a rate leaves nothing to compare with", n)
			}
			if len(s.Peers) > 0 && (l.A.Interface.IA == s.Peers[0].AS || l.B.Interface.IA == s.Peers[0].AS) {
				rate += l.Config.Rate
			}
		}
		if rate > 60e6 && !s.MachineBound && !s.throttled() {
			t.Errorf("%s: links of %d Mbit/s together are more than two processors carry", n, rate/1e6)
		}
	}
}

// TestCopied copies the shipped scenarios elsewhere, as one does to change them.
func TestCopied(t *testing.T) {
	for _, n := range Shipped() {
		b, err := os.ReadFile("../scenarios/" + n + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), n+".yaml")
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Load(file)
		if err != nil {
			t.Error(err)
			continue
		}
		if shipped, err := Load(n); err != nil || !reflect.DeepEqual(s, shipped) {
			t.Errorf("%s: not the shipped one (%v)", n, err)
		}
	}
}

func TestScaled(t *testing.T) {
	s, err := parseText(whole)
	if err != nil {
		t.Fatal(err)
	}
	x, err := s.Scaled(0.1)
	if err != nil {
		t.Fatal(err)
	}
	if x.Size != 4e6 || x.Events[0].At.After != 500*time.Millisecond || x.Events[0].For.D() != time.Second || x.Events[1].At.Done != 0.4 ||
		x.Peers[2].Stop.After != 2*time.Second || x.Measure[1].Base.To.D() != 500*time.Millisecond || x.Traffic[0].Stop.After != 2*time.Second {
		t.Errorf("%+v", x)
	}
	if s.Events[0].At.After != 5*time.Second || s.Peers[2].Stop.After != 20*time.Second || s.Measure[1].Base.To.D() != 5*time.Second {
		t.Error("the original has changed")
	}
}

// What run.json keeps of a scenario is the scenario, even where its topology is a file that is
// gone.
func TestKept(t *testing.T) {
	original, err := Parse("test", strings.NewReader(strings.Replace(whole, "two-paths", "gone", 1)), func(string) (testbed.Topology, error) {
		return testbed.ShippedTopology("two-paths")
	})
	if err == nil {
		original, err = original.Scaled(0.5)
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(about("braid", []Scenario{original}))
	if err != nil {
		t.Fatal(err)
	}
	var a About
	if err := json.Unmarshal(b, &a); err != nil {
		t.Fatal(err)
	}
	if a.Emulator.Quantum <= 0 || a.CPUs < 1 || a.Kernel == "" || len(a.Scenarios[0].Topology) != 2 || a.Scenarios[0].Topology[0].Rate != 10e6 {
		t.Errorf("%s", b)
	}
	s, err := a.Scenarios[0].Scenario()
	if err != nil {
		t.Fatal(err)
	}
	if s.Size != 20e6 || s.Events[0].For.D() != 5*time.Second || s.topology.Links[0].Config != original.topology.Links[0].Config || len(s.topology.ASes) != len(original.topology.ASes) {
		t.Errorf("%+v", s)
	}
}
