package scenario

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"braid/node/event"
	"braid/pathsel"
	"braid/testbed"
	"braid/testbed/linkemu"
)

const foldText = `about: x
topology: two-paths
size: 2MB
takes: 10s
links:
  - {at: "1-ff00:0:110#1", rate: 8mbit}
  - {at: "1-ff00:0:110#2", rate: 8mbit}
peers:
  - {name: seeder, as: "1-ff00:0:110", role: seed}
  - {name: leecher, as: "1-ff00:0:111", role: leech}
events:
  - {at: 1s, link: "1-ff00:0:110#1", down: true, for: 1s}
  - {at: 3s, pause: "1-ff00:0:110#2", for: 1s}
measure:
  - {name: first, what: rate, over: "1-ff00:0:110#1"}
  - {name: away, what: out, over: "1-ff00:0:110#1", from: 500ms}
`

// A leecher in the AS of a seed has a path without links, which has no limit. So the run has none,
// though the links limit the other leecher.
func TestLeecherBesideASeed(t *testing.T) {
	s, err := parseText(`
about: x
topology: two-paths
size: 2MB
takes: 10s
peers:
  - {name: seeder, as: "1-ff00:0:110", role: seed}
  - {name: near, as: "1-ff00:0:110", role: leech}
  - {name: far, as: "1-ff00:0:111", role: leech}
`)
	if err != nil {
		t.Fatal(err)
	}
	f := newFold(s)
	lines := []Line{
		{Kind: "path", What: "near", To: "seeder", route: route{Share: 1}},
		{Kind: "path", What: "far", To: "seeder", route: route{Share: 1, Links: []pathsel.Interface{{IA: home, ID: 1}}}},
	}
	for _, name := range []string{"near", "far"} {
		for at := range 5 {
			p := &event.Progress{T: float64(at), InfoHash: "h", Fetched: int64(at) * 1e6}
			lines = append(lines, Line{Kind: "peer", What: name, T: float64(at), said: p})
		}
	}
	for _, l := range lines {
		if err := f.add(l); err != nil {
			t.Fatal(err)
		}
	}
	r, err := f.record()
	if err != nil {
		t.Fatal(err)
	}
	m := r.Measures()
	for _, name := range []string{"e", "e-payload", "t-star"} {
		if v, ok := m[name]; ok {
			t.Errorf("%s is %v", name, v)
		}
	}
	if limit := r.limit(); limit != nil {
		t.Errorf("the limit is %v", limit)
	}
}

