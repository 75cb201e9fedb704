package main

import (
	"fmt"
	"strings"
	"time"

	"braid/client"
	"braid/pathsel"
)

// What is shown to people is a function of a transfer's progress: lines, which the printer makes visible and cuts to the
// width of the terminal.

const barWidth = 24

// render is a transfer on a terminal: a bar, and a line for each path that matters.
func render(p client.Progress, uploads bool) []string {
	lines := []string{headline(p, uploads)}
	var sum uint64
	for _, x := range p.Paths {
		sum += moved(x, uploads)
	}
	if p.Waiting != "" && !uploads {
		lines = append(lines, "  "+oneLine(p.Waiting))
	}
	for _, x := range p.Paths {
		if uploads && x.State != pathsel.Active || x.State == pathsel.Idle && x.BytesRead == 0 && x.Err == nil && x.Path.Fingerprint != "" {
			continue // one of many paths that are not tried yet
		}
		lines = append(lines, "  "+pathLine(x, uploads, sum))
	}
	return lines
}

func headline(p client.Progress, uploads bool) string {
	name := p.Name
	if uploads {
		return fmt.Sprintf("%s  %s sent  %s", name, bytesText(p.Sent), rateText(p.WriteRate))
	}
	switch p.Phase {
	case client.Metadata:
		return name + "  waiting for a peer to describe the torrent"
	case client.Checking:
		return fmt.Sprintf("%s  checking what is there  %s hashed  %s of %s right", name, bytesText(p.Checked), bytesText(p.Have), bytesText(p.Total))
	case client.Complete:
		return fmt.Sprintf("%s  complete  %s", name, bytesText(p.Total))
	case client.Broken:
		return name + "  failed"
	}
	return fmt.Sprintf("%s  %s %s  %s of %s  %s  %s", name, bar(p.Have, p.Total, barWidth), percent(p.Have, p.Total),
		bytesText(p.Have), bytesText(p.Total), rateText(p.ReadRate), leftText(p))
}

func pathLine(x client.PathProgress, uploads bool, sum uint64) string {
	if x.State == pathsel.Failed || x.Err != nil && !x.State.Open() {
		reason := ""
		if x.Err != nil {
			reason = x.Err.Error()
		}
		return fmt.Sprintf("%s  %s  %s", x.Peer, pathName(x), oneLine(x.State.String()+"  "+reason))
	}
	rate := x.ReadRate
	if uploads {
		rate = x.WriteRate
	}
	share := "  0%"
	if sum > 0 {
		share = fmt.Sprintf("%3.0f%%", 100*float64(moved(x, uploads))/float64(sum))
	}
	return fmt.Sprintf("%s  %s  %s  %s  %s  %s", x.Peer, pathName(x), rttText(x.RTT), rateText(rate), share, x.State)
}

func pathName(x client.PathProgress) string {
	if x.Path.Src == 0 && x.Path.Fingerprint == "" {
		return x.Transport
	}
	return x.Path.Fingerprint.Short() + " " + plural(x.Path.Hops(), "hop")
}

func moved(x client.PathProgress, uploads bool) uint64 {
	if uploads {
		return x.BytesWritten
	}
	return x.BytesRead
}

// plainLine is a transfer as one line of a log.
func plainLine(p client.Progress, uploads bool) string {
	line := headline(p, uploads)
	if p.Phase != client.Downloading && !uploads {
		return line
	}
	open, failed := 0, ""
	for _, x := range p.Paths {
		if x.State.Carries() {
			open++
		} else if x.Err != nil {
			failed = x.Peer + ": " + x.Err.Error()
		}
	}
	line += "  " + plural(open, "path") + " open"
	if open == 0 && failed != "" && !uploads {
		line += "  " + oneLine(failed)
	}
	if p.Waiting != "" && !uploads {
		line += "  " + oneLine(p.Waiting)
	}
	return line
}

// summary is the end of a download.
func summary(p client.Progress) []string {
	head := fmt.Sprintf("%s  complete: %s, %s downloaded in %s", p.Name, bytesText(p.Total), bytesText(p.Fetched), durationText(p.Since))
	if p.Fetched > 0 {
		head += fmt.Sprintf(" (%s)", rateText(float64(p.Fetched)*8/p.Since.Seconds()))
	}
	if p.Dropped > 0 {
		head += "; dropped " + plural(int(p.Dropped), "wrong piece")
	}
	lines := []string{head}
	var sum uint64
	for _, x := range p.Paths {
		sum += x.BytesRead
	}
	for _, x := range p.Paths {
		if x.BytesRead > 0 {
			lines = append(lines, fmt.Sprintf("  %s  %s  %s  %3.0f%%", x.Peer, pathName(x), bytesText(int64(x.BytesRead)), 100*float64(x.BytesRead)/float64(sum)))
		}
	}
	return lines
}

func countLine(what string, done, total int64, elapsed time.Duration) string {
	rate := ""
	if s := elapsed.Seconds(); s > 0 {
		rate = bytesText(int64(float64(done)/s)) + "/s"
	}
	if total == 0 {
		return fmt.Sprintf("%s  %s  %s", what, bytesText(done), rate)
	}
	return fmt.Sprintf("%s  %s %s  %s", what, bar(done, total, barWidth), percent(done, total), rate)
}

func bar(done, total int64, width int) string {
	n := 0
	if total > 0 {
		n = int(float64(width) * float64(done) / float64(total))
	}
	n = max(0, min(n, width))
	return "[" + strings.Repeat("#", n) + strings.Repeat("-", width-n) + "]"
}

// percent never says 100 before the end.
func percent(done, total int64) string {
	switch {
	case total <= 0 || done <= 0:
		return "0%"
	case done >= total:
		return "100%"
	}
	return fmt.Sprintf("%d%%", min(99, int64(100*float64(done)/float64(total))))
}

// least is in bit/s; below there is nothing to speak of.
const least = 1000

func leftText(p client.Progress) string {
	switch {
	case p.ReadRate < least && p.Since < 3*time.Second:
		return "starting"
	case p.ReadRate < least:
		return "stalled"
	}
	left := float64(p.Total-p.Have) * 8 / p.ReadRate
	if left > 99*3600 {
		return "days left"
	}
	return durationText(time.Duration(left*float64(time.Second))) + " left"
}

func durationText(d time.Duration) string {
	s := int(d.Round(time.Second).Seconds())
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

func rttText(d time.Duration) string {
	switch {
	case d == 0:
		return "   - ms"
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%4.1f ms", ms(d))
	}
	return fmt.Sprintf("%4.0f ms", ms(d))
}

func rateText(bitsPerSecond float64) string { return fmt.Sprintf("%.1f Mbit/s", bitsPerSecond/mega) }

func bytesText(n int64) string {
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

// oneLine makes one line of an error that has several.
func oneLine(s string) string { return strings.ReplaceAll(strings.TrimSpace(s), "\n", "; ") }
