package v1

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"braid/tracker"
)

// Journal keeps the last lines of a log. It is an slog.Handler; keys of announce URLs are hidden.
type Journal struct {
	attrs string // of a logger with some
	*kept
}

type kept struct {
	mu      sync.Mutex
	entries []LogEntry
	report  func(LogEntry) // gets each new entry; may be nil
}

const (
	maxJournal = 1000
	maxEntry   = 1000 // bytes of text
)

// NewJournal returns an empty journal.
func NewJournal() *Journal { return &Journal{kept: &kept{}} }

// Logger writes to the journal only.
func (j *Journal) Logger() *slog.Logger { return slog.New(j) }

// tell names the function that gets each new entry.
func (j *Journal) tell(f func(LogEntry)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.report = f
}

// Entries returns the last entries, oldest first.
func (j *Journal) Entries() []LogEntry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]LogEntry{}, j.entries...)
}

// add keeps an entry and tells of it.
func (j *Journal) add(e LogEntry) {
	if e.Text = tracker.Redact(e.Text); len(e.Text) > maxEntry {
		e.Text = strings.ToValidUTF8(e.Text[:maxEntry], "") + "…"
	}
	j.mu.Lock()
	if len(j.entries) == maxJournal {
		j.entries = append(j.entries[:0], j.entries[1:]...)
	}
	j.entries = append(j.entries, e)
	report := j.report
	j.mu.Unlock()
	if report != nil {
		report(e)
	}
}

// Enabled tells whether lines of that level are kept.
func (j *Journal) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

// Handle keeps a line.
func (j *Journal) Handle(_ context.Context, r slog.Record) error {
	text := r.Message + j.attrs
	r.Attrs(func(a slog.Attr) bool {
		text += attrText(a)
		return true
	})
	j.add(LogEntry{Time: r.Time, Level: levelName(r.Level), Text: text})
	return nil
}

func attrText(a slog.Attr) string { return fmt.Sprintf("  %s: %s", a.Key, a.Value) }

func levelName(l slog.Level) string {
	switch {
	case l >= slog.LevelError:
		return "error"
	case l >= slog.LevelWarn:
		return "warning"
	case l >= slog.LevelInfo:
		return "info"
	}
	return "debug"
}

// WithAttrs returns a handler that writes these attributes in each line.
func (j *Journal) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := &Journal{j.attrs, j.kept}
	for _, a := range attrs {
		next.attrs += attrText(a)
	}
	return next
}

// WithGroup leaves names of attributes as they are: braid uses no groups.
func (j *Journal) WithGroup(string) slog.Handler { return j }

func entryOf(infoHash, level, text string) LogEntry {
	return LogEntry{Time: time.Now(), Level: level, InfoHash: infoHash, Text: text}
}
