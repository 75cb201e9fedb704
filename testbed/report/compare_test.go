package report

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"braid/testbed/scenario"
)

// The verdicts, with the p that a table of the test gives.
func TestCompareSamples(t *testing.T) {
	for _, tt := range []struct {
		a, b []float64
		p    float64
		v    Verdict
	}{
		{nil, nil, 1, TooFew},
		{[]float64{1}, []float64{2}, 1, TooFew},
		{[]float64{1, 2, 3}, []float64{11, 12, 13}, 1, TooFew},
		{[]float64{1, 2, 3, 4}, []float64{11, 12, 13, 14}, 2. / 70, Higher},
		{[]float64{11, 12, 13, 14}, []float64{1, 2, 3, 4}, 2. / 70, Lower},
		{[]float64{1, 2, 3}, []float64{11, 12, 13, 14, 15}, 2. / 56, Higher},
		{[]float64{1, 2, 3, 14}, []float64{11, 12, 13, 15}, .2, NotShown},
		{[]float64{1, 3, 5, 7, 9}, []float64{2, 4, 6, 8, 10}, .69, NotShown},
		{[]float64{5, 5, 5, 5}, []float64{5, 5, 5, 5}, 1, Same},
		{[]float64{5, 5, 5, 5, 5}, []float64{6, 6, 6, 6, 6}, 2. / 252, Higher},
	} {
		p, v := compareSamples(tt.a, tt.b)
		if v != tt.v || math.Abs(p-tt.p) > .005 {
			t.Errorf("%v, %v: p %.4f, %s; want %.4f, %s", tt.a, tt.b, p, v, tt.p, tt.v)
		}
	}
}

func TestCompare(t *testing.T) {
	base := made{leechers: 1, runs: 4, about: "x", commit: "abc", cpu: "one"}
	other := func(change func(*made)) scenario.RunDir {
		m := base
		change(&m)
		return open(t, m)
	}
	first := open(t, base)
	row := func(c Comparison, variant, figure string) Compared {
		i := slices.IndexFunc(c.Rows, func(r Compared) bool { return r.Variant == variant && r.Figure == figure })
		if i < 0 {
			t.Fatalf("no %s of %s in %+v", figure, variant, c.Rows)
		}
		return c.Rows[i]
	}

	c := Compare(first, other(func(m *made) { m.slower = 1 }))
	if r := row(c, "fast", "seconds"); r.Verdict != Higher || math.Abs(r.Difference-1) > 1e-9 || r.Relative == nil || math.Abs(*r.Relative-1/15.25) > 1e-9 || r.First.Runs != 4 {
		t.Errorf("%+v", r)
	}
	if r := row(c, "slow", "e"); r.Verdict != Lower {
		t.Errorf("%+v", r)
	}
	if r := row(c, "fast", "t-star"); r.Verdict != Same {
		t.Errorf("%+v", r)
	}
	if c.Tested != 2*3 || math.Abs(c.ByChance-.3) > 1e-9 || len(c.Doubts) != 1 || !strings.Contains(c.Doubts[0], "the same program") {
		t.Errorf("%d tested, %v by chance, %q", c.Tested, c.ByChance, c.Doubts)
	}

	for name, tt := range map[string]struct {
		change func(*made)
		why    string // of slow's rows
		doubt  string
	}{
		"another machine":  {func(m *made) { m.cpu = "two" }, "different processors", "different processors"},
		"another file":     {func(m *made) { m.about = "y" }, "the scenario's file differs", ""},
		"CPU-bound":        {func(m *made) { m.bound = true }, "the machine was the limit in 1 of 4 runs of the second", ""},
		"changes":          {func(m *made) { m.commit = "abc+" }, "", "uncommitted changes"},
		"an unknown build": {func(m *made) { m.commit = "" }, "", "the commit of the second is unknown"},
	} {
		c := Compare(first, other(tt.change))
		r := row(c, "slow", "seconds")
		if got := strings.Join(r.Why, "; "); (r.Verdict == NotComparable) != (tt.why != "") || !strings.Contains(got, tt.why) {
			t.Errorf("%s: %s because of %q", name, r.Verdict, got)
		}
		if !strings.Contains(strings.Join(c.Doubts, "; "), tt.doubt) {
			t.Errorf("%s: doubts %q", name, c.Doubts)
		}
	}
	// A topology's file may change by itself, and --smoke leaves out leechers.
	for why, change := range map[string]func(*scenario.ScenarioFile){
		"the network differs":            func(f *scenario.ScenarioFile) { f.ASes[0].MTU = 8400 },
		"different numbers of leechers":  func(f *scenario.ScenarioFile) { f.Leechers = 3 },
		"the network differs; different": func(f *scenario.ScenarioFile) { f.Topology[1].MTU, f.Leechers = 8400, 3 },
		"":                               func(f *scenario.ScenarioFile) { f.ASes, f.Topology = nil, nil }, // of an early braid
	} {
		second := open(t, base)
		change(&second.About.Scenarios[0])
		r := row(Compare(first, second), "slow", "seconds")
		if got := strings.Join(r.Why, "; "); (r.Verdict == NotComparable) != (why != "") || !strings.Contains(got, why) {
			t.Errorf("%s because of %q, want %q", r.Verdict, got, why)
		}
	}
	// What is CPU-bound is one variant.
	if r := row(Compare(first, other(func(m *made) { m.bound = true })), "fast", "seconds"); r.Verdict != NotShown && r.Verdict != Same {
		t.Errorf("%+v", r)
	}
	less := open(t, base)
	less.Scenarios[0].Variants = less.Scenarios[0].Variants[:1]
	if c := Compare(first, less); !slices.Equal(c.Missing, []string{"made slow is only in the first"}) {
		t.Errorf("%q", c.Missing)
	}
}

// All that is said is in the table, in the page and in JSON.
func TestShowComparison(t *testing.T) {
	m := made{leechers: 1, runs: 4, about: hostile, commit: "abc+"}
	first := open(t, m)
	m.slower, m.bound = 2, true
	c := Compare(first, open(t, m))
	var table, object bytes.Buffer
	if err := c.Table(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"made, fast", "Beware: the first was built with uncommitted changes", "higher", "Not comparable: the machine was the limit", "17.2 [17.1, 17.4] n=4", "(+13.1 %)", "figures were tested"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
	if err := json.NewEncoder(&object).Encode(c); err != nil {
		t.Fatal(err)
	}
	var back Comparison
	if err := json.Unmarshal(object.Bytes(), &back); err != nil || len(back.Rows) != len(c.Rows) || back.Rows[0].Verdict != c.Rows[0].Verdict {
		t.Errorf("%v: %s", err, object.String())
	}
	made, err := c.Make(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if len(made.Figures) != 4 {
		t.Errorf("%v", made.Figures)
	}
	page := read(t, made.HTML)
	for _, want := range []string{"made, slow", "Not comparable: the machine was the limit in 1 of 4 runs of the second.", "<td class=\"n \">higher</td>", "second is"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in the page", want)
		}
	}
	for _, f := range made.Figures {
		if marked := strings.Contains(checkSVG(t, made.Dir+"/"+f+".svg"), "CPU-bound"); marked != strings.Contains(f, "slow") {
			t.Errorf("%s is marked CPU-bound: %v", f, marked)
		}
	}
}
