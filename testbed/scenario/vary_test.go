package scenario

import (
	"bytes"
	"crypto/sha1"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"braid/client"
	"braid/pathsel"
)

const varied = `
about: what a matrix and groups make
topology: two-paths
size: 1MB
takes: 5s
peers:
  - {name: seeder, as: "1-ff00:0:110", role: seed}
  - {name: leecher, as: "1-ff00:0:111", role: leech, from: [all], stays: true, args: [--verbose]}
  - {name: more, as: "1-ff00:0:111", role: leech, count: 3, from: [all], start: 2s, every: 3s, stop: 9s, crash: 50%}
matrix:
  transport: [tcp, quic]
  loss: [0.1%, 2%]
variants:
  - {name: $transport-$loss, transport: $transport, links: [{at: "1-ff00:0:110#1", loss: $loss}], args: [--max-requests, "5"]}
  - {name: all-$loss, links: [{loss: $loss}], size: 2MB, torrents: 3, leechers: 1, separate: true, mtu: 8400, router: fast}
  - {name: other, client: aria2}
smoke: {scale: 0.5, variants: [tcp-2], leechers: 2}
`

func TestVariants(t *testing.T) {
	s, err := parseText(strings.Replace(varied, "args: [--verbose]", "", 1))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	with := map[string]Scenario{}
	for _, v := range s.Variants {
		names = append(names, v.Name)
		x, err := s.in(v)
		if err != nil {
			t.Fatal(err)
		}
		with[v.Name] = x
	}
	// Templates that do not name a value are made once for it.
	if got := strings.Join(names, " "); got != "tcp-0.1 tcp-2 quic-0.1 quic-2 all-0.1 all-2 other" {
		t.Errorf("variants %s", got)
	}
	if x := with["quic-2"]; x.Peers[0].Transport != QUIC || x.topology.Links[0].Config.Loss != .02 || x.topology.Links[1].Config.Loss != 0 ||
		strings.Join(x.Peers[1].Args, " ") != "--max-requests 5" || len(x.Peers[0].Args) > 0 {
		t.Errorf("%+v", x.Peers)
	}
	x := with["all-2"]
	if x.Size != 2e6 || x.Torrents != 3 || len(x.Peers) != 4 || x.Peers[3].Name != "leecher-t3" || x.Peers[3].torrent != 3 || x.topology.Links[1].Config.Loss != .02 ||
		x.topology.Links[0].MTU != 8400 || x.topology.ASes[0].MTU != 8400 {
		t.Errorf("%+v", x)
	}
	if x := with["other"]; x.Peers[0].Client != "aria2" || x.Peers[0].Transport != TCP || !x.foreign() || !x.onIP() {
		t.Errorf("%+v", x.Peers[0])
	}
	if s.topology.Links[0].Config.Loss != 0 || s.topology.Links[0].MTU == 8400 || s.Peers[0].Transport != SCION {
		t.Error("the scenario itself has changed")
	}
	// Groups: each comes and goes a little later; a part of the data is a part for all.
	last := s.Peers[4]
	if last.Name != "more-3" || last.Start.After != 8*time.Second || last.Stop.After != 15*time.Second || last.Crash.Done != .5 || s.Peers[2].Stop.After != 9*time.Second {
		t.Errorf("%+v", last)
	}
	if !s.downloads(s.Peers[1], s.Peers[0]) || !s.serves(s.Peers[1]) || s.serves(last) {
		t.Error("who serves whom")
	}
	m, err := s.Smoky()
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Variants) != 1 || m.Variants[0].Name != "tcp-2" || m.Runs != 1 || m.Size != 5e5 {
		t.Errorf("%+v", m.Variants)
	}
	m, err = m.In("tcp-2")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(slices.DeleteFunc(m.Peers, func(p Peer) bool { return p.Role != Leech })); n != 2 {
		t.Errorf("%d leechers, want 2", n)
	}
}

