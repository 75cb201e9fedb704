package figure

import (
	"fmt"
	"io"
	"strings"
)

// PGF writes the figure for LaTeX. A document that loads pgf and xcolor can \input it; texts are
// set in the document's own font.
func (f Figure) PGF(w io.Writer) error {
	var b strings.Builder
	b.WriteString("% \\usepackage{pgf,xcolor}\n\\begingroup\n")
	for i, c := range light {
		fmt.Fprintf(&b, "\\definecolor{ink%d}{HTML}{%s}\n", i, strings.ToUpper(c[1:]))
	}
	b.WriteString("\\begin{pgfpicture}\n\\pgfsetroundjoin\n")
	fmt.Fprintf(&b, "\\pgfpathrectangle{\\pgfpointorigin}{%s}\n", f.pgfPoint(Point{f.W, 0}))
	b.WriteString("\\pgfusepath{use as bounding box}\n")
	for _, m := range f.Marks {
		m.pgf(&b, f)
	}
	b.WriteString("\\end{pgfpicture}\n\\endgroup\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// pgfPoint writes a place for PGF, in which y grows upwards.
func (f Figure) pgfPoint(p Point) string {
	return fmt.Sprintf("\\pgfqpoint{%s}{%s}", pgfLength(p.X), pgfLength(f.H-p.Y))
}

// pgfLength writes a length in big points, of which an inch has 72.
func pgfLength(pixels float64) string { return num(pixels*pointsPerPixel) + "bp" }

func (m Mark) pgf(b *strings.Builder, f Figure) {
	fmt.Fprintf(b, "\\begin{pgfscope}\\pgfsetcolor{ink%d}", m.Ink)
	if o := m.opacity(); o < 1 {
		fmt.Fprintf(b, "\\pgfsetfillopacity{%s}\\pgfsetstrokeopacity{%s}", num(o), num(o))
	}
	p := m.Points[0]
	switch m.Shape {
	case Line:
		fmt.Fprintf(b, "\\pgfpathmoveto{%s}", f.pgfPoint(p))
		for _, x := range m.Points[1:] {
			fmt.Fprintf(b, "\\pgfpathlineto{%s}\n", f.pgfPoint(x)) // LaTeX does not read very long lines
		}
		if len(m.Dash) > 0 {
			b.WriteString("\\pgfsetdash{")
			for _, d := range m.Dash {
				fmt.Fprintf(b, "{%s}", pgfLength(d))
			}
			b.WriteString("}{0pt}")
		}
		fmt.Fprintf(b, "\\pgfsetlinewidth{%s}\\pgfusepath{stroke}", pgfLength(m.Width))
	case Rect:
		fmt.Fprintf(b, "\\pgfpathrectanglecorners{%s}{%s}\\pgfusepath{fill}", f.pgfPoint(p), f.pgfPoint(m.Points[1]))
	case Dot:
		fmt.Fprintf(b, "\\pgfpathcircle{%s}{%s}\\pgfusepath{fill}", f.pgfPoint(p), pgfLength(m.Size))
	case Label:
		bold := ""
		if m.Bold {
			bold = "\\bfseries "
		}
		size := pgfLength(m.Size)
		fmt.Fprintf(b, "\\pgftext[%s,base,at={%s}]{\\fontsize{%s}{%s}\\selectfont %s%s}",
			[...]string{"left", "", "right"}[m.Anchor], f.pgfPoint(p), size, size, bold, latex(m.Text))
	}
	b.WriteString("\\end{pgfscope}\n")
}

var latexLetters = strings.NewReplacer(
	`\`, `\textbackslash{}`, `{`, `\{`, `}`, `\}`, `#`, `\#`, `$`, `\$`, `%`, `\%`, `&`, `\&`, `_`, `\_`,
	`~`, `\textasciitilde{}`, `^`, `\textasciicircum{}`, `<`, `\textless{}`, `>`, `\textgreater{}`,
	`"`, `\textquotedbl{}`, "→", `$\rightarrow$`, "≥", `$\geq$`, "≤", `$\leq$`, "±", `$\pm$`,
	"×", `$\times$`, "µ", `\textmu{}`, "…", `\ldots{}`,
)

// latex escapes a text for LaTeX.
func latex(s string) string { return latexLetters.Replace(printable(s)) }
