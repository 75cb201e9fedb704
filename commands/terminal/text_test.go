package terminal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"braid/commands/terminal/hostile"
)

func TestVisible(t *testing.T) {
	for _, tt := range [][2]string{
		{"", ""}, {`C:\a "b"`, `C:\a "b"`},
		{"naïve Ωмир 世界 العربية עברית नमस्ते 👩‍🚀 é ·\u00a0\u3000", "naïve Ωмир 世界 العربية עברית नमस्ते 👩‍🚀 é ·\u00a0\u3000"},
		{"\x1b[2J", `\u001b[2J`}, {"a\nb\tc", `a\u000ab\u0009c`}, {"\u009b", `\u009b`}, {"\u202egpj.exe", `\u202egpj.exe`},
		{"\xff\xc3(", `\xff\xc3(`}, {"\ufffd", "\ufffd"}, {"\U000e0041", `\udb40\udc41`}, {"\u2028", `\u2028`},
	} {
		if got := visible(tt[0]); got != tt[1] {
			t.Errorf("%q: %q, want %q", tt[0], got, tt[1])
		}
	}
	if got := visiblef("%-4s|%*d|%v|%q\n", "\x1b", 3, 7, errors.New("\n"), "\u202e"); got != "\\u001b   |  7|\\u000a|\"\\u202e\"\n" {
		t.Errorf("%q", got)
	}
}

func FuzzVisible(f *testing.F) {
	f.Add(hostile.Text, 7)
	f.Add("世界\u0301👩‍🚀", 3)
	f.Fuzz(func(t *testing.T, s string, columns int) {
		v := visible(s)
		if r, bad := hostile.Obeyed(v); bad || strings.Contains(v, "\n") {
			t.Fatalf("%q leaves %U", s, r)
		}
		if visible(v) != v {
			t.Errorf("%q changes once more", v)
		}
		if c := Cut(v, columns); !strings.HasPrefix(v, c) || columns > 0 && utf8.RuneCountInString(c) > columns && !strings.ContainsFunc(c, func(r rune) bool { return columnsOf(r) == 0 }) {
			t.Errorf("%q cut to %d columns is %q", v, columns, c)
		}
		b, err := json.Marshal(map[string]string{s: s})
		if err != nil {
			t.Fatal(err)
		}
		var printed bytes.Buffer
		if _, err := (&Printer{W: &printed}).Write(b); err != nil {
			t.Fatal(err)
		}
		var before, after map[string]string
		if json.Unmarshal(b, &before) != nil || json.Unmarshal(printed.Bytes(), &after) != nil || !reflect.DeepEqual(before, after) {
			t.Errorf("%s is another value as %s", b, printed.Bytes())
		}
	})
}

func TestCut(t *testing.T) {
	for _, tt := range []struct {
		s       string
		columns int
		want    string
	}{{"abc", 0, ""}, {"abc", 3, "abc"}, {"abc", 2, "ab"}, {"世界", 3, "世"}, {"世界", 4, "世界"}, {"e\u0301e", 1, "e\u0301"}, {"", 1, ""}} {
		if got := Cut(tt.s, tt.columns); got != tt.want {
			t.Errorf("%q in %d columns: %q, want %q", tt.s, tt.columns, got, tt.want)
		}
	}
}

// A message of a stranger cannot pass for one of braid's own.
func TestSay(t *testing.T) {
	var b bytes.Buffer
	(&Printer{W: &b}).Say("braid", "failed\nbraid: all is well\n")
	if got, want := b.String(), "braid: failed\n  braid: all is well\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// The lines drawn in place are replaced, log lines stand above them, and none is left behind.
func TestDraw(t *testing.T) {
	var b strings.Builder
	p := Printer{W: &b}
	p.Draw(func(columns, _ int) []Line {
		return []Line{textLine("one\x1b"), textLine(strings.Repeat("世", columns))}
	})
	p.Printf("log\n")
	p.DrawText("three")
	p.Clear()
	p.Clear()
	up := func(rows int) string { return "\r\x1b[K" + strings.Repeat("\x1b[A\x1b[K", rows) }
	two := "one\\u001b\n" + strings.Repeat("世", 40) + "\n"
	if want := two + up(2) + "log\n" + two + up(2) + "three\n" + up(1); b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

// Colours are the printer's: they end with each span, text cannot bring its own, and there are none
// unless wanted.
func TestColours(t *testing.T) {
	l := Line{{"name", Bold}, {"  ", Plain}, {"bad\x1b[31m", Red}, {"long", green}}
	for _, c := range []struct {
		colour bool
		want   string
	}{
		{false, `name  bad\u001b[31mlo`},
		{true, "\x1b[1mname\x1b[m  \x1b[31mbad" + `\u001b[31m` + "\x1b[m\x1b[32mlo\x1b[m"},
	} {
		text, got := (&Printer{colour: c.colour}).painted(l, 21)
		if got != c.want || text != `name  bad\u001b[31mlo` {
			t.Errorf("colour %t: %q, %q", c.colour, text, got)
		}
	}
}

// The keys of private trackers reach neither the log nor messages.
func TestKeysAreHidden(t *testing.T) {
	var b bytes.Buffer
	p := &Printer{W: &b, Private: true}
	const url, key = "https://me:s3cret@t.example/s3cret/announce?passkey=s3cret", "s3cret"
	err := fmt.Errorf("announce: %w", errors.New(`Get "`+url+`": EOF`))
	slog.New(p.Handler(slog.LevelDebug)).Info("asked "+url, "tracker", url, "error", err)
	p.Say("braid", err.Error())
	p.DrawText(err.Error())
	if got := b.String(); strings.Contains(got, key) || strings.Count(got, "t.example") != 5 || strings.Count(got, "EOF") != 3 {
		t.Errorf("%s", got)
	}
}