// With a process for each torrent, the processes of one torrent download from each other.
func TestSeparate(t *testing.T) {
	text := `
about: x
topology: two-paths
size: 1MB
takes: 5s
torrents: 2
peers:
  - {name: seeder, as: "1-ff00:0:110", role: seed}
  - {name: a, as: "1-ff00:0:111", role: leech}
  - {name: b, as: "1-ff00:0:111", role: leech, from: [seeder, a]}
  - {name: c, as: "1-ff00:0:111", role: leech, from: [all]}
variants:
  - {name: apart, separate: true}
`
	s, err := parseText(text)
	if err == nil {
		s, err = s.In("apart")
	}
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]string{}
	for i, p := range s.Peers {
		for _, x := range s.Peers[:i] {
			if p.Role == Leech && s.downloads(p, x) {
				known[p.Name] += " " + x.Name
			}
		}
	}
	want := map[string]string{
		"a-t1": " seeder", "a-t2": " seeder", "b-t1": " seeder a-t1", "b-t2": " seeder a-t2",
		"c-t1": " seeder a-t1 b-t1", "c-t2": " seeder a-t2 b-t2",
	}
	if !maps.Equal(known, want) {
		t.Errorf("%v, want %v", known, want)
	}
	// All of one torrent is no part of what T* is about.
	m := map[string]float64{}
	r := &Record{Scenario: s, feed: true, states: newFold(s).states}
	links := []pathsel.Interface{s.topology.Links[0].A.Interface}
	r.overlay = []overlay{{"seeder", "a-t1", route{Share: 1, Links: links}}, {"a-t1", "b-t1", route{Share: 1, Links: links}}}
	if r.addSpread(m); len(m) > 0 {
		t.Errorf("figures %v", m)
	}
	for says, more := range map[string]string{
		"there are two peers of this name": "  - {name: a-t2, as: \"1-ff00:0:110\", role: seed}\n",
		"a flow has that name": `traffic:
  - {name: a-t2, kind: bulk, from: "1-ff00:0:110", to: "1-ff00:0:111", over: "1-ff00:0:110#1"}
`,
	} {
		_, err := parseText(strings.Replace(text, "variants:\n", more+"variants:\n", 1))
		if err == nil || !strings.Contains(err.Error(), "variant apart: peer a-t2: "+says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// The times of a run count from a leecher that starts at 0s, also in a variant with fewer leechers.
func TestFirstOfFew(t *testing.T) {
	text := strings.Replace(whole, "variants:\n", "variants:\n  - {name: few, leechers: 1}\n", 1)
	if _, err := parseText(text); err != nil {
		t.Error(err)
	}
	text = strings.Replace(text, "role: leech, selector: all, from: [seeder]}", "role: leech, start: 1s}", 1)
	text = strings.Replace(text, "start: 5s, stop: 20s, crash: 50%", "stop: 20s", 1)
	if _, err := parseText(text); err == nil || !strings.Contains(err.Error(), "variant few: peers: at least one leech must start at 0s") {
		t.Error(err)
	}
}

// A variant that is named twice would count each of its runs twice.
func TestOnlyTwice(t *testing.T) {
	s, err := parseText(whole)
	if err != nil {
		t.Fatal(err)
	}
	if x, err := s.Only([]string{"adaptive", "one-path", "adaptive"}); err == nil {
		t.Errorf("%d variants", len(x.Variants))
	}
}

// A quick look at some variants looks at all of them, whatever the file says of quick looks.
func TestSmokyOnly(t *testing.T) {
	s, err := parseText(strings.Replace(varied, "args: [--verbose]", "", 1))
	if err == nil {
		s, err = s.Only([]string{"quic-2", "other"})
	}
	if err == nil {
		s, err = s.Smoky()
	}
	if err != nil || len(s.Variants) != 2 || s.Variants[0].Name != "quic-2" {
		t.Errorf("%+v, %v", s.Variants, err)
	}
}

// Variants may share what they have in common, as peers and events may.
func TestAliases(t *testing.T) {
	text := strings.Replace(whole, "variants:\n", `variants:
  - &slow {name: slow, selector: all, links: &links [{rate: 5mbit}], args: [--max-paths, "2"]}
  - {name: lossy, links: *links}
  - {<<: *slow, name: again}
`, 1)
	s, err := parseText(text)
	if err != nil {
		t.Fatal(err)
	}
	slow, lossy, again := s.Variants[0], s.Variants[1], s.Variants[2]
	if len(lossy.Links) != 1 || *lossy.Links[0].change.Rate != 5e6 || lossy.Selector != "" {
		t.Errorf("%+v", lossy)
	}
	again.Name = slow.Name
	again.line, again.Links[0].line = slow.line, slow.Links[0].line
	if again.Links[0].Properties, slow.Links[0].Properties = nil, nil; !reflect.DeepEqual(again, slow) {
		t.Errorf("%+v, want %+v", again, slow)
	}
	grown := "variants:\n  - name:\n    - &a [x, x, x, x, x, x, x, x, x]\n"
	for c := 'a'; c < 'j'; c++ {
		grown += fmt.Sprintf("    - &%c [%s]\n", c+1, strings.Repeat(fmt.Sprintf("*%c, ", c), 9))
	}
	for _, endless := range []string{"variants:\n  - &a {name: x, args: [*a]}\n", grown} {
		_, err := parseText(strings.Replace(whole, "variants:\n", endless, 1))
		if err == nil || !strings.Contains(err.Error(), "line 19: variants: its aliases make it too large") {
			t.Errorf("%.40q: %v", endless, err)
		}
	}
}

// The name of a value may be the beginning of another name.
func TestMatrixNames(t *testing.T) {
	s, err := parseText(strings.Replace(whole, "variants:\n", `matrix: {s: [adaptive], size: [2MB]}
variants:
  - {name: $s-$size, selector: $s, size: $size}
`, 1))
	if err != nil {
		t.Fatal(err)
	}
	if v := s.Variants[0]; v.Name != "adaptive-2mb" || v.Size != 2e6 {
		t.Errorf("%+v", v)
	}
}

// Swarms of several transports share the links, and no more.
func TestMixed(t *testing.T) {
	s, err := parseText(strings.NewReplacer("args: [--verbose]", "", "  - {name: more", `  - {name: ip-seed, as: "1-ff00:0:110", role: seed, transport: tcp}
  - {name: ip, as: "1-ff00:0:111", role: leech, transport: tcp, from: [all]}
  - {name: more`).Replace(varied))
	if err != nil {
		t.Fatal(err)
	}
	seed, leecher, ipSeed, ip, more := s.Peers[0], s.Peers[1], s.Peers[2], s.Peers[3], s.Peers[4]
	if !s.downloads(leecher, seed) || !s.downloads(ip, ipSeed) || s.downloads(ip, seed) || s.downloads(ip, leecher) || s.downloads(more, ipSeed) || s.downloads(more, ip) {
		t.Error("who knows whom")
	}
	if opts, _, err := networkFor(s); err != nil || opts.LinksOnly || !s.onIP() || s.onlyIP() || s.serves(ip) || !s.serves(leecher) {
		t.Errorf("%v, %v, %v, %v", opts.LinksOnly, err, s.onIP(), s.onlyIP())
	}
	x, err := s.In("quic-2")
	if err != nil {
		t.Fatal(err)
	}
	if opts, _, err := networkFor(x); err != nil || !opts.LinksOnly || !x.downloads(x.Peers[3], x.Peers[0]) {
		t.Error("a variant's transport is that of all", err)
	}
}

func TestMixedMistakes(t *testing.T) {
	for _, tt := range []struct{ leecher, says string }{
		{"{name: l, as: \"1-ff00:0:111\", role: leech, transport: tcp, from: [s]}", "need the same transport"},
		{"{name: l, as: \"1-ff00:0:111\", role: leech, transport: quic}", "no peer before it has transport quic"},
		{"{name: l, as: \"1-ff00:0:111\", role: leech, client: aria2, transport: tcp, from: [all]}", "with other clients"},
		{"{name: l, as: \"1-ff00:0:111\", role: leech, from: [all]}", ""},
		{"{name: l, as: \"1-ff00:0:111\", role: leech}\ntracker: true", ""},
		{"{name: l, as: \"1-ff00:0:111\", role: leech}\ndht: true", ""},
		{"{name: l, as: \"1-ff00:0:111\", role: leech}\ndht: true\ntracker: true", "introduced in one way"},
		{"{name: l, as: \"1-ff00:0:111\", role: leech, transport: tcp}\ndht: true", "dht: true is for peers on SCION"},
		{"{name: l, as: \"1-ff00:0:111\", role: leech, transport: tcp}\ntracker: true", "tracker: true is for peers on SCION"},
		{"{name: l, as: \"1-ff00:0:111\", role: leech, transport: webrtc}\ntracker: true", "tracker: true is for peers on SCION"},
		{"{name: l, as: \"1-ff00:0:111\", role: leech, transport: gateway}", "gateway needs tracker: true"},
		{"{name: l, as: \"1-ff00:0:111\", role: leech, transport: web}", "no peer before it has transport web"},
		{"{name: l, as: \"1-ff00:0:111\", role: leech}\ntracker: true\nvariants: [{name: w, transport: web}]", "without a tracker"},
		{"{name: l, as: \"1-ff00:0:111\", role: leech}\ntorrents: 2\nvariants: [{name: w, transport: web}]", "one torrent"},
		{"{name: l, as: \"1-ff00:0:111\", role: leech}\ntracker: true\nvariants: [{name: g, transport: gateway}]", ""},
	} {
		_, err := parseText("about: x\ntopology: two-paths\nsize: 1MB\ntakes: 5s\npeers:\n  - {name: s, as: \"1-ff00:0:110\", role: seed}\n  - " + tt.leecher + "\n")
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %q", tt.leecher, err, tt.says)
		}
	}
}

// Web seeds and gateways are on SCION, peers on WebRTC on IP. Only seeds are web seeds, a leecher
// behind a gateway serves nobody, and peers on WebRTC listen nowhere but meet.
func TestWays(t *testing.T) {
	for _, tt := range []struct {
		transport            string
		onIP, passesOn, meet bool
	}{{SCION, false, true, false}, {Web, false, false, false}, {Gateway, false, false, false}, {TCP, true, true, false}, {WebRTC, true, false, true}} {
		p := func(name, role string) Peer {
			return Peer{Name: name, Role: role, Client: Braid, Transport: tt.transport}
		}
		seed, first, second := p("seed", Seed), p("first", Leech), p("second", Leech)
		second.From = []string{everybody}
		s := Scenario{Peers: []Peer{seed, first, second}}
		if seed.onIP() != tt.onIP || s.meets(second, first) != tt.meet || !s.serves(seed) || !s.downloads(second, seed) ||
			s.downloads(second, first) != tt.passesOn || s.serves(first) != tt.passesOn {
			t.Errorf("%s: on IP %v, meet %v; the first leecher serves %v", tt.transport, seed.onIP(), s.meets(second, first), s.serves(first))
		}
	}
}

// Trackers tell other clients and peers on WebRTC of each other, so each of them has all others as
// neighbours.
func TestDegree(t *testing.T) {
	for _, tt := range []struct {
		client, transport string
		want              float64
	}{{Braid, SCION, 1.5}, {Braid, TCP, 1.5}, {"aria2", TCP, 3}, {Braid, WebRTC, 3}} {
		s := Scenario{Peers: []Peer{{Name: "seed", Role: Seed}, {Name: "a", Role: Leech}, {Name: "b", Role: Leech}, {Name: "c", Role: Leech}}}
		for i := range s.Peers {
			s.Peers[i].Client, s.Peers[i].Transport = tt.client, tt.transport
		}
		if got := s.degree(); got != tt.want {
			t.Errorf("%s over %s: %v neighbours, want %v", tt.client, tt.transport, got, tt.want)
		}
	}
}

// A torrent with pieces shorter than a block has the hash of each.
func TestSmallPieces(t *testing.T) {
	h := fixtures{scratch: t.TempDir(), datasets: map[dataKey]*dataset{}}
	d, err := h.dataset(t.Context(), Scenario{Seed: 1, Settings: Settings{Size: 20_000, Pieces: 8 << 10, Torrents: 1}})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(d.dir, d.files[0]))
	if err != nil {
		t.Fatal(err)
	}
	torrent, err := os.ReadFile(d.torrents[0])
	if err != nil {
		t.Fatal(err)
	}
	s, err := client.ParseTorrent(torrent)
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	for piece := range slices.Chunk(data, 8<<10) {
		sum := sha1.Sum(piece)
		want = append(want, sum[:]...)
	}
	if s.Layout.PieceLength != 8<<10 || s.InfoHash != d.infoHash || !bytes.Equal(s.Info.Pieces, want) {
		t.Errorf("pieces of %d bytes, info hash %s and %s", s.Layout.PieceLength, s.InfoHash, d.infoHash)
	}
}

