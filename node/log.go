package node

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// maxLog bounds the entries in a torrent's log, and maxEntry the bytes of each. Without the bounds
// the log would grow without end: strangers cause entries, and a service runs for months.
//
// maxLogs bounds the entries of all torrents together, of which each keeps at least leastLog.
// Otherwise the logs of ten thousand seeds would need hundreds of megabytes.
const (
	maxLog   = 200
	maxEntry = 500
	maxLogs  = 100_000
	leastLog = 20
)

// LogEntry is a line of a torrent's log.
type LogEntry struct {
	Number int // its place among the entries of all torrents, from 1
	Time   time.Time
	Level  slog.Level
	Text   string
}

// torrentLog keeps the newest entries of a torrent's log.
type torrentLog struct {
	mu      sync.Mutex
	entries []LogEntry
}

// add adds an entry to the log of one of so many torrents. last is the number of the last entry of
// any of them.
func (l *torrentLog) add(e LogEntry, torrents int, last *atomic.Int64) {
	text := strings.ToValidUTF8(e.Text[:min(len(e.Text), maxEntry)], "")
	if len(text) < len(e.Text) { // a copy, or all of the long text would stay in memory
		e.Text = strings.Clone(text)
	}
	most := min(maxLog, max(leastLog, maxLogs/max(1, torrents)))
	l.mu.Lock()
	defer l.mu.Unlock()
	e.Number = int(last.Add(1))
	if over := len(l.entries) - most; over > 0 { // there are more torrents now
		l.entries = slices.Clone(l.entries[over:])
	}
	l.entries = appendNewest(l.entries, e, most)
}

// appendNewest appends x, and drops the oldest elements if there are more than most.
func appendNewest[T any](all []T, x T, most int) []T {
	if len(all) >= most {
		all = append(all[:0], all[len(all)-most+1:]...)
	}
	return append(all, x)
}

// Log returns the newest entries of the torrent's log, the newest last.
func (t *Torrent) Log() []LogEntry {
	t.events.mu.Lock()
	defer t.events.mu.Unlock()
	return append([]LogEntry{}, t.events.entries...)
}

// logger returns a log that writes to the node's log and to the torrent's, which leaves out the
// torrent's name.
func (t *Torrent) logger() *slog.Logger {
	text := func(a slog.Attr) string {
		if a.Key == "torrent" {
			return ""
		}
		return fmt.Sprintf(" %s=%v", a.Key, a.Value)
	}
	keep := func(e LogEntry) { t.events.add(e, int(t.node.count.Load()), &t.node.logged) }
	own := LogHandler{Keep: keep, Text: text}
	return slog.New(slog.NewMultiHandler(t.node.log.Handler(), own))
}

// LogHandler is a handler that hands over records of level Info and above. It ignores groups, which
// braid does not use.
type LogHandler struct {
	Keep func(LogEntry)
	Text func(slog.Attr) string // of an attribute; it follows the message

	attrs string
}

// Enabled implements slog.Handler.
func (LogHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle implements slog.Handler.
func (h LogHandler) Handle(_ context.Context, x slog.Record) error {
	text := x.Message + h.attrs
	x.Attrs(func(a slog.Attr) bool {
		text += h.Text(a)
		return true
	})
	h.Keep(LogEntry{Time: x.Time, Level: x.Level, Text: text})
	return nil
}

// WithAttrs implements slog.Handler.
func (h LogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		h.attrs += h.Text(a)
	}
	return h
}

// WithGroup implements slog.Handler.
func (h LogHandler) WithGroup(string) slog.Handler { return h }
