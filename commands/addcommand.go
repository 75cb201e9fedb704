package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/commands/flags"
	"braid/commands/terminal"
	v1 "braid/node/web/v1"
)

func addCommand() *cli.Command {
	return controlling(&cli.Command{
		Name:      "add",
		Usage:     "add torrents to the daemon",
		ArgsUsage: "TORRENT|URL|MAGNET...",
		ArgValidator: flags.Arguments(1, math.MaxInt, "name at least one torrent; see braid add "+
			"--help"),
		Description: "Adds .torrent files, their http or https URLs, and magnet links. The " +
			"daemon downloads them, or serves them if their data is there.",
		Flags: append([]cli.Flag{
			flags.File("directory", "", "keep the data in `DIR` (default: the daemon's "+
				"--directory)", "o"),
			flags.Bool("paused", "do not start yet"),
			flags.Bool("complete", "the data is there: check it and serve it, and write nothing"),
			flags.List("peer", "download from `ADDR`, too: 1-ff00:0:110,[127.0.0.1]:31000, or "+
				"host:port (repeatable)"),
			flags.List("tracker", "ask the tracker at `URL`, too (repeatable)"),
			webSeedFlag(),
			flags.Pattern("select", "download only files that match `GLOB`, as in braid download "+
				"(repeatable)"),
			flags.Bool("sequential", "download in the order of the data"),
			flags.Pattern("label", "label the torrents with `WORD` (repeatable)"),
			flags.String("priority", "", "`LEVEL` in the queue: low, normal or high (default: "+
				"normal)"),
		}, append(seedGoalFlags("the daemon's settings"), limitFlags()...)...),
	}, add)
}

func add(ctx context.Context, cmd *cli.Command, d *v1.Client) error {
	in, err := parseAdd(cmd)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range cmd.Args().Slice() {
		in.Source, in.Torrent = name, nil
		if !strings.HasPrefix(strings.ToLower(name), "magnet:") && !strings.Contains(name, "://") {
			if in.Torrent, err = os.ReadFile(envOf(cmd).Path(name)); err != nil {
				errs = append(errs, fmt.Errorf("open torrent: %w", err))
				continue
			}
			if _, err := client.ParseTorrent(in.Torrent); err != nil {
				errs = append(errs, fmt.Errorf("torrent %s: %w", name, err))
				continue
			}
			in.Source = ""
		}
		added, err := d.Add(ctx, in)
		title := cmp.Or(added.Name, added.InfoHash)
		switch {
		case errors.Is(err, v1.ErrNoDaemon):
			return err
		case err != nil:
			errs = append(errs, fmt.Errorf("add %s: %w", name, explain(cmd, err)))
		case added.Existed:
			errs = append(errs, terminal.PrintResult(cmd, added, "%s is there already\n", title))
		default:
			errs = append(errs, terminal.PrintResult(cmd, added, "added %s\n", title))
		}
	}
	return errors.Join(errs...)
}

// parseAdd reads the flags, which hold for all added torrents.
func parseAdd(cmd *cli.Command) (in v1.AddTorrent, err error) {
	in = v1.AddTorrent{
		Paused:     cmd.Bool("paused"),
		Complete:   cmd.Bool("complete"),
		Select:     cmd.StringSlice("select"),
		Sequential: cmd.Bool("sequential"),
		Labels:     cmd.StringSlice("label"),
		Priority:   cmd.String("priority"),
		Peers:      cmd.StringSlice("peer"),
		Trackers:   cmd.StringSlice("tracker"),
		WebSeeds:   cmd.StringSlice("web-seed"),
	}
	if dir := cmd.String("directory"); dir != "" {
		if in.Directory, err = filepath.Abs(dir); err != nil {
			return in, err
		}
	}
	f := newCmdline(cmd)
	if goal := f.seedGoal(); !goal.IsZero() {
		in.Goal = &v1.Goal{Ratio: goal.Ratio, TimeS: goal.Time.Seconds()}
	}
	l := v1.LimitsOf(f.limits())
	if l.UploadMbitS != 0 || l.DownloadMbitS != 0 || len(l.Paths) > 0 {
		in.Limits = &l
	}
	return in, f.Err
}