// Variants on one network come one after another in every round, which is counted in the time that
// it takes. A network announces the rates and delays that its links have at its start.
func TestTurns(t *testing.T) {
	s, err := parseText(`
about: three networks
topology: two-paths
size: 1MB
takes: 5s
runs: 3
peers:
  - {name: seeder, as: "1-ff00:0:110", role: seed}
  - {name: leecher, as: "1-ff00:0:111", role: leech}
variants:
  - {name: a}
  - {name: b, router: fast}
  - {name: c, transport: tcp, size: 2MB}
  - {name: d, links: [{loss: 1%, queue: 50ms}]}
  - {name: e, router: fast, links: [{jitter: 5ms}]}
  - {name: f, links: [{rate: 5mbit}]}
  - {name: g, links: [{rate: 5mbit}, {loss: 1%}]}
  - {name: h, links: [{delay: 5ms}]}
`)
	if err != nil {
		t.Fatal(err)
	}
	turns, err := s.turns()
	if err != nil {
		t.Fatal(err)
	}
	var names string
	for _, x := range turns {
		names += x.variant.Name
	}
	if names != "adbecfgh" || turns[4].Size != 2e6 {
		t.Errorf("turns %s", names)
	}
	network := startSCION + 2*startAS
	if got, want := s.Estimate(0), 24*(5*time.Second+aroundRun)+3*(4*network+startIP); got != want {
		t.Errorf("three runs take %v, want %v", got, want)
	}
	one, err := s.Only([]string{"a", "d"})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := one.Estimate(10), 20*(5*time.Second+aroundRun)+network; got != want {
		t.Errorf("ten runs of two variants take %v, want %v", got, want)
	}
}

