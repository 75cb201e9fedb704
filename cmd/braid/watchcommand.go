package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v3"

	v1 "braid/node/web/v1"
)

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
