package terminal

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"braid/client"
	"braid/node"
	"braid/pathsel"
	"braid/units/lists"
)

// The display of running transfers is a function of their progress and of the terminal's size. It
// returns lines of spans. The printer escapes control characters in them, adds colours, and draws
// the lines over the previous ones.

// Line is one row of a terminal.
type Line []span

// span is text in one style.
type span struct {
	Text  string
	style Style
}

// Style is the parameter of an SGR sequence (ECMA-48).
type Style string

const (
	Plain Style = ""
	Bold  Style = "1"
	Faint Style = "2"
	Red   Style = "31"
	green Style = "32"
	amber Style = "33"
)

func Styled(text string, s Style) span { return span{text, s} }

// textLine is a line without style.
func textLine(text string) Line { return Line{{text, Plain}} }

const (
	minBar, maxBar = 10, 24 // columns between the brackets; there is no bar below minBar
	MinName        = 16     // columns of a name; a bar is drawn only if it leaves that many
	maxReason      = 2      // lines of a reason; more would push transfers off the screen
)

// Screen returns the display of transfers. If not all of them fit, it shows the first ones and says
// how many more there are. The order does not depend on progress, so transfers keep their places.
// The last line is the sum.
func Screen(all []client.Progress, uploads, verbose bool, width, height int) []Line {
	one, sum, nameWidth := len(all) == 1, sumOf(all), nameColumns(all, width)
	if !one && !uploads { // a line above the display has said that a download is complete
		all = slices.DeleteFunc(slices.Clone(all), func(p client.Progress) bool {
			return p.Phase == client.Complete
		})
	}
	room := max(1, height-1) // the cursor stands below
	blocks := lists.Map(all, func(p client.Progress) []Line {
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
		lines = append(lines, Line{{fmt.Sprintf("%d more",
			len(rest)), Bold}, {": " + phases(rest, uploads), Plain}})
	}
	return append(lines, headline(sum, uploads, width, nameWidth))
}

// nameColumns returns the width of names: that of the longest, unless the figures need the room.
func nameColumns(all []client.Progress, width int) int {
	longest := 0
	for _, p := range all {
		longest = max(longest, ColumnsOfText(p.Name))
	}
	if len(all) > 1 {
		longest = max(longest, len(sumOf(all).Name))
	}
	const figures = len("  100% of 1023.9 MiB  999.9 Mbit/s  23h59m left")
	room := max(MinName, width-figures)
	if longest+minBar+4 > room && room >= MinName+minBar+4 {
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
func block(p client.Progress, a area) []Line {
	lines := []Line{headline(p, a.uploads, a.width, a.nameWidth)}
	if why := whyWaiting(p); why != "" && !a.uploads {
		for _, l := range wrapText(why, a.width-2, maxReason) {
			lines = append(lines, Line{{"  " + l, amber}})
		}
	}
	paths := pathLines(p, a.uploads, a.verbose, a.width)
	if left := a.room - len(lines); len(paths) > left {
		left = max(0, left-1)
		lines = append(lines, slices.Concat(paths[:left]...)...)
		return append(lines, Line{{"  " + Plural(len(paths)-left, "more path"), Faint}})
	}
	return append(lines, slices.Concat(paths...)...)
}

func headline(p client.Progress, uploads bool, width, nameWidth int) Line {
	name := span{fit(p.Name, nameWidth), Bold}
	if uploads {
		sent := fmt.Sprintf("  %10s sent  %12s  to %s", BytesText(p.Sent), RateText(p.WriteRate),
			Plural(node.ConnectedPeers(p), "peer"))
		return Line{name, {sent, Plain}}
	}
	if text, style := phaseText(p); text != "" {
		return Line{name, {"  " + text, style}}
	}
	figures := fmt.Sprintf("  %4s of %-10s  %12s  ",
		Percent(p.Have, p.Total), BytesText(p.Total), RateText(p.ReadRate))
	left := span{leftText(p), Plain}
	if left.Text == stalled {
		left.style = amber
	}
	out := Line{name}
	if b := min(maxBar, width-nameWidth-len(figures)-len("23h59m left")-4); b >= minBar {
		n := PartsDone(p.Have, p.Total, b)
		out = append(out, span{"  [", Plain}, span{strings.Repeat("#",
			n), green}, span{strings.Repeat("-", b-n) + "]", Plain})
	}
	return append(out, span{figures, Plain}, left)
}

// phaseText describes a transfer in a phase other than downloading.
func phaseText(p client.Progress) (string, Style) {
	switch p.Phase {
	case client.Metadata:
		return "waiting for a peer to describe the torrent", amber
	case client.Checking:
		return fmt.Sprintf("checking: %s of %s hashed, %s right",
			BytesText(p.Checked), BytesText(p.Total), BytesText(p.Have)), Plain
	case client.Complete:
		return "complete  " + BytesText(p.Total), green
	case client.Broken:
		return "failed", Red
	}
	return "", Plain
}

// pathLines shows the paths of a transfer that are or were in use, in the order of p.Paths (see
// places). A failed path has its reason beside it or below it.
func pathLines(p client.Progress, uploads, verbose bool, width int) [][]Line {
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
	short := ShortASes(p.Paths)
	peers, paths := make([]string, len(shown)), make([]string, len(shown))
	peerWidth, pathWidth := 0, 0
	for i, x := range shown {
		peers[i], paths[i] = peerName(x, verbose), PathName(x, short, verbose)
		peerWidth = max(peerWidth, ColumnsOfText(peers[i]))
		pathWidth = max(pathWidth, ColumnsOfText(paths[i]))
	}
	const figures = len("    330 ms  999.9 Mbit/s  100%  probing")
	if over := 2 + peerWidth + 2 + pathWidth + figures - width; over > 0 {
		// Shorten the address first: users know it already.
		cutOff := min(over, max(0, peerWidth-MinName))
		most := max(8, pathWidth-(over-cutOff))
		peerWidth, pathWidth = peerWidth-cutOff, 0
		for i := range paths {
			paths[i] = shortPath(paths[i], most)
			pathWidth = max(pathWidth, ColumnsOfText(paths[i]))
		}
	}
	var out [][]Line
	for i, x := range shown {
		head := span{"  " + fit(peers[i], peerWidth) + "  " + fit(paths[i], pathWidth), Plain}
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
		state := span{x.State.String(), Faint}
		if x.State.Carries() {
			state.style = green
		}
		numbers := fmt.Sprintf("  %s  %s  %3.0f%%  ",
			rttText(x.RTT), PadLeft(RateText(rate), 12), share)
		l := Line{head, {numbers, Plain}, state}
		from := "  from " + string(x.Source)
		known := x.Source == "" || x.Source == client.FromUser
		if !known && ColumnsOfText(head.Text+numbers+state.Text+from) <= width {
			l = append(l, span{from, Faint})
		}
		out = append(out, []Line{l})
	}
	return out
}

// failedLines shows a failed path, with the reason beside it or, if it is too long, below it.
func failedLines(head span, x client.PathProgress, width int) []Line {
	reason := reasonOf(x)
	first := Line{head, {"  " + x.State.String(), Red}}
	if reason == "" {
		return []Line{first}
	}
	if ColumnsOfText(head.Text)+2+len(x.State.String())+2+ColumnsOfText(reason) <= width {
		return []Line{append(first, span{"  " + reason, Plain})}
	}
	lines := []Line{first}
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
	return OneLine(err.Error())
}

// peerName returns a peer's address, without the AS if the path shows it.
func peerName(x client.PathProgress, verbose bool) string {
	if !verbose && len(x.Path.Interfaces) > 0 {
		return WithoutAS(x.Peer)
	}
	return x.Peer
}

// WithoutAS removes the ISD-AS from an address.
func WithoutAS(peer string) string {
	_, host, ok := strings.Cut(peer, ",")
	if !ok {
		return peer
	}
	if addr, port, ok := strings.Cut(host, "]:"); ok && !strings.Contains(addr, ":") {
		return strings.TrimPrefix(addr, "[") + ":" + port
	}
	return host
}

// PathName shows a path as its interfaces, from our AS on: 111#1 > 120#3,4 > 110#2. If verbose, the
// fingerprint follows.
func PathName(x client.PathProgress, short func(pathsel.IA) string, verbose bool) string {
	hops := x.Path.Interfaces
	if len(hops) == 0 {
		if x.Path.Src == 0 {
			return x.Transport
		}
		return "within " + short(x.Path.Src)
	}
	parts := []string{HopText(short(hops[0].IA), hops[0].ID)}
	for at := range slices.Chunk(hops[1:], 2) { // through an AS or, at the end, into it
		ids := lists.Map(at, func(x pathsel.Interface) uint64 { return x.ID })
		parts = append(parts, HopText(short(at[0].IA), ids...))
	}
	name := strings.Join(parts, PathArrow)
	if verbose {
		name += " " + x.Path.Fingerprint.Short()
	}
	return name
}

const PathArrow = " > "

// HopText shows an AS of a path with the interfaces that the path uses: 120#3,4. 0 is none.
func HopText(as string, interfaces ...uint64) string {
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
	parts := strings.Split(name, PathArrow)
	for ColumnsOfText(name) > width && len(parts) > 2 {
		parts = slices.Delete(parts, len(parts)/2, len(parts)/2+1)
		half := (len(parts) + 1) / 2
		name = strings.Join(slices.Insert(slices.Clone(parts), half, "…"), PathArrow)
	}
	if ColumnsOfText(name) > width {
		return fit(name, width)
	}
	return name
}

// ShortASes returns a function that leaves out the parts that all ASes of these paths have in
// common: it returns 110 for 1-ff00:0:110 if all are in ISD 1 and begin with ff00:0.
func ShortASes(paths []client.PathProgress) func(pathsel.IA) string {
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
	sum := client.Progress{Name: Plural(len(all), "torrent"), Phase: client.Downloading}
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
		case uploads && p.WriteRate >= Least:
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

// Places keeps each path of a transfer in its row: rows are in the order in which paths were first
// seen.
type Places struct {
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

// Order sorts paths by their places, and forgets the places of other paths.
func (o *Places) Order(paths []client.PathProgress) {
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
