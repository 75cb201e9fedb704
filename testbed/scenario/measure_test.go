package scenario

import (
	"encoding/json"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"braid/node/event"
	"braid/pathsel"
	"braid/testbed"
)

// steady is a leecher over two links of 8 Mbit/s, a share of 1, from -1 s to 20 s: 1 MB a second on
// each from 0 s on. Link 1 is down from 5 s to 10 s.
func steady() *Record {
	one, two := way(1, 1), way(1, 2)
	both := map[pathsel.Interface]float64{link(1): 8e6, link(2): 8e6}
	half := map[pathsel.Interface]float64{link(1): 0, link(2): 8e6}
	l := &Leecher{Name: "leecher", Start: -1, End: 20, Complete: true, routes: []route{one, two}}
	p1 := &Path{Key: pathsel.Key{Peer: "s", Path: one.Fingerprint}, Interfaces: one.Interfaces}
	p2 := &Path{Key: pathsel.Key{Peer: "s", Path: two.Fingerprint}, Interfaces: two.Interfaces}
	l.Paths = []*Path{p1, p2}
	for i := range 201 {
		t := float64(i) / 10
		first := t
		if t > 5 {
			first = max(5, t-5)
		}
		p1.Read.add(t, first*1e6)
		p2.Read.add(t, t*1e6)
		l.Payload.add(t, (first+t)*1e6)
	}
	l.Choices = []Choice{
		{-.9, p1, "selected", ""}, {-.9, p2, "selected", ""}, {-.8, p1, "opened", ""}, {-.8, p2, "opened", ""},
		{5.5, p1, "failed", ""}, {6.5, p1, "selected", ""}, {6.6, p1, "failed", ""}, {10.2, p1, "selected", ""}, {10.3, p1, "opened", ""},
		{12, p2, "parked", ""}, {13, p2, "probed", ""}, {13.5, p2, "parked", ""}, {14, p2, "returned", ""}, {20.5, p1, "closed", ""},
	}
	return &Record{
		Leechers: []*Leecher{l}, End: 20,
		states: []linkState{{-2, both, nil}, {5, half, map[pathsel.Interface]bool{link(1): true}}, {10, both, nil}},
	}
}

// payload makes a series of pairs of times and amounts.
func payload(pairs ...float64) (s Series) {
	for i := 0; i < len(pairs); i += 2 {
		s.add(pairs[i], pairs[i+1])
	}
	return s
}

func TestFigures(t *testing.T) {
	r := steady()
	at := func(n int) *At { return &At{link(n)} }
	const s = Duration(time.Second)
	for _, tt := range []struct {
		m    Measure
		want float64
	}{
		{Measure{What: "efficiency", From: s, To: 5 * s}, 1},
		{Measure{What: "efficiency", From: 5 * s, To: 10 * s}, 1},
		{Measure{What: "efficiency", Of: "leecher"}, 35. / 37}, // from its start, a second before the first byte
		{Measure{What: "efficiency", Of: "leecher", From: 5 * s}, 1},
		{Measure{What: "rate", From: s, To: 5 * s}, 16},
		{Measure{What: "rate", From: 6 * s, To: 9 * s, Of: "leecher"}, 8},
		{Measure{What: "rate", From: 6 * s, To: 9 * s, Over: at(1)}, 0},
		{Measure{What: "rate", From: 6 * s, To: 9 * s, Over: at(2)}, 8},
		{Measure{What: "ratio", From: 6 * s, To: 9 * s, Base: &Window{s, 5 * s}}, .5},
		// The base window goes on after the end of the run.
		{Measure{What: "ratio", From: 6 * s, To: 9 * s, Base: &Window{11 * s, 29 * s}}, .5},
		{Measure{What: "gap"}, .1},
		{Measure{What: "first"}, 1.1},
		{Measure{What: "out", From: 5 * s, Over: at(1)}, .5},
		{Measure{What: "back", From: 10 * s, Over: at(1)}, .1},
	} {
		got := figures[tt.m.What].of(r, tt.m)
		if !(math.Abs(got-tt.want) <= 1e-3) {
			t.Errorf("%+v: %v, want %v", tt.m, got, tt.want)
		}
	}
	for _, m := range []Measure{
		{What: "out", From: 15 * s, Over: at(1)}, {What: "back", From: 20 * s, Over: at(1)}, {What: "rate", From: 30 * s}, {What: "gap", From: 30 * s},
		{What: "efficiency", From: 30 * s}, {What: "efficiency", Of: "leecher", From: 30 * s}, {What: "efficiency", Of: "nobody"},
		{What: "rate", Of: "nobody"},
	} {
		if v := figures[m.What].of(r, m); finite(v) {
			t.Errorf("%+v: %v where there is nothing to measure", m, v)
		}
	}
	m := r.measure(nil)
	// 35 MB of 21 s over two links, of which one was away for 5 s.
	if !near(m["e"], 35./37) || !near(m["e-payload"], 1) || m["seconds"] != 21 {
		t.Errorf("%v", m)
	}
	// Failed, again, failed, again, which the link explains; parked and returned, which nothing
	// does.
	if all, needless := r.changes(); all != 6 || needless != 2 {
		t.Errorf("%d changes, %d of them needless", all, needless)
	}
}

