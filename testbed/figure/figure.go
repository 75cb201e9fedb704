// Package figure draws the figures of a report. A Figure is a list of marks, which are plain
// values. It is written as SVG (for light and dark paper, with tips for a pointer), PNG, PDF, or
// PGF for LaTeX, and its numbers as CSV.
//
// The package owns marks, inks, axes, the width of texts, and the file formats. It does not know
// what a figure is about. It has no layout engine: the caller places each mark, with the help of
// Scale, Frame and Spread.
//
// All lengths are in CSS pixels; y grows downwards.
package figure

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// Figure is a drawing.
type Figure struct {
	// Name is the name of its files, without an ending. Text describes it in a sentence or two
	// for people who cannot see it.
	Name, Title, Text string
	W, H              float64
	Marks             []Mark // see Add
	Data              Data
}

// Data are the numbers that a figure draws. A row has names first, then values in the units of the
// head.
type Data struct {
	Head []string
	Rows [][]any // strings and float64
}

// Plot adds a row.
func (d *Data) Plot(row ...any) { d.Rows = append(d.Rows, row) }

// CSV writes the numbers (RFC 4180), with a first line that names the columns.
func (d Data) CSV(w io.Writer) error {
	c := csv.NewWriter(w)
	_ = c.Write(d.Head) // Error reports it
	for _, row := range d.Rows {
		texts := make([]string, len(row))
		for i, v := range row {
			switch v := v.(type) {
			case float64:
				texts[i] = strconv.FormatFloat(v, 'g', 10, 64)
			default:
				texts[i] = printable(fmt.Sprint(v))
			}
		}
		_ = c.Write(texts)
	}
	c.Flush()
	return c.Error()
}

// formats are the file formats of a figure, by the ending of the file's name.
var formats = map[string]func(Figure, io.Writer) error{
	".svg": Figure.SVG,
	".png": Figure.PNG,
	".pdf": Figure.PDF,
	".pgf": Figure.PGF, // for LaTeX
	".csv": func(f Figure, w io.Writer) error { return f.Data.CSV(w) },
}

// AllFormats are the endings of all file formats.
var AllFormats = slices.Sorted(maps.Keys(formats))

// Write writes the figure into a folder, which it makes, as a file for each ending.
func (f Figure) Write(dir string, endings ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create the folder of figures: %w", err)
	}
	for _, ending := range endings {
		var b bytes.Buffer
		err := formats[ending](f, &b)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, f.File()+ending), b.Bytes(), 0o644)
		}
		if err != nil {
			return fmt.Errorf("write figure %s%s: %w", f.File(), ending, err)
		}
	}
	return nil
}

// Shape is a kind of mark.
type Shape int

// Shapes of marks.
const (
	Line  Shape = iota // through all points
	Rect               // between two corners
	Dot                // a disc of radius Size around the first point
	Label              // text at the first point
)

// Mark is one thing in a drawing.
type Mark struct {
	Shape  Shape
	Points []Point
	Ink    Ink
	// Width and Dash are of a line. Size is the radius of a disc, or the height of a label's
	// letters.
	Width float64
	Dash  []float64
	Size  float64
	// Opacity, above 0; 0 means 1.
	Opacity float64
	Text    string
	Anchor  Anchor
	Bold    bool
	// Tip is the text that appears if a pointer is over the mark.
	Tip string
}

// scaled returns the mark with all lengths multiplied.
func (m Mark) scaled(by float64) Mark {
	m.Points, m.Dash = slices.Clone(m.Points), slices.Clone(m.Dash)
	for i, p := range m.Points {
		m.Points[i] = Point{p.X * by, p.Y * by}
	}
	for i := range m.Dash {
		m.Dash[i] *= by
	}
	m.Width, m.Size = m.Width*by, m.Size*by
	return m
}

// Point is a place.
type Point struct{ X, Y float64 }

// Anchor is the part of a label that stands at its point.
type Anchor int

// Anchors of labels.
const (
	Start Anchor = iota
	Middle
	End
)

// Add draws marks on top of the earlier ones. A mark without points is not visible, so it is left
// out.
func (f *Figure) Add(marks ...Mark) {
	for _, m := range marks {
		if len(m.Points) > 0 {
			f.Marks = append(f.Marks, m)
		}
	}
}

// Segment is a straight line, one pixel wide.
func Segment(x1, y1, x2, y2 float64, ink Ink) Mark {
	return Mark{Shape: Line, Points: []Point{{x1, y1}, {x2, y2}}, Ink: ink, Width: 1}
}

// Wide returns the line with another width, Dashed with dashes.
func (m Mark) Wide(width float64) Mark     { m.Width = width; return m }
func (m Mark) Dashed(dash ...float64) Mark { m.Dash = dash; return m }

// InBold and Sized return the label with other letters.
func (m Mark) InBold() Mark            { m.Bold = true; return m }
func (m Mark) Sized(size float64) Mark { m.Size = size; return m }

// Pale returns the mark with an opacity, WithTip with a tip.
func (m Mark) Pale(opacity float64) Mark { m.Opacity = opacity; return m }
func (m Mark) WithTip(tip string) Mark   { m.Tip = tip; return m }

// Box is a filled rectangle.
func Box(x, y, w, h float64, ink Ink) Mark {
	return Mark{Shape: Rect, Points: []Point{{x, y}, {x + w, y + h}}, Ink: ink}
}

// Disc is a filled circle.
func Disc(x, y, r float64, ink Ink) Mark {
	return Mark{Shape: Dot, Points: []Point{{x, y}}, Ink: ink, Size: r}
}

// Words is a label whose base line starts, is centred or ends at a point.
func Words(x, y float64, text string, ink Ink, a Anchor) Mark {
	return Mark{Shape: Label, Points: []Point{{x, y}}, Text: text, Ink: ink, Anchor: a, Size: TextSize}
}

// TextSize is the height of letters in figures; Small that of notes in them.
const (
	TextSize = 12.0
	Small    = 11.0
)
