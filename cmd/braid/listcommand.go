package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	v1 "braid/node/web/v1"
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
	var parts []string
	for _, s := range slices.Sorted(maps.Keys(from)) {
		parts = append(parts, fmt.Sprintf("%s %d", s, from[s]))
	}
	if len(parts) == 0 {
		return ""
	}
	return "; " + strings.Join(parts, ", ")
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