// A run is folded twice: while its samples are written, and from the file. Both give the same
// record, so every figure can be computed again from a run's files.
func TestRecordAgain(t *testing.T) {
	s, err := Parse("x.yaml", strings.NewReader(foldText), shippedTopology)
	if err == nil {
		s, err = s.In("default")
	}
	if err != nil {
		t.Fatal(err)
	}
	name, begun := filepath.Join(t.TempDir(), samplesFile), time.Now()
	w, err := newSampleWriter(name, s, begun)
	if err != nil {
		t.Fatal(err)
	}
	write := func(at float64, l Line) { w.writeAt(begun.Add(time.Duration(at*float64(time.Second))), l) }
	say := func(at float64, e any) {
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		write(at, Line{Kind: "peer", What: "leecher", Event: b, said: e})
	}
	ends := func(n uint64) (near, far pathsel.Interface) {
		return pathsel.Interface{IA: home, ID: n}, pathsel.Interface{IA: abroad, ID: n}
	}
	look := func(at float64) {
		for n := range uint64(2) {
			near, _ := ends(n + 1)
			write(at, Line{Kind: "link", At: near.String(), Bytes: int64(at * 1e6), Packets: uint64(at * 100), Late: uint64(at), BFD: new(int(at))})
		}
		for i, p := range []string{"1-ff00:0:110 br-1", "1-ff00:0:110 cs-1", "seeder", "leecher", "runner"} {
			write(at, Line{Kind: "process", What: p, CPU: at * float64(i+1) / 100, PSS: 1 << 20})
		}
		write(at, Line{Kind: "machine", CPU: at, AllCPU: 2 * at, RealTime: true})
	}
	look(0)
	for n := range uint64(2) {
		near, far := ends(n + 1)
		write(0, Line{
			Kind: "path", What: "leecher", To: "seeder", route: route{
				Fingerprint: pathsel.Fingerprint(fmt.Sprint("f", n)), Share: .9, Acks: .01,
				Interfaces: []pathsel.Interface{far, near}, Links: []pathsel.Interface{near}, Back: []pathsel.Interface{far},
			},
		})
	}
	near, _ := ends(1)
	near2, _ := ends(2)
	down, up := true, false
	step := event.PathStep{Event: "path-opened", InfoHash: "h", T: .1, Peer: "s", Fingerprint: "f0", Reason: "first"}
	say(.2, &step)
	for i := range 50 {
		at := .3 + float64(i)/10
		switch i {
		case 10:
			write(at, Line{Kind: "event", What: "link", At: near.String(), Change: &testbed.LinkChange{Interface: near, Down: &down}})
			failed := step
			failed.Event, failed.T = "path-failed", at-.1
			say(at, &failed)
		case 20:
			write(at, Line{Kind: "event", What: "link", At: near.String(), Change: &testbed.LinkChange{Interface: near, Down: &up}})
		case 30:
			write(at, Line{Kind: "event", What: "pause", At: near2.String(), route: route{Interfaces: []pathsel.Interface{near2}}})
		case 40:
			write(at, Line{Kind: "event", What: "resume", At: near2.String()})
		}
		if i%5 == 0 {
			look(at)
		}
		bytes := uint64(i) * 20_000
		paths := []event.Path{{Peer: "s", Fingerprint: "f0", BytesRead: bytes, Handshake: 30}, {Peer: "s", Fingerprint: "f1", BytesRead: bytes, Handshake: 40}}
		// An event is under way for a while, except the luckiest.
		say(at+.01*float64(i%3), &event.Progress{Event: "progress", InfoHash: "h", T: at - .1, Fetched: int64(2 * bytes), Wasted: 5, Paths: paths})
		say(at+.03, &event.Piece{Event: "piece", InfoHash: "h", T: at - .1, Piece: i})
	}
	say(5.4, &event.Done{Event: "done", InfoHash: "h", Seconds: 5.2, Fetched: 2e6})
	write(5.5, Line{Kind: "event", What: "end", At: "leecher"})
	look(5.5)
	if err := w.close(); err != nil {
		t.Fatal(err)
	}
	live, err := w.fold.record()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	again, err := ReadRecord(s, file)
	if err != nil {
		t.Fatal(err)
	}
	want := live.Measures()
	if got := again.Measures(); !reflect.DeepEqual(got, want) {
		t.Errorf("figures from the file: %v\n%v", want, got)
	}
	if a, b := live.cpuBound(), again.cpuBound(); !reflect.DeepEqual(a, b) {
		t.Errorf("%q, from the file %q", a, b)
	}
	limit := live.limit()
	if steps := again.limit(); !reflect.DeepEqual(limit, steps) {
		t.Errorf("the limit %v, from the file %v", limit, steps)
	}
	// The record is what the samples say, in the scenario's time: the second progress has the first
	// payload.
	l := live.Leechers[0]
	if !near6(live.Zero, .41) || !near6(l.Start, .1-.41) || !l.Complete || l.Payload.before(live.End) != 2e6 || len(l.pieces) != 50 {
		t.Errorf("zero %v, leecher %+v", live.Zero, l)
	}
	if n := len(live.states); n != 5 || live.states[1].capacity[near] != 0 || live.states[2].capacity[near] != 8e6 || live.states[3].capacity[near2] != 0 {
		t.Errorf("%d states: %+v", n, live.states)
	}
	if !near6(live.CPU, .5) || want["cpu-emulator"] <= want["cpu-routers"] || want["away"] <= 0 || want["first"] <= 0 {
		t.Errorf("CPU %v, figures %v", live.CPU, want)
	}
	if p := l.Paths[0]; p.Handshake != 30 || len(p.Interfaces) != 2 {
		t.Errorf("%+v", p)
	}
}

const home, abroad = pathsel.IA(1<<48 | 0xff00_0000_0110), pathsel.IA(1<<48 | 0xff00_0000_0111)

func near6(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 }

// A change in one direction concerns what that end sends; one that is undone gives back the
// capacity.
func TestLinkStates(t *testing.T) {
	s, err := Parse("x.yaml", strings.NewReader(foldText), shippedTopology)
	if err != nil {
		t.Fatal(err)
	}
	l := s.topology.Links[0]
	a, b := l.A.Interface, l.B.Interface
	for direction, want := range map[string][2]float64{"out": {1e6, 8e6}, "in": {8e6, 1e6}, "both": {1e6, 1e6}, "": {1e6, 1e6}} {
		f := newFold(s)
		rate := int64(1e6)
		if err := f.add(Line{Kind: "event", What: "link", Change: &testbed.LinkChange{Interface: a, Direction: direction, Rate: &rate}}); err != nil {
			t.Fatal(err)
		}
		if c := f.states[1].capacity; c[a] != want[0] || c[b] != want[1] {
			t.Errorf("%q: %v and %v, want %v", direction, c[a], c[b], want)
		}
	}
	if c := newFold(s).configs[a]; c != (linkemu.Config{Rate: 8e6, Delay: l.Config.Delay}) {
		t.Errorf("%+v", c)
	}
	// What no run says is refused, and what is not known is left out.
	f := newFold(s)
	if f.add(Line{T: 1e9}) == nil || f.add(Line{Kind: "peer", What: "leecher", Event: json.RawMessage(`{"event":"progress","t":1e300}`)}) == nil {
		t.Error("a time that no run has")
	}
	if err := f.add(Line{Kind: "peer", What: "leecher", Event: json.RawMessage(`{"event":"later"}`)}); err != nil {
		t.Error(err)
	}
	if _, err := f.record(); err == nil {
		t.Error("a record without payload")
	}
}

