package commands

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"braid/client"
	"braid/commands/terminal"
	"braid/commands/terminal/hostile"
	"braid/node"
	"braid/node/doctor"
	"braid/node/event"
	"braid/pathsel"
	"braid/storage"
)

// outputs are the functions that show people what strangers have written, each with everything in
// it set to the text. exact: strangers cannot add lines.
var outputs = []hostile.Output{
	{Name: "progress", Exact: true, Print: func(w io.Writer, text string) error {
		p := &terminal.Printer{W: w}

		for _, phase := range []client.Phase{client.Metadata, client.Checking, client.Downloading, client.Complete, client.Broken, client.Phase(text)} {
			for _, state := range []pathsel.State{pathsel.Idle, pathsel.Active, pathsel.Failed} {
				x := hostile.Filled[client.Progress](text)
				x.Phase, x.Paths[0].State, x.Paths[0].BytesRead = phase, state, 1
				for _, uploads := range []bool{false, true} {
					for _, line := range append(terminal.Summary(x, true), terminal.PlainLine(x, uploads), terminal.CountLine(text, 1, 2, 3)) {
						p.Printf("%s\n", line)
					}
				}
			}
		}
		return nil
	}},
	{Name: "drawn", Exact: true, Print: func(w io.Writer, text string) error {
		p := &terminal.Printer{W: w}

		x := hostile.Filled[client.Progress](text)
		for _, uploads := range []bool{false, true} {
			p.Draw(func(int, int) []terminal.Line {
				return terminal.Screen([]client.Progress{x, x}, uploads, true, 500, 30)
			})
			p.Drawn = nil // no escape sequences of our own
		}
		return nil
	}},
	{Name: "info", Exact: true, Print: func(w io.Writer, text string) error {
		p := &terminal.Printer{W: w}

		s := hostile.Filled[client.Source](text)
		printInfo(p, s, false)
		printInfo(p, s, true)
		return nil
	}},
	{Name: "magnet", Exact: true, Print: func(w io.Writer, text string) error {
		p := &terminal.Printer{W: w}

		s := hostile.Filled[client.Source](text)
		s.Info = nil
		printInfo(p, s, true)
		return nil
	}},
	{Name: "files", Exact: true, Print: func(w io.Writer, text string) error {
		p := &terminal.Printer{W: w}

		listFiles(&display{results: p}, hostile.Filled[storage.Layout](text), client.Selection{})
		return nil
	}},
	{Name: "verify", Exact: true, Print: func(w io.Writer, text string) error {
		p := &terminal.Printer{W: w}

		printReport(p, hostile.Filled[storage.Report](text))
		return nil
	}},
	{Name: "paths", Exact: true, Print: func(w io.Writer, text string) error {
		p := &terminal.Printer{W: w}

		l := hostile.Filled[pathList](text)
		l.print(p, false, time.Time{})
		l.print(p, true, time.Time{})
		return nil
	}},
	{Name: "doctor", Exact: true, Print: func(w io.Writer, text string) error {
		p := &terminal.Printer{W: w}

		printFindings(p, hostile.Filled[[]doctor.Finding](text))
		return nil
	}},
	{Name: "error", Print: func(w io.Writer, text string) error {
		p := &terminal.Printer{W: w}
		p.Say("braid", text)
		return nil
	}},
	{Name: "log", Exact: true, Print: func(w io.Writer, text string) error {
		p := &terminal.Printer{W: w}

		log := slog.New(p.Handler(slog.LevelDebug)).With(text, text).WithGroup(text)
		log.Info(text, text, text, "error", errors.New(text), "any", []string{text}, "value", hostile.Filled[client.Peer](text))
		return nil
	}},
	{Name: "events", Exact: true, Print: func(w io.Writer, text string) error {
		p := &terminal.Printer{W: w}

		e := json.NewEncoder(p)
		x := hostile.Filled[client.Progress](text)
		return errors.Join(e.Encode(hostile.Filled[event.PathStep](text)), e.Encode(hostile.Filled[event.Done](text)), e.Encode(hostile.Filled[description](text)),
			e.Encode(node.NewProgress(client.Source{}, x)))
	}},
}

// Whatever strangers write into any field, a terminal obeys nothing of it, and no line is added.
func TestNothingIsObeyed(t *testing.T) {
	for _, o := range outputs {
		o.Check(t)
	}
}

// A magnet link to pass on has no announce URL with a key, unless the user wants it.
func TestInfoHidesKeys(t *testing.T) {
	s := client.Source{Name: "x", Trackers: [][]string{{"http://t.example/announce", "http://t.example/k3y/announce"}, {"udp://t.example:1/?k3y"}}}
	for _, keys := range []bool{false, true} {
		var b bytes.Buffer
		printInfo(&terminal.Printer{W: &b}, s, keys)
		shown := strings.Count(b.String(), "k3y")
		if want := map[bool]int{true: 4}[keys]; shown != want || strings.Contains(b.String(), "--show-keys") == keys || strings.Count(b.String(), "t.example") < 4 {
			t.Errorf("%t: %s", keys, b.String())
		}
	}
}
