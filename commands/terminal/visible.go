package terminal

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Names, comments, addresses and messages come from strangers. A terminal obeys some characters in
// them: it moves the cursor, changes its title, or answers as if the user had typed. The functions
// of this file make such characters visible.

// visible replaces line ends, and every character that a terminal might obey or hide, with escapes.
// Bytes that are not UTF-8 become \xff. Characters become \u001b as in JSON, so that a JSON value
// keeps its meaning. Letters, marks, digits, symbols and spaces of all scripts stay.
func visible(s string) string { return escape(s, harmless) }

// visibleLines is like visible, but keeps line ends.
func visibleLines(s string) string {
	return escape(s, func(r rune) bool { return r == '\n' || harmless(r) })
}

func harmless(r rune) bool {
	const nonJoiner, joiner = '\u200c', '\u200d' // in Persian, Indic scripts and emoji
	return unicode.IsPrint(r) || unicode.Is(unicode.Zs, r) || r == nonJoiner || r == joiner
}

func escape(s string, stays func(rune) bool) string {
	var b strings.Builder
	for i, r := range s {
		_, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case stays(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// visiblef is fmt.Sprintf that makes its arguments visible. So only the format, which is braid's
// own, can end a line or a cell.
func visiblef(format string, args ...any) string {
	shown := make([]any, len(args))
	for i, a := range args {
		if shown[i] = a; !isInt(a) { // the width in %*d must be an int
			shown[i] = argument{a}
		}
	}
	return fmt.Sprintf(format, shown...)
}

func isInt(a any) bool { _, ok := a.(int); return ok }

// argument formats like its value, and makes the result visible.
type argument struct{ value any }

func (a argument) Format(f fmt.State, verb rune) {
	_, _ = io.WriteString(f, visible(fmt.Sprintf(fmt.FormatString(f, verb), a.value)))
}
