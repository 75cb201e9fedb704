package terminal

import (
	"fmt"
	"strings"
	"time"

	"braid/client"
	"braid/node"
)

// Functions from the progress of transfers to text: lines of a log, and the summary of a download.
// screen.go has the display on a terminal.

const barWidth = 24

func moved(x client.PathProgress, uploads bool) uint64 {
	if uploads {
		return x.BytesWritten
	}
	return x.BytesRead
}

// PlainLine returns the line of a transfer in a log.
func PlainLine(p client.Progress, uploads bool) string {
	text := fmt.Sprintf("%s  %s of %s  %s  %s",
		p.Name, Percent(p.Have, p.Total), BytesText(p.Total), RateText(p.ReadRate), leftText(p))
	if uploads {
		text = fmt.Sprintf("%s  %s sent  %s  to %s", p.Name, BytesText(p.Sent),
			RateText(p.WriteRate), Plural(node.ConnectedPeers(p), "peer"))
	} else if phase, _ := phaseText(p); phase != "" {
		if why := whyWaiting(p); why != "" {
			phase += "  " + why
		}
		return p.Name + "  " + phase
	}
	open, failed := 0, ""
	for _, x := range p.Paths {
		if x.State.Carries() {
			open++
		} else if x.Err != nil {
			failed = x.Peer + ": " + x.Err.Error()
		}
	}
	text += "  " + Plural(open, "path") + " open"
	if open == 0 && failed != "" && !uploads && p.Cause == nil {
		text += "  " + OneLine(failed)
	}
	if why := whyWaiting(p); why != "" && !uploads {
		text += "  " + why
	}
	return text
}

// whyWaiting says why a download makes no progress. It is empty if there is progress, or if the
// reason is unknown.
func whyWaiting(p client.Progress) string {
	switch {
	case p.Phase == client.Broken || p.Phase == client.Complete:
		return ""
	case p.Cause != nil:
		return "no progress: " + OneLine(p.Cause.Text)
	}
	return OneLine(p.Waiting)
}

// Summary describes a complete download, with the share of each path.
func Summary(p client.Progress, verbose bool) []string {
	head := fmt.Sprintf("%s  complete: %s, %s downloaded in %s",
		p.Name, BytesText(p.Total), BytesText(p.Fetched), DurationText(p.Since))
	if p.Fetched > 0 {
		head += fmt.Sprintf(" (%s)", RateText(float64(p.Fetched)*8/p.Since.Seconds()))
	}
	if p.Dropped > 0 {
		head += "; dropped " + Plural(int(p.Dropped), "wrong piece")
	}
	lines := []string{head}
	var sum uint64
	for _, x := range p.Paths {
		sum += x.BytesRead
	}
	short := ShortASes(p.Paths)
	for _, x := range p.Paths {
		if x.BytesRead > 0 {
			line := fmt.Sprintf("  %3.0f%%  %10s  %s  %s",
				100*float64(x.BytesRead)/float64(sum), BytesText(int64(x.BytesRead)),
				peerName(x, verbose), PathName(x, short, verbose))
			if x.Source != "" && x.Source != client.FromUser {
				line += "  from " + string(x.Source)
			}
			lines = append(lines, line)
		}
	}
	return lines
}

func CountLine(what string, done, total int64, elapsed time.Duration) string {
	rate := ""
	if s := elapsed.Seconds(); s > 0 {
		rate = BytesText(int64(float64(done)/s)) + "/s"
	}
	if total == 0 {
		return fmt.Sprintf("%s  %s  %s", what, BytesText(done), rate)
	}
	return fmt.Sprintf("%s  %s %s  %s",
		what, bar(done, total, barWidth), Percent(done, total), rate)
}

// PartsDone divides the total into equal parts, and returns how many of them are done.
func PartsDone(done, total int64, parts int) int {
	if total <= 0 {
		return 0
	}
	return max(0, min(int(float64(parts)*float64(done)/float64(total)), parts))
}

