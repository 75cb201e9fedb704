package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"braid/client"
	"braid/node"
	"braid/pathsel"
)

// What a terminal shows of transfers is a function of their progress and of its size: lines of
// spans. The printer makes them visible, adds the colours and replaces those of the last look.

// line is one row of a terminal.
type line []span

// span is text in one style.
type span struct {
	text  string
	style style
}

// style is what SGR (ECMA-48) makes of text.
type style string

const (
	plain style = ""
	bold  style = "1"
	faint style = "2"
	red   style = "31"
	green style = "32"
	amber style = "33"
)

// textLine is a line in no style.
func textLine(text string) line { return line{{text, plain}} }

const (
	minBar, maxBar = 10, 24 // columns between the brackets; below it is no bar
	minName        = 16     // columns that a name has before a bar is drawn
	maxReason      = 2      // lines of a reason, so that it does not push transfers off the screen
)

// screen shows transfers on a terminal, and in full if they fit. If not, it shows as many as fit,
// from the first on, and says how many more there are; none moves because of another one's
// progress. The last line sums up.
func screen(all []client.Progress, uploads, verbose bool, width, height int) []line {
	one, sum, nameWidth := len(all) == 1, sumOf(all), nameColumns(all, width)
	if !one && !uploads { // the end of a download was told above
		all = slices.DeleteFunc(slices.Clone(all), func(p client.Progress) bool { return p.Phase == client.Complete })
	}
	room := max(1, height-1) // the cursor stands below
	var blocks [][]line
	for _, p := range all {
		blocks = append(blocks, block(p, area{uploads, verbose, width, nameWidth, room}))
	}
	if one {
		return slices.Concat(blocks...)
	}
	room-- // for the sum
	shown := len(all)
	if total := len(slices.Concat(blocks...)); total > room {
		room-- // for the line that says how many more there are
		shown = 0
		for used := 0; shown < len(blocks) && used+len(blocks[shown]) <= room; shown++ {
			used += len(blocks[shown])
		}
	}
	lines := slices.Concat(blocks[:shown]...)
	if rest := all[shown:]; len(rest) > 0 {
		lines = append(lines, line{{fmt.Sprintf("%d more", len(rest)), bold}, {": " + phases(rest, uploads), plain}})
	}
	return append(lines, headline(sum, uploads, width, nameWidth))
}

// nameColumns is how wide names are: as the longest, as far as the figures leave room.
func nameColumns(all []client.Progress, width int) int {
	longest := 0
	for _, p := range all {
		longest = max(longest, columnsOfText(p.Name))
	}
	if len(all) > 1 {
		longest = max(longest, len(sumOf(all).Name))
	}
	const figures = len("  100% of 1023.9 MiB  999.9 Mbit/s  23h59m left")
	room := max(minName, width-figures)
	if longest+minBar+4 > room && room >= minName+minBar+4 {
		room -= minBar + 4 // rather a shorter name than no bar
	}
	return min(longest, room)
}

// area is what a screen shows of a transfer, and the columns and lines that it has for that.
type area struct {
	uploads, verbose       bool
	width, nameWidth, room int
}

// block is one transfer: its headline, what it waits for, and its paths.
func block(p client.Progress, a area) []line {
	lines := []line{headline(p, a.uploads, a.width, a.nameWidth)}
	if why := whyWaiting(p); why != "" && !a.uploads {
		for _, l := range wrapText(why, a.width-2, maxReason) {
			lines = append(lines, line{{"  " + l, amber}})
		}
	}
	paths := pathLines(p, a.uploads, a.verbose, a.width)
	if left := a.room - len(lines); len(paths) > left {
		left = max(0, left-1)
		lines = append(lines, slices.Concat(paths[:left]...)...)
		return append(lines, line{{"  " + plural(len(paths)-left, "more path"), faint}})
	}
	return append(lines, slices.Concat(paths...)...)
}

