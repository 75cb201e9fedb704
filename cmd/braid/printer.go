package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/term"

	"braid/tracker"
)

// printer writes all text that braid sends to standard output or standard error. It replaces
// control characters with visible escapes, so that text from strangers, such as a torrent's name,
// cannot control the terminal. JSON goes through it, too, and stays valid. A printer is safe for
// concurrent use.
type printer struct {
	w io.Writer
	// private hides the keys of announce URLs: standard error is what people paste into bug
	// reports.
	private bool
	// lost, if not nil, is called after the first write error. After that the printer prints
	// nothing more, since a line of JSON may have been cut off. If lost is nil, write errors are
	// ignored.
	lost func()
	// dumb: the terminal cannot move its cursor. colour: it knows colours, and the user wants them.
	dumb, colour bool

	mu    sync.Mutex
	err   error    // the first write error, if lost is not nil
	frame frame    // the text at the end of the terminal that is drawn again and again; nil: none
	drawn []string // its lines as they were last drawn, without colours
	// unsettled is the end of a change of the terminal's size. Until then nothing is drawn, and
	// text waits in held.
	unsettled time.Time
	held      string
}

// settling is how long the printer waits after the terminal's size has changed. tmux wraps lines
// anew at once, but reports a second change only after a quarter of a second. A frame drawn
// meanwhile would be in the wrong place.
const settling = 300 * time.Millisecond

// frame returns the lines to draw on a terminal of the given size.
type frame func(columns, rows int) []line

// stdout prints results. If they cannot be written, the command fails: see outcome.
func stdout(c *cli.Command) *printer { return c.Root().Writer.(*printer) }

// stderr prints progress, the log and errors. If they cannot be written, transfers go on.
func stderr(c *cli.Command) *printer { return c.Root().ErrWriter.(*printer) }

// pipes returns the raw standard input and output, for a process that another braid has started:
// what it writes is data for that braid, not text for people.
func pipes() (io.Reader, io.Writer) { return os.Stdin, os.Stdout }

// Write prints text. Callers pass whole characters, and usually whole lines.
func (p *printer) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held += visibleLines(string(text)); p.resizing() {
		return len(text), nil
	}
	if err := p.send(p.erased() + p.drawing()); err != nil {
		return 0, err
	}
	return len(text), nil
}

// printf makes control characters in the arguments visible. So only the format can end a line.
func (p *printer) printf(format string, args ...any) {
	text := visiblef(format, args...)
	if p.private {
		text = tracker.Redact(text)
	}
	_, _ = p.Write([]byte(text)) // err keeps the error
}

// say prints a message of one or more lines, such as an error. It indents all lines but the first,
// so that none of them looks like another message.
func (p *printer) say(who, message string) {
	first, rest, more := strings.Cut(strings.TrimSpace(message), "\n")
	p.printf("%s: %s\n", who, first)
	for more {
		first, rest, more = strings.Cut(rest, "\n")
		p.printf("  %s\n", first)
	}
}

// draw replaces the previous frame with this one, which stays at the end of the terminal until the
// next call.
func (p *printer) draw(f frame) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frame = f
	p.repaint()
}

// drawText draws a frame of one line.
func (p *printer) drawText(text string) {
	p.draw(func(int, int) []line { return []line{textLine(text)} })
}

// progress shows a line of progress: in place on a terminal, elsewhere only if it is due.
func (p *printer) progress(text string, due bool) {
	if p.live() {
		p.drawText(text)
	} else if due {
		p.printf("%s\n", text)
	}
}

// resized draws the frame again, in the new size of the terminal, once that is stable.
func (p *printer) resized() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unsettled = time.Now().Add(settling)
	time.AfterFunc(settling, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.repaint()
	})
}

// resizing tells whether a frame is on the terminal while the terminal's size may be changing.
func (p *printer) resizing() bool {
	return len(p.drawn) > 0 && p.frame != nil && time.Now().Before(p.unsettled)
}

// clear erases the frame.
func (p *printer) clear() { p.draw(nil) }

func (p *printer) repaint() {
	if p.resizing() {
		return
	}
	if text := p.erased() + p.drawing(); text != "" {
		_ = p.send(text)
	}
}

