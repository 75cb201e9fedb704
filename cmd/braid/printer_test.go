package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
	"unsafe"

	"braid/client"
	"braid/node"
	"braid/node/doctor"
	"braid/node/event"
	"braid/pathsel"
	"braid/storage"
)

// hostile has what a terminal obeys (escape sequences of 7 and 8 bits, bells, tabulators,
// deletions), what ends a line for some of them, what turns the direction of writing, and bytes
// that are not UTF-8.
const hostile = "a\x1b]0;title\x07\x1b[2J\u009b31m\r\n\v\f\t\b\x00\x7f\u0085\u2028\u2029\u202e\u2066\ufeff\U000e0041\xff\xc3"

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

// obeyed is the first character that a terminal might obey or hide, other than the ends of lines.
func obeyed(s string) (r rune, found bool) {
	for i, r := range s {
		if _, n := utf8.DecodeRuneInString(s[i:]); r != '\n' && (!harmless(r) || r == utf8.RuneError && n == 1) {
			return r, true
		}
	}
	return 0, false
}

func FuzzVisible(f *testing.F) {
	f.Add(hostile, 7)
	f.Add("世界\u0301👩‍🚀", 3)
	f.Fuzz(func(t *testing.T, s string, columns int) {
		v := visible(s)
		if r, bad := obeyed(v); bad || strings.Contains(v, "\n") {
			t.Fatalf("%q leaves %U", s, r)
		}
		if visible(v) != v {
			t.Errorf("%q changes once more", v)
		}
		if c := cut(v, columns); !strings.HasPrefix(v, c) || columns > 0 && utf8.RuneCountInString(c) > columns && !strings.ContainsFunc(c, func(r rune) bool { return columnsOf(r) == 0 }) {
			t.Errorf("%q cut to %d columns is %q", v, columns, c)
		}
		b, err := json.Marshal(map[string]string{s: s})
		if err != nil {
			t.Fatal(err)
		}
		var printed bytes.Buffer
		if _, err := (&printer{w: &printed}).Write(b); err != nil {
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
		if got := cut(tt.s, tt.columns); got != tt.want {
			t.Errorf("%q in %d columns: %q, want %q", tt.s, tt.columns, got, tt.want)
		}
	}
}

// filled is a value in which every string and error is the text, also in fields that are added one
// day.
func filled[T any](text string) (v T) {
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
				if !strings.HasPrefix(v.Type().PkgPath(), "braid/cmd") {
					continue // it is of the type that guards it
				}
				f = reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
			}
			fill(f, text, depth+1)
		}
	}
}

type output struct {
	name  string
	exact bool
	print func(p *printer, text string) error
}

// outputs are the functions that show people what strangers have written, each with everything in
// it set to the text. exact: strangers cannot add lines.
var outputs = []output{
	{"progress", true, func(p *printer, text string) error {
		for _, phase := range []client.Phase{client.Metadata, client.Checking, client.Downloading, client.Complete, client.Broken, client.Phase(text)} {
			for _, state := range []pathsel.State{pathsel.Idle, pathsel.Active, pathsel.Failed} {
				x := filled[client.Progress](text)
				x.Phase, x.Paths[0].State, x.Paths[0].BytesRead = phase, state, 1
				for _, uploads := range []bool{false, true} {
					for _, line := range append(summary(x, true), plainLine(x, uploads), countLine(text, 1, 2, 3)) {
						p.printf("%s\n", line)
					}
				}
			}
		}
		return nil
	}},
	{"drawn", true, func(p *printer, text string) error {
		x := filled[client.Progress](text)
		for _, uploads := range []bool{false, true} {
			p.draw(func(int, int) []line { return screen([]client.Progress{x, x}, uploads, true, 500, 30) })
			p.drawn = nil // no escape sequences of our own
		}
		return nil
	}},
	{"info", true, func(p *printer, text string) error {
		s := filled[client.Source](text)
		printInfo(p, s, false)
		printInfo(p, s, true)
		return nil
	}},
	{"magnet", true, func(p *printer, text string) error {
		s := filled[client.Source](text)
		s.Info = nil
		printInfo(p, s, true)
		return nil
	}},
	{"files", true, func(p *printer, text string) error {
		listFiles(&display{results: p}, filled[storage.Layout](text), client.Selection{})
		return nil
	}},
	{"verify", true, func(p *printer, text string) error {
		printReport(p, filled[storage.Report](text))
		return nil
	}},
	{"paths", true, func(p *printer, text string) error {
		l := filled[pathList](text)
		l.print(p, false, time.Time{})
		l.print(p, true, time.Time{})
		return nil
	}},
	{"doctor", true, func(p *printer, text string) error {
		printFindings(p, filled[[]doctor.Finding](text))
		return nil
	}},
	{"error", false, func(p *printer, text string) error { p.say("braid", text); return nil }},
	{"log", true, func(p *printer, text string) error {
		log := slog.New(p.handler(slog.LevelDebug)).With(text, text).WithGroup(text)
		log.Info(text, text, text, "error", errors.New(text), "any", []string{text}, "value", filled[client.Peer](text))
		return nil
	}},
	{"events", true, func(p *printer, text string) error {
		e := json.NewEncoder(p)
		x := filled[client.Progress](text)
		return errors.Join(e.Encode(filled[event.PathStep](text)), e.Encode(filled[event.Done](text)), e.Encode(filled[description](text)),
			e.Encode(node.NewProgress(client.Source{}, x)))
	}},
}

