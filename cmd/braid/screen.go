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
	"braid/units/lists"
)

// The display of running transfers is a function of their progress and of the terminal's size. It
// returns lines of spans. The printer escapes control characters in them, adds colours, and draws
// the lines over the previous ones.

// line is one row of a terminal.
type line []span

// span is text in one style.
type span struct {
	text  string
	style style
}

// style is the parameter of an SGR sequence (ECMA-48).
type style string

const (
	plain style = ""
	bold  style = "1"
	faint style = "2"
	red   style = "31"
	green style = "32"
	amber style = "33"
)

// textLine is a line without style.
func textLine(text string) line { return line{{text, plain}} }

const (
	minBar, maxBar = 10, 24 // columns between the brackets; there is no bar below minBar
	minName        = 16     // columns of a name; a bar is drawn only if it leaves that many
	maxReason      = 2      // lines of a reason; more would push transfers off the screen
)

// screen returns the display of transfers. If not all of them fit, it shows the first ones and says
// how many more there are. The order does not depend on progress, so transfers keep their places.
// The last line is the sum.
func screen(all []client.Progress, uploads, verbose bool, width, height int) []line {
	one, sum, nameWidth := len(all) == 1, sumOf(all), nameColumns(all, width)
	if !one && !uploads { // a line above the display has said that a download is complete
		all = slices.DeleteFunc(slices.Clone(all), func(p client.Progress) bool {
			return p.Phase == client.Complete
		})
	}
	room := max(1, height-1) // the cursor stands below
	blocks := lists.Map(all, func(p client.Progress) []line {
		return block(p, area{uploads, verbose, width, nameWidth, room})
	})
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
		lines = append(lines, line{{fmt.Sprintf("%d more",
			len(rest)), bold}, {": " + phases(rest, uploads), plain}})
	}
	return append(lines, headline(sum, uploads, width, nameWidth))
}

// nameColumns returns the width of names: that of the longest, unless the figures need the room.
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
		room -= minBar + 4 // a shorter name is better than no bar
	}
	return min(longest, room)
}

// area says what to show of a transfer, and how many columns and lines there are for it.
type area struct {
	uploads, verbose       bool
	width, nameWidth, room int
}

// block shows one transfer: its headline, why it waits, and its paths.
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
		sent := fmt.Sprintf("  %10s sent  %12s  to %s", bytesText(p.Sent), rateText(p.WriteRate),
			plural(node.ConnectedPeers(p), "peer"))
		return line{name, {sent, plain}}
	}
	if text, style := phaseText(p); text != "" {
		return line{name, {"  " + text, style}}
	}
	figures := fmt.Sprintf("  %4s of %-10s  %12s  ",
		percent(p.Have, p.Total), bytesText(p.Total), rateText(p.ReadRate))
	left := span{leftText(p), plain}
	if left.text == stalled {
		left.style = amber
	}
	out := line{name}
	if b := min(maxBar, width-nameWidth-len(figures)-len("23h59m left")-4); b >= minBar {
		n := partsDone(p.Have, p.Total, b)
		out = append(out, span{"  [", plain}, span{strings.Repeat("#",
			n), green}, span{strings.Repeat("-", b-n) + "]", plain})
	}
	return append(out, span{figures, plain}, left)
}

// phaseText describes a transfer in a phase other than downloading.
func phaseText(p client.Progress) (string, style) {
	switch p.Phase {
	case client.Metadata:
		return "waiting for a peer to describe the torrent", amber
	case client.Checking:
		return fmt.Sprintf("checking: %s of %s hashed, %s right",
			bytesText(p.Checked), bytesText(p.Total), bytesText(p.Have)), plain
	case client.Complete:
		return "complete  " + bytesText(p.Total), green
	case client.Broken:
		return "failed", red
	}
	return "", plain
}

// pathLines shows the paths of a transfer that are or were in use, in the order of p.Paths (see
// places). A failed path has its reason beside it or below it.
func pathLines(p client.Progress, uploads, verbose bool, width int) [][]line {
	var sum uint64
	var shown []client.PathProgress
	for _, x := range p.Paths {
		sum += moved(x, uploads)
		untried := x.State == pathsel.Idle && x.BytesRead == 0 && x.Err == nil
		if uploads && x.State != pathsel.Active || untried && x.Path.Fingerprint != "" {
			continue // there may be many untried paths
		}
		shown = append(shown, x)
	}
	short := shortASes(p.Paths)
	peers, paths := make([]string, len(shown)), make([]string, len(shown))
	peerWidth, pathWidth := 0, 0
	for i, x := range shown {
		peers[i], paths[i] = peerName(x, verbose), pathName(x, short, verbose)
		peerWidth = max(peerWidth, columnsOfText(peers[i]))
		pathWidth = max(pathWidth, columnsOfText(paths[i]))
	}
	const figures = len("    330 ms  999.9 Mbit/s  100%  probing")
	if over := 2 + peerWidth + 2 + pathWidth + figures - width; over > 0 {
		// Shorten the address first: users know it already.
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
		numbers := fmt.Sprintf("  %s  %s  %3.0f%%  ",
			rttText(x.RTT), padLeft(rateText(rate), 12), share)
		l := line{head, {numbers, plain}, state}
		from := "  from " + string(x.Source)
		known := x.Source == "" || x.Source == client.FromUser
		if !known && columnsOfText(head.text+numbers+state.text+from) <= width {
			l = append(l, span{from, faint})
		}
		out = append(out, []line{l})
	}
	return out
}

