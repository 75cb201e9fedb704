package report

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"braid/node/event"
	"braid/pathsel"
	"braid/testbed"
	"braid/testbed/figure"
	"braid/testbed/scenario"
)

// hostile is a line of YAML that would break out of a page that is written carelessly.
const hostile = `"</title></text><script>alert('1')</script>|**x** <img src=http://example.org/x>"`

func open(t testing.TB, m made) scenario.RunDir {
	t.Helper()
	run, err := scenario.OpenRunDir(m.write(t))
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// T* counts from the first leecher's start, the times of leechers from their own. So the figure of
// completion times has no T* if leechers start at different times.
func TestCompletionOfLateLeechers(t *testing.T) {
	vs := []scenario.Summary{{
		Variant: "only", Figures: map[string]scenario.Range{"t-star": scenario.RangeOf([]float64{17})},
		Results: []scenario.Result{{Peers: []scenario.PeerResult{{End: 5, Complete: true}, {Start: 12, End: 17, Complete: true}}}},
	}}
	s := scenario.Scenario{Peers: []scenario.Peer{{Role: scenario.Leech}, {Role: scenario.Leech}}}
	if f := cdfFigure(s, vs, "late"); !strings.Contains(f.Text, "T* = 17.0 s") {
		t.Errorf("no limit in %q", f.Text)
	}
	s.Peers[1].Start.After = 12e9
	if f := cdfFigure(s, vs, "late"); strings.Contains(f.Text, "T*") || strings.Contains(f.Inline(), "T*") {
		t.Errorf("a limit of both beside the times of each: %q", f.Text)
	}
}

func TestMake(t *testing.T) {
	run := open(t, made{leechers: 1, runs: 3, about: hostile, bound: true, commit: "abc+"})
	dir := filepath.Join(t.TempDir(), "report")
	m, err := Make(run, Options{Dir: dir, EveryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	// Three figures over all runs, four of each of six runs. Each run of slow misses e, the median
	// counts.
	if len(m.Figures) != 3+6*4 || m.Runs != 6 || m.CPUBound != 1 || m.Missed != 1 || len(m.Scenario) != 2 {
		t.Errorf("%+v", m)
	}
	for _, name := range m.Figures {
		title := checkSVG(t, filepath.Join(dir, name+".svg"))
		checkPNG(t, filepath.Join(dir, name+".png"))
		rows, err := csv.NewReader(strings.NewReader(read(t, filepath.Join(dir, name+".csv")))).ReadAll()
		if err != nil || len(rows) < 2 {
			t.Errorf("%s: %d rows of data, %v", name, len(rows), err)
		}
		marked := strings.Contains(title, "CPU-bound")
		// The run that is, and what sums up runs of which one is.
		if want := strings.Contains(name, "slow-1-") || !strings.Contains(name, "-fast-") && !strings.Contains(name, "-slow-"); marked != want {
			t.Errorf("%s is marked CPU-bound: %v, want %v", name, marked, want)
		}
	}
	page := read(t, m.HTML)
	for _, want := range []string{
		`id="s-made"`, `id="r-made-fast-2"`, `id="r-made-slow-1"`, "In 1 of 6 runs the machine", "91 % of all processors", "with uncommitted changes",
		"Rate of each path over time", "Selection of paths over time", "Network, and how far", "Processors in use by each process", "CPU time for each GB of payload, by component", "slow, emulator: 5 ± 0 s for each GB", "Completion times", "Part of the computed limit",
		"5.0 to 10.0 s: 110#1 down", "never &lt;tried&gt; &amp; new", "✗ missed", "braid-testbed run made.yaml --runs 3 --variant fast --variant slow -o DIR",
		"111 1&gt;1 110", "T*",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in the page", want)
		}
	}
	for _, never := range []string{"<script", "<img", "javascript:", "never <tried>", "--variant never"} {
		if strings.Contains(page, never) {
			t.Errorf("%q in the page", never)
		}
	}
	// Nothing is fetched: no address but the names of XML, and links only to what lies beside it.
	for _, a := range regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if !strings.HasPrefix(a[1], "#") && !strings.HasPrefix(a[1], "figures/made/") && a[1] != "data:," {
			t.Errorf("the page leads to %q", a[1])
		}
	}
	if strings.Contains(page, "url(") || strings.Contains(page, "@import") {
		t.Error("the style sheet fetches something")
	}
	ids := map[string]bool{}
	for _, id := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if ids[id[1]] {
			t.Errorf("ID %q twice", id[1])
		}
		ids[id[1]] = true
	}
	tables := read(t, m.Markdown)
	for _, want := range []string{"| made | fast | 2 of 2 met |", "**missed**", "![Completion times](figures/made/made-completion.svg)", `| slow | 3 | 16.2 | 0.100 | 16.2 \[16.1, 16.3\] | 16.1 | 16.3 | 14 |`, "| gap | longest time in which a leecher got no payload, in s | &lt;= 1 |"} {
		if !strings.Contains(tables, want) {
			t.Errorf("no %q in the tables:\n%s", want, tables[:min(len(tables), 3000)])
		}
	}
	if strings.Contains(tables, "<script") || strings.Contains(tables, "**x**") {
		t.Error("markup of a name in the tables")
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// checkSVG returns all text of the drawing.
func checkSVG(t *testing.T, name string) string {
	t.Helper()
	var text strings.Builder
	for d := xml.NewDecoder(strings.NewReader(read(t, name))); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return text.String()
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return ""
		}
		if c, ok := token.(xml.CharData); ok {
			text.Write(c)
		}
	}
}