// Whatever strangers write into any field, a terminal obeys nothing of it, and no line is added.
func TestNothingIsObeyed(t *testing.T) {
	for _, o := range outputs {
		t.Run(o.name, func(t *testing.T) {
			var good, bad bytes.Buffer
			if err := errors.Join(o.print(&printer{w: &good}, "text"), o.print(&printer{w: &bad}, hostile)); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(good.String(), "text") || !strings.Contains(bad.String(), `u001b`) && !strings.Contains(bad.String(), `x1b`) {
				t.Fatalf("the text is not shown:\n%s\n%s", good.String(), bad.String())
			}
			if r, found := obeyed(bad.String()); found {
				t.Errorf("%U reaches the terminal:\n%q", r, bad.String())
			}
			if want, got := strings.Count(good.String(), "\n"), strings.Count(bad.String(), "\n"); o.exact && got != want {
				t.Errorf("%d lines, want %d:\n%s", got, want, bad.String())
			}
		})
	}
}

// A message of a stranger cannot pass for one of braid's own.
func TestSay(t *testing.T) {
	var b bytes.Buffer
	(&printer{w: &b}).say("braid", "failed\nbraid: all is well\n")
	if got, want := b.String(), "braid: failed\n  braid: all is well\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// The lines drawn in place are replaced, log lines stand above them, and none is left behind.
func TestDraw(t *testing.T) {
	var b strings.Builder
	p := printer{w: &b}
	p.draw(func(columns, _ int) []line {
		return []line{textLine("one\x1b"), textLine(strings.Repeat("世", columns))}
	})
	p.printf("log\n")
	p.drawText("three")
	p.clear()
	p.clear()
	up := func(rows int) string { return "\r\x1b[K" + strings.Repeat("\x1b[A\x1b[K", rows) }
	two := "one\\u001b\n" + strings.Repeat("世", 40) + "\n"
	if want := two + up(2) + "log\n" + two + up(2) + "three\n" + up(1); b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

// Colours are the printer's: they end with each span, text cannot bring its own, and there are none
// unless wanted.
func TestColours(t *testing.T) {
	l := line{{"name", bold}, {"  ", plain}, {"bad\x1b[31m", red}, {"long", green}}
	for _, c := range []struct {
		colour bool
		want   string
	}{
		{false, `name  bad\u001b[31mlo`},
		{true, "\x1b[1mname\x1b[m  \x1b[31mbad" + `\u001b[31m` + "\x1b[m\x1b[32mlo\x1b[m"},
	} {
		text, got := (&printer{colour: c.colour}).painted(l, 21)
		if got != c.want || text != `name  bad\u001b[31mlo` {
			t.Errorf("colour %t: %q, %q", c.colour, text, got)
		}
	}
}

// The keys of private trackers reach neither the log nor messages.
func TestKeysAreHidden(t *testing.T) {
	var b bytes.Buffer
	p := &printer{w: &b, private: true}
	const url, key = "https://me:s3cret@t.example/s3cret/announce?passkey=s3cret", "s3cret"
	err := fmt.Errorf("announce: %w", errors.New(`Get "`+url+`": EOF`))
	slog.New(p.handler(slog.LevelDebug)).Info("asked "+url, "tracker", url, "error", err)
	p.say("braid", err.Error())
	p.drawText(err.Error())
	if got := b.String(); strings.Contains(got, key) || strings.Count(got, "t.example") != 5 || strings.Count(got, "EOF") != 3 {
		t.Errorf("%s", got)
	}
}

// Nothing in the whole program prints past the printer.
func TestOnlyThePrinterPrints(t *testing.T) {
	allowed := map[string]int{"main.go os.Stdout": 1, "main.go os.Stderr": 1, "printer.go os.Stdout": 1}
	files := 0
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		files++
		name := filepath.Base(path)
		ast.Inspect(file, func(n ast.Node) bool {
			found := ""
			switch x := n.(type) {
			case *ast.SelectorExpr:
				if id, ok := x.X.(*ast.Ident); ok {
					found = id.Name + "." + x.Sel.Name
				}
				if x.Sel.Name == "Writer" || x.Sel.Name == "ErrWriter" {
					if _, ok := x.X.(*ast.CallExpr); ok && name != "printer.go" {
						t.Errorf("%s uses a command's %s: want stdout(cmd) or stderr(cmd)", name, x.Sel.Name)
					}
				}
			case *ast.CallExpr:
				if id, ok := x.Fun.(*ast.Ident); ok && (id.Name == "print" || id.Name == "println") {
					t.Errorf("%s calls %s", name, id.Name)
				}
			}
			switch found {
			case "os.Stdout", "os.Stderr":
				if allowed[name+" "+found]--; allowed[name+" "+found] < 0 {
					t.Errorf("%s uses %s: want stdout(cmd) or stderr(cmd)", name, found)
				}
			case "fmt.Print", "fmt.Printf", "fmt.Println", "slog.Default", "slog.Info", "slog.Warn", "slog.Error", "slog.Debug":
				t.Errorf("%s calls %s, which goes past the printer", name, found)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 100 {
		t.Errorf("%d files: did the folder move and this test stay behind?", files)
	}
}

// A magnet link to pass on has no announce URL with a key, unless the user wants it.
func TestInfoHidesKeys(t *testing.T) {
	s := client.Source{Name: "x", Trackers: [][]string{{"http://t.example/announce", "http://t.example/k3y/announce"}, {"udp://t.example:1/?k3y"}}}
	for _, keys := range []bool{false, true} {
		var b bytes.Buffer
		printInfo(&printer{w: &b}, s, keys)
		shown := strings.Count(b.String(), "k3y")
		if want := map[bool]int{true: 4}[keys]; shown != want || strings.Contains(b.String(), "--show-keys") == keys || strings.Count(b.String(), "t.example") < 4 {
			t.Errorf("%t: %s", keys, b.String())
		}
	}
}
