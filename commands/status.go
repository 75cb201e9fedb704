package commands

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/urfave/cli/v3"

	"braid/commands/flags"
	"braid/commands/terminal"
	"braid/node"
	"braid/node/event"
)

// A running download or seed writes its state to a file every second, from which another process
// shows it.

func statusFlag() cli.Flag {
	return flags.File("status", "", "write the state of torrents and paths to `FILE` every "+
		"second; braid paths --status FILE shows it")
}

const (
	statusEvery = time.Second
	// statusAge bounds the age of a report. A killed process has left an older one behind.
	statusAge = 15 * time.Second
	// maxStatus bounds the file. A thousand torrents with hundreds of paths need less.
	maxStatus = 64 << 20
)

// keepStatus writes the file of --status until the end of the task, which deletes it.
func (t *task) keepStatus(torrents []*node.Torrent) error {
	name := t.String("status")
	if name == "" {
		return nil
	}
	if err := writeStatus(name, torrents); err != nil {
		return fmt.Errorf("--status: %w", err)
	}
	t.atEnd(func() error { _ = os.Remove(name); return nil })
	t.repeat(statusEvery, func() {
		if err := writeStatus(name, torrents); err != nil {
			t.log.Warn("the status cannot be written", "error", err)
		}
	})
	return nil
}

// writeStatus replaces the file as a whole, so that nobody reads a part of it.
func writeStatus(name string, torrents []*node.Torrent) error {
	r := event.Status{Process: os.Getpid(), Time: time.Now()}
	for _, t := range torrents {
		p := t.Progress()
		e := node.NewProgress(t.Source(), p)
		short := terminal.ShortASes(p.Paths)
		for i, x := range p.Paths {
			e.Paths[i].Name = terminal.PathName(x, short, false)
		}
		r.Torrents = append(r.Torrents, e)
	}
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return node.ReplaceFile(name, append(b, '\n'), false)
}

// showStatus prints the file of a running process.
func showStatus(cmd *cli.Command, name string, now time.Time) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("read the status of a download or seed with --status: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxStatus))
	if err != nil {
		return err
	}
	var r event.Status
	if err = json.Unmarshal(b, &r); err == nil && r.Time.IsZero() {
		err = errors.New("it does not say when it was written")
	}
	if err != nil {
		return fmt.Errorf("%s is no status of a download or seed: %w", name, err)
	}
	if age := now.Sub(r.Time); age > statusAge {
		return fmt.Errorf("%s is %v old: process %d, which wrote it, has ended",
			name, age.Round(time.Second), r.Process)
	}
	if cmd.Bool("json") {
		_, err := terminal.Stdout(cmd).Write(b)
		return err
	}
	w := terminal.NewTable(terminal.Stdout(cmd))
	for _, t := range r.Torrents {
		w.Printf("%s: %s, %s, down %s, up %s\n", t.Torrent, t.Phase,
			terminal.Percent(t.Bytes, t.Total), terminal.RateText(t.MbitS*terminal.Mega),
			terminal.RateText(t.UpMbitS*terminal.Mega))
		for _, p := range t.Paths {
			peer, path := p.Peer, p.Name
			switch {
			case cmd.Count("verbose") > 0 && p.Fingerprint != "":
				path += " " + p.Fingerprint.Short()
			case cmd.Count("verbose") == 0 && p.Name != p.Transport: // the path tells the AS
				peer = terminal.WithoutAS(peer)
			}
			w.Printf("  %s\t%s\t%s\t%s down\t%s up\t%.1f ms\t%s\n", peer, path, p.State,
				terminal.RateText(p.MbitS*terminal.Mega),
				terminal.RateText(p.UpMbitS*terminal.Mega), p.RTT, fromText(p.Source))
		}
	}
	w.Flush()
	return nil
}

// fromText names the source of a peer's address; empty: the source is unknown.
func fromText(source string) string {
	if source == "" {
		return ""
	}
	return "from " + source
}
