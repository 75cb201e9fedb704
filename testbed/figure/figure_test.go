package figure

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
)

// hostile is a name that would break out of every format that is written carelessly.
const hostile = "</text><script>alert(1)</script>\"'&\x00\x1b\xff]]>"

// One of each mark.
func sample() Figure {
	f := Figure{Name: "a/../b " + hostile, Title: hostile, Text: hostile, W: 200, H: 100}
	f.Add(Segment(0, 0, 200, 100, Text), Box(10, 10, 50, 20, Series), Disc(100, 50, 8, Bad), Words(5, 90, hostile, Muted, Middle))
	f.Add(Mark{Shape: Rect, Points: []Point{{10, 10}, {0, 0}}, Ink: Good, Opacity: .5, Tip: hostile}, Mark{Shape: Line})
	f.Marks[0].Dash = []float64{3, 3}
	return f
}

func TestSVG(t *testing.T) {
	var b bytes.Buffer
	if err := sample().SVG(&b); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	d := xml.NewDecoder(&b)
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			count[e.Name.Local]++
		}
	}
	for name, want := range map[string]int{"svg": 1, "polyline": 1, "rect": 3, "circle": 1, "text": 1, "title": 2, "desc": 1, "style": 1, "script": 0} {
		if count[name] != want {
			t.Errorf("%d of %s, want %d", count[name], name, want)
		}
	}
	if strings.Contains(sample().Inline(), "<style") {
		t.Error("the page has the style sheet already")
	}
	if f := sample().File(); strings.Trim(f, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
		t.Errorf("%q as a file's name", f)
	}
	if a, b := (Figure{Name: "a.b"}).File(), (Figure{Name: "a-b"}).File(); a == b {
		t.Errorf("two figures have the file's name %q", a)
	}
}

func TestPNG(t *testing.T) {
	var b bytes.Buffer
	if err := sample().PNG(&b); err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	if s := img.Bounds().Size(); s.X != 400 || s.Y != 200 {
		t.Errorf("%v, want two dots a pixel", s)
	}
	for _, tt := range []struct {
		x, y int
		ink  Ink
	}{{40, 40, Series}, {200, 100, Bad}, {390, 20, Paper}} {
		r, g, bl, _ := img.At(tt.x, tt.y).RGBA()
		if wr, wg, wb := tt.ink.rgb(); int(r>>8) != wr || int(g>>8) != wg || int(bl>>8) != wb {
			t.Errorf("at %d, %d: %v, want ink %d", tt.x, tt.y, img.At(tt.x, tt.y), tt.ink)
		}
	}
}

func TestTicks(t *testing.T) {
	for _, tt := range []struct {
		lo, hi   float64
		n        int
		want     string
		decimals int
	}{
		{0, 20, 4, "[0 5 10 15 20]", 0},
		{0, 18.4, 4, "[0 5 10 15]", 0},
		{-.2, 15, 6, "[0 5 10 15]", 0},
		{0, .3, 4, "[0 0.1 0.2 0.3]", 1},
		{0, 2400, 5, "[0 500 1000 1500 2000]", 0},
		{5, 5, 4, "[5]", 0},
		{0, math.Inf(1), 4, "[0]", 0},
		{0, math.NaN(), 4, "[0]", 0},
	} {
		got, decimals := Ticks(tt.lo, tt.hi, tt.n)
		for i := range got {
			got[i] = math.Round(got[i]*1e6) / 1e6
		}
		if fmt.Sprint(got) != tt.want || decimals != tt.decimals {
			t.Errorf("%v to %v: %v with %d decimals, want %s with %d", tt.lo, tt.hi, got, decimals, tt.want, tt.decimals)
		}
	}
	// Between such neighbours there is no round value; this ends all the same.
	if got, _ := Ticks(1e15, 1e15+.125, 4); len(got) > 20 {
		t.Errorf("%d ticks", len(got))
	}
	for v, want := range map[float64]float64{18.4: 20, 20: 20, 0: 1, .07: .08} {
		if got := RoundUp(v, 4); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v is rounded up to %v, want %v", v, got, want)
		}
	}
}

func TestSpread(t *testing.T) {
	for _, tt := range []struct{ wishes, want []float64 }{
		{nil, []float64{}},
		{[]float64{50}, []float64{50}},
		{[]float64{50, 20}, []float64{50, 20}},
		{[]float64{50, 50}, []float64{45, 55}},
		{[]float64{50, 50, 50}, []float64{40, 50, 60}},
		{[]float64{0, 0}, []float64{0, 10}},
		{[]float64{100, 99}, []float64{100, 90}},
		{[]float64{10, 18, 26}, []float64{8, 18, 28}},
		{[]float64{-500, 700}, []float64{0, 100}},
	} {
		if got := Spread(tt.wishes, 10, 0, 100); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %v, want %v", tt.wishes, got, tt.want)
		}
	}
	// More than there is room for share it.
	got := Spread(make([]float64, 21), 10, 0, 100)
	for i := 1; i < len(got); i++ {
		if math.Abs(got[i]-got[i-1]-5) > 1e-9 {
			t.Errorf("%v", got)
		}
	}
}

