package figure

import (
	"fmt"
	"io"
	"time"

	"codeberg.org/go-fonts/liberation/liberationsansbold"
	"codeberg.org/go-fonts/liberation/liberationsansregular"
	"codeberg.org/go-pdf/fpdf"
)

// pointsPerPixel converts lengths for print: a CSS pixel is 1/96 of an inch, a point 1/72.
const pointsPerPixel = 0.75

const pdfFont = "sans"

// PDF writes the figure as one page of its size, with embedded fonts. The same figure gives the
// same bytes.
func (f Figure) PDF(w io.Writer) error {
	size := fpdf.SizeType{Wd: f.W * pointsPerPixel, Ht: f.H * pointsPerPixel}
	p := fpdf.NewCustom(&fpdf.InitType{UnitStr: "pt", Size: size})
	p.SetCreationDate(time.Unix(0, 0).UTC())
	p.SetModificationDate(time.Unix(0, 0).UTC())
	p.SetCatalogSort(true)
	p.SetTitle(f.Title, true)
	p.SetAutoPageBreak(false, 0)
	p.SetMargins(0, 0, 0)
	p.AddUTF8FontFromBytes(pdfFont, "", liberationsansregular.TTF)
	p.AddUTF8FontFromBytes(pdfFont, "B", liberationsansbold.TTF)
	p.AddPage()
	p.SetLineJoinStyle("round")
	for _, m := range f.Marks {
		m.scaled(pointsPerPixel).print(p)
	}
	if err := p.Output(w); err != nil {
		return fmt.Errorf("print %s: %w", f.Name, err)
	}
	return nil
}

func (m Mark) print(p *fpdf.Fpdf) {
	at := m.Points[0]
	r, g, b := m.Ink.rgb()
	p.SetDrawColor(r, g, b)
	p.SetFillColor(r, g, b)
	p.SetTextColor(r, g, b)
	p.SetAlpha(m.opacity(), "Normal")
	switch m.Shape {
	case Line:
		p.SetDashPattern(m.Dash, 0)
		p.SetLineWidth(m.Width)
		p.MoveTo(at.X, at.Y)
		for _, x := range m.Points[1:] {
			p.LineTo(x.X, x.Y)
		}
		p.DrawPath("D")
	case Rect:
		x, y, w, h := rect(at, m.Points[1])
		p.Rect(x, y, w, h, "F")
	case Dot:
		p.Circle(at.X, at.Y, m.Size, "F")
	case Label:
		style := ""
		if m.Bold {
			style = "B"
		}
		text := printable(m.Text)
		p.SetFont(pdfFont, style, m.Size)
		p.Text(at.X-p.GetStringWidth(text)*float64(m.Anchor)/2, at.Y, text)
	}
}