func checkPNG(t *testing.T, name string) {
	t.Helper()
	img, err := png.Decode(strings.NewReader(read(t, name)))
	if err != nil || img.Bounds().Dx() != 2*width {
		t.Errorf("%s: %v", name, err)
	}
}

// Without every run it is the one in the middle.
func TestMedianRun(t *testing.T) {
	run := open(t, made{leechers: 2, runs: 3, about: "x"})
	m, err := Make(run, Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Figures) != 3+2*4 || !slices.Contains(m.Figures, "figures/made/made-fast-2-rates") || strings.Contains(read(t, m.HTML), "CPU-bound in") {
		t.Errorf("%v", m.Figures)
	}
}

// A name that breaks lines stays in its place in the tables.
func TestNameOfSeveralLines(t *testing.T) {
	run := open(t, made{leechers: 1, runs: 1, about: "x"})
	const name = "made`\n\n<script>"
	run.About.Scenarios[0].Name, run.Scenarios[0].Name = name, name
	for i := range run.Results {
		run.Results[i].Scenario = name
	}
	if text := buildPage(run, Options{}).markdown(); strings.Contains(text, "\n<script>") {
		t.Errorf("markup of a name in the tables:\n%.2000s", text)
	}
}

// Paths of several torrents can be told apart.
func TestPathsOfTorrents(t *testing.T) {
	read := scenario.Series{T: []float64{1}, Amount: []float64{1}}
	one, two := &scenario.Path{Torrent: "aaaaaaaabb", Read: read}, &scenario.Path{Torrent: "cc", Read: read}
	for _, tt := range []struct {
		paths []*scenario.Path
		want  []string
	}{{[]*scenario.Path{one}, []string{"IP"}}, {[]*scenario.Path{two, one}, []string{"IP, torrent aaaaaaaa", "IP, torrent cc"}}} {
		c := newCourse(&scenario.Record{Leechers: []*scenario.Leecher{{Paths: tt.paths}}}, scenario.Result{}, "x")
		var got []string
		for _, q := range c.leechers[0].paths {
			got = append(got, q.via)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// A run without samples is named; all other runs are drawn.
func TestMissingSamples(t *testing.T) {
	run := open(t, made{leechers: 1, runs: 1, about: "x"})
	if err := os.Remove(filepath.Join(run.Dir, "made", "fast", "1", "samples.jsonl")); err != nil {
		t.Fatal(err)
	}
	p := buildPage(run, Options{})
	html := p.html()
	if n := len(p.figures()); n != 3+4 || len(p.missing()) != 1 || !strings.HasPrefix(p.missing()[0], "made, fast, run 1: ") {
		t.Errorf("%d figures, missing: %q", n, p.missing())
	}
	for _, text := range []string{html, p.markdown()} {
		if strings.Count(text, "Not drawn:") != 1 {
			t.Errorf("it does not say what is missing: %s", text)
		}
	}
}

// lastCourse reads the last run of a variant.
func lastCourse(t *testing.T, m made, variant string) (*course, scenario.RunDir) {
	t.Helper()
	run := open(t, m)
	i := slices.IndexFunc(run.Results, func(r scenario.Result) bool { return r.Variant == variant && r.Run == m.runs })
	record, err := run.Record(run.Results[i])
	if err != nil {
		t.Fatal(err)
	}
	return newCourse(record, run.Results[i], "x"), run
}

func near(a, b, within float64) bool { return math.Abs(a-b) <= within }

// What the samples were made of comes out again.
func TestCourse(t *testing.T) {
	c, _ := lastCourse(t, made{leechers: 2, runs: 1, about: "x"}, "slow")
	if len(c.leechers) != 2 || !near(c.End, 16.1, 1e-9) {
		t.Fatalf("%d leechers until %v s", len(c.leechers), c.End)
	}
	p := c.leechers[1]
	if len(p.paths) != 2 || p.paths[0].name != "path 1" || p.paths[0].via != "111 1>1 110" || p.paths[1].via != "111 2>2 110" {
		t.Fatalf("paths %+v", p.paths)
	}
	for _, tt := range []struct {
		s        *scenario.Series
		from, to float64
		want     float64 // Mbit/s
	}{
		{&p.Payload, 0, 5, 8}, {&p.Payload, 5, 10, 4}, {&p.Payload, 11, 15, 8},
		{&p.paths[0].Read, 0, 5, 4}, {&p.paths[0].Read, 6, 9, 0}, {&p.paths[1].Read, 0, 15, 4},
		{&c.Links["1-ff00:0:110#2"].Sent, 0, 16, 8.8},
	} {
		if got := tt.s.Rates(tt.from, tt.to, tt.to-tt.from); len(got) != 1 || !near(got[0], tt.want, .01) {
			t.Errorf("%v to %v s: %v Mbit/s, want %v", tt.from, tt.to, got, tt.want)
		}
	}
	if len(c.spans) != 1 || c.spans[0].String() != "5.0 to 10.0 s: 110#1 down" {
		t.Errorf("%v", c.spans)
	}
	stays, exits := p.paths[0].stays, p.paths[0].exits
	if len(stays) != 2 || stays[0].What != scenario.Connecting || stays[1].What != scenario.InUse || !near(stays[1].To, 5.5, .01) || stays[1].Reason != "handshake of 30ms" ||
		len(exits) != 1 || exits[0].What != "failed" || exits[0].Reason != "silent" {
		t.Errorf("%+v, %+v", stays, exits)
	}
	uses := c.uses()
	if len(uses) != 2 || uses[1].from.String() != "1-ff00:0:110#2" || !near(uses[1].mbitS, 8.8, .1) || !near(uses[1].part, .88, .01) {
		t.Errorf("%+v", uses)
	}
	loads := c.loads()
	if loads[0].name != "runner" || !near(loads[0].cores, .4, .01) || loads[3].name != "110 br-1" || loads[0].peak != 20<<20 {
		t.Errorf("%+v", loads)
	}
	// Figures have what they should: a curve for each path, the sum of each leecher and of all, the
	// limit.
	lines := func(f figure.Figure) (n int) {
		for _, m := range f.Marks {
			if m.Shape == figure.Line && m.Width >= 1.5 && len(m.Points) > 4 {
				n++
			}
		}
		return n
	}
	if n := lines(c.ratesFigure()); n != 2*2+2+1+1 {
		t.Errorf("%d curves", n)
	}
	failed := 0
	for _, m := range c.timelineFigure().Marks {
		if m.Shape == figure.Line && strings.HasPrefix(m.Tip, "path 1 failed at 5.50 s: silent") {
			failed++
		}
	}
	if failed != 2*2 { // a cross has two strokes
		t.Errorf("%d strokes for two failures", failed)
	}
}

// TestTablesAgreeWithSamples computes the figures of links, paths and processes again, plainly,
// from the samples of a run: of the first on a network, and of the second, in which the links'
// counters go on.
func TestTablesAgreeWithSamples(t *testing.T) {
	for runs := 1; runs <= 2; runs++ {
		c, dir := lastCourse(t, made{leechers: 2, runs: runs, about: "x"}, "fast")
		res := c.result
		samples, err := os.Open(filepath.Join(dir.Dir, "made", "fast", fmt.Sprint(runs), "samples.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		defer samples.Close()
		firstLink, lastLink, lastProcess := map[string]scenario.Line{}, map[string]scenario.Line{}, map[string]scenario.Line{}
		lastPeer := map[string]event.Progress{}
		err = scenario.ReadSamples(samples, func(l scenario.Line) error {
			switch l.Kind {
			case "link":
				if _, seen := firstLink[l.At]; !seen {
					firstLink[l.At] = l
				}
				lastLink[l.At] = l
			case "process":
				lastProcess[l.What] = l
			case "peer":
				var e event.Progress
				if err := json.Unmarshal(l.Event, &e); err != nil {
					return err
				}
				if e.Event == "progress" {
					lastPeer[l.What] = e
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}

		var want, got [][]string
		add := func(rows *[][]string, texts ...string) { *rows = append(*rows, texts) }
		for _, at := range []string{"1-ff00:0:110#1", "1-ff00:0:110#2"} {
			a, b := firstLink[at], lastLink[at]
			mbitS := float64(b.Bytes-a.Bytes) * 8 / 1e6 / res.Peers[0].End
			add(&want, value(mbitS), fmt.Sprintf("%.0f %%", mbitS*10), fmt.Sprint(b.DroppedQueue-a.DroppedQueue),
				fmt.Sprintf("%.1f %%", 100*float64(b.Late-a.Late)/float64(b.Packets-a.Packets)))
		}
		for _, row := range c.linksTable("x").Rows {
			add(&got, row[3].Text, row[4].Text, row[5].Text, row[8].Text)
		}
		var payload float64
		for _, leecher := range []string{"leecher-1", "leecher-2"} {
			e := lastPeer[leecher]
			payload += float64(e.Fetched)
			for _, p := range e.Paths {
				read, all := float64(p.BytesRead), float64(e.Paths[0].BytesRead+e.Paths[1].BytesRead)
				add(&want, value(read/1e6), fmt.Sprintf("%.1f %%", 100*read/all), value(read*8/1e6/res.Peers[0].End))
			}
		}
		for _, row := range c.pathsTable("x").Rows {
			add(&got, row[4].Text, row[5].Text, row[6].Text)
		}
		for _, row := range c.processesTable("x").Rows {
			l := lastProcess[cmp.Or(map[string]string{"110 br-1": "1-ff00:0:110 br-1", "111 cs-1": "1-ff00:0:111 cs-1"}[row[0].Text], row[0].Text)]
			add(&want, value(l.CPU), value(l.CPU/(payload/1e9)), value(float64(l.PSS)/(1<<20)))
			add(&got, row[1].Text, row[3].Text, row[4].Text)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("run %d: the tables say\n%v\nthe samples\n%v", runs, got, want)
		}
	}
}

// A path's rate is that of its leecher's own time, not of the whole run.
func TestRateOfALeecherThatEndsEarly(t *testing.T) {
	c, _ := lastCourse(t, made{leechers: 2, runs: 1, about: "x"}, "fast")
	l := c.leechers[0]
	l.Start, l.End = 5, 10
	if got, want := c.pathsTable("x").Rows[0][6].Text, value(l.paths[0].got*8/1e6/5); got != want {
		t.Errorf("%s Mbit/s, want %s", got, want)
	}
}

// Downloads that failed are not complete at the right end of the curve; those that the scenario
// ended do not count.
func TestCompletionCountsFailures(t *testing.T) {
	dir := open(t, made{leechers: 3, runs: 1, about: "x"})
	vs := variantsOf(dir, dir.Scenarios[0])
	r := &vs[0].Results[0]
	r.Peers[1].Complete, r.Peers[2].Complete = false, false
	r.Leechers, r.Verified = 2, 1 // one of the others was stopped
	rows := cdfFigure(dir.Scenarios[0], vs[:1], "x").Data.Rows
	if last := rows[len(rows)-1]; last[2] != .5 {
		t.Errorf("the curve ends at %v, want a half", last[2])
	}
}

// The same runs give the same figure, byte by byte.
func TestFiguresRepeat(t *testing.T) {
	run := open(t, made{leechers: 1, runs: 1, about: "x"})
	s := run.Scenarios[0]
	first := reachedFigure(s, variantsOf(run, s), "x").Inline()
	for range 20 {
		if reachedFigure(s, variantsOf(run, s), "x").Inline() != first {
			t.Fatal("the figure differs from the first one")
		}
	}
}

// An event lasts until a later one undoes it, or changes the same property of the link.
func TestSpans(t *testing.T) {
	topology, err := testbed.ShippedTopology("two-paths")
	if err != nil {
		t.Fatal(err)
	}
	l := topology.Links[0]
	rate, half := l.Config.Rate, l.Config.Rate/2
	change := func(r int64) *testbed.LinkChange {
		return &testbed.LinkChange{Interface: l.A.Interface, Rate: &r}
	}
	at := l.A.Interface.String()
	second := topology.Links[1].A.Interface
	other, small, says := second.String(), 1200, true
	narrow := &testbed.LinkChange{Interface: second, MTU: &small, TooBig: &says}
	restored := narrow.Undo(topology.Links[1].Config)
	wide := &restored
	slow, oneWay := &testbed.LinkChange{Interface: second, Rate: new(int64(5e6))}, &testbed.LinkChange{Interface: second, Direction: "in", Loss: new(.1)}
	faster := slow.Undo(topology.Links[1].Config)
	quick := &faster
	e := func(at float64, what, where string, change *testbed.LinkChange) scenario.Line {
		return scenario.Line{T: at, What: what, At: where, Change: change}
	}
	got := spansOf([]scenario.Line{
		e(1, "link", at, change(half)), e(2, "link", at, change(half/2)), e(3, "link", at, change(rate)), e(4, "link", at, change(half)),
		e(5, "traffic", "burst", nil), e(6, "traffic-end", "burst", nil), e(7, "crash", "leecher", nil), e(-1, "start", "leecher", nil), e(8, "pause", at, nil), e(9, "resume", at, nil),
		e(10, "link", at, nil), e(11, "link", other, narrow), e(12, "link", other, wide),
		e(13, "link", other, slow), e(14, "link", other, narrow), e(15, "link", other, oneWay), e(16, "link", other, wide), e(17, "link", other, quick),
	}, topology, shortNames(topology))
	want := []string{
		"1.0 to 2.0 s: 110#1 10mbit", "2.0 to 3.0 s: 110#1 5mbit", "from 4.0 s on: 110#1 10mbit", "5.0 to 6.0 s: burst", "7.0 s: leecher killed", "8.0 to 9.0 s: router of 110#1 stopped",
		"11.0 to 12.0 s: 110#2 mtu 1200 too-big", "13.0 to 17.0 s: 110#2 5mbit", "14.0 to 16.0 s: 110#2 mtu 1200 too-big", "from 15.0 s on: 110#2 10% lost (in)",
	}
	var texts []string
	for _, s := range got {
		texts = append(texts, s.String())
	}
	if !slices.Equal(texts, want) {
		t.Errorf("%q", texts)
	}
}

// Every shipped topology is drawn: no two ASes in one place, everything on the paper.
func TestPlace(t *testing.T) {
	for _, name := range append(testbed.Shipped(), "mesh") {
		topology, err := testbed.ShippedTopology(name)
		if name == "mesh" {
			topology, err = mesh(16), nil
		}
		if err != nil {
			t.Fatal(err)
		}
		places, bottom := place(topology, 44)
		if len(places) != len(topology.ASes) {
			t.Errorf("%s: %d of %d ASes have a place", name, len(places), len(topology.ASes))
		}
		for a, p := range places {
			if p.X < 40 || p.X > width-40 || p.Y < 44+nodeHeight/2 || p.Y > bottom {
				t.Errorf("%s: %v at %v, of %v", name, a, p, bottom)
			}
			for b, q := range places {
				if a != b && math.Hypot(p.X-q.X, p.Y-q.Y) < 50 {
					t.Errorf("%s: %v and %v at %v and %v", name, a, b, p, q)
				}
			}
		}
	}
}

func mesh(n int) (t testbed.Topology) {
	t.Name = "mesh"
	for i := range n {
		t.ASes = append(t.ASes, testbed.AS{IA: pathsel.IA(i + 1), Core: true})
		for j := range i {
			a, b := pathsel.Interface{IA: pathsel.IA(i + 1), ID: uint64(j + 1)}, pathsel.Interface{IA: pathsel.IA(j + 1), ID: uint64(i + 1)}
			t.Links = append(t.Links, testbed.Link{A: testbed.LinkEnd{Interface: a}, B: testbed.LinkEnd{Interface: b}, Type: testbed.Core})
		}
	}
	return t
}

// Whatever stands in the samples, the report is made or says why not, and stays valid.
func FuzzSamples(f *testing.F) {
	m := made{leechers: 1, runs: 1, about: "x"}
	dir := m.write(f)
	b, err := os.ReadFile(filepath.Join(dir, "made", "slow", "1", "samples.jsonl"))
	if err != nil {
		f.Fatal(err)
	}
	lines := bytes.SplitAfter(b, []byte("\n"))
	f.Add(bytes.Join(lines[:40], nil))
	f.Add([]byte(`{"t":1e308,"kind":"peer","what":"leecher-1","event":{"event":"progress","t":-1e308,"fetched_bytes":1e300,"paths":[{"fingerprint":"x","bytes_read":-5}]}}`))
	f.Add([]byte(`{"t":5,"kind":"event","what":"link","at":"\u0000","change":{"rate":-1}}`))
	run, err := scenario.OpenRunDir(dir)
	if err != nil {
		f.Fatal(err)
	}
	s, err := run.Scenarios[0].In(run.Results[0].Variant)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, samples []byte) {
		res := run.Results[0]
		record, err := scenario.ReadRecord(s, bytes.NewReader(samples))
		if err != nil {
			return
		}
		record.Measures()
		c := newCourse(record, res, "x")
		for _, fig := range []figure.Figure{c.ratesFigure(), c.timelineFigure(), c.networkFigure(), c.cpuFigure()} {
			var b bytes.Buffer
			if err := fig.SVG(&b); err != nil {
				t.Fatal(err)
			}
			if len(fig.Marks) > 100_000 || strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
				t.Errorf("%s: %d marks: %.2000s", fig.Name, len(fig.Marks), b.String())
			}
		}
	})
}

// TestLabelsApart: in the networks of all shipped scenarios no label of a link stands on another,
// or on an AS.
func TestLabelsApart(t *testing.T) {
	for _, name := range scenario.Shipped() {
		s, err := scenario.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		f := newCourse(&scenario.Record{Scenario: s, End: 1}, scenario.Result{}, name).networkFigure()
		var labels []label
		for _, m := range f.Marks {
			if m.Shape == figure.Label && strings.Contains(m.Text, "→") {
				labels = append(labels, label{m.Text, m.Points[0].X, m.Points[0].Y - 10, figure.TextWidth(m.Text, m.Size, false), 12.9})
			}
		}
		for i, a := range labels {
			if k := slices.IndexFunc(labels[:i], a.touches); k >= 0 {
				t.Errorf("%s: %q stands on %q", name, a.text, labels[k].text)
			}
		}
	}
}

// People who cannot see a figure hear of its doubt, too.
func TestTextsNameTheMachine(t *testing.T) {
	run := open(t, made{leechers: 2, runs: 2, about: "x", bound: true})
	p := buildPage(run, Options{EveryRun: true})
	var doubtful []figure.Figure
	runs := 0
	for _, s := range p.Sections {
		for _, f := range s.Figures {
			doubtful = append(doubtful, f.Figure)
		}
		doubtful = append(doubtful, valuesFigure(run.Scenarios[0], s.variants, "seconds", "x"))
		for _, r := range s.Runs {
			if len(r.Bound) == 0 {
				continue
			}
			runs++
			for _, f := range r.Figures {
				doubtful = append(doubtful, f.Figure)
			}
		}
	}
	if runs == 0 {
		t.Fatal("no run is CPU-bound")
	}
	for _, f := range doubtful {
		if !strings.HasPrefix(f.Text, "CPU-bound, the machine was the limit: ") {
			t.Errorf("%s: %q", f.Name, f.Text)
		}
	}
}

// Variants on different links have different limits. A limit that they share is drawn once.
func TestLimitOfEachVariant(t *testing.T) {
	run := open(t, made{leechers: 1, runs: 2, about: "x"})
	vs := variantsOf(run, run.Scenarios[0])
	limits := func() (tips []string) {
		for _, m := range cdfFigure(scenario.Scenario{}, vs, "x").Marks {
			if strings.Contains(m.Tip, "cannot be complete") {
				tips = append(tips, m.Tip)
			}
		}
		return tips
	}
	if got := limits(); len(got) != 1 || !strings.Contains(got[0], "14.00 s") {
		t.Errorf("%q, want one limit", got)
	}
	vs[1].Figures["t-star"] = scenario.RangeOf([]float64{10, 10})
	if got := limits(); len(got) != 2 || !strings.Contains(got[0], "14.00 s") || !strings.Contains(got[1], "10.00 s") {
		t.Errorf("%q, want the limits of both variants", got)
	}
}

// If a scenario has no leechers, CPU time is compared with its measured traffic.
func TestTrafficOnly(t *testing.T) {
	flow := &scenario.Flow{Traffic: scenario.Traffic{Name: "flow"}}
	flow.Received = scenario.Series{T: []float64{0, 2}, Amount: []float64{0, 2e9}}
	r := &scenario.Record{
		End: 2, Flows: []*scenario.Flow{flow},
		Processes: []*scenario.ProcessSamples{{Name: "runner", Component: "emulator", Used: 6, Cores: 3}},
	}
	c := newCourse(r, scenario.Result{}, "traffic")
	if l := c.loads(); len(l) != 1 || l[0].perGB != 3 {
		t.Errorf("%+v, want 3 s/GB", l)
	}
	rates, selection := c.ratesFigure(), c.timelineFigure()
	if rates.Text != "Traffic flow got 2000.0 MB." || !strings.HasPrefix(selection.Text, "No leecher") {
		t.Errorf("%q, %q", rates.Text, selection.Text)
	}
	for _, m := range rates.Marks {
		if m.Text == "payload" {
			t.Error("a label without a curve")
		}
	}
}

func TestTimesTable(t *testing.T) {
	for want, v := range map[string]scenario.Summary{
		"all": {Runs: 1, Verified: true}, "1 of 3 failed": {Runs: 3, Failed: 1},
	} {
		row := timesTable("made", []scenario.Summary{v}).Rows[0]
		if !slices.ContainsFunc(row, func(c cell) bool { return c.Text == want }) {
			t.Errorf("%v, want %q", row, want)
		}
	}
}

// The command makes the same runs: only --smoke has fewer leechers than the file.
func TestAgain(t *testing.T) {
	ran := []scenario.Summary{{Variant: "a", Results: []scenario.Result{{Run: 2}}}}
	cut, err := scenario.ShippedText("cut")
	if err != nil {
		t.Fatal(err)
	}
	for want, f := range map[string]scenario.ScenarioFile{
		// A changed copy of a shipped scenario may have its name.
		"braid-testbed run cut --runs 2 --variant a -o DIR":                   {Name: "cut", Scale: 1, Text: string(cut)},
		"braid-testbed run cut.yaml --runs 2 --variant a -o DIR":              {Name: "cut", Scale: 1, Text: string(cut) + "#"},
		"braid-testbed run made.yaml --runs 2 --variant a -o DIR":             {Name: "made", Scale: 1},
		"braid-testbed run made.yaml --runs 2 --variant a --scale 0.1 -o DIR": {Name: "made", Scale: .1},
		"braid-testbed run made.yaml --runs 2 --variant a --smoke -o DIR":     {Name: "made", Scale: .1, Leechers: 3},
	} {
		if got := again(f, ran); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
