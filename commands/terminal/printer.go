package terminal

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

// Printer writes all text that braid sends to standard output or standard error. It replaces
// control characters with visible escapes, so that text from strangers, such as a torrent's name,
// cannot control the terminal. JSON goes through it, too, and stays valid. A printer is safe for
// concurrent use.
type Printer struct {
	W io.Writer
	// Private hides the keys of announce URLs: standard error is what people paste into bug
	// reports.
	Private bool
	// lost, if not nil, is called after the first write error. After that the printer prints
	// nothing more, since a line of JSON may have been cut off. If lost is nil, write errors are
	// ignored.
	Lost func()
	// dumb: the terminal cannot move its cursor. colour: it knows colours, and the user wants them.
	dumb, colour bool

	mu    sync.Mutex
	err   error    // the first write error, if lost is not nil
	frame frame    // the text at the end of the terminal that is drawn again and again; nil: none
	Drawn []string // its lines as they were last drawn, without colours
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
type frame func(columns, rows int) []Line

// Stdout prints results. If they cannot be written, the command fails: see outcome.
func Stdout(c *cli.Command) *Printer { return c.Root().Writer.(*Printer) }

// Stderr prints progress, the log and errors. If they cannot be written, transfers go on.
func Stderr(c *cli.Command) *Printer { return c.Root().ErrWriter.(*Printer) }

// Write prints text. Callers pass whole characters, and usually whole lines.
func (p *Printer) Write(text []byte) (int, error) {
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

// Printf makes control characters in the arguments visible. So only the format can end a line.
func (p *Printer) Printf(format string, args ...any) {
	text := visiblef(format, args...)
	if p.Private {
		text = tracker.Redact(text)
	}
	_, _ = p.Write([]byte(text)) // err keeps the error
}

// Say prints a message of one or more lines, such as an error. It indents all lines but the first,
// so that none of them looks like another message.
func (p *Printer) Say(who, message string) {
	first, rest, more := strings.Cut(strings.TrimSpace(message), "\n")
	p.Printf("%s: %s\n", who, first)
	for more {
		first, rest, more = strings.Cut(rest, "\n")
		p.Printf("  %s\n", first)
	}
}

// Draw replaces the previous frame with this one, which stays at the end of the terminal until the
// next call.
func (p *Printer) Draw(f frame) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frame = f
	p.repaint()
}

// DrawText draws a frame of one line.
func (p *Printer) DrawText(text string) {
	p.Draw(func(int, int) []Line { return []Line{textLine(text)} })
}

// Progress shows a line of progress: in place on a terminal, elsewhere only if it is due.
func (p *Printer) Progress(text string, due bool) {
	if p.Live() {
		p.DrawText(text)
	} else if due {
		p.Printf("%s\n", text)
	}
}

// resized draws the frame again, in the new size of the terminal, once that is stable.
func (p *Printer) resized() {
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
func (p *Printer) resizing() bool {
	return len(p.Drawn) > 0 && p.frame != nil && time.Now().Before(p.unsettled)
}

// Clear erases the frame.
func (p *Printer) Clear() { p.Draw(nil) }

func (p *Printer) repaint() {
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
func (p *Printer) erased() string {
	held := p.held
	p.held = ""
	if len(p.Drawn) == 0 {
		return held
	}
	columns, _ := p.Size()
	rows := 0
	for _, l := range p.Drawn {
		rows += rowsOf(l, columns)
	}
	p.Drawn = nil
	return "\r\x1b[K" + strings.Repeat("\x1b[A\x1b[K", rows) + held
}

// drawing returns text that draws the frame in the terminal's size and colours. It is empty while
// another job of the shell has the terminal.
func (p *Printer) drawing() string {
	if f, ok := p.W.(*os.File); p.frame == nil || ok && !foreground(f) {
		return ""
	}
	columns, rows := p.Size()
	lines := p.frame(columns, rows)
	var b strings.Builder
	for _, l := range lines[:min(len(lines), max(1, rows-1))] {
		text, coloured := p.painted(l, columns)
		p.Drawn = append(p.Drawn, text)
		b.WriteString(coloured + "\n")
	}
	return b.String()
}

// painted returns a line as it is drawn, cut to the columns: without colours, and with them.
func (p *Printer) painted(l Line, columns int) (text, coloured string) {
	for _, s := range l {
		t := visible(s.Text)
		if p.Private {
			t = tracker.Redact(t)
		}
		if t = Cut(t, columns-ColumnsOfText(text)); t == "" {
			continue
		}
		text += t
		if s.style == Plain || !p.colour {
			coloured += t
			continue
		}
		coloured += "\x1b[" + string(s.style) + "m" + t + "\x1b[m"
	}
	return text, coloured
}

func (p *Printer) send(text string) error {
	if p.err != nil {
		return p.err
	}
	_, err := io.WriteString(p.W, text)
	if err != nil && p.Lost != nil {
		p.err = err
		p.Lost()
	}
	return err
}

// LostOutput returns the first write error, if lost is not nil.
func (p *Printer) LostOutput() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *Printer) IsTerminal() bool {
	f, ok := p.W.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Live tells whether lines can be drawn and replaced.
func (p *Printer) Live() bool { return p.IsTerminal() && !p.dumb }

// Obey reads the terminal's abilities from the environment: see no-color.org.
func (p *Printer) Obey(getenv func(string) string) {
	p.dumb = getenv("TERM") == "dumb"
	p.colour = p.Live() && getenv("NO_COLOR") == ""
}

// Size is how many columns and rows the terminal has.
func (p *Printer) Size() (columns, rows int) {
	if f, ok := p.W.(*os.File); ok {
		columns, rows, _ = term.GetSize(int(f.Fd()))
	}
	if columns <= 0 || rows <= 0 { // some terminals do not tell
		columns, rows = 80, 24
	}
	return columns, rows
}

// Lend lets a command of the user write past the printer, since its output is not braid's.
func (p *Printer) Lend(c *exec.Cmd) { c.Stdout, c.Stderr = p.W, p.W }

// Handler returns a log handler that prints lines, quotes unprintable characters, and hides the
// keys in announce URLs.
func (p *Printer) Handler(level slog.Level) slog.Handler {
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

// PrintResult prints an object with --json, and otherwise text.
func PrintResult(cmd *cli.Command, object any, format string, args ...any) error {
	if cmd.Bool("json") {
		return PrintObjects(Stdout(cmd), object)
	}
	Stdout(cmd).Printf(format, args...)
	return nil
}

// PrintObjects prints objects, one a line.
func PrintObjects[T any](p *Printer, all ...T) error {
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

// PrintJSON prints one object on several lines.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// table aligns cells. Only the format can end a line or a cell; arguments cannot.
type table struct{ *tabwriter.Writer }

func NewTable(p *Printer) table { return table{tabwriter.NewWriter(p, 0, 8, 2, ' ', 0)} }

func (t table) Printf(format string, args ...any) {
	_, _ = io.WriteString(t.Writer, visiblef(format, args...)) // a printer keeps its errors
}

func (t table) Flush() { _ = t.Writer.Flush() }
