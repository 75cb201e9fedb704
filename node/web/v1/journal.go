package v1

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"braid/node"
	"braid/tracker"
)

// Journal keeps the last lines of a log. It hides keys of announce URLs. The zero value is empty.
type Journal struct {
	mu      sync.Mutex
	entries []LogEntry
	report  func(LogEntry) // gets each new entry; may be nil
}

const (
	maxJournal = 1000
	maxEntry   = 1000 // bytes of text
)

// Handler writes to the journal.
func (j *Journal) Handler() slog.Handler {
	return node.LogHandler{
		Keep: func(e node.LogEntry) {
			j.add(LogEntry{Time: e.Time, Level: levelName(e.Level), Text: e.Text})
		},
		Text: func(a slog.Attr) string { return fmt.Sprintf("  %s: %s", a.Key, a.Value) },
	}
}

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

func entryOf(infoHash, level, text string) LogEntry {
	return LogEntry{Time: time.Now(), Level: level, InfoHash: infoHash, Text: text}
}