// Each change of a large network is kept with the states of all links, so few of them must be too
// many.
func TestManyLinkStates(t *testing.T) {
	var s Scenario
	for n := range 4000 {
		s.topology.Links = append(s.topology.Links, testbed.Link{
			A: testbed.LinkEnd{Interface: pathsel.Interface{IA: home, ID: uint64(n + 1)}},
			B: testbed.LinkEnd{Interface: pathsel.Interface{IA: abroad, ID: uint64(n + 1)}},
		})
	}
	f := newFold(s)
	for n := range 200 {
		if f.add(Line{Kind: "event", What: "pause", At: "somewhere"}) != nil {
			if n < 50 {
				t.Errorf("refused after %d changes", n)
			}
			return
		}
	}
	t.Errorf("kept %d states of %d links", len(f.states), len(s.topology.Links))
}

// Another client is observed from outside: it is done once, with all of its torrents.
func TestDoneWithAllTorrents(t *testing.T) {
	s, err := Parse("x.yaml", strings.NewReader(strings.Replace(foldText, "size: 2MB", "size: 2MB\ntorrents: 2", 1)), shippedTopology)
	if err != nil {
		t.Fatal(err)
	}
	for infoHash, want := range map[string]bool{"": true, "h": false} {
		f := newFold(s)
		if err := f.addSaid("leecher", 1, &event.Done{InfoHash: infoHash, Seconds: 1, Fetched: 4e6}); err != nil {
			t.Fatal(err)
		}
		if got := f.leechers["leecher"].Complete; got != want {
			t.Errorf("after %q is done: complete is %v, want %v", infoHash, got, want)
		}
	}
}

// What torrents wasted is summed, as what they fetched is.
func TestWastedOfAllTorrents(t *testing.T) {
	s, err := Parse("x.yaml", strings.NewReader(strings.Replace(foldText, "size: 2MB", "size: 2MB\ntorrents: 2", 1)), shippedTopology)
	if err != nil {
		t.Fatal(err)
	}
	f := newFold(s)
	for _, p := range []event.Progress{{InfoHash: "a", T: 1, Fetched: 10, Wasted: 3}, {InfoHash: "b", T: 1, Fetched: 20, Wasted: 5}, {InfoHash: "a", T: 2, Fetched: 30, Wasted: 4}} {
		if err := f.addSaid("leecher", 1, &p); err != nil {
			t.Fatal(err)
		}
	}
	if l := f.leechers["leecher"]; l.Wasted != 9 || total(l.fetched) != 50 {
		t.Errorf("%v wasted of %v, want 9 of 50", l.Wasted, total(l.fetched))
	}
}

// Each torrent of a leecher selects and uses a path by itself.
func TestPathOfTwoTorrents(t *testing.T) {
	s, err := Parse("x.yaml", strings.NewReader(strings.Replace(foldText, "size: 2MB", "size: 2MB\ntorrents: 2", 1)), shippedTopology)
	if err != nil {
		t.Fatal(err)
	}
	f := newFold(s)
	say := func(at float64, e any) {
		if err := f.addSaid("leecher", at, e); err != nil {
			t.Fatal(err)
		}
	}
	step := func(at float64, torrent, what string) {
		say(at, &event.PathStep{Event: "path-" + what, InfoHash: torrent, T: at, Peer: "s", Fingerprint: "f0"})
	}
	for _, torrent := range []string{"a", "b"} {
		step(0, torrent, "selected")
		step(0, torrent, "opened")
	}
	step(2, "a", "parked")
	step(8, "b", "parked")
	for i, torrent := range []string{"a", "b"} {
		paths := []event.Path{{Peer: "s", Fingerprint: "f0", BytesRead: 100, Handshake: 20, PacketsSent: uint64(i + 1)}}
		say(10, &event.Done{InfoHash: torrent, Seconds: 10, Fetched: 100, Paths: paths})
	}
	r, err := f.record()
	if err != nil {
		t.Fatal(err)
	}
	r.Leechers[0].routes = []route{{Fingerprint: "f0"}}
	if all, needless := r.changes(); all != 2 || needless != 1 {
		t.Errorf("%d changes, %d of them needless, want 2 and 1", all, needless)
	}
	if used := r.Leechers[0].used()["f0"]; used != 10 {
		t.Errorf("in use for %v s, want 2 and 8", used)
	}
}