// Any property of a link that the scenario changes explains changes of the selection, in either
// direction, and on a path to another leecher, too.
func TestExplained(t *testing.T) {
	s, err := parseText(foldText)
	if err != nil {
		t.Fatal(err)
	}
	near, far := pathsel.Interface{IA: home, ID: 1}, pathsel.Interface{IA: abroad, ID: 1}
	for _, to := range []string{"seeder", "another"} {
		for _, change := range []testbed.LinkChange{
			{}, {Rate: new(int64(1e6))}, {Delay: new(90 * time.Millisecond)}, {Jitter: new(time.Second)}, {Loss: new(.5)},
			{QueueBytes: new(1000)}, {MTU: new(1300)}, {Delay: new(time.Second), Direction: "in"}, {Delay: new(time.Second), Direction: "out"},
		} {
			f := newFold(s)
			change.Interface = near
			step := func(at float64, what string) Line {
				e := &event.PathStep{Event: "path-" + what, InfoHash: "h", T: at, Peer: "s", Fingerprint: "f"}
				return Line{T: at, Kind: "peer", What: "leecher", said: e}
			}
			for _, l := range []Line{
				{Kind: "path", What: "leecher", To: to, route: route{
					Fingerprint: "f", Share: 1, Interfaces: []pathsel.Interface{far, near}, Links: []pathsel.Interface{near}, Back: []pathsel.Interface{far},
				}},
				step(0, "selected"), step(0, "opened"),
				{T: 5, Kind: "event", What: "link", At: near.String(), Change: &change},
				step(6, "parked"),
				{T: 20, Kind: "peer", What: "leecher", said: &event.Done{InfoHash: "h", Seconds: 20, Fetched: 2e6}},
			} {
				if err := f.add(l); err != nil {
					t.Fatal(err)
				}
			}
			r, err := f.record()
			if err != nil {
				t.Fatal(err)
			}
			want := 0
			if change == (testbed.LinkChange{Interface: near}) {
				want = 1
			}
			if all, needless := r.changes(); all != 1 || needless != want {
				t.Errorf("to %s, %v: %d changes, %d of them needless, want %d", to, change, all, needless, want)
			}
		}
	}
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// Bytes over a path to another leecher count for its interfaces, too.
func TestOverALeechersPath(t *testing.T) {
	r := steady()
	l := r.Leechers[0]
	l.routes = l.routes[1:] // from seeds
	const s = Duration(time.Second)
	if got := rate(r, Measure{Over: &At{link(1)}, From: s, To: 5 * s}); !near(got, 8) {
		t.Errorf("%v Mbit/s over a path to a leecher, want 8", got)
	}
	// On IP a path has no fingerprint and no interfaces.
	l.Paths[1].Key.Path, l.Paths[1].Interfaces, l.routes[0].Fingerprint = "", nil, ""
	if got := rate(r, Measure{Over: &At{link(2)}, From: s, To: 5 * s}); !near(got, 8) {
		t.Errorf("%v Mbit/s on IP, want 8", got)
	}
}

// A second in which nothing comes is a gap, wherever the window begins.
func TestGap(t *testing.T) {
	l := &Leecher{Name: "l", End: 10}
	for _, x := range []float64{0, 1, 2, 4.5, 5, 6, 7, 8, 9, 10} {
		l.Payload.add(x, float64(int64(x*10)+1))
	}
	r := &Record{Leechers: []*Leecher{l}, End: 10}
	for _, tt := range []struct{ from, to, want float64 }{{0, 0, 2.5}, {2.5, 0, 2}, {0, 3.5, 1.5}, {5, 10, 1}} {
		m := Measure{From: Duration(tt.from * 1e9), To: Duration(tt.to * 1e9)}
		if got := gap(r, m); !near(got, tt.want) {
			t.Errorf("gap from %v to %v: %v, want %v", tt.from, tt.to, got, tt.want)
		}
	}
}

// A flow that gets a third of a link that two use has two thirds of its fair share, and counts for
// the link.
func TestShare(t *testing.T) {
	r := steady()
	f := &Flow{Traffic: Traffic{Name: "rival", Kind: Bulk}, route: way(1, 2), Start: 0, End: 4}
	for i := range 5 {
		f.Received.add(float64(i), float64(i)*1e6/3)
	}
	r.Flows = []*Flow{f}
	if v := share(r, Measure{Of: "rival"}); !(math.Abs(v-2./3) <= 1e-3) {
		t.Errorf("share %v", v)
	}
	if v := share(r, Measure{Of: "another"}); finite(v) {
		t.Errorf("a share of a flow whose time never came: %v", v)
	}
	// What the links carry does not grow by the flow, what comes does.
	if v := efficiency(r, Measure{From: Duration(time.Second), To: Duration(3 * time.Second)}); !(math.Abs(v-(2+1./3)/2) <= 1e-3) {
		t.Errorf("efficiency %v", v)
	}
	// A leecher is compared with the links that it has to itself, whatever the flow could use beside.
	f.route = way(1, 3)
	for i := range r.states {
		r.states[i].capacity[link(3)] = 8e6
	}
	alone := Measure{Of: "leecher", From: Duration(time.Second), To: Duration(3 * time.Second)}
	if v := efficiency(r, alone); !(math.Abs(v-1) <= 1e-3) {
		t.Errorf("efficiency of one leecher %v", v)
	}
	f.route = way(1, 2)
	// Datagrams have their rate in advance.
	f.Kind, f.Rate = Datagrams, 4e6
	if v := r.integrate(1, 3, r.carriesAll); !near(v, 2*12e6) {
		t.Errorf("%v bits besides datagrams", v)
	}
}

// A download that takes long to begin and comes in one moment has a time, and no rates that are
// infinite.
func TestOneMoment(t *testing.T) {
	one := way(1, 1)
	p := &Path{Key: pathsel.Key{Peer: "s", Path: one.Fingerprint}}
	r := &Record{
		Leechers: []*Leecher{{
			Name: "leecher", Start: -20, Complete: true, routes: []route{one}, Payload: payload(0, 1e6),
			Choices: []Choice{{-19, p, "opened", ""}, {-12, p, "parked", ""}, {-10, p, "returned", ""}},
		}},
		states: []linkState{{t: -21, capacity: map[pathsel.Interface]float64{link(1): 8e6}}},
	}
	m := r.measure(nil)
	if m["seconds"] != 20 || m["t-star"] != 1 {
		t.Errorf("%v", m)
	}
	if _, err := json.Marshal(m); err != nil {
		t.Errorf("%v: %v", m, err)
	}
}

func TestSummary(t *testing.T) {
	s := Scenario{Name: "x", Variants: []Variant{{Name: "a"}, {Name: "b"}}, Expect: map[string]string{"e": ">= 0.9", "back": "<= 1"}}
	var results []Result
	for i, e := range []float64{.8, .95, .91} {
		results = append(results, Result{Scenario: "x", Variant: "a", Run: i + 1, Figures: map[string]float64{"e": e}, Verified: 1, Leechers: 1})
	}
	results[1].CPUBound = []string{"busy"}
	results[2].Figures["back"] = .5
	got := Summarise([]Scenario{s}, results)
	if len(got) != 1 || got[0].Runs != 3 || got[0].CPUBound != 1 || !got[0].Verified || !reflect.DeepEqual(got[0].Figures["e"], RangeOf([]float64{.8, .95, .91})) {
		t.Fatalf("%+v", got)
	}
	// What was not measured in every run is not as expected.
	if e := got[0].Expected; len(e) != 2 || e[0] != (Expected{"back", "<= 1", false}) || e[1] != (Expected{"e", ">= 0.9", true}) {
		t.Errorf("%+v", e)
	}
	// A run that failed was over early, perhaps, but not as expected.
	results[0].Failed = "peer leecher ended"
	if e := Summarise([]Scenario{s}, results)[0].Expected; e[1].Met {
		t.Errorf("%+v with a run that failed", e)
	}
	// The table says so, too, even if no run has the figure.
	delete(results[2].Figures, "back")
	var b strings.Builder
	if err := Table(&b, Summarise([]Scenario{s}, results)); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`back <= 1 +- missed`).MatchString(b.String()) {
		t.Errorf("an expectation without a figure does not show:\n%s", b.String())
	}
	if r := RangeOf([]float64{4, 1, 3, 2}); r.Median != 2.5 || r.Min != 1 || r.Max != 4 || r.Mean != 2.5 || !near(r.SD, math.Sqrt(5./3)) || r.Runs != 4 {
		t.Errorf("%+v", r)
	}
	if r := RangeOf([]float64{7}); !reflect.DeepEqual(r, Range{7, 7, 7, 7, 0, nil, 1}) {
		t.Errorf("%+v", r)
	}
}

