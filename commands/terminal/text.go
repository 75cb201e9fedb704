package terminal

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// Text in the columns of a terminal.

// Cut returns the beginning of a visible text that fits into so many columns of a terminal.
func Cut(s string, columns int) string {
	used := 0
	for i, r := range s {
		if used += columnsOf(r); used > columns {
			return s[:i]
		}
	}
	return s
}

// ColumnsOfText returns the columns that a visible text takes.
func ColumnsOfText(s string) int {
	n := 0
	for _, r := range s {
		n += columnsOf(r)
	}
	return n
}

// rowsOf returns the number of rows that a text takes on a terminal of that width. Terminals do not
// split a wide character at the edge.
func rowsOf(s string, columns int) int {
	rows, used := 1, 0
	for _, r := range s {
		n := columnsOf(r)
		if used+n > columns && used > 0 {
			rows, used = rows+1, 0
		}
		used += n
	}
	return rows
}

// columnsOf returns the columns that a character takes on a terminal. Without it, a line with a
// Chinese name would be wider than the terminal, and redrawing would leave half of it behind.
func columnsOf(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// fit returns text that is exactly width columns wide. It fills up short text, and shortens long
// text in the middle, since names differ at their ends.
func fit(s string, width int) string {
	s = visible(s)
	n := ColumnsOfText(s)
	if n <= width {
		return s + strings.Repeat(" ", width-n)
	}
	if width < 3 {
		return Cut(s, max(1, width))
	}
	head, tail := Cut(s, width/2), s
	for ColumnsOfText(tail) > width-1-ColumnsOfText(head) {
		_, size := utf8.DecodeRuneInString(tail)
		tail = tail[size:]
	}
	out := head + "…" + tail
	return out + strings.Repeat(" ", max(0, width-ColumnsOfText(out)))
}

// wrapText breaks text between words into at most most lines of width columns. If the text is
// longer, the last line is shortened.
func wrapText(s string, width, most int) []string {
	out := strings.Split(strings.TrimSpace(Hanging("", 0, visible(s), width)), "\n")
	if len(out) > most {
		rest := strings.Join(out[most-1:], " ")
		out = append(out[:most-1], strings.TrimRight(fit(rest, width), " "))
	}
	return out
}

func PadLeft(s string, width int) string  { return fmt.Sprintf("%*s", width, s) }
func PadRight(s string, width int) string { return fmt.Sprintf("%-*s", width, s) }

// Hanging writes a title and the words of text after it. It wraps lines at width, and indents all
// but the first.
func Hanging(title string, indent int, text string, width int) string {
	var b strings.Builder
	b.WriteString(title)
	used, fresh := ColumnsOfText(title), true
	for _, word := range strings.Fields(text) {
		columns := ColumnsOfText(word)
		if !fresh && used+1+columns > width {
			b.WriteString("\n" + strings.Repeat(" ", indent))
			used, fresh = indent, true
		}
		if !fresh {
			b.WriteString(" ")
			used++
		}
		b.WriteString(word)
		used, fresh = used+columns, false
	}
	return strings.TrimRight(b.String(), " ") + "\n"
}

func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// OneLine joins the lines of an error.
func OneLine(s string) string { return strings.ReplaceAll(strings.TrimSpace(s), "\n", "; ") }
