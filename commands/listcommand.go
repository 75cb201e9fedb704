package commands

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

	"braid/commands/flags"
	"braid/commands/terminal"
	v1 "braid/node/web/v1"
	"braid/units/lists"
)

func listCommand() *cli.Command {
	return controlling(&cli.Command{
		Name:         "list",
		Usage:        "list the torrents of the daemon",
		ArgValidator: flags.Arguments(0, 0, "braid list takes no torrents: braid show ARGS"),
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
		return terminal.PrintObjects(terminal.Stdout(cmd), all...)
	}
	all, err := d.List(ctx, rowKeys...)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		terminal.Stderr(cmd).Printf("no torrents; braid add adds some\n")
		return nil
	}
	columns := 1 << 20 // a file or pipe gets whole names
	if terminal.Stdout(cmd).IsTerminal() {
		columns, _ = terminal.Stdout(cmd).Size()
	}
	for _, l := range torrentTable(all, columns) {
		terminal.Stdout(cmd).Printf("%s\n", lineText(l))
	}
	return nil
}

func lineText(l terminal.Line) string {
	var b strings.Builder
	for _, s := range l {
		b.WriteString(s.Text)
	}
	return strings.TrimRight(b.String(), " ")
}

// torrentTable returns a heading and a line for each torrent. Names get the columns that the
// figures leave, but at least terminal.MinName.
func torrentTable(all []v1.Torrent, columns int) []terminal.Line {
	head := []string{"No", "State", "Done", "Size", "Down", "Up", "Ratio", "Left"}
	cells := [][]string{head}
	for _, t := range all {
		cells = append(cells, []string{
			fmt.Sprint(t.Number), t.State, terminal.Percent(t.HaveBytes, t.SizeBytes), sizeCell(t),
			rateCell(t.DownMbitS), rateCell(t.UpMbitS), fmt.Sprintf("%.2f", t.Ratio), leftCell(t),
		})
	}
	widths, used := make([]int, len(head)), 0
	for i := range head {
		for _, row := range cells {
			widths[i] = max(widths[i], terminal.ColumnsOfText(row[i]))
		}
		used += widths[i] + 2
	}
	for _, i := range []int{3, 6, 7, 5, 4} { // a narrow terminal first loses the size
		if used+terminal.MinName > columns {
			used -= widths[i] + 2
			widths[i] = 0
		}
	}
	name := max(terminal.MinName, columns-used)
	out := make([]terminal.Line, 0, len(cells))
	for i, row := range cells {
		var b strings.Builder
		for j, c := range row {
			switch {
			case widths[j] == 0:
			case j == 1:
				b.WriteString(terminal.PadRight(c, widths[j]) + "  ")
			default:
				b.WriteString(terminal.PadLeft(c, widths[j]) + "  ")
			}
		}
		if i == 0 {
			out = append(out, terminal.Line{terminal.Styled(b.String()+"Name", terminal.Bold)})
			continue
		}
		t := all[i-1]
		out = append(out, terminal.Line{
			terminal.Styled(b.String(), styleOf(t.State)),
			terminal.Styled(terminal.Cut(cmp.Or(t.Name, t.InfoHash), name), terminal.Plain),
		})
	}
	return out
}

func styleOf(state string) terminal.Style {
	switch state {
	case "failed":
		return terminal.Red
	case "downloading", "seeding":
		return terminal.Plain
	}
	return terminal.Faint
}

func sizeCell(t v1.Torrent) string {
	if t.SizeBytes == 0 {
		return "-"
	}
	return terminal.BytesText(t.SizeBytes)
}

// rateCell shows a rate, or a dash for 0: among many zeros the other rates would be hard to see.
func rateCell(mbit float64) string {
	if mbit*terminal.Mega < terminal.Least {
		return "-"
	}
	return terminal.RateText(mbit * terminal.Mega)
}

func leftCell(t v1.Torrent) string {
	switch {
	case t.LeftS == nil:
		return "-"
	case *t.LeftS > 99*24*3600:
		return "months"
	}
	return terminal.DurationText(time.Duration(*t.LeftS * float64(time.Second)))
}