func bar(done, total int64, width int) string {
	n := PartsDone(done, total, width)
	return "[" + strings.Repeat("#", n) + strings.Repeat("-", width-n) + "]"
}

// Percent returns 100% only if all is done.
func Percent(done, total int64) string {
	switch {
	case total <= 0 || done <= 0:
		return "0%"
	case done >= total:
		return "100%"
	}
	return fmt.Sprintf("%d%%", min(99, int64(100*float64(done)/float64(total))))
}

// Least is the lowest rate that counts as one, in bit/s.
const Least = 1000

const stalled = "stalled"

func leftText(p client.Progress) string {
	switch {
	case p.ReadRate < Least && p.Since < 3*time.Second:
		return "starting"
	case p.ReadRate < Least:
		return stalled
	}
	left := float64(p.Total-p.Have) * 8 / p.ReadRate
	if left > 99*24*3600 {
		return "months left"
	}
	return DurationText(time.Duration(left*float64(time.Second))) + " left"
}

// DurationText writes a time in two units. units.ParseDuration can read it.
func DurationText(d time.Duration) string {
	s := int(d.Round(time.Second).Seconds())
	switch m, h := s/60, s/3600; {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case m < 60:
		return fmt.Sprintf("%dm%02ds", m, s%60)
	case h < 24:
		return fmt.Sprintf("%dh%02dm", h, m%60)
	default:
		return fmt.Sprintf("%dd%02dh", h/24, h%24)
	}
}

func rttText(d time.Duration) string {
	switch {
	case d == 0:
		return "   - ms"
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%4.1f ms", Milliseconds(d))
	}
	return fmt.Sprintf("%4.0f ms", Milliseconds(d))
}

// RateText writes a rate in at most 12 columns. units.ParseRate can read it.
func RateText(bitsPerSecond float64) string {
	switch {
	case bitsPerSecond < 999.5e3:
		return fmt.Sprintf("%.0f kbit/s", bitsPerSecond/1e3)
	case bitsPerSecond < 999.95e6:
		return fmt.Sprintf("%.1f Mbit/s", bitsPerSecond/Mega)
	}
	return fmt.Sprintf("%.2f Gbit/s", bitsPerSecond/1e9)
}

func BytesText(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	v, i := float64(n), 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	if i == 0 || v == float64(int64(v)) {
		return fmt.Sprintf("%d %s", int64(v), units[i])
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}

const Mega = 1e6

func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Pace decides when to log a line about a running transfer: when its state has changed, and
// otherwise once an hour, as a sign of life. A line every few seconds would be 17 000 a day, among
// which nobody finds the one that matters.
type Pace struct {
	state string
	at    time.Time // of the last line; zero before the first
}

const (
	logAgain = time.Hour
	// logPause is the shortest time between two lines. Without it, peers that come and go all the
	// time, perhaps on purpose, could still fill the log.
	logPause = time.Minute
)

// Due tells whether to write a line now. If so, the caller must write it.
func (p *Pace) Due(state string, now time.Time) bool {
	since := now.Sub(p.at)
	if !p.at.IsZero() && (since < logPause || state == p.state && since < logAgain) {
		return false
	}
	p.state, p.at = state, now
	return true
}

// StateOf returns the part of a transfer's state that is worth a line in a log. Changes of rates,
// or of the number of peers, are not.
func StateOf(p client.Progress, uploads bool) string {
	if uploads {
		return fmt.Sprint(p.Phase, node.ConnectedPeers(p) > 0)
	}
	carried := 0
	for _, x := range p.Paths {
		if x.State.Carries() {
			carried++
		}
	}
	cause := client.CauseKind("")
	if p.Cause != nil {
		cause = p.Cause.Kind
	}
	return fmt.Sprint(p.Phase, PartsDone(p.Have, p.Total, 10), p.Waiting != "",
		carried > 0, p.ReadRate < Least, cause)
}