// The contrast of WCAG 2.1: 4.5 for text, 3 for what is drawn.
func TestContrast(t *testing.T) {
	luminance := func(hex string) float64 {
		var c [3]int
		if n, err := fmt.Sscanf(hex, "#%02x%02x%02x", &c[0], &c[1], &c[2]); n != 3 || err != nil {
			t.Fatalf("%q is no colour", hex)
		}
		var l float64
		for i, w := range []float64{.2126, .7152, .0722} {
			v := float64(c[i]) / 255
			if v <= .04045 {
				v /= 12.92
			} else {
				v = math.Pow((v+.055)/1.055, 2.4)
			}
			l += w * v
		}
		return l
	}
	for name, theme := range map[string][]string{"light": light, "dark": dark} {
		if len(theme) != int(Series)+SeriesInks {
			t.Fatalf("%s has %d inks", name, len(theme))
		}
		paper := luminance(theme[Paper])
		for i, c := range theme {
			want := 3.0
			switch Ink(i) {
			case Paper, Grid, Band:
				continue
			case Text, Muted, Limit, Warn, Good, Bad:
				want = 4.5
			}
			l := luminance(c)
			if got := (max(l, paper) + .05) / (min(l, paper) + .05); got < want {
				t.Errorf("%s: ink %d, %s, has a contrast of %.2f, want %.1f", name, i, c, got, want)
			}
		}
	}
}

func TestFit(t *testing.T) {
	const long = "a text that does not fit"
	if got := Fit(long, TextSize, 500); got != long {
		t.Errorf("%q, which fits, is %q", long, got)
	}
	got := Fit(long, TextSize, 60)
	if w := TextWidth(got, TextSize, false); w > 60 || w < 48 || !strings.HasPrefix(long, strings.TrimSuffix(got, "…")) {
		t.Errorf("%q is %v wide", got, w)
	}
	if got := Fit(strings.Repeat("wide words ", 50), TextSize, 500); TextWidth(got, TextSize, true) > 500 {
		t.Errorf("in bold letters %q does not fit", got)
	}
	if got := Fit("x", TextSize, 0); got != "…" {
		t.Errorf("%q where there is no room", got)
	}
	if a, b := TextWidth("111", 12, false), TextWidth("888", 12, false); math.Abs(a-b) > 1e-6 {
		t.Errorf("digits of different width: %v, %v", a, b)
	}
}

func TestPDF(t *testing.T) {
	var a, b bytes.Buffer
	if err := errors.Join(sample().PDF(&a), sample().PDF(&b)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("the same figure gives other bytes")
	}
	// A page as large as the figure: 200 x 100 pixels of 1/96 inch.
	for _, want := range []string{"%PDF-", "/MediaBox [0 0 150.00 75.00]", "/FontFile2", "%%EOF"} {
		if !bytes.Contains(a.Bytes(), []byte(want)) {
			t.Errorf("no %q in the file", want)
		}
	}
}

func TestPGF(t *testing.T) {
	var b strings.Builder
	f := sample()
	f.Add(Words(1, 1, `50 % of $x_1 & \input{/etc/passwd} ~^#`, Text, End))
	if err := f.PGF(&b); err != nil {
		t.Fatal(err)
	}
	s := b.String()
	for _, never := range []string{`\input{`, "&\\ ", "\x00", "<script>"} {
		if strings.Contains(s, never) {
			t.Errorf("%q in the file", never)
		}
	}
	for _, want := range []string{`50 \% of \$x\_1 \& \textbackslash{}input\{/etc/passwd\} \textasciitilde{}\textasciicircum{}\#`, `\definecolor{ink0}{HTML}{FFFFFF}`, `\pgfqpoint{7.5bp}{67.5bp}`} {
		if !strings.Contains(s, want) {
			t.Errorf("no %q in the file", want)
		}
	}
	plain := strings.NewReplacer(`\{`, "", `\}`, "").Replace(s)
	if strings.Count(plain, "{") != strings.Count(plain, "}") {
		t.Error("braces do not match")
	}
}

func TestCSV(t *testing.T) {
	var b strings.Builder
	d := Data{Head: []string{"path", "s", "Mbit/s"}}
	d.Plot("path 1", .5, 10.0)
	d.Plot(`a "b", c`, 1e-7, 3)
	if err := d.CSV(&b); err != nil {
		t.Fatal(err)
	}
	if want := "path,s,Mbit/s\npath 1,0.5,10\n\"a \"\"b\"\", c\",1e-07,3\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}