func showCommand() *cli.Command {
	return controlling(&cli.Command{
		Name:        "show",
		Usage:       "show everything about torrents of the daemon",
		ArgsUsage:   torrentsUsage,
		Description: howToName,
		Flags:       []cli.Flag{flags.Bool("files", "list the files, too")},
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
			err = terminal.PrintObjects(terminal.Stdout(cmd), detail)
		} else {
			if i > 0 {
				terminal.Stdout(cmd).Printf("\n")
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
	w := terminal.NewTable(terminal.Stdout(cmd))
	w.Printf("%s\n", cmp.Or(t.Name, t.InfoHash))
	w.Printf("  number\t%d\n  info hash\t%s\n  state\t%s\n", t.Number, t.InfoHash, t.State)
	for _, why := range []string{t.Error, t.Waiting} {
		if why != "" {
			w.Printf("\t%s\n", terminal.OneLine(why))
		}
	}
	if t.Cause != nil {
		w.Printf("\tno progress: %s\n", terminal.OneLine(t.Cause.Text))
	}
	w.Printf("  data\t%s of %s in %s\n",
		terminal.Percent(t.HaveBytes, t.SizeBytes), terminal.BytesText(t.SizeBytes), t.Directory)
	w.Printf("  pieces\t%d of %d, of %s each\n", t.PiecesDone, t.Pieces,
		terminal.BytesText(t.PieceLength))
	w.Printf("  received\t%s, now %s\n", terminal.BytesText(t.FetchedBytes),
		terminal.RateText(t.DownMbitS*terminal.Mega))
	w.Printf("  sent\t%s, now %s, ratio %.2f\n",
		terminal.BytesText(t.SentBytes), terminal.RateText(t.UpMbitS*terminal.Mega), t.Ratio)
	w.Printf("  peers\t%d, over %s%s\n",
		t.Peers, terminal.Plural(t.Paths, "path"), sourcesText(t.PeerSources))
	if s := t.Settings; s.Limits.UploadMbitS > 0 || s.Limits.DownloadMbitS > 0 {
		w.Printf("  limits\tdown %s, up %s\n",
			limitText(s.Limits.DownloadMbitS), limitText(s.Limits.UploadMbitS))
	}
	if len(t.Labels) > 0 {
		w.Printf("  labels\t%s\n", strings.Join(t.Labels, ", "))
	}
	slices.SortStableFunc(trackers, func(a, b v1.Tracker) int {
		return cmp.Compare(a.Tier, b.Tier)
	})
	for _, x := range trackers {
		w.Printf("  tracker\t%s: %s\n", x.URL, cmp.Or(terminal.OneLine(x.Error), x.State))
	}
	w.Flush()
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
	return terminal.RateText(mbit * terminal.Mega)
}

func showFiles(ctx context.Context, cmd *cli.Command, d *v1.Client, infoHash string) error {
	files, err := d.Files(ctx, infoHash)
	if err != nil {
		return err
	}
	if cmd.Bool("json") {
		return terminal.PrintObjects(terminal.Stdout(cmd), files...)
	}
	w := terminal.NewTable(terminal.Stdout(cmd))
	for _, f := range files {
		w.Printf("  %d\t%s\t%s\t%s\n", f.Number, f.Priority, terminal.BytesText(f.SizeBytes),
			f.Path)
	}
	w.Flush()
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
	out := terminal.Stdout(cmd)
	out.WatchReader()
	live := out.Live() && !cmd.Bool("json")
	var all []v1.Torrent
	var totals v1.Totals
	err := d.Events(ctx, "", func(e v1.Event) error {
		if !live {
			out.Printf("{\"event\":%q,\"id\":%q,\"data\":%s}\n", e.Name, e.ID, e.Data)
			return out.LostOutput()
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
		out.Draw(func(columns, height int) []terminal.Line {
			return watchScreen(rows, sum, columns, height)
		})
		return nil
	}, func() {
		if live {
			out.DrawText("no braid daemon answers any more; waiting for one")
		}
	})
	if live {
		out.Clear()
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
func watchScreen(all []v1.Torrent, sum v1.Totals, columns, height int) []terminal.Line {
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
		lines = append(lines,
			terminal.Line{terminal.Styled(fmt.Sprintf("%d more", rest), terminal.Faint)})
	}
	total := fmt.Sprintf("%s  down %s  up %s  %s over %s", terminal.Plural(len(all), "torrent"),
		terminal.RateText(sum.DownMbitS*terminal.Mega),
		terminal.RateText(sum.UpMbitS*terminal.Mega),
		terminal.Plural(sum.Peers, "peer"), terminal.Plural(sum.Paths, "path"))
	if sum.Alternative {
		total += "  alternative rates"
	}
	return append(lines, terminal.Line{terminal.Styled(total, terminal.Bold)})
}