func TestVariantMistakes(t *testing.T) {
	text := strings.Replace(varied, "args: [--verbose]", "", 1)
	for _, tt := range []struct{ old, new, says string }{
		{"transport: [tcp, quic]", "transport: tcp", "list"},
		{"transport: [tcp, quic]", "transport: [tcp, pigeon]", "pigeon"},
		{"loss: [0.1%, 2%]", "loss: [0.1%, much]", "much"},
		{"loss: [0.1%, 2%]", "loss: ['a b']", "without spaces"},
		{"router: fast", "router: faster", "faster"},
		{"mtu: 8400", "mtu: 9400", "mtu"},
		{"size: 2MB, torrents", "sizes: 2MB, torrents", "sizes"},
		{"count: 3", "count: 300", "1 to 64"},
		{"count: 3, ", "", "every needs count"},
		{"client: aria2", "client: napster", "napster"},
		{"variants: [tcp-2]", "variants: [tcp-3]", "tcp-3"},
		{"scale: 0.5", "scale: 5", "smoke"},
		{"name: leecher,", "name: all,", "reserved"},
		{"name: $transport-$loss, transport: $transport", "name: $transport-$loss, neighbours: lucky, degree: 2", "lucky"},
		{"stays: true", "stays: true, transport: quic", "no peer before it has transport quic"},
		{"stays: true", "stays: true, args: [-v]", "default settings"},
	} {
		if !strings.Contains(text, tt.old) {
			t.Fatalf("%q is not in the file", tt.old)
		}
		_, err := parseText(strings.Replace(text, tt.old, tt.new, 1))
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%q instead of %q: %v, want something on %q", tt.new, tt.old, err, tt.says)
		}
	}
	if _, err := parseText("about: x\ntopology: two-paths\ntakes: 5s\n"); err == nil {
		t.Error("a scenario of nothing")
	}
	// Without peers there are no data, and so no part of them.
	const traffic = `
about: x
topology: two-paths
lasts: 5s
traffic:
  - {name: rival, kind: bulk, from: "1-ff00:0:110", to: "1-ff00:0:111", over: "1-ff00:0:110#1", start: 1s, stop: 2s}
events:
  - {at: 3s, link: "1-ff00:0:110#1", down: true}
`
	for _, never := range [][2]string{{"", ""}, {"start: 1s", "start: 30%"}, {"stop: 2s", "stop: 30%"}, {"at: 3s", "at: 30%"}} {
		_, err := parseText(strings.Replace(traffic, never[0], never[1], 1))
		if (err != nil) != (never[0] != "") || err != nil && !strings.Contains(err.Error(), "without peers") {
			t.Errorf("%q: %v", never[1], err)
		}
	}
}
