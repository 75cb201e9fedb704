package figure

import (
	"fmt"
	"strings"
)

// Ink is the role of a colour; the theme says what it looks like.
type Ink int

// Inks. Compared things have the inks from Series on.
const (
	Paper  Ink = iota // the background
	Text              // titles and other important things
	Muted             // labels of axes, notes
	Grid              // lines to measure by
	Band              // a span of time in which something is different
	Limit             // the computed limit
	Warn              // a doubt about the figure
	Good              // an expectation that is met
	Bad               // an expectation that is missed
	Series            // the first of SeriesInks
)

// SeriesInks is the number of inks for compared things. Further things use these inks again, with
// another dash.
const SeriesInks = 7

// SeriesInk returns the ink and the dash of the nth thing.
func SeriesInk(n int) (Ink, []float64) {
	return Series + Ink(n%SeriesInks), dashes[n/SeriesInks%len(dashes)]
}

var dashes = [][]float64{nil, {6, 3}, {2, 2}, {8, 2, 2, 2}}

// The series have the colours of Okabe and Ito, which people with the common kinds of colour
// blindness can tell apart. Their yellow is left out, because it is too light for a line. On dark
// paper the colours are lighter.
var (
	light = []string{
		"#ffffff", "#1a1a1a", "#5c6166", "#e4e6e8", "#fbeed0", "#8a2f62", "#b35900", "#00734f", "#c02d00",
		"#0072b2", "#d55e00", "#009e73", "#a3508a", "#2e93ca", "#a67c00", "#4d4d4d",
	}
	dark = []string{
		"#14171a", "#eceef0", "#a4abb2", "#2c3238", "#453a1f", "#e79ac4", "#ffb454", "#3ecf9c", "#ff8a66",
		"#58b4f0", "#ff9248", "#2fd3a0", "#dd92c4", "#93d3ff", "#e0bb4a", "#b9bec4",
	}
)

// rgb returns red, green and blue of the ink on light paper, 0 to 255.
func (i Ink) rgb() (r, g, b int) {
	_, _ = fmt.Sscanf(light[i], "#%02x%02x%02x", &r, &g, &b) // ours, and tested
	return r, g, b
}

// CSS returns the style sheet for the marks of SVG figures. A page needs it once, a file by itself
// too.
func CSS() string {
	var b strings.Builder
	b.WriteString("svg.fig text{font-family:'Liberation Sans',Arial,Helvetica,sans-serif;font-kerning:none}\n")
	theme := func(colors []string) {
		for i, c := range colors {
			fmt.Fprintf(&b, ".s%d{stroke:%s}.f%d{fill:%s}\n", i, c, i, c)
		}
	}
	theme(light)
	b.WriteString("@media (prefers-color-scheme:dark){\n")
	theme(dark)
	b.WriteString("}\n")
	return b.String()
}