func headline(p client.Progress, uploads bool, width, nameWidth int) line {
	name := span{fit(p.Name, nameWidth), bold}
	if uploads {
		return line{name, {"  " + padLeft(bytesText(p.Sent), 10) + " sent  " + padLeft(rateText(p.WriteRate), 12) + "  to " + plural(node.ConnectedPeers(p), "peer"), plain}}
	}
	if text, style := phaseText(p); text != "" {
		return line{name, {"  " + text, style}}
	}
	figures := fmt.Sprintf("  %4s of %s  %s  ", percent(p.Have, p.Total), padRight(bytesText(p.Total), 10), padLeft(rateText(p.ReadRate), 12))
	left := span{leftText(p), plain}
	if left.text == stalled {
		left.style = amber
	}
	out := line{name}
	if b := min(maxBar, width-nameWidth-len(figures)-len("23h59m left")-4); b >= minBar {
		n := barCells(p.Have, p.Total, b)
		out = append(out, span{"  [", plain}, span{strings.Repeat("#", n), green}, span{strings.Repeat("-", b-n) + "]", plain})
	}
	return append(out, span{figures, plain}, left)
}

// phaseText says what a transfer does if it does not download.
func phaseText(p client.Progress) (string, style) {
	switch p.Phase {
	case client.Metadata:
		return "waiting for a peer to describe the torrent", amber
	case client.Checking:
		return fmt.Sprintf("checking: %s of %s hashed, %s right", bytesText(p.Checked), bytesText(p.Total), bytesText(p.Have)), plain
	case client.Complete:
		return "complete  " + bytesText(p.Total), green
	case client.Broken:
		return "failed", red
	}
	return "", plain
}

// pathLines are the paths of a transfer that matter, each with the reason below it if it has failed
// and the line is too short. Their order is that of the progress: see places.
func pathLines(p client.Progress, uploads, verbose bool, width int) [][]line {
	var sum uint64
	var shown []client.PathProgress
	for _, x := range p.Paths {
		sum += moved(x, uploads)
		if uploads && x.State != pathsel.Active || x.State == pathsel.Idle && x.BytesRead == 0 && x.Err == nil && x.Path.Fingerprint != "" {
			continue // one of many paths that are not tried yet
		}
		shown = append(shown, x)
	}
	short := shortASes(p.Paths)
	peers, paths := make([]string, len(shown)), make([]string, len(shown))
	peerWidth, pathWidth := 0, 0
	for i, x := range shown {
		peers[i], paths[i] = peerName(x, verbose), pathName(x, short, verbose)
		peerWidth, pathWidth = max(peerWidth, columnsOfText(peers[i])), max(pathWidth, columnsOfText(paths[i]))
	}
	const figures = len("    330 ms  999.9 Mbit/s  100%  probing")
	if over := 2 + peerWidth + 2 + pathWidth + figures - width; over > 0 { // the address is what a user knows already
		cutOff := min(over, max(0, peerWidth-minName))
		most := max(8, pathWidth-(over-cutOff))
		peerWidth, pathWidth = peerWidth-cutOff, 0
		for i := range paths {
			paths[i] = shortPath(paths[i], most)
			pathWidth = max(pathWidth, columnsOfText(paths[i]))
		}
	}
	var out [][]line
	for i, x := range shown {
		head := span{"  " + fit(peers[i], peerWidth) + "  " + fit(paths[i], pathWidth), plain}
		if x.State == pathsel.Failed || x.Err != nil && !x.State.Open() {
			out = append(out, failedLines(head, x, width))
			continue
		}
		rate := x.ReadRate
		if uploads {
			rate = x.WriteRate
		}
		share := 0.
		if sum > 0 {
			share = 100 * float64(moved(x, uploads)) / float64(sum)
		}
		state := span{x.State.String(), faint}
		if x.State.Carries() {
			state.style = green
		}
		numbers := fmt.Sprintf("  %s  %s  %3.0f%%  ", rttText(x.RTT), padLeft(rateText(rate), 12), share)
		l := line{head, {numbers, plain}, state}
		from := "  from " + string(x.Source)
		if known := x.Source == "" || x.Source == client.FromUser; !known && columnsOfText(head.text+numbers+state.text+from) <= width {
			l = append(l, span{from, faint})
		}
		out = append(out, []line{l})
	}
	return out
}

