package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	v1 "braid/node/web/v1"
	"braid/units/lists"
)

func listCommand() *cli.Command {
	return controlling(&cli.Command{
		Name:         "list",
		Usage:        "list the torrents of the daemon",
		ArgValidator: arguments(0, 0, "braid list takes no torrents: braid show ARGS"),
	}, listTorrents)
}

// rowKeys are the keys that a line of the list needs.
var rowKeys = []string{
	"info_hash", "number", "name", "state", "size_bytes", "have_bytes", "checked_bytes",
	"sent_bytes", "ratio", "down_mbit_s", "up_mbit_s", "left_s", "peers", "paths",
}

func listTorrents(ctx context.Context, cmd *cli.Command, d *v1.Client) error {
	if cmd.Bool("json") {
		all, err := d.List(ctx)
		if err != nil {
			return err
		}
		return printObjects(stdout(cmd), all...)
	}
	all, err := d.List(ctx, rowKeys...)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		stderr(cmd).printf("no torrents; braid add adds some\n")
		return nil
	}
	columns := 1 << 20 // a file or pipe gets whole names
	if stdout(cmd).isTerminal() {
		columns, _ = stdout(cmd).size()
	}
	for _, l := range torrentTable(all, columns) {
		stdout(cmd).printf("%s\n", lineText(l))
	}
	return nil
}

func lineText(l line) string {
	var b strings.Builder
	for _, s := range l {
		b.WriteString(s.text)
	}
	return strings.TrimRight(b.String(), " ")
}

// torrentTable returns a heading and a line for each torrent. Names get the columns that the
// figures leave, but at least minName.
func torrentTable(all []v1.Torrent, columns int) []line {
	head := []string{"No", "State", "Done", "Size", "Down", "Up", "Ratio", "Left"}
	cells := [][]string{head}
	for _, t := range all {
		cells = append(cells, []string{
			fmt.Sprint(t.Number), t.State, percent(t.HaveBytes, t.SizeBytes), sizeCell(t),
			rateCell(t.DownMbitS), rateCell(t.UpMbitS), fmt.Sprintf("%.2f", t.Ratio), leftCell(t),
		})
	}
	widths, used := make([]int, len(head)), 0
	for i := range head {
		for _, row := range cells {
			widths[i] = max(widths[i], columnsOfText(row[i]))
		}
		used += widths[i] + 2
	}
	for _, i := range []int{3, 6, 7, 5, 4} { // a narrow terminal first loses the size
		if used+minName > columns {
			used -= widths[i] + 2
			widths[i] = 0
		}
	}
	name := max(minName, columns-used)
	out := make([]line, 0, len(cells))
	for i, row := range cells {
		var b strings.Builder
		for j, c := range row {
			switch {
			case widths[j] == 0:
			case j == 1:
				b.WriteString(padRight(c, widths[j]) + "  ")
			default:
				b.WriteString(padLeft(c, widths[j]) + "  ")
			}
		}
		if i == 0 {
			out = append(out, line{{b.String() + "Name", bold}})
			continue
		}
		t := all[i-1]
		out = append(out, line{
			{b.String(), styleOf(t.State)},
			{cut(cmp.Or(t.Name, t.InfoHash), name), plain},
		})
	}
	return out
}

func styleOf(state string) style {
	switch state {
	case "failed":
		return red
	case "downloading", "seeding":
		return plain
	}
	return faint
}

func sizeCell(t v1.Torrent) string {
	if t.SizeBytes == 0 {
		return "-"
	}
	return bytesText(t.SizeBytes)
}

// rateCell shows a rate, or a dash for 0: among many zeros the other rates would be hard to see.
func rateCell(mbit float64) string {
	if mbit*mega < least {
		return "-"
	}
	return rateText(mbit * mega)
}

func leftCell(t v1.Torrent) string {
	switch {
	case t.LeftS == nil:
		return "-"
	case *t.LeftS > 99*24*3600:
		return "months"
	}
	return durationText(time.Duration(*t.LeftS * float64(time.Second)))
}

