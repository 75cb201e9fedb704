package figure

import (
	"fmt"
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
		if err := m.scaled(scale).paint(c); err != nil {
			return fmt.Errorf("draw %s: %w", f.Name, err)
		}
	}
	return c.EncodePNG(w)
}

func (m Mark) paint(c *gg.Context) error {
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
		face, err := faceOf(m.Bold, m.Size)
		if err != nil {
			return err
		}
		c.SetFontFace(face)
		width := float64(font.MeasureString(face, m.Text)) / 64
		c.DrawString(m.Text, p.X-width*float64(m.Anchor)/2, p.Y)
	}
	return nil
}

// TextWidth returns the width of a text.
func TextWidth(text string, size float64, bold bool) float64 {
	face, err := faceOf(bold, size*8) // large, so that rounding to whole dots does not count
	if err != nil {
		panic(err) // the fonts are compiled in
	}
	return float64(font.MeasureString(face, text)) / 64 / 8
}

// Fonts are parsed once, since that takes longer than drawing a figure.
var parsed = [2]func() (*opentype.Font, error){
	sync.OnceValues(func() (*opentype.Font, error) { return opentype.Parse(liberationsansregular.TTF) }),
	sync.OnceValues(func() (*opentype.Font, error) { return opentype.Parse(liberationsansbold.TTF) }),
}

func faceOf(bold bool, size float64) (font.Face, error) {
	which := 0
	if bold {
		which = 1
	}
	f, err := parsed[which]()
	if err != nil {
		return nil, fmt.Errorf("read the font: %w", err)
	}
	face, err := opentype.NewFace(f, &opentype.FaceOptions{Size: size, DPI: 72, Hinting: font.HintingNone})
	return evenly{face}, err
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
