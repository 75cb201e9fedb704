package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v3"

	"braid/commands/flags"
	"braid/commands/terminal"
	"braid/testbed"
	"braid/testbed/demo"
	"braid/testbed/scenario"
)

func demoCommand() *cli.Command {
	return &cli.Command{
		Name: "demo",
		Usage: "download a real data set over one path and then over two, in a SCION network on " +
			"this machine",
		Flags: append(routerFlags(),
			flags.Size("size", 0, "use only `SIZE` of the data set, such as 20MB"),
			flags.String("data", "", "`DIR` to transfer (default: Go's own source code)"),
			flags.String("topology", "two-paths", "`FILE.topo` or shipped topology; the data goes "+
				"from its first AS to its second, and its links need rates"),
			scionBinFlag(),
			flags.Bool("json", "print the result as one JSON object"),
		),
		Action: runDemo,
	}
}

func runDemo(ctx context.Context, c *cli.Command) error {
	topology, err := testbed.LoadTopology(c.String("topology"))
	if err != nil {
		return err
	}
	braid, err := findBraid(c)
	if err != nil {
		return err
	}
	data := c.String("data")
	if data == "" {
		root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
		if err != nil {
			return fmt.Errorf("demo: find Go's source code (or give --data): %w", err)
		}
		data = filepath.Join(string(bytes.TrimSpace(root)), "src")
	}
	f := &flags.Reader{Command: c}
	f.Wantf(!f.IsSet("size") || f.Int64("size") > 0, "--size 0: want a size such as 20MB")
	router := readRouter(f)
	if f.Err != nil {
		return fmt.Errorf("demo: %w", f.Err)
	}
	work, err := os.MkdirTemp("", "braid-demo-")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer os.RemoveAll(work)
	show := demoDisplay{out: terminal.Stderr(c)}
	result, err := demo.Run(ctx, demo.Options{
		Topology: topology,
		Data:     data,
		Size:     c.Int64("size"),
		Run: scenario.Options{
			Dir: work, Braid: braid, Lab: ownPath(), SCIONBin: c.String("scion-bin"),
			RouterCommand: router,
			Say:           show.say,
		},
		Show: show.progress,
	})
	show.out.Clear()
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if c.Bool("json") {
		return terminal.PrintJSON(terminal.Stdout(c), result)
	}
	return result.Table(terminal.Stdout(c))
}

// demoDisplay shows the progress of a demonstration, in a log now and then.
type demoDisplay struct {
	out  *terminal.Printer
	last time.Time
}

func (d *demoDisplay) say(line string) {
	d.out.Clear()
	d.out.Say("demo", line)
	d.last = time.Now()
}

func (d *demoDisplay) progress(line string) {
	const between = 5 * time.Second // of lines in a log
	due := time.Since(d.last) >= between
	if d.out.Progress("      "+line, due); due {
		d.last = time.Now()
	}
}
