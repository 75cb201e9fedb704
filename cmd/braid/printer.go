package main

import (
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

// printer is the only way of text from braid to standard output or standard error. What it prints
// is visible: nothing that a stranger has written can make a terminal obey. JSON goes through it
// too, and stays valid. It is safe for concurrent use.
type printer struct {
	w io.Writer
	// private hides the keys of announce URLs: standard error is what people paste into bug
	// reports.
	private bool
	// lost, if not nil, is called after the first error of writing. Nothing more is printed then:
	// half a line of JSON and the rest of another make no sense. If it is nil, errors are
	// forgotten.
	lost func()
	// dumb is a terminal that only prints; colour one that knows colours, if the user likes them.
	dumb, colour bool

	mu    sync.Mutex
	err   error    // the first one, if lost is not nil
	frame frame    // what stands at the end of a terminal, nil: nothing
	drawn []string // its lines as they were last drawn, without colours
	// Until this moment the terminal may be changing its size, and nothing is drawn; text waits in
	// held.
	unsettled time.Time
	held      string
}

// settling is how long a terminal is left alone after its size has changed. tmux breaks lines anew
// at once, but tells of no second change for a quarter of a second: what is drawn meanwhile is
// drawn in the wrong place.
const settling = 300 * time.Millisecond

// frame is what is drawn on a terminal of this size.
type frame func(columns, rows int) []line

// stdout prints results. Whoever asked for them must know if they are lost: see outcome.
func stdout(c *cli.Command) *printer { return c.Root().Writer.(*printer) }

// stderr prints progress, the log and errors. A terminal that has gone does not stop a transfer.
func stderr(c *cli.Command) *printer { return c.Root().ErrWriter.(*printer) }

// pipes are standard input and output of a process that another braid has started and reads: no
// text for people.
func pipes() (io.Reader, io.Writer) { return os.Stdin, os.Stdout }

// Write prints whole lines, or the beginning of one, without cutting characters in two.
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

// printf prints text in which the arguments are made visible. They cannot end a line; only the
// format can.
func (p *printer) printf(format string, args ...any) {
	text := visiblef(format, args...)
	if p.private {
		text = tracker.Redact(text)
	}
	_, _ = p.Write([]byte(text)) // kept in err
}

// say prints a message of one or more lines, such as an error. Further lines are indented, so that
// none of them passes for a message of its own.
func (p *printer) say(who, message string) {
	first, rest, more := strings.Cut(strings.TrimSpace(message), "\n")
	p.printf("%s: %s\n", who, first)
	for more {
		first, rest, more = strings.Cut(rest, "\n")
		p.printf("  %s\n", first)
	}
}

// draw replaces what was drawn before by this frame, which stays at the end of the terminal until
// the next one.
func (p *printer) draw(f frame) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frame = f
	p.repaint()
}

// drawText is draw for one line.
func (p *printer) drawText(text string) {
	p.draw(func(int, int) []line { return []line{textLine(text)} })
}

// resized has the frame drawn again, in the new size of the terminal.
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

// resizing tells whether something is drawn that should not be touched yet.
func (p *printer) resizing() bool {
	return len(p.drawn) > 0 && p.frame != nil && time.Now().Before(p.unsettled)
}

// clear takes away what was drawn before.
func (p *printer) clear() { p.draw(nil) }

func (p *printer) repaint() {
	if p.resizing() {
		return
	}
	if text := p.erased() + p.drawing(); text != "" {
		_ = p.send(text)
	}
}

// erased takes the cursor back to the first line that was drawn, and prints what was held back.
// Terminals break lines anew when they get narrower: what was a line may be two rows by now. Rows
// are erased one by one: of a screen that is erased whole tmux keeps a copy in what has scrolled
// off.
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

// drawing is the frame, in the size and the colours of the terminal: nothing while another job has
// it.
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

// painted is a line as it goes to the terminal, without its colours and with them.
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

// live tells whether lines can be drawn and replaced.
func (p *printer) live() bool { return p.isTerminal() && !p.dumb }

// obey takes over what the environment says of the terminal: see no-color.org.
func (p *printer) obey(getenv func(string) string) {
	p.dumb = getenv("TERM") == "dumb"
	p.colour = p.live() && getenv("NO_COLOR") == ""
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
