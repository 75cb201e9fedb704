package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/node"
)

// display shows transfers on a terminal, as plain lines, or as events.
type display struct {
	json    bool
	uploads bool          // show what is sent rather than what is received
	results *printer      // standard output
	people  *printer      // standard error
	sample  time.Duration // between two progress events

	verbose bool // name paths by their fingerprints too

	said   map[*client.Transfer]*pace   // in a log
	places map[*client.Transfer]*places // on a terminal

	hasFailed bool // a torrent has, and that was told

	mu     sync.Mutex
	events *json.Encoder
}

func newDisplay(cmd *cli.Command, uploads bool) *display {
	results := stdout(cmd)
	return &display{
		json: cmd.Bool("json"), uploads: uploads, results: results, people: stderr(cmd),
		verbose: cmd.Count("verbose") > 0, said: map[*client.Transfer]*pace{}, places: map[*client.Transfer]*places{}, events: json.NewEncoder(results), sample: time.Second,
	}
}

// sampling is a display that tells the progress as often as the user wants.
func sampling(cmd *cli.Command, uploads bool) (*display, error) {
	d := newDisplay(cmd, uploads)
	if d.sample = cmd.Duration("sample"); d.sample < 10*time.Millisecond {
		return nil, usageErrorf("--sample %v: want at least 10ms", d.sample)
	}
	return d, nil
}

// interval between two looks: quick on a terminal; in a log few of them become a line, see pace.
func (d *display) interval() time.Duration {
	switch {
	case d.json:
		return d.sample
	case d.people.live():
		return 500 * time.Millisecond
	}
	return 5 * time.Second
}

func (d *display) emit(e any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.events.Encode(e) // the printer keeps the error, and ends the command
}

// decided gives what a transfer tells of its paths, nil if nobody wants it.
func (d *display) decided(s client.Source) func(client.PathEvent) {
	if !d.json {
		return nil
	}
	return func(e client.PathEvent) {
		d.emit(node.NewPathStep(s, e))
	}
}

// caused gives what a transfer tells of why no data comes, nil if nobody wants it.
func (d *display) caused(s client.Source) func(*client.Cause, time.Duration) {
	if !d.json {
		return nil
	}
	return func(c *client.Cause, since time.Duration) {
		d.emit(node.NewCauseChange(s, c, since))
	}
}

// failed tells of an error that ends a command, unless it has been told of a torrent. An interruption is not one.
func (d *display) failed(err error) {
	if d.json && !d.hasFailed && err != nil && exitCode(err) != exitInterrupted {
		d.emit(node.NewFailed("", "", err))
	}
}

// verified gives what a transfer tells of its pieces, nil if nobody wants it.
func (d *display) verified(s client.Source, wanted bool) func(client.VerifiedPiece) {
	if !d.json || !wanted {
		return nil
	}
	return func(p client.VerifiedPiece) {
		d.emit(node.NewPiece(s, p))
	}
}

// say tells the user a line, unless events are wanted.
func (d *display) say(line string) {
	if !d.json {
		d.people.clear()
		d.people.printf("%s\n", line)
	}
}

func (d *display) ready(listen []client.Peer) {
	if d.json {
		d.emit(node.NewReady(listen))
	}
	var names []string
	for _, p := range listen {
		names = append(names, p.String())
	}
	d.people.clear()
	d.people.printf("ready, listening on %s\n", strings.Join(names, " and "))
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
	d.people.clear()
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
			d.emit(node.NewProgress(transfers[i].Source(), p))
		}
	case d.people.live():
		for i, t := range transfers {
			if d.places[t] == nil {
				d.places[t] = new(places)
			}
			d.places[t].order(all[i].Paths)
		}
		uploads := d.uploads // which changes when a download goes on as a seed
		d.people.draw(func(columns, rows int) []line { return screen(all, uploads, d.verbose, columns, rows) })
	default:
		for i, p := range all {
			s := d.said[transfers[i]]
			if s == nil {
				s = new(pace)
				d.said[transfers[i]] = s
			}
			if s.due(stateOf(p, d.uploads), time.Now()) {
				d.people.printf("%s\n", plainLine(p, d.uploads))
			}
		}
	}
}

func (d *display) finished(t *client.Transfer) {
	p := t.Progress()
	if p.Err != nil {
		if d.json {
			d.emit(node.NewFailed(p.Name, t.Source().InfoHash.HexString(), p.Err))
			d.hasFailed = true
		}
		return // main says why
	}
	if d.json {
		d.emit(node.NewDone(t.Source(), p))
		return
	}
	d.people.clear()
	for _, line := range summary(p, d.verbose) {
		d.people.printf("%s\n", line)
	}
}

func (d *display) count(s *pace, what string, done, total int64, elapsed time.Duration) {
	line := countLine(what, done, total, elapsed)
	switch {
	case d.json:
	case d.people.live():
		d.people.drawText(line)
	case s.due(fmt.Sprint(tenth(done, total)), time.Now()):
		d.people.printf("%s\n", line)
	}
}