// failedLines shows a failed path, with the reason beside it or, if it is too long, below it.
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

// reasonOf returns why a path has failed. It leaves out the peer's name, which the line begins
// with.
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

// peerName returns a peer's address, without the AS if the path shows it.
func peerName(x client.PathProgress, verbose bool) string {
	if !verbose && len(x.Path.Interfaces) > 0 {
		return withoutAS(x.Peer)
	}
	return x.Peer
}

// withoutAS removes the ISD-AS from an address.
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

// pathName shows a path as its interfaces, from our AS on: 111#1 > 120#3,4 > 110#2. If verbose, the
// fingerprint follows.
func pathName(x client.PathProgress, short func(pathsel.IA) string, verbose bool) string {
	hops := x.Path.Interfaces
	if len(hops) == 0 {
		if x.Path.Src == 0 {
			return x.Transport
		}
		return "within " + short(x.Path.Src)
	}
	parts := []string{hopText(short(hops[0].IA), hops[0].ID)}
	for at := range slices.Chunk(hops[1:], 2) { // through an AS or, at the end, into it
		ids := lists.Map(at, func(x pathsel.Interface) uint64 { return x.ID })
		parts = append(parts, hopText(short(at[0].IA), ids...))
	}
	name := strings.Join(parts, pathArrow)
	if verbose {
		name += " " + x.Path.Fingerprint.Short()
	}
	return name
}

const pathArrow = " > "

// hopText shows an AS of a path with the interfaces that the path uses: 120#3,4. 0 is none.
func hopText(as string, interfaces ...uint64) string {
	separator := "#"
	for _, id := range interfaces {
		if id != 0 {
			as += separator + fmt.Sprint(id)
			separator = ","
		}
	}
	return as
}

// shortPath shortens a path in its middle. Its ends, which differ most, stay.
func shortPath(name string, width int) string {
	parts := strings.Split(name, pathArrow)
	for columnsOfText(name) > width && len(parts) > 2 {
		parts = slices.Delete(parts, len(parts)/2, len(parts)/2+1)
		half := (len(parts) + 1) / 2
		name = strings.Join(slices.Insert(slices.Clone(parts), half, "…"), pathArrow)
	}
	if columnsOfText(name) > width {
		return fit(name, width)
	}
	return name
}

// shortASes returns a function that leaves out the parts that all ASes of these paths have in
// common: it returns 110 for 1-ff00:0:110 if all are in ISD 1 and begin with ff00:0.
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

// sumOf adds transfers up. The sum's name is their number.
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

// phases counts transfers by what they do: 30 downloading, 3 stalled.
func phases(all []client.Progress, uploads bool) string {
	counts := map[string]int{}
	what := func(p client.Progress) string {
		switch {
		case uploads && p.WriteRate >= least:
			return "sending"
		case uploads:
			return "idle"
		case p.Phase == client.Metadata:
			return "waiting for a description"
		case p.Phase == client.Checking:
			return "checking"
		case p.Phase == client.Broken:
			return "failed"
		case p.Phase == client.Complete:
			return "complete"
		case leftText(p) == stalled:
			return stalled
		}
		return "downloading"
	}
	for _, p := range all {
		counts[what(p)]++
	}
	order := []string{
		"downloading", stalled, "checking", "waiting for a description", "failed", "complete",
		"sending", "idle",
	}
	var parts []string
	for _, what := range order {
		if counts[what] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[what], what))
		}
	}
	return strings.Join(parts, ", ")
}

// places keeps each path of a transfer in its row: rows are in the order in which paths were first
// seen.
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

// order sorts paths by their places, and forgets the places of other paths.
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
	slices.SortStableFunc(paths, func(a, b client.PathProgress) int {
		return cmp.Compare(at[keyOf(a)], at[keyOf(b)])
	})
}

// fit returns text that is exactly width columns wide. It fills up short text, and shortens long
// text in the middle, since names differ at their ends.
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

// wrapText breaks text between words into at most most lines of width columns. If the text is
// longer, the last line is shortened.
func wrapText(s string, width, most int) []string {
	out := strings.Split(strings.TrimSpace(hanging("", 0, visible(s), width)), "\n")
	if len(out) > most {
		rest := strings.Join(out[most-1:], " ")
		out = append(out[:most-1], strings.TrimRight(fit(rest, width), " "))
	}
	return out
}

func padLeft(s string, width int) string  { return fmt.Sprintf("%*s", width, s) }
func padRight(s string, width int) string { return fmt.Sprintf("%-*s", width, s) }