// erased returns text that erases the drawn frame, moves the cursor to its first line, and prints
// the held text. A terminal wraps its lines anew when it gets narrower, so a drawn line may take
// several rows by now. Rows are erased one by one: if the whole screen is erased, tmux copies it
// into the scrollback.
func (p *printer) erased() string {
	held := p.held
	p.held = ""
	if len(p.drawn) == 0 {
		return held
	}
	columns, _ := p.size()
	rows := 0
	for _, l := range p.drawn {
		rows += rowsOf(l, columns)
	}
	p.drawn = nil
	return "\r\x1b[K" + strings.Repeat("\x1b[A\x1b[K", rows) + held
}

// drawing returns text that draws the frame in the terminal's size and colours. It is empty while
// another job of the shell has the terminal.
func (p *printer) drawing() string {
	if f, ok := p.w.(*os.File); p.frame == nil || ok && !foreground(f) {
		return ""
	}
	columns, rows := p.size()
	lines := p.frame(columns, rows)
	var b strings.Builder
	for _, l := range lines[:min(len(lines), max(1, rows-1))] {
		text, coloured := p.painted(l, columns)
		p.drawn = append(p.drawn, text)
		b.WriteString(coloured + "\n")
	}
	return b.String()
}

// painted returns a line as it is drawn, cut to the columns: without colours, and with them.
func (p *printer) painted(l line, columns int) (text, coloured string) {
	for _, s := range l {
		t := visible(s.text)
		if p.private {
			t = tracker.Redact(t)
		}
		if t = cut(t, columns-columnsOfText(text)); t == "" {
			continue
		}
		text += t
		if s.style == plain || !p.colour {
			coloured += t
			continue
		}
		coloured += "\x1b[" + string(s.style) + "m" + t + "\x1b[m"
	}
	return text, coloured
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

// lostOutput returns the first write error, if lost is not nil.
func (p *printer) lostOutput() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *printer) isTerminal() bool {
	f, ok := p.w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// live tells whether lines can be drawn and replaced.
func (p *printer) live() bool { return p.isTerminal() && !p.dumb }

// obey reads the terminal's abilities from the environment: see no-color.org.
func (p *printer) obey(getenv func(string) string) {
	p.dumb = getenv("TERM") == "dumb"
	p.colour = p.live() && getenv("NO_COLOR") == ""
}

// size is how many columns and rows the terminal has.
func (p *printer) size() (columns, rows int) {
	if f, ok := p.w.(*os.File); ok {
		columns, rows, _ = term.GetSize(int(f.Fd()))
	}
	if columns <= 0 || rows <= 0 { // some terminals do not tell
		columns, rows = 80, 24
	}
	return columns, rows
}

// lend lets a command of the user write past the printer, since its output is not braid's.
func (p *printer) lend(c *exec.Cmd) { c.Stdout, c.Stderr = p.w, p.w }

// handler returns a log handler that prints lines, quotes unprintable characters, and hides the
// keys in announce URLs.
func (p *printer) handler(level slog.Level) slog.Handler {
	redact := func(_ []string, a slog.Attr) slog.Attr {
		if k := a.Value.Kind(); k == slog.KindString || k == slog.KindAny {
			if text := a.Value.String(); tracker.Redact(text) != text {
				a.Value = slog.StringValue(tracker.Redact(text))
			}
		}
		return a
	}
	return slog.NewTextHandler(p, &slog.HandlerOptions{Level: level, ReplaceAttr: redact})
}

// printResult prints an object with --json, and otherwise text.
func printResult(cmd *cli.Command, object any, format string, args ...any) error {
	if cmd.Bool("json") {
		return printObjects(stdout(cmd), object)
	}
	stdout(cmd).printf(format, args...)
	return nil
}

// printObjects prints objects, one a line.
func printObjects[T any](p *printer, all ...T) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // comparisons stay readable
	for _, x := range all {
		if err := enc.Encode(x); err != nil {
			return err
		}
	}
	_, err := p.Write(b.Bytes())
	return err
}

// printJSON prints one object on several lines.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// table aligns cells. Only the format can end a line or a cell; arguments cannot.
type table struct{ *tabwriter.Writer }

func newTable(p *printer) table { return table{tabwriter.NewWriter(p, 0, 8, 2, ' ', 0)} }

func (t table) printf(format string, args ...any) {
	_, _ = io.WriteString(t.Writer, visiblef(format, args...)) // a printer keeps its errors
}

func (t table) flush() { _ = t.Flush() }