// A download that is over with its first sample has no duration, and so no rate; what is left can
// be written as JSON.
func TestMeasureAtOnce(t *testing.T) {
	l := &Leecher{Name: "l", Complete: true, routes: []route{way(1, 1)}, Payload: payload(0, 100)}
	r := &Record{Leechers: []*Leecher{l}, states: []linkState{{capacity: map[pathsel.Interface]float64{link(1): 8e6}}}}
	m := r.measure(nil)
	for n, v := range m {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			t.Errorf("%s is %v", n, v)
		}
	}
	if _, ok := m["seconds"]; !ok {
		t.Error("nothing is left")
	}
}

// Links without a rate set no limit. A run over them has all other figures.
func TestMeasureWithoutLimit(t *testing.T) {
	r := steady()
	for i := range r.states {
		r.states[i].capacity = map[pathsel.Interface]float64{link(1): math.Inf(1), link(2): math.Inf(1)}
	}
	m := r.measure([]Measure{{Name: "part", What: "efficiency"}, {Name: "rate", What: "rate"}})
	for name, want := range map[string]bool{"e": false, "e-payload": false, "t-star": false, "part": false, "seconds": true, "rate": true} {
		if _, ok := m[name]; ok != want {
			t.Errorf("%s is there: %v, want %v", name, ok, want)
		}
	}
	if limit := r.limit(); limit != nil {
		t.Errorf("limit %v", limit)
	}
}

