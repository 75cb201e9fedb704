package figure

import (
	"fmt"
	"image/color"
	"strings"
)

// Ink is the role of a colour; the theme says what it looks like.
type Ink int

// Inks. Those from Series on are for what is compared.
const (
	Paper  Ink = iota // the background
	Text              // titles, what is most important
	Muted             // labels of axes, notes
	Grid              // lines to measure by
	Band              // a span of time in which something is different
	Limit             // what could have been
	Warn              // this figure is not what it seems
	Good              // an expectation is met
	Bad               // or not
	Series            // the first of SeriesInks
)

// SeriesInks is how many inks there are for what is compared. What comes after them takes the same again: tell it apart
// by its dash (Dashes).
const SeriesInks = 7

// SeriesInk is the ink of the nth thing, and its dash.
func SeriesInk(n int) (Ink, []float64) {
	return Series + Ink(n%SeriesInks), dashes[n/SeriesInks%len(dashes)]
}

var dashes = [][]float64{nil, {6, 3}, {2, 2}, {8, 2, 2, 2}}

// The series are those of Okabe and Ito, which people with any of the common kinds of colour blindness can tell apart,
// without their yellow, which is too light for a line; on dark paper they are lighter.
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

func (i Ink) color() color.Color {
	r, g, b := i.rgb()
	return color.NRGBA{uint8(r), uint8(g), uint8(b), 255}
}

// rgb are the parts of the ink on light paper, 0 to 255.
func (i Ink) rgb() (r, g, b int) {
	_, _ = fmt.Sscanf(light[i], "#%02x%02x%02x", &r, &g, &b) // ours, and tested
	return r, g, b
}

// CSS is the style sheet of the classes that SVG gives to its marks: once in a page, or in each file.
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
