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
	p := fpdf.NewCustom(&fpdf.InitType{UnitStr: "pt", Size: fpdf.SizeType{Wd: f.W * pointsPerPixel, Ht: f.H * pointsPerPixel}})
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
		m.print(p)
	}
	if err := p.Output(w); err != nil {
		return fmt.Errorf("print %s: %w", f.Name, err)
	}
	return nil
}

func (m Mark) print(p *fpdf.Fpdf) {
	at := make([]fpdf.PointType, len(m.Points))
	for i, x := range m.Points {
		at[i] = fpdf.PointType{X: x.X * pointsPerPixel, Y: x.Y * pointsPerPixel}
	}
	r, g, b := m.Ink.rgb()
	p.SetDrawColor(r, g, b)
	p.SetFillColor(r, g, b)
	p.SetTextColor(r, g, b)
	p.SetAlpha(m.opacity(), "Normal")
	switch m.Shape {
	case Line:
		dash := make([]float64, len(m.Dash))
		for i, d := range m.Dash {
			dash[i] = d * pointsPerPixel
		}
		p.SetDashPattern(dash, 0)
		p.SetLineWidth(m.Width * pointsPerPixel)
		p.MoveTo(at[0].X, at[0].Y)
		for _, x := range at[1:] {
			p.LineTo(x.X, x.Y)
		}
		p.DrawPath("D")
	case Rect:
		x, y, w, h := rect(Point(at[0]), Point(at[1]))
		p.Rect(x, y, w, h, "F")
	case Dot:
		p.Circle(at[0].X, at[0].Y, m.Size*pointsPerPixel, "F")
	case Label:
		style := ""
		if m.Bold {
			style = "B"
		}
		text := printable(m.Text)
		p.SetFont(pdfFont, style, m.Size*pointsPerPixel)
		p.Text(at[0].X-p.GetStringWidth(text)*float64(m.Anchor)/2, at[0].Y, text)
	}
}
