package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/term"

	"braid/client"
)

// display shows transfers on a terminal, as plain lines, or as events.
type display struct {
	json     bool
	uploads  bool // show what is sent rather than what is received
	terminal bool
	screen   screen
	start    time.Time
	sample   time.Duration // between two progress events

	mu     sync.Mutex
	events *json.Encoder
}

func newDisplay(asJSON, uploads bool) *display {
	return &display{
		json: asJSON, uploads: uploads,
		terminal: term.IsTerminal(int(os.Stderr.Fd())),
		screen:   screen{w: os.Stderr}, events: json.NewEncoder(os.Stdout), start: time.Now(), sample: time.Second,
	}
}

// sampling is a display that tells the progress as often as the user wants.
func sampling(cmd *cli.Command, uploads bool) (*display, error) {
	d := newDisplay(cmd.Bool("json"), uploads)
	if d.sample = cmd.Duration("sample"); d.sample < 10*time.Millisecond {
		return nil, usageErrorf("--sample %v: want at least 10ms", d.sample)
	}
	return d, nil
}

// interval between two looks: quick on a terminal, a line now and then in a log.
func (d *display) interval() time.Duration {
	switch {
	case d.json:
		return d.sample
	case d.terminal:
		return 500 * time.Millisecond
	}
	return 5 * time.Second
}

func (d *display) emit(e any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.events.Encode(e) // a reader that has gone does not stop a transfer
}

// decided gives what a transfer tells of its paths, nil if nobody wants it.
func (d *display) decided(s client.Source) func(client.PathEvent) {
	if !d.json {
		return nil
	}
	return func(e client.PathEvent) {
		d.emit(choiceEvent{
			Event: e.Name, InfoHash: s.InfoHash.HexString(), T: e.Since.Seconds(),
			Peer: e.Key.Peer, Fingerprint: e.Key.Path, Conn: e.Key.Conn, Reason: e.Reason,
		})
	}
}

// verified gives what a transfer tells of its pieces, nil if nobody wants it.
func (d *display) verified(s client.Source, wanted bool) func(client.VerifiedPiece) {
	if !d.json || !wanted {
		return nil
	}
	return func(p client.VerifiedPiece) {
		d.emit(pieceEvent{Event: "piece", InfoHash: s.InfoHash.HexString(), T: p.Since.Seconds(), Piece: p.Index})
	}
}

// say tells the user a line, unless events are wanted.
func (d *display) say(line string) {
	if !d.json {
		d.screen.clear()
		fmt.Fprintln(os.Stderr, line)
	}
}

func (d *display) ready(listen []client.Peer) {
	if d.json {
		d.emit(readyEvent{"ready", listen})
	}
	var names []string
	for _, p := range listen {
		names = append(names, p.String())
	}
	d.screen.clear()
	fmt.Fprintln(os.Stderr, "ready, listening on", strings.Join(names, " and "))
}

// watch shows the transfers until the context ends. A download that is done is shown once more, in full.
func (d *display) watch(ctx context.Context, transfers []*client.Transfer) {
	tick := time.NewTicker(d.interval())
	defer tick.Stop()
	done := make(chan *client.Transfer)
	for _, t := range transfers {
		if d.uploads {
			continue
		}
		go func() {
			select {
			case <-t.Done():
			case <-ctx.Done():
				// Both may be true by now, and a transfer that is done must be said to be.
				select {
				case <-t.Done():
				default:
					t = nil
				}
			}
			done <- t
		}()
	}
	pending := len(transfers)
	if d.uploads {
		pending = 0
	}
	for end := ctx.Done(); end != nil || pending > 0; {
		select {
		case <-end:
			end = nil
		case t := <-done:
			pending--
			if t != nil {
				d.finished(t)
			}
		case <-tick.C:
			d.show(transfers)
		}
	}
	d.screen.clear()
	d.uploads = true // whatever is shown from now on is a seed
}

func (d *display) show(transfers []*client.Transfer) {
	var all []client.Progress
	for _, t := range transfers {
		all = append(all, t.Progress())
	}
	switch {
	case d.json:
		for i, p := range all {
			d.emit(newProgressEvent("progress", transfers[i].Source(), p))
		}
	case d.terminal:
		width, height, err := term.GetSize(int(os.Stderr.Fd()))
		if err != nil || width == 0 || height == 0 { // some terminals do not know
			width, height = 80, 24
		}
		var lines []string
		for _, p := range all {
			lines = append(lines, render(p, d.uploads, width)...)
		}
		d.screen.draw(lines[:min(len(lines), max(1, height-1))])
	default:
		for _, p := range all {
			fmt.Fprintln(os.Stderr, plainLine(p, d.uploads))
		}
	}
}

func (d *display) finished(t *client.Transfer) {
	p := t.Progress()
	if p.Err != nil {
		return // main says why
	}
	if d.json {
		d.emit(newDoneEvent(t.Source(), p))
		return
	}
	d.screen.clear()
	for _, line := range summary(p) {
		fmt.Fprintln(os.Stderr, line)
	}
}

func (d *display) count(what string, done, total int64, elapsed time.Duration) {
	line := countLine(what, done, total, elapsed)
	switch {
	case d.json:
	case d.terminal:
		d.screen.draw([]string{line})
	default:
		fmt.Fprintln(os.Stderr, line)
	}
}

// screen redraws lines in place.
type screen struct {
	w     io.Writer
	lines int
}

func (s *screen) draw(lines []string) {
	var b strings.Builder
	if s.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.lines) // up
	}
	b.WriteString("\r\x1b[J") // erase from here to the end
	for _, l := range lines {
		b.WriteString(l + "\n")
	}
	s.lines = len(lines)
	_, _ = io.WriteString(s.w, b.String()) // a terminal that has gone does not stop a transfer
}

func (s *screen) clear() {
	if s.lines > 0 {
		s.draw(nil)
	}
}