// failedLines are a path that has failed, with the reason beside it or, if it is too long, below.
func failedLines(head span, x client.PathProgress, width int) []line {
	reason := reasonOf(x)
	first := line{head, {"  " + x.State.String(), red}}
	if reason == "" {
		return []line{first}
	}
	if columnsOfText(head.text)+2+len(x.State.String())+2+columnsOfText(reason) <= width {
		return []line{append(first, span{"  " + reason, plain})}
	}
	lines := []line{first}
	for _, l := range wrapText(reason, width-4, maxReason) {
		lines = append(lines, textLine("    "+l))
	}
	return lines
}

// reasonOf is why a path has failed, without the peer's name, which stands beside it.
func reasonOf(x client.PathProgress) string {
	err := x.Err
	for err != nil && strings.Contains(err.Error(), x.Peer) && errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	if err == nil {
		return ""
	}
	return oneLine(err.Error())
}

// peerName is a peer's address. The AS is left out where the path ends with it.
func peerName(x client.PathProgress, verbose bool) string {
	if !verbose && len(x.Path.Interfaces) > 0 {
		return withoutAS(x.Peer)
	}
	return x.Peer
}

// withoutAS is the address of a host in its AS.
func withoutAS(peer string) string {
	_, host, ok := strings.Cut(peer, ",")
	if !ok {
		return peer
	}
	if addr, port, ok := strings.Cut(host, "]:"); ok && !strings.Contains(addr, ":") {
		return strings.TrimPrefix(addr, "[") + ":" + port
	}
	return host
}

// pathName is a path as its interfaces, 111#1 > 120#3,4 > 110#2, from our AS on; with its
// fingerprint for those who want all of it.
func pathName(x client.PathProgress, short func(pathsel.IA) string, verbose bool) string {
	hops := x.Path.Interfaces
	if len(hops) == 0 {
		if x.Path.Src == 0 {
			return x.Transport
		}
		return "within " + short(x.Path.Src)
	}
	parts := []string{fmt.Sprintf("%s#%d", short(hops[0].IA), hops[0].ID)}
	for i := 1; i < len(hops); i++ {
		at := fmt.Sprintf("%s#%d", short(hops[i].IA), hops[i].ID)
		if i+1 < len(hops) { // through the AS
			i++
			at += fmt.Sprintf(",%d", hops[i].ID)
		}
		parts = append(parts, at)
	}
	name := strings.Join(parts, pathArrow)
	if verbose {
		name += " " + x.Path.Fingerprint.Short()
	}
	return name
}

const pathArrow = " > "

// shortPath shortens a path in its middle: where it leaves our AS and enters the peer's tells most.
func shortPath(name string, width int) string {
	parts := strings.Split(name, pathArrow)
	for columnsOfText(name) > width && len(parts) > 2 {
		parts = slices.Delete(parts, len(parts)/2, len(parts)/2+1)
		half := (len(parts) + 1) / 2
		name = strings.Join(parts[:half], pathArrow) + pathArrow + "…" + pathArrow + strings.Join(parts[half:], pathArrow)
	}
	if columnsOfText(name) > width {
		return fit(name, width)
	}
	return name
}

// shortASes writes ASes as short as those of these paths can be told apart: 110 for 1-ff00:0:110,
// if all are in ISD 1 and begin with ff00:0.
func shortASes(paths []client.PathProgress) func(pathsel.IA) string {
	isds, heads := map[uint16]bool{}, map[string]bool{}
	split := func(ia pathsel.IA) (head, last string) {
		_, as, _ := strings.Cut(ia.String(), "-")
		i := strings.LastIndex(as, ":") + 1
		return as[:i], as[i:]
	}
	note := func(ia pathsel.IA) {
		head, _ := split(ia)
		isds[ia.ISD()], heads[head] = true, true
	}
	for _, x := range paths {
		if x.Path.Src != 0 {
			note(x.Path.Src)
			note(x.Path.Dst)
		}
		for _, i := range x.Path.Interfaces {
			note(i.IA)
		}
	}
	return func(ia pathsel.IA) string {
		head, name := split(ia)
		if len(heads) > 1 {
			name = head + name
		}
		if len(isds) > 1 {
			name = fmt.Sprintf("%d-%s", ia.ISD(), name)
		}
		return name
	}
}

