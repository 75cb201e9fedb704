// Package mirror keeps a copy of what a source of torrents offers: a feed, a directory of .torrent
// files, or a web page with links to them.
//
//	source  where the offers come from, and how they are read (source.go, feed.go)
//	offer   a torrent that the source offers; it is known once its description was read
//	Plan    a function from the offers, the held torrents and the limits to the steps: add, keep,
//	        remove or leave out
//	Mirror  carries plans out on a node, and remembers the offers (mirror.go)
//
// Feeds come from strangers. So their size is bounded, and braid follows no link to a host that is
// nearer than the host of the feed.
package mirror

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
)

// Torrent is a torrent that is offered or held.
type Torrent struct {
	Hash    string // the info hash in hexadecimal digits
	Name    string // of its file or directory
	Size    int64
	Missing int64 // of a torrent that is held: the bytes that are not on disk yet
}

// Limits are what a mirror may hold. A limit of 0 is none.
type Limits struct {
	MaxTorrent, MaxTotal int64 // bytes
	MaxTorrents          int
	KeepFree             int64 // bytes of the file system that stay free
	// Delete removes what is no longer offered, with its data. Otherwise it is kept.
	Delete bool
}

// Action is what happens to a torrent.
type Action string

// The actions, as in event.Mirror.
const (
	Add      Action = "added"
	Keep     Action = "kept" // it is held, and no longer offered
	Remove   Action = "removed"
	LeaveOut Action = "left-out"
)

// Step is one action of a plan. Torrents that are offered and held have none.
type Step struct {
	Action  Action
	Torrent Torrent
	Reason  string
	// Apart says that data of another torrent has this name already, so that it needs a directory
	// of its own.
	Apart bool
}

// Plan returns the steps, in their order. offered are the known offers, the most important first.
// unknown is true if the list also has offers whose torrents are not known yet. free is the number
// of free bytes in the file system. It is negative if that number is unknown.
//
// Plan removes torrents only if all offers are known, since an unknown one may be a held torrent
// under a new link, and only if there are offers, since an empty list is most likely a mistake.
func Plan(offered, held []Torrent, unknown bool, free int64, l Limits) (steps []Step) {
	room := room{free: free, hasFree: free >= 0}
	names := map[string]bool{}
	at, isOffered := map[string]bool{}, map[string]bool{}
	for _, o := range offered {
		isOffered[o.Hash] = true
	}
	for _, h := range held {
		gone := !isOffered[h.Hash]
		step := Step{Action: Keep, Torrent: h, Reason: "it is no longer offered"}
		if gone && l.Delete && !unknown && len(offered) > 0 {
			step.Action = Remove
			steps = append(steps, step)
			room.free += h.Size - h.Missing
			continue
		}
		if gone && l.Delete {
			step.Reason += ", as far as is known; it is removed once all offers are known"
		}
		if gone {
			steps = append(steps, step)
		}
		at[h.Hash], names[nameKey(h.Name)] = true, true
		room.take(h.Size, h.Missing)
	}
	for _, o := range offered {
		if at[o.Hash] {
			continue
		}
		at[o.Hash] = true
		if reason := room.refuses(o, l); reason != "" {
			steps = append(steps, Step{Action: LeaveOut, Torrent: o, Reason: reason})
			continue
		}
		steps = append(steps, Step{Action: Add, Torrent: o, Apart: names[nameKey(o.Name)]})
		names[nameKey(o.Name)] = true
		room.take(o.Size, o.Size)
	}
	return steps
}

// nameKey returns the same text for names that are equal on some file system.
func nameKey(name string) string { return strings.ToLower(name) }

// room is the space that torrents take.
type room struct {
	torrents int
	total    int64
	free     int64 // once all of them are complete
	hasFree  bool  // free is known
}

func (r *room) take(size, left int64) {
	r.torrents++
	r.total += size
	r.free -= left
}

// refuses returns the reason to leave out a torrent, or "" if there is room for it.
func (r *room) refuses(o Torrent, l Limits) string {
	text := func(n int64) string { return humanize.IBytes(uint64(max(0, n))) }
	switch {
	case l.MaxTorrent > 0 && o.Size > l.MaxTorrent:
		return fmt.Sprintf("it has %s, and %s are allowed for one torrent",
			text(o.Size), text(l.MaxTorrent))
	case l.MaxTorrents > 0 && r.torrents >= l.MaxTorrents:
		return fmt.Sprintf("the mirror has %d torrents, which is as many as are allowed",
			r.torrents)
	case l.MaxTotal > 0 && o.Size > l.MaxTotal-r.total:
		return fmt.Sprintf("it has %s, and %s of the %s for all torrents are left",
			text(o.Size), text(l.MaxTotal-r.total), text(l.MaxTotal))
	case r.hasFree && o.Size > r.free-l.KeepFree:
		return fmt.Sprintf("it has %s, and the disk has room for %s, with %s left free",
			text(o.Size), text(r.free-l.KeepFree), text(l.KeepFree))
	}
	return ""
}

// Filter chooses offers by their names.
type Filter struct{ Include, Exclude []string } // patterns of path.Match, whose case does not matter

// match lets * and ? stand for slashes, too: titles such as "amd64/i386" are no paths.
func match(pattern, name string) (bool, error) {
	plain := func(s string) string { return strings.ReplaceAll(strings.ToLower(s), "/", "\x00") }
	return path.Match(plain(pattern), plain(name))
}

// Check returns an error if a pattern is wrong.
func (f Filter) Check() error {
	for _, p := range slices.Concat(f.Include, f.Exclude) {
		if _, err := match(p, ""); err != nil {
			return fmt.Errorf("pattern %q: %w", p, err)
		}
	}
	return nil
}

// Wants tells whether a name matches a pattern in Include, or Include is empty, and it matches no
// pattern in Exclude.
func (f Filter) Wants(name string) bool {
	matches := func(p string) bool { ok, err := match(p, name); return ok && err == nil }
	included := len(f.Include) == 0 || slices.ContainsFunc(f.Include, matches)
	return included && !slices.ContainsFunc(f.Exclude, matches)
}
