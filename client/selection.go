package client

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/anacrolix/torrent"

	"braid/storage"
)

// Priority is the priority of a file. Pieces of files with a higher one are requested first.
type Priority int

const (
	Skip Priority = iota // not downloaded
	Low                  // after everything else
	Normal
	High
)

// Selection says which files of a torrent are wanted, and in which order. The zero value wants all.
type Selection struct {
	// Select are patterns of the wanted files; none: all. See matchFiles.
	Select []string
	// Priorities hold for files that match their pattern; of several, the last one counts.
	Priorities []FilePriority
	// Shared means that the selection is for several torrents: a pattern need not match a file in
	// each of them.
	Shared bool
	// Sequential requests the pieces in the order of the data instead of rare ones first, and many
	// at a time, so that all connections have enough requests. Files of a higher priority still
	// come first.
	Sequential bool
	// Strategy is the order in which pieces are requested if Sequential is false.
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

// CheckPattern returns an error if the pattern is malformed.
func CheckPattern(pattern string) error {
	if pattern == "" {
		return errors.New("the pattern is empty: want a shell pattern like '*.iso' or 'docs/*', " +
			"or numbers of files like '#3,7-9'")
	}
	_, _, err := fileNumbers(pattern)
	return err
}

// matchFiles tells which files of a torrent a pattern matches. The pattern is a list of numbers
// such as #3,7-9, from 1 on in the order of the layout, or a shell pattern (path.Match). Since
// brackets are common in names, a shell pattern is tried with and without the special meaning of [.
// A pattern without a slash matches the name of a file, or of a directory above it. A pattern with
// a slash matches the path, with or without the torrent's own directory, and all files below a
// directory. \#3 is the file named #3.
func matchFiles(pattern string, l storage.Layout) []bool {
	out := make([]bool, len(l.Files))
	if ranges, ok, err := fileNumbers(pattern); ok || err != nil {
		for _, r := range ranges {
			for i := r.first; i <= min(r.last, len(out)); i++ {
				out[i-1] = true
			}
		}
		return out
	}
	for i, f := range l.Files {
		out[i] = matchFile(pattern, f.Path)
	}
	return out
}

// numberRange is a range of numbers of files, from 1 on.
type numberRange struct{ first, last int }

var numbersPattern = regexp.MustCompile(`^#[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$`)

// fileNumbers reads numbers such as #3,7-9. It returns ok false for a shell pattern.
func fileNumbers(pattern string) (out []numberRange, ok bool, err error) {
	if !numbersPattern.MatchString(pattern) {
		return nil, false, nil
	}
	for part := range strings.SplitSeq(pattern[1:], ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || first < 1 || last < first {
			err := fmt.Errorf("%q: want numbers of files from 1 on, like #3,7-9", pattern)
			return nil, true, err
		}
		out = append(out, numberRange{first, last})
	}
	return out, true, nil
}

func matchFile(pattern, file string) bool {
	parts := strings.Split(file, "/")
	if !strings.Contains(pattern, "/") {
		return slices.ContainsFunc(parts, func(p string) bool { return matchName(pattern, p) })
	}
	pattern = strings.Trim(pattern, "/")
	for _, from := range []int{0, min(1, len(parts)-1)} {
		for to := from + 1; to <= len(parts); to++ {
			if matchName(pattern, strings.Join(parts[from:to], "/")) {
				return true
			}
		}
	}
	return false
}

func matchName(pattern, name string) bool {
	for _, p := range []string{pattern, strings.ReplaceAll(pattern, "[", `\[`)} {
		if ok, err := path.Match(p, name); ok && err == nil {
			return true
		}
	}
	return pattern == name
}

// Files is the priority of each file of a torrent.
func (s Selection) Files(l storage.Layout) []Priority {
	out := make([]Priority, len(l.Files))
	apply := func(pattern string, p Priority) {
		for i, matches := range matchFiles(pattern, l) {
			if matches {
				out[i] = p
			}
		}
	}
	for i := range out {
		if len(s.Select) == 0 {
			out[i] = Normal
		}
	}
	for _, pattern := range s.Select {
		apply(pattern, Normal)
	}
	for _, f := range s.Priorities {
		apply(f.Pattern, f.Priority)
	}
	return out
}

// Wants tells which files of a torrent are wanted.
func (s Selection) Wants(l storage.Layout) []bool {
	out := make([]bool, len(l.Files))
	for i, p := range s.Files(l) {
		out[i] = p != Skip
	}
	return out
}

// HasNumbers tells whether files are chosen by their numbers, which fit only one torrent.
func (s Selection) HasNumbers() bool {
	return slices.ContainsFunc(s.patterns(), numbersPattern.MatchString)
}

func (s Selection) patterns() []string {
	out := slices.Clone(s.Select)
	for _, f := range s.Priorities {
		out = append(out, f.Pattern)
	}
	return out
}

// Check finds likely mistakes: a pattern or a number that matches no file of the torrents, or a
// torrent without a selected file.
func (s Selection) Check(torrents ...storage.Layout) error {
	for _, pattern := range s.patterns() {
		matches := false
		for _, l := range torrents {
			ranges, _, _ := fileNumbers(pattern)
			for _, r := range ranges {
				if r.last > len(l.Files) {
					return fmt.Errorf("%q: %s has files 1 to %d", pattern, l.Name, len(l.Files))
				}
			}
			matches = matches || slices.Contains(matchFiles(pattern, l), true)
		}
		if !matches && !s.Shared {
			var names []string
			for _, l := range torrents {
				names = append(names, l.Name)
			}
			return fmt.Errorf("no file of %s matches %q", strings.Join(names, ", "), pattern)
		}
	}
	for _, l := range torrents {
		if len(l.Files) > 0 && !slices.Contains(s.Wants(l), true) {
			return fmt.Errorf("no file of %s is selected", l.Name)
		}
	}
	return nil
}

// pieces is the priority of each piece: the highest of the files in it. Pieces with only padding
// are not wanted, unless all files are.
func (s Selection) pieces(l storage.Layout) []Priority {
	out := make([]Priority, l.Pieces())
	everything := true
	files := s.Files(l)
	for i, f := range l.Files {
		p := files[i]
		everything = everything && p != Skip
		begin, end := l.FilePieces(f)
		for piece := begin; piece < end; piece++ {
			out[piece] = max(out[piece], p)
		}
	}
	for i := range out {
		if everything && out[i] == Skip {
			out[i] = Normal
		}
	}
	return out
}

// enginePriority has the engine's priorities. Its two highest levels are for sequential downloads.
var enginePriority = [...]torrent.PiecePriority{
	Skip: torrent.PiecePriorityNone, Low: torrent.PiecePriorityNormal,
	Normal: torrent.PiecePriorityHigh, High: torrent.PiecePriorityReadahead,
}

// aheadBytes is how much of a sequential download is requested before the rest: as much as a fast
// connection brings between two looks.
const aheadBytes = 32 << 20

// want knows which pieces a transfer wants, and in which order. It belongs to the transfer's
// goroutine.
type want struct {
	pieces    []Priority
	layout    storage.Layout
	total     int64 // bytes of the wanted pieces
	partial   bool  // not all pieces are wanted
	ordered   bool  // the next pieces are asked for before the rest
	plain     bool  // all pieces have the engine's usual priority, PiecePriorityNormal
	selection Selection
	order     []int // the wanted pieces, those of a higher priority first; nil if plain
	first     int   // all pieces in the order before this place are complete
	ahead     int   // all pieces in the order before this place were put before the rest
}

func newWant(s Selection, l storage.Layout) *want {
	w := &want{pieces: s.pieces(l), layout: l, selection: s}
	w.ordered = s.Sequential || s.Strategy != Fastest
	special := func(p Priority) bool { return p != Normal }
	w.plain = !w.ordered && !slices.ContainsFunc(w.pieces, special)
	for i, p := range w.pieces {
		if p == Skip {
			w.partial = true
			continue
		}
		_, n := l.PieceRange(i)
		w.total += n
		if !w.plain {
			w.order = append(w.order, i)
		}
	}
	slices.SortStableFunc(w.order, func(i, j int) int { return int(w.pieces[j] - w.pieces[i]) })
	return w
}

func (w *want) begin(t engineTorrent) {
	if w.plain {
		t.DownloadAll()
	} else {
		w.ask(t)
	}
}

// ask sets the priority of each piece anew, whatever it was before.
func (w *want) ask(t engineTorrent) {
	for i, p := range w.pieces {
		if w.plain {
			t.SetPriority(i, torrent.PiecePriorityNormal)
		} else {
			t.SetPriority(i, enginePriority[p])
		}
	}
	if w.ahead = 0; !w.plain {
		w.advance(t)
	}
}

// advance tells whether all wanted pieces are complete. If they are wanted in order, it raises the
// priority of the next ones.
func (w *want) advance(t engineTorrent) (done bool) {
	for w.first < len(w.order) && isComplete(t, w.order[w.first]) {
		w.first++
	}
	if w.ordered && w.first < len(w.order) {
		end := min(len(w.order), w.first+w.selection.ahead(w.layout.PieceLength))
		for _, i := range w.order[min(max(w.first, w.ahead), end):end] {
			t.SetPriority(i, w.selection.urgency(w.pieces[i]))
		}
		w.ahead = max(w.ahead, end)
		t.SetPriority(w.order[w.first], torrent.PiecePriorityNow)
	}
	return w.first == len(w.order)
}

// next calls advance if that is useful. If only a part of the torrent is wanted, it tells whether
// all of that part is complete.
func (w *want) next(t engineTorrent) (done bool) {
	return (w.partial || w.ordered) && w.advance(t) && w.partial
}

// again starts over, since some pieces are no longer complete.
func (w *want) again() { w.first = 0 }

// have counts the wanted pieces that are complete, and their bytes.
func (w *want) have(t engineTorrent) (bytes int64, count int) {
	for i, state := range pieceStates(t.PieceStateRuns()) {
		if isRight(state) && w.pieces[i] != Skip {
			_, n := w.layout.PieceRange(i)
			bytes, count = bytes+n, count+1
		}
	}
	return bytes, count
}

// unwanted are the bytes of pieces that are neither wanted nor complete.
func (w *want) unwanted(t engineTorrent) (bytes int64) {
	for i, state := range pieceStates(t.PieceStateRuns()) {
		if !isRight(state) && w.pieces[i] == Skip {
			_, n := w.layout.PieceRange(i)
			bytes += n
		}
	}
	return bytes
}

// missing are the wanted pieces that are not complete.
func (w *want) missing(t engineTorrent) []bool {
	out := make([]bool, len(w.pieces))
	for i, state := range pieceStates(t.PieceStateRuns()) {
		out[i] = w.pieces[i] != Skip && !isRight(state)
	}
	return out
}

// strictBytes is how much Strict requests first: enough for a second of a fast connection, and
// little enough to keep the order.
const strictBytes = 4 << 20

// ahead is the number of pieces that are requested before the rest.
func (s Selection) ahead(pieceLength int64) int {
	bytes := int64(aheadBytes)
	if s.Strategy == Strict && !s.Sequential {
		bytes = strictBytes
	}
	return max(4, int(bytes/pieceLength))
}

// urgency is the engine's priority of a piece among the next ones.
func (s Selection) urgency(p Priority) torrent.PiecePriority {
	if s.Strategy == Fuzzy && rand.N(2) == 0 {
		return enginePriority[p]
	}
	return torrent.PiecePriorityNext
}
