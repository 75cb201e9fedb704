// Package hostile helps tests to show that text of strangers does no harm on a terminal.
package hostile

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
	"unsafe"
)

// Text has what a terminal obeys (escape sequences of 7 and 8 bits, bells, tabulators, deletions),
// what ends a line for some of them, what turns the direction of writing, and bytes that are not
// UTF-8.
const Text = "a\x1b]0;title\x07\x1b[2J\u009b31m\r\n\v\f\t\b\x00\x7f\u0085\u2028\u2029\u202e\u2066" +
	"\ufeff\U000e0041\xff\xc3"

// Obeyed returns the first character that a terminal might obey or hide, other than the ends of
// lines.
func Obeyed(s string) (r rune, found bool) {
	const nonJoiner, joiner = '\u200c', '\u200d'
	for i, r := range s {
		_, n := utf8.DecodeRuneInString(s[i:])
		harmless := unicode.IsPrint(r) || unicode.Is(unicode.Zs, r) || r == nonJoiner || r == joiner
		if r != '\n' && (!harmless || r == utf8.RuneError && n == 1) {
			return r, true
		}
	}
	return 0, false
}

// Output is a function that shows people what strangers have written. Print sets everything in it
// to the text.
type Output struct {
	Name  string
	Exact bool // strangers cannot add lines
	Print func(w io.Writer, text string) error
}

// Check fails the test if a terminal obeys something in what the output prints.
func (o Output) Check(t *testing.T) {
	t.Run(o.Name, func(t *testing.T) {
		var good, bad bytes.Buffer
		if err := errors.Join(o.Print(&good, "text"), o.Print(&bad, Text)); err != nil {
			t.Fatal(err)
		}
		shown := strings.Contains(bad.String(), `u001b`) || strings.Contains(bad.String(), `x1b`)
		if !strings.Contains(good.String(), "text") || !shown {
			t.Fatalf("the text is not shown:\n%s\n%s", good.String(), bad.String())
		}
		if r, found := Obeyed(bad.String()); found {
			t.Errorf("%U reaches the terminal:\n%q", r, bad.String())
		}
		want, got := strings.Count(good.String(), "\n"), strings.Count(bad.String(), "\n")
		if o.Exact && got != want {
			t.Errorf("%d lines, want %d:\n%s", got, want, bad.String())
		}
	})
}

// Filled is a value in which every string and error is the text, also in fields that are added one
// day.
func Filled[T any](text string) (v T) {
	fill(reflect.ValueOf(&v).Elem(), text, 0)
	return v
}

func fill(v reflect.Value, text string, depth int) {
	if depth > 8 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Interface:
		if v.Type() == reflect.TypeFor[error]() {
			v.Set(reflect.ValueOf(errors.New(text)))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), text, depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), text, depth+1)
		fill(v.Index(1), text, depth+1)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, text, depth+1)
		fill(value, text, depth+1)
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Field(i)
			if !f.CanSet() {
				if !isCommands(v.Type().PkgPath()) {
					continue // it is of the type that guards it
				}
				f = reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
			}
			fill(f, text, depth+1)
		}
	}
}

// isCommands tells whether a package is one of commands, whose types have no guards.
func isCommands(pkg string) bool {
	return strings.HasPrefix(pkg, "braid/cmd/") || strings.HasPrefix(pkg+"/", "braid/commands/")
}