// Where leechers download from each other, what seeds could send is no limit.
func TestEfficiencyOfSwarm(t *testing.T) {
	r := steady()
	r.feed = true
	m := r.measure([]Measure{{Name: "all", What: "efficiency"}, {Name: "one", What: "efficiency", Of: "leecher"}})
	for _, name := range []string{"e", "e-payload", "all", "one"} {
		if v, ok := m[name]; ok {
			t.Errorf("%s is %v", name, v)
		}
	}
}

func TestInterval(t *testing.T) {
	if Interval([]float64{1}) != nil || Interval([]float64{1, 2}, []float64{3}) != nil {
		t.Error("an interval of one run")
	}
	if got := Interval([]float64{1, 2}); !reflect.DeepEqual(got, []float64{1, 2}) {
		t.Errorf("two runs: %v, want their range", got)
	}
	// Of five values or fewer it is their range.
	for n := 2; n < 8; n++ {
		var v []float64
		for i := range n {
			v = append(v, float64(i))
		}
		if whole := reflect.DeepEqual(Interval(v), []float64{v[0], v[n-1]}); whole != (n < 6) {
			t.Errorf("%d runs: %v", n, Interval(v))
		}
	}
	// 99 evenly spread values: the median's standard error is about 1 / (2 f sqrt n) = 5, the
	// interval 50 +- 10.
	var many, more []float64
	for i := range 99 {
		many, more = append(many, float64(i+1)), append(more, float64(i+1)+1000)
	}
	got := Interval(many)
	if !(got[0] > 34 && got[0] < 46 && got[1] > 54 && got[1] < 66) || !reflect.DeepEqual(got, Interval(many)) {
		t.Errorf("99 values around 50: %v", got)
	}
	if got := Interval(many, more); !(got[0] > 975 && got[0] < 995 && got[1] > 1005 && got[1] < 1025) {
		t.Errorf("the difference of two sides, which is 1000: %v", got)
	}
}