// sumOf adds transfers up, as one with a name that counts them.
func sumOf(all []client.Progress) client.Progress {
	sum := client.Progress{Name: plural(len(all), "torrent"), Phase: client.Downloading}
	for _, p := range all {
		sum.Total, sum.Have, sum.Sent = sum.Total+p.Total, sum.Have+p.Have, sum.Sent+p.Sent
		sum.ReadRate, sum.WriteRate = sum.ReadRate+p.ReadRate, sum.WriteRate+p.WriteRate
		sum.Since = max(sum.Since, p.Since)
		sum.Paths = append(sum.Paths, p.Paths...)
	}
	return sum
}

// phases counts what transfers do: 30 downloading, 3 stalled.
func phases(all []client.Progress, uploads bool) string {
	counts := map[string]int{}
	order := []string{"downloading", stalled, "checking", "waiting for a description", "failed", "complete", "sending", "idle"}
	for _, p := range all {
		what := map[client.Phase]string{client.Metadata: order[3], client.Checking: order[2], client.Broken: order[4], client.Complete: order[5]}[p.Phase]
		switch {
		case uploads && p.WriteRate >= least:
			what = order[6]
		case uploads:
			what = order[7]
		case what == "" && leftText(p) == stalled:
			what = stalled
		case what == "":
			what = order[0]
		}
		counts[what]++
	}
	var parts []string
	for _, what := range order {
		if counts[what] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[what], what))
		}
	}
	return strings.Join(parts, ", ")
}

// places keep the rows of a transfer where they are: the order in which its paths were first seen.
type places struct {
	at   map[placeKey]int
	next int
}

type placeKey struct {
	peer     string
	path     pathsel.Fingerprint
	accepted bool
}

func keyOf(x client.PathProgress) placeKey {
	return placeKey{x.Peer, x.Path.Fingerprint, x.Accepted}
}

// order puts paths in their places, and forgets the places of those that are gone.
func (o *places) order(paths []client.PathProgress) {
	at := make(map[placeKey]int, len(paths))
	for _, x := range paths {
		k := keyOf(x)
		if _, known := o.at[k]; !known {
			o.next++
			at[k] = o.next
		} else {
			at[k] = o.at[k]
		}
	}
	o.at = at
	slices.SortStableFunc(paths, func(a, b client.PathProgress) int { return cmp.Compare(at[keyOf(a)], at[keyOf(b)]) })
}

// fit is text in so many columns: shortened in the middle, since names differ at their ends, or
// filled up.
func fit(s string, width int) string {
	s = visible(s)
	n := columnsOfText(s)
	if n <= width {
		return s + strings.Repeat(" ", width-n)
	}
	if width < 3 {
		return cut(s, max(1, width))
	}
	head, tail := cut(s, width/2), s
	for columnsOfText(tail) > width-1-columnsOfText(head) {
		_, size := utf8.DecodeRuneInString(tail)
		tail = tail[size:]
	}
	out := head + "…" + tail
	return out + strings.Repeat(" ", max(0, width-columnsOfText(out)))
}

// wrapText breaks text between words into lines of so many columns, at most so many; the last one
// is shortened.
func wrapText(s string, width, most int) []string {
	var out []string
	used := ""
	words := strings.Fields(visible(s))
	for i, w := range words {
		switch {
		case used == "":
			used = w
		case columnsOfText(used)+1+columnsOfText(w) <= width:
			used += " " + w
		case len(out) == most-1:
			return append(out, strings.TrimRight(fit(strings.Join(append([]string{used}, words[i:]...), " "), width), " "))
		default:
			out, used = append(out, used), w
		}
	}
	if used != "" {
		out = append(out, used)
	}
	return out
}

func padLeft(s string, width int) string  { return fmt.Sprintf("%*s", width, s) }
func padRight(s string, width int) string { return fmt.Sprintf("%-*s", width, s) }