func showCommand() *cli.Command {
	return controlling(&cli.Command{
		Name:        "show",
		Usage:       "show everything about torrents of the daemon",
		ArgsUsage:   torrentsUsage,
		Description: howToName,
		Flags:       []cli.Flag{boolFlag("files", "list the files, too")},
	}, show)
}

func show(ctx context.Context, cmd *cli.Command, d *v1.Client) error {
	all, err := named(ctx, cmd, d)
	if err != nil {
		return err
	}
	for i, t := range all {
		detail, err := d.Show(ctx, t.InfoHash)
		if err != nil {
			return err
		}
		if cmd.Bool("json") {
			err = printObjects(stdout(cmd), detail)
		} else {
			if i > 0 {
				stdout(cmd).printf("\n")
			}
			err = printDetail(ctx, cmd, d, detail)
		}
		if err == nil && cmd.Bool("files") {
			err = showFiles(ctx, cmd, d, t.InfoHash)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func printDetail(
	ctx context.Context, cmd *cli.Command, d *v1.Client, t v1.TorrentDetail,
) error {
	trackers, err := d.Trackers(ctx, t.InfoHash)
	if err != nil {
		return err
	}
	w := newTable(stdout(cmd))
	w.printf("%s\n", cmp.Or(t.Name, t.InfoHash))
	w.printf("  number\t%d\n  info hash\t%s\n  state\t%s\n", t.Number, t.InfoHash, t.State)
	for _, why := range []string{t.Error, t.Waiting} {
		if why != "" {
			w.printf("\t%s\n", oneLine(why))
		}
	}
	if t.Cause != nil {
		w.printf("\tno progress: %s\n", oneLine(t.Cause.Text))
	}
	w.printf("  data\t%s of %s in %s\n",
		percent(t.HaveBytes, t.SizeBytes), bytesText(t.SizeBytes), t.Directory)
	w.printf("  pieces\t%d of %d, of %s each\n", t.PiecesDone, t.Pieces, bytesText(t.PieceLength))
	w.printf("  received\t%s, now %s\n", bytesText(t.FetchedBytes), rateText(t.DownMbitS*mega))
	w.printf("  sent\t%s, now %s, ratio %.2f\n",
		bytesText(t.SentBytes), rateText(t.UpMbitS*mega), t.Ratio)
	w.printf("  peers\t%d, over %s%s\n",
		t.Peers, plural(t.Paths, "path"), sourcesText(t.PeerSources))
	if s := t.Settings; s.Limits.UploadMbitS > 0 || s.Limits.DownloadMbitS > 0 {
		w.printf("  limits\tdown %s, up %s\n",
			limitText(s.Limits.DownloadMbitS), limitText(s.Limits.UploadMbitS))
	}
	if len(t.Labels) > 0 {
		w.printf("  labels\t%s\n", strings.Join(t.Labels, ", "))
	}
	slices.SortStableFunc(trackers, func(a, b v1.Tracker) int {
		return cmp.Compare(a.Tier, b.Tier)
	})
	for _, x := range trackers {
		w.printf("  tracker\t%s: %s\n", x.URL, cmp.Or(oneLine(x.Error), x.State))
	}
	w.flush()
	return nil
}

// sourcesText says where the addresses of peers come from, such as "; pex 1, tracker 3".
func sourcesText(from map[string]int) string {
	if len(from) == 0 {
		return ""
	}
	count := func(source string) string { return fmt.Sprintf("%s %d", source, from[source]) }
	return "; " + strings.Join(lists.Map(slices.Sorted(maps.Keys(from)), count), ", ")
}

func limitText(mbit float64) string {
	if mbit == 0 {
		return "unlimited"
	}
	return rateText(mbit * mega)
}

func showFiles(ctx context.Context, cmd *cli.Command, d *v1.Client, infoHash string) error {
	files, err := d.Files(ctx, infoHash)
	if err != nil {
		return err
	}
	if cmd.Bool("json") {
		return printObjects(stdout(cmd), files...)
	}
	w := newTable(stdout(cmd))
	for _, f := range files {
		w.printf("  %d\t%s\t%s\t%s\n", f.Number, f.Priority, bytesText(f.SizeBytes), f.Path)
	}
	w.flush()
	return nil
}

func watchCommand() *cli.Command {
	return controlling(&cli.Command{
		Name:  "watch",
		Usage: "show the torrents of the daemon until Ctrl-C, as they change",
		Description: "Draws a table on a terminal. With --json, and where there is no terminal, " +
			"prints each event of the daemon as a line: {\"event\":NAME,\"id\":ID,\"data\":...}, " +
			"the first of which is a snapshot.",
	}, watch)
}

func watch(ctx context.Context, cmd *cli.Command, d *v1.Client) error {
	out := stdout(cmd)
	out.watchReader()
	live := out.live() && !cmd.Bool("json")
	var all []v1.Torrent
	var totals v1.Totals
	err := d.Events(ctx, "", func(e v1.Event) error {
		if !live {
			out.printf("{\"event\":%q,\"id\":%q,\"data\":%s}\n", e.Name, e.ID, e.Data)
			return out.lostOutput()
		}
		v, err := e.Decode()
		if err != nil {
			return fmt.Errorf("the daemon's event %s cannot be read: %w", e.Name, err)
		}
		switch v := v.(type) {
		case *v1.Snapshot:
			all, totals = v.Torrents, v.Totals
		case *v1.TorrentsChanged:
			all = changed(all, *v)
		case *v1.Totals:
			totals = *v
		default:
			return nil
		}
		rows, sum := slices.Clone(all), totals // a change of the terminal's size draws them again
		out.draw(func(columns, height int) []line {
			return watchScreen(rows, sum, columns, height)
		})
		return nil
	}, func() {
		if live {
			out.drawText("no braid daemon answers any more; waiting for one")
		}
	})
	if live {
		out.clear()
	}
	if errors.Is(err, context.Canceled) {
		return nil // which is how it ends
	}
	return err
}

// changed applies a change to the list. New torrents come last.
func changed(all []v1.Torrent, c v1.TorrentsChanged) []v1.Torrent {
	all = slices.DeleteFunc(slices.Clone(all), func(t v1.Torrent) bool {
		return slices.Contains(c.Removed, t.InfoHash)
	})
	for _, t := range c.Changed {
		isSame := func(o v1.Torrent) bool { return o.InfoHash == t.InfoHash }
		if i := slices.IndexFunc(all, isSame); i >= 0 {
			all[i] = t
		} else {
			all = append(all, t)
		}
	}
	return all
}

// watchScreen shows as many torrents as fit, busy ones first, and a line with the sum.
func watchScreen(all []v1.Torrent, sum v1.Totals, columns, height int) []line {
	busy := func(t v1.Torrent) int {
		switch {
		case t.DownMbitS+t.UpMbitS > 0:
			return 0
		case t.State == "paused" || t.State == "served":
			return 2
		}
		return 1
	}
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b v1.Torrent) int { return busy(a) - busy(b) })
	room := max(1, height-4) // without the heading, the number of others, the sum, and the cursor
	shown := all[:min(len(all), room)]
	lines := torrentTable(shown, columns)
	if rest := len(all) - len(shown); rest > 0 {
		lines = append(lines, line{{fmt.Sprintf("%d more", rest), faint}})
	}
	total := fmt.Sprintf("%s  down %s  up %s  %s over %s", plural(len(all), "torrent"),
		rateText(sum.DownMbitS*mega), rateText(sum.UpMbitS*mega),
		plural(sum.Peers, "peer"), plural(sum.Paths, "path"))
	if sum.Alternative {
		total += "  alternative rates"
	}
	return append(lines, line{{total, bold}})
}
