package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/urfave/cli/v3"
	"golang.org/x/term"

	"braid/tracker"
)

// printer is the only way of text from braid to standard output or standard error. What it prints is visible: nothing
// that a stranger has written can make a terminal obey. JSON goes through it too, and stays valid. It is safe for
// concurrent use.
type printer struct {
	w io.Writer
	// private hides the keys of announce URLs: standard error is what people paste into bug reports.
	private bool
	// lost, if not nil, is called after the first error of writing. Nothing more is printed then: half a line of JSON and
	// the rest of another make no sense. If it is nil, errors are forgotten.
	lost func()

	mu    sync.Mutex
	err   error    // the first one, if lost is not nil
	drawn []string // the lines at the end of a terminal that draw replaces
}

// stdout prints results. Whoever asked for them must know if they are lost: see outcome.
func stdout(c *cli.Command) *printer { return c.Root().Writer.(*printer) }

// stderr prints progress, the log and errors. A terminal that has gone does not stop a transfer.
func stderr(c *cli.Command) *printer { return c.Root().ErrWriter.(*printer) }

// pipes are standard input and output of a process that another braid has started and reads: no text for people.
func pipes() (io.Reader, io.Writer) { return os.Stdin, os.Stdout }

// Write prints whole lines, or the beginning of one, without cutting characters in two.
func (p *printer) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	b.WriteString(p.erased())
	b.WriteString(visibleLines(string(text)))
	writeLines(&b, p.drawn)
	if err := p.send(b.String()); err != nil {
		return 0, err
	}
	return len(text), nil
}

// printf prints text in which the arguments are made visible. They cannot end a line; only the format can.
func (p *printer) printf(format string, args ...any) {
	text := visiblef(format, args...)
	if p.private {
		text = tracker.Redact(text)
	}
	_, _ = p.Write([]byte(text)) // kept in err
}

// say prints a message of one or more lines, such as an error. Further lines are indented, so that none of them passes
// for a message of its own.
func (p *printer) say(who, message string) {
	first, rest, more := strings.Cut(strings.TrimSpace(message), "\n")
	p.printf("%s: %s\n", who, first)
	for more {
		first, rest, more = strings.Cut(rest, "\n")
		p.printf("  %s\n", first)
	}
}

// draw replaces the lines drawn before by these, each cut to the width of the terminal.
func (p *printer) draw(lines ...string) {
	columns, rows := p.size()
	fit := make([]string, 0, len(lines))
	for _, l := range lines[:min(len(lines), max(1, rows-1))] {
		if l = visible(l); p.private {
			l = tracker.Redact(l)
		}
		fit = append(fit, cut(l, columns))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.drawn)+len(fit) == 0 {
		return
	}
	var b strings.Builder
	b.WriteString(p.erased())
	writeLines(&b, fit)
	p.drawn = fit
	_ = p.send(b.String())
}

// clear takes away the lines drawn before.
func (p *printer) clear() { p.draw() }

// erased takes the cursor back to the first line that was drawn, and erases from there.
func (p *printer) erased() string {
	if len(p.drawn) == 0 {
		return ""
	}
	return fmt.Sprintf("\x1b[%dA\r\x1b[J", len(p.drawn))
}

func writeLines(b *strings.Builder, lines []string) {
	for _, l := range lines {
		b.WriteString(l + "\n")
	}
}

func (p *printer) send(text string) error {
	if p.err != nil {
		return p.err
	}
	_, err := io.WriteString(p.w, text)
	if err != nil && p.lost != nil {
		p.err = err
		p.lost()
	}
	return err
}

// lostOutput is the error that the printer met, if any.
func (p *printer) lostOutput() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *printer) isTerminal() bool {
	f, ok := p.w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// size is how many columns and rows the terminal has.
func (p *printer) size() (columns, rows int) {
	if f, ok := p.w.(*os.File); ok {
		columns, rows, _ = term.GetSize(int(f.Fd()))
	}
	if columns <= 0 || rows <= 0 { // some terminals do not know
		columns, rows = 80, 24
	}
	return columns, rows
}

// lend lets a command of the user write past the printer: what it writes is the user's.
func (p *printer) lend(c *exec.Cmd) { c.Stdout, c.Stderr = p.w, p.w }

// handler is a log in lines. It quotes what is not printable, and hides the keys of announce URLs.
func (p *printer) handler(level slog.Level) slog.Handler {
	return slog.NewTextHandler(p, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if k := a.Value.Kind(); k == slog.KindString || k == slog.KindAny {
			if text := a.Value.String(); tracker.Redact(text) != text {
				a.Value = slog.StringValue(tracker.Redact(text))
			}
		}
		return a
	}})
}

// fprintf is Fprintf whose arguments are made visible.
func fprintf(w io.Writer, format string, args ...any) error {
	_, err := io.WriteString(w, visiblef(format, args...))
	return err
}

// table lines up cells. Arguments can end neither a line nor a cell; only the format can.
type table struct{ *tabwriter.Writer }

func newTable(w io.Writer) table { return table{tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)} }

func (t table) printf(format string, args ...any) { _ = fprintf(t.Writer, format, args...) }
