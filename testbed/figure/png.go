package figure

import (
	"io"
	"math"
	"sync"

	"codeberg.org/go-fonts/liberation/liberationsansbold"
	"codeberg.org/go-fonts/liberation/liberationsansregular"
	"git.sr.ht/~sbinet/gg"
	"golang.org/x/image/font"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
)

// PNG writes the figure on white paper, with two dots a pixel.
func (f Figure) PNG(w io.Writer) error {
	const scale = 2
	c := gg.NewContext(int(math.Ceil(f.W*scale)), int(math.Ceil(f.H*scale)))
	c.SetRGB255(Paper.rgb())
	c.Clear()
	c.SetLineJoinRound()
	c.SetLineCapButt()
	for _, m := range f.Marks {
		m.scaled(scale).paint(c)
	}
	return c.EncodePNG(w)
}

func (m Mark) paint(c *gg.Context) {
	r, g, b := m.Ink.rgb()
	c.SetRGBA(float64(r)/0xff, float64(g)/0xff, float64(b)/0xff, m.opacity())
	p := m.Points[0]
	switch m.Shape {
	case Line:
		c.SetDash(m.Dash...)
		c.SetLineWidth(m.Width)
		c.NewSubPath()
		for _, p := range m.Points {
			c.LineTo(p.X, p.Y)
		}
		c.Stroke()
	case Rect:
		c.DrawRectangle(rect(p, m.Points[1]))
		c.Fill()
	case Dot:
		c.DrawCircle(p.X, p.Y, m.Size)
		c.Fill()
	case Label:
		face := faceOf(m.Bold, m.Size)
		c.SetFontFace(face)
		width := float64(font.MeasureString(face, m.Text)) / 64
		c.DrawString(m.Text, p.X-width*float64(m.Anchor)/2, p.Y)
	}
}

// TextWidth returns the width of a text.
func TextWidth(text string, size float64, bold bool) float64 {
	face := faceOf(bold, size*8) // large, so that rounding to whole dots does not count
	return float64(font.MeasureString(face, text)) / 64 / 8
}

// Fonts are parsed once, since that takes longer than drawing a figure.
var regular, boldface = parsed(liberationsansregular.TTF), parsed(liberationsansbold.TTF)

func parsed(ttf []byte) func() *opentype.Font {
	return sync.OnceValue(func() *opentype.Font { return must(opentype.Parse(ttf)) })
}

func faceOf(bold bool, size float64) font.Face {
	f := regular
	if bold {
		f = boldface
	}
	return evenly{must(opentype.NewFace(f(), &opentype.FaceOptions{Size: size, DPI: 72, Hinting: font.HintingNone}))}
}

// must panics on an error, since the fonts are compiled in.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// evenly sets letters without kerning, because the font would move the digits of 111 together.
type evenly struct{ font.Face }

func (evenly) Kern(_, _ rune) fixed.Int26_6 { return 0 }

// Fit shortens a text to a width that it also has in bold letters, and ends it with an ellipsis if
// something is missing.
func Fit(text string, size, width float64) string {
	r := []rune(text)
	if narrow := int(width/size*8) + 8; len(r) > narrow { // no letter is an eighth of its height wide
		r = r[:narrow]
	} else if TextWidth(text, size, true) <= width {
		return text
	}
	n := len(r)
	for ; n > 0 && TextWidth(string(r[:n])+"…", size, true) > width; n-- {
	}
	return string(r[:n]) + "…"
}
