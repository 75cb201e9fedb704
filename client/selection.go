package client

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/anacrolix/torrent"

	"braid/storage"
)

// Priority of a file. The pieces of files with a higher one are asked for first.
type Priority int

const (
	Skip Priority = iota // not downloaded
	Low                  // after everything else
	Normal
	High
)

// Selection says which files of a torrent are wanted, and in which order. The zero value wants all.
type Selection struct {
	// Select are patterns of files that are wanted; none: all. See MatchFile.
	Select []string
	// Priorities are for files that match their pattern; the last one that matches counts.
	Priorities []FilePriority
	// Sequential asks for the pieces in the order of the data, rather than for rare ones first, with enough of them at a time
	// for many connections.
	Sequential bool
	// Strategy is in which order pieces are asked for otherwise.
	Strategy Strategy
}

// FilePriority gives files a priority.
type FilePriority struct {
	Pattern  string
	Priority Priority
}

// ParseFilePriority reads PATTERN=skip, low, normal or high.
func ParseFilePriority(s string) (FilePriority, error) {
	at := strings.LastIndexByte(s, '=')
	if at < 0 {
		return FilePriority{}, fmt.Errorf("%q: want GLOB=high, normal, low or skip", s)
	}
	p := slices.Index([]string{"skip", "low", "normal", "high"}, s[at+1:])
	if p < 0 {
		return FilePriority{}, fmt.Errorf("%q: want high, normal, low or skip after the last =", s)
	}
	f := FilePriority{s[:at], Priority(p)}
	return f, CheckPattern(f.Pattern)
}

// CheckPattern tells what is wrong with a pattern.
func CheckPattern(pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
		return fmt.Errorf("pattern %q: want a shell pattern like '*.iso' or 'docs/*'", pattern)
	}
	return nil
}

// MatchFile tells whether a pattern fits a file's path, as in storage.File. The pattern is the shell's (path.Match). One
// without a slash is compared with the file's own name and with each directory that it lies in; one with a slash with
// the path from the torrent's directory on, with or without that, and fits all below a directory that it names.
func MatchFile(pattern, file string) bool {
	parts := strings.Split(file, "/")
	if !strings.Contains(pattern, "/") {
		return slices.ContainsFunc(parts, func(p string) bool { ok, _ := path.Match(pattern, p); return ok })
	}
	pattern = strings.Trim(pattern, "/")
	for _, from := range []int{0, min(1, len(parts)-1)} {
		for to := from + 1; to <= len(parts); to++ {
			if ok, _ := path.Match(pattern, strings.Join(parts[from:to], "/")); ok {
				return true
			}
		}
	}
	return false
}

// Of is the priority of a file.
func (s Selection) Of(file string) Priority {
	p := Normal
	if len(s.Select) > 0 && !slices.ContainsFunc(s.Select, func(pattern string) bool { return MatchFile(pattern, file) }) {
		p = Skip
	}
	for _, f := range s.Priorities {
		if MatchFile(f.Pattern, file) {
			p = f.Priority
		}
	}
	return p
}

// Wants tells whether a file is wanted.
func (s Selection) Wants(file string) bool { return s.Of(file) != Skip }

// pieces is the priority of each piece: the highest one of the files in it. Pieces of nothing but padding are not
// wanted, unless everything is.
func (s Selection) pieces(l storage.Layout) []Priority {
	out := make([]Priority, l.Pieces())
	everything := true
	for _, f := range l.Files {
		p := s.Of(f.Path)
		everything = everything && p != Skip
		begin, end := l.FilePieces(f)
		for i := begin; i < end; i++ {
			out[i] = max(out[i], p)
		}
	}
	for i := range out {
		if everything && out[i] == Skip {
			out[i] = Normal
		}
	}
	return out
}

// enginePriority is what the engine asks by. Its two highest levels are left to sequential downloads.
func enginePriority(p Priority) torrent.PiecePriority {
	switch p {
	case Low:
		return torrent.PiecePriorityNormal
	case Normal:
		return torrent.PiecePriorityHigh
	case High:
		return torrent.PiecePriorityReadahead
	}
	return torrent.PiecePriorityNone
}

// aheadBytes is how much of a sequential download is asked for before the rest: what a fast connection brings between two
// looks at what is there.
const aheadBytes = 32 << 20

// want is what a transfer still wants of its torrent. It belongs to the transfer's goroutine.
type want struct {
	pieces    []Priority
	layout    storage.Layout
	total     int64 // bytes of the wanted pieces
	count     int   // of them
	partial   bool  // not all pieces are wanted
	ordered   bool  // the next pieces are asked for before the rest
	plain     bool  // all pieces alike, as the engine has it: PiecePriorityNormal
	selection Selection
	first     int // every wanted piece before it is complete
	ahead     int // every piece before it has been asked for first
}

func newWant(s Selection, l storage.Layout) (*want, error) {
	w := &want{pieces: s.pieces(l), layout: l, ordered: s.Sequential || s.Strategy != Fastest, selection: s}
	for i, p := range w.pieces {
		if p == Skip {
			w.partial = true
			continue
		}
		_, n := l.PieceRange(i)
		w.total += n
		w.count++
	}
	if w.partial && w.count == 0 && !slices.ContainsFunc(l.Files, func(f storage.File) bool { return s.Wants(f.Path) }) {
		return nil, fmt.Errorf("no file of %s is selected; --list shows what is in it", l.Name)
	}
	return w, nil
}

// begin asks the engine for the pieces.
func (w *want) begin(t *torrent.Torrent) {
	if !w.ordered && !slices.ContainsFunc(w.pieces, func(p Priority) bool { return p != Normal }) {
		t.DownloadAll()
		w.plain = true
		return
	}
	for i, p := range w.pieces {
		if p != Skip {
			t.Piece(i).SetPriority(enginePriority(p))
		}
	}
	w.advance(t)
}

// advance looks how far the pieces are there, and tells whether all are. It asks for those that follow first, if they
// are wanted in order.
func (w *want) advance(t *torrent.Torrent) (done bool) {
	for w.first < len(w.pieces) && (w.pieces[w.first] == Skip || isComplete(t, w.first)) {
		w.first++
	}
	if w.ordered {
		end := min(len(w.pieces), w.first+w.selection.ahead(w.layout.PieceLength))
		for i := max(w.first, w.ahead); i < end; i++ {
			if w.pieces[i] != Skip {
				t.Piece(i).SetPriority(w.selection.urgency(w.pieces[i]))
			}
		}
		w.ahead = max(w.ahead, end)
		if w.first < len(w.pieces) && w.pieces[w.first] != Skip {
			t.Piece(w.first).SetPriority(torrent.PiecePriorityNow)
		}
	}
	return w.first == len(w.pieces)
}

// again begins at the beginning: pieces that were complete are not any more.
func (w *want) again() { w.first = 0 }

func isComplete(t *torrent.Torrent, piece int) bool {
	st := t.PieceState(piece)
	return st.Ok && st.Complete
}

// have counts the wanted pieces that are there, and their bytes.
func (w *want) have(t *torrent.Torrent) (bytes int64, count int) {
	i := 0
	for _, run := range t.PieceStateRuns() {
		for range run.Length {
			if run.Ok && run.Complete && w.pieces[i] != Skip {
				_, n := w.layout.PieceRange(i)
				bytes, count = bytes+n, count+1
			}
			i++
		}
	}
	return bytes, count
}
