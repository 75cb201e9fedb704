package transmission

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"braid/client"
	"braid/node"
	"braid/node/web/foreign"
	"braid/tracker"
)

// kB is the unit of rates in bits: a kilobyte, of 1000 bytes.
const kB = 8000

func (v *view) have() int64 {
	if v.Source.IsMagnet() {
		return 0
	}
	return v.Source.Layout.Length - v.Missing
}

// peerLimit returns the number of peers that the torrent dials.
func (v *view) peerLimit() int {
	return cmp.Or(v.PeerLimit, v.settings.PeerLimit, client.MaxPeers)
}

// Values of the field error.
const (
	fine         = 0
	trackerError = 2
	localError   = 3
)

// trouble returns the fields error and error_string.
func (v *view) trouble() (code int, text string) {
	switch s := v.Status; {
	case s.Err != nil:
		return localError, s.Err.Error()
	case s.TrackerError != "":
		return trackerError, s.TrackerError
	}
	return fine, ""
}

// state returns the field status. A torrent that has failed or reached its goal is stopped. One
// whose data moves, or will soon, is not complete: nobody may take its files away.
func (v *view) state() int {
	s := v.Status
	if s.Moving {
		return verifying
	}
	switch s.State {
	case node.Queued:
		if foreign.IsComplete(v.Status) {
			return seedQueued
		}
		return downloadQueued
	case node.Starting, node.Moving:
		return verifying
	case node.Running:
		switch {
		case s.Phase == client.Checking:
			return verifying
		case foreign.IsComplete(v.Status):
			return seeding
		}
		return downloading
	}
	return stopped
}

func (v *view) rechecked() float64 {
	if v.Phase != client.Checking {
		return 0
	}
	return share(v.Checked, v.Source.Layout.Length)
}

// eta returns the seconds until the download is complete, or until a seed has reached its ratio.
func (v *view) eta() int64 {
	switch v.state() {
	case downloading:
		if v.Remaining >= 0 {
			return foreign.Seconds(v.Remaining)
		}
		return etaUnknown
	case seeding:
		r := v.ratio()
		if r.limit == 0 {
			return etaNone
		}
		if v.WriteRate < 1 {
			return etaUnknown
		}
		left := r.limit*float64(v.Total) - float64(v.Sent)
		return int64(max(left, 0) * 8 / v.WriteRate)
	}
	return etaNone
}

func (v *view) etaIdle() int64 {
	limit := v.idle().limit
	if v.state() != seeding || limit == 0 || v.LastActive.IsZero() {
		return etaNone
	}
	return foreign.Seconds(time.Duration(limit*float64(time.Minute)) - v.now.Sub(v.LastActive))
}

// seedLimit is a seeding limit of a torrent.
type seedLimit struct {
	mode  int
	value float64 // as a client sees it, even if the mode does not use it
	limit float64 // the limit that applies; 0: none
}

// seedLimitOf returns the limit for a part of a torrent's goal. If own is 0, global applies; if it
// is below 0, no limit does. off is the value that a client has sent while the limit was not used.
func seedLimitOf(own, global, off float64) seedLimit {
	switch {
	case own > 0:
		return seedLimit{limitOwn, own, own}
	case own < 0:
		return seedLimit{limitNone, off, 0}
	}
	return seedLimit{limitGlobal, off, max(global, 0)}
}

func (v *view) ratio() seedLimit {
	return seedLimitOf(v.Goal.Ratio, v.settings.Goal.Ratio, v.off.number("seed_ratio_limit"))
}

func (v *view) idle() seedLimit {
	own, global := v.Goal.Idle.Minutes(), v.settings.Goal.Idle.Minutes()
	return seedLimitOf(own, global, v.off.number("seed_idle_limit"))
}

func (v *view) uploadRatio() float64 {
	if v.Total == 0 {
		return -1 // not available
	}
	return v.Ratio
}

// numberedTracker is a tracker with its number: its place in all tiers together.
type numberedTracker struct {
	node.TrackerStatus
	id     int
	backup bool // another tracker of its tier is used
}

// numbered returns the trackers of all tiers, with the state of those that were asked. The tracker
// of a tier that was asked last is the one that is used; before that, the first one.
func numbered(tiers [][]tracker.URL, known []node.TrackerStatus) (out []numberedTracker) {
	by := map[string]node.TrackerStatus{}
	for _, t := range known {
		by[t.URL] = t
	}
	for i, tier := range tiers {
		used := len(out)
		for _, u := range tier {
			t, ok := by[u.String()]
			if !ok {
				t.URL = u.String()
			}
			t.Tier = i
			out = append(out, numberedTracker{t, len(out), true})
			if t.Last.After(out[used].Last) {
				used = len(out) - 1
			}
		}
		if used < len(out) {
			out[used].backup = false
		}
	}
	return out
}

func (t numberedTracker) result() string {
	switch {
	case t.Err != nil:
		return t.Err.Error()
	case t.Answered:
		return "Success"
	}
	return ""
}

// ifAnswered returns a number of the last answer, or -1 if the tracker has not answered.
func (t numberedTracker) ifAnswered(n int64) int64 {
	if !t.Answered {
		return -1
	}
	return n
}

func (t numberedTracker) timedOut() bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(t.Err, context.DeadlineExceeded) || errors.As(t.Err, &timeout) && timeout.Timeout()
}

// trackerList returns a URL on each line, and an empty line between tiers.
func trackerList(all []numberedTracker) string {
	var b strings.Builder
	for i, t := range all {
		if i > 0 && t.Tier != all[i-1].Tier {
			b.WriteByte('\n')
		}
		b.WriteString(t.URL + "\n")
	}
	return b.String()
}