// A variant can be compared with another one, and expect other things than the rest.
func TestExpectedOfVariant(t *testing.T) {
	s := Scenario{Name: "x", Expect: map[string]string{"gap": "<= 0.1"}, Variants: []Variant{
		{Name: "one"},
		{Name: "four", Expect: map[string]string{"mbit": ">= 0.8 of one", "gap": "<= 0.2"}},
	}}
	run := func(variant string, mbit, gap float64) Result {
		return Result{Scenario: "x", Variant: variant, Run: 1, Figures: map[string]float64{"mbit": mbit, "gap": gap}}
	}
	failed := run("one", 100, 0)
	failed.Failed = "peer leecher ended"
	for _, tt := range []struct {
		results []Result
		missed  []string
		whole   int // expectations
	}{
		{[]Result{run("one", 100, .05), run("four", 80, .15)}, nil, 3},
		{[]Result{run("one", 100, .15), run("four", 79, .25)}, []string{"one gap", "four gap", "four mbit"}, 3},
		{[]Result{failed, run("four", 100, 0)}, []string{"one gap", "four mbit"}, 3},
		{[]Result{run("four", 100, 0)}, nil, 1}, // a run without the other variant
	} {
		var missed []string
		whole := 0
		for _, x := range Summarise([]Scenario{s}, tt.results) {
			whole += len(x.Expected)
			for _, e := range x.Missed() {
				missed = append(missed, x.Variant+" "+e.Figure)
			}
		}
		if !slices.Equal(missed, tt.missed) || whole != tt.whole {
			t.Errorf("%+v: missed %q of %d, want %q of %d", tt.results, missed, whole, tt.missed, tt.whole)
		}
	}
	var b strings.Builder
	if err := Table(&b, Summarise([]Scenario{s}, []Result{run("one", 100, .05), run("four", 79, .15)})); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`mbit >= 0\.8 of one +100\.000 +79\.000 missed`, `gap +0\.050 <= 0\.1 +0\.150 <= 0\.2`} {
		if !regexp.MustCompile(want).MatchString(b.String()) {
			t.Errorf("the table has no line %q:\n%s", want, b.String())
		}
	}
}

func TestBaseline(t *testing.T) {
	no, yes := false, true
	s := Scenario{Name: "x", Expect: map[string]string{"e": ">= 0.9"}, Variants: []Variant{
		{Name: "ours", Selector: "adaptive"}, {Name: "slots", Selector: "slots"}, {Name: "first", Selector: "first"},
		{Name: "judged", Selector: "first", Baseline: &no}, {Name: "spared", Selector: "adaptive", Baseline: &yes},
	}}
	var results []Result
	for _, v := range s.Variants {
		results = append(results, Result{Scenario: "x", Variant: v.Name, Run: 1, Figures: map[string]float64{"e": .5}})
	}
	for i, want := range []int{1, 0, 0, 1, 0} {
		if x := Summarise([]Scenario{s}, results)[i]; len(x.Expected) != want || x.Baseline != (want == 0) {
			t.Errorf("%s: %d expectations, want %d", x.Variant, len(x.Expected), want)
		}
	}
	// The table shows what is expected, even if a baseline comes first.
	var b strings.Builder
	if err := Table(&b, Summarise([]Scenario{s}, results)[1:]); err != nil || !strings.Contains(b.String(), "e >= 0.9") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// TestMeanings: every figure of every shipped scenario says what it is.
func TestMeanings(t *testing.T) {
	for _, n := range Shipped() {
		s, err := Load(n)
		if err != nil {
			t.Fatal(err)
		}
		names := []string{}
		for _, m := range s.Measure {
			names = append(names, m.Name)
		}
		for _, f := range measuredAlways {
			names = append(names, f.name)
		}
		for _, f := range names {
			if m := s.Meaning(f); m == "" || strings.Contains(m, "OVER") || strings.Contains(m, "OF ") {
				t.Errorf("%s: %s means %q", n, f, m)
			}
		}
	}
	s := Scenario{Measure: []Measure{{Name: "other", What: "ratio", Over: &At{link(2)}, From: 5e9, To: 15e9, Base: &Window{1e9, 5e9}}}}
	if got, want := s.Meaning("other"), "rate over "+link(2).String()+" in parts of that in another window, from 5s to 15s, against 1s to 5s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Path 1 brought 15 MB in the 16 s in which it was in use, path 2 brought 20 MB in 19.3 s.
func TestHandshakeRank(t *testing.T) {
	r := steady()
	l := r.Leechers[0]
	one, two := l.routes[0].Fingerprint, l.routes[1].Fingerprint
	if used := l.used(); !near(used[one], 16) || !near(used[two], 19.3) {
		t.Errorf("in use for %v", used)
	}
	none := math.NaN()
	for _, tt := range []struct{ one, two, want float64 }{{.2, .1, 1}, {.1, .2, -1}, {.1, .1, none}, {.1, 0, none}} {
		l.Paths[0].Handshake, l.Paths[1].Handshake = tt.one, tt.two
		if rho := r.handshakeRank(); rho != tt.want && !(math.IsNaN(rho) && math.IsNaN(tt.want)) {
			t.Errorf("handshakes of %v and %v s: %v, want %v", tt.one, tt.two, rho, tt.want)
		}
	}
	// Who has one path, or no sample at all, does not count.
	l.Paths[0].Handshake, l.Paths[1].Handshake = .2, .1
	r.Leechers = append(r.Leechers, &Leecher{End: 20}, &Leecher{End: 20, Payload: l.Payload, Choices: l.Choices})
	if rho := r.handshakeRank(); rho != 1 {
		t.Errorf("%v", rho)
	}
}
