package figure

import (
	"fmt"
	"html"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// SVG writes the figure as a file. It follows the reader's choice of light or dark.
func (f Figure) SVG(w io.Writer) error {
	_, err := fmt.Fprintf(w, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n%s", f.svg("<style>"+CSS()+"</style>\n"))
	return err
}

// Inline returns the figure for a page that has the style sheet of CSS.
func (f Figure) Inline() string { return f.svg("") }

// svg escapes all texts, because the names in a figure may come from strangers.
func (f Figure) svg(style string) string {
	var b strings.Builder
	id := "fig-" + slug(f.Name)
	fmt.Fprintf(&b, `<svg class="fig" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" `+
		`width="%s" height="%s" role="img" aria-labelledby="%s-t %s-d">`+"\n",
		num(f.W), num(f.H), num(f.W), num(f.H), id, id)
	fmt.Fprintf(&b, `<title id="%s-t">%s</title><desc id="%s-d">%s</desc>`+"\n%s",
		id, escape(f.Title), id, escape(f.Text), style)
	fmt.Fprintf(&b, "<rect class=\"f%d\" width=\"%s\" height=\"%s\"/>\n", Paper, num(f.W), num(f.H))
	for _, m := range f.Marks {
		m.svg(&b)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (m Mark) svg(b *strings.Builder) {
	tip := ""
	if m.Tip != "" {
		tip = "<title>" + escape(m.Tip) + "</title>"
	}
	var more strings.Builder
	if o := m.opacity(); o < 1 {
		fmt.Fprintf(&more, " opacity=\"%s\"", num(o))
	}
	p := m.Points[0]
	switch m.Shape {
	case Line:
		if len(m.Dash) > 0 {
			fmt.Fprintf(&more, " stroke-dasharray=\"%s\"", join(m.Dash, num))
		}
		fmt.Fprintf(b, `<polyline class="s%d" fill="none" stroke-width="%s" stroke-linejoin="round" `+
			`points="%s"%s>%s</polyline>`+"\n",
			m.Ink, num(m.Width), join(m.Points, Point.String), &more, tip)
	case Rect:
		x, y, w, h := rect(p, m.Points[1])
		fmt.Fprintf(b, "<rect class=\"f%d\" x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\"%s>%s</rect>\n",
			m.Ink, num(x), num(y), num(w), num(h), &more, tip)
	case Dot:
		fmt.Fprintf(b, "<circle class=\"f%d\" cx=\"%s\" cy=\"%s\" r=\"%s\"%s>%s</circle>\n",
			m.Ink, num(p.X), num(p.Y), num(m.Size), &more, tip)
	case Label:
		if m.Bold {
			more.WriteString(" font-weight=\"bold\"")
		}
		anchor := [...]string{"start", "middle", "end"}[m.Anchor]
		fmt.Fprintf(b, "<text class=\"f%d\" x=\"%s\" y=\"%s\" font-size=\"%s\" text-anchor=\"%s\"%s>%s%s</text>\n",
			m.Ink, num(p.X), num(p.Y), num(m.Size), anchor, &more, tip, escape(m.Text))
	}
}

func (m Mark) opacity() float64 {
	if m.Opacity > 0 {
		return min(m.Opacity, 1)
	}
	return 1
}

// rect returns the upper left corner, the width and the height of a rectangle.
func rect(p, q Point) (x, y, w, h float64) {
	return min(p.X, q.X), min(p.Y, q.Y), math.Abs(q.X - p.X), math.Abs(q.Y - p.Y)
}

// join writes values, with spaces between them.
func join[T any](values []T, write func(T) string) string {
	var texts []string
	for _, v := range values {
		texts = append(texts, write(v))
	}
	return strings.Join(texts, " ")
}

func (p Point) String() string { return num(p.X) + "," + num(p.Y) }

// num writes a length. It rounds to a hundredth of a pixel, which nobody sees.
func num(v float64) string {
	s := strconv.FormatFloat(v, 'f', 2, 64)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// escape makes a text safe in XML. XML does not even allow escaped control characters.
func escape(s string) string { return html.EscapeString(printable(s)) }

// printable removes control characters from a text, and replaces broken letters.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 && r != '\t' && r != '\n' || r >= 0x7f && r < 0xa0 || r == 0xfffe || r == 0xffff {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "�"))
}

// slug makes a name safe as an ID and as the name of a file. Other characters than letters and
// digits become their codes, so that different names stay different.
func slug(s string) string {
	return special.ReplaceAllStringFunc(s, func(c string) string { return fmt.Sprintf("_%X", []rune(c)[0]) })
}

var special = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

// File returns the name of the figure's files, without an ending.
func (f Figure) File() string { return slug(f.Name) }
