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
	"braid/node/event"
)

// display shows transfers on a terminal, as plain lines, or as events.
type display struct {
	json    bool
	seeds   bool          // the command seeds: that its torrents are complete is not told
	uploads bool          // show sent data rather than received data
	results *printer      // standard output
	people  *printer      // standard error
	sample  time.Duration // between two progress events

	verbose bool // name paths by their fingerprints too

	said   map[*node.Torrent]*pace   // in a log
	places map[*node.Torrent]*places // on a terminal

	hasFailed bool // a torrent has, and that was told

	mu     sync.Mutex
	events *json.Encoder
}

func newDisplay(cmd *cli.Command, uploads bool) *display {
	results := stdout(cmd)
	return &display{
		json: cmd.Bool("json"), seeds: uploads, uploads: uploads, results: results, people: stderr(cmd),
		verbose: cmd.Count("verbose") > 0, said: map[*node.Torrent]*pace{}, places: map[*node.Torrent]*places{}, events: json.NewEncoder(results), sample: time.Second,
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

// maxBehind is how many events a slow reader of --json may fall behind. A torrent of a million
// pieces with --piece-events has more, but not at once.
const maxBehind = 1 << 17

// follow shows the events of a node until it is closed. The function waits for the last one.
func (d *display) follow(n *node.Node) (shown func()) {
	events, done := n.Subscribe(maxBehind), make(chan struct{})
	go func() {
		defer close(done)
		for {
			e, err := events.Next(context.Background())
			if err != nil {
				return
			}
			d.event(e)
		}
	}()
	return func() { <-done }
}

// event shows one event of a node.
func (d *display) event(e any) {
	switch e := e.(type) {
	case event.Changed:
		return // the command itself has done it
	case event.InTheWay:
		d.moved(e.Path, e.Aside)
	case event.Served:
		d.served(e)
	case event.Done:
		if d.seeds {
			return
		}
	case event.Failed:
		if d.seeds {
			return
		}
		d.hasFailed = d.json
	}
	if d.json {
		d.emit(e)
	}
}

// failed tells of an error that ends a command, unless it has been told of a torrent. An
// interruption is not one.
func (d *display) failed(err error) {
	if d.json && !d.hasFailed && err != nil && exitCode(err) != exitInterrupted {
		d.emit(node.NewFailed("", "", err))
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

// watch shows the transfers until the context ends. A download that is done is shown once more, in
// full.
func (d *display) watch(ctx context.Context, torrents []*node.Torrent) {
	tick := time.NewTicker(d.interval())
	defer tick.Stop()
	done := make(chan *node.Torrent)
	for _, t := range torrents {
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
	pending := len(torrents)
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
			d.show(torrents)
		}
	}
	d.people.clear()
	d.uploads = true // whatever is shown from now on is a seed
}

func (d *display) show(torrents []*node.Torrent) {
	var all []client.Progress
	for _, t := range torrents {
		all = append(all, t.Progress())
	}
	switch {
	case d.json:
		for i, p := range all {
			d.emit(node.NewProgress(torrents[i].Source(), p))
		}
	case d.people.live():
		for i, t := range torrents {
			if d.places[t] == nil {
				d.places[t] = new(places)
			}
			d.places[t].order(all[i].Paths)
		}
		uploads := d.uploads // which changes when a download goes on as a seed
		d.people.draw(func(columns, rows int) []line { return screen(all, uploads, d.verbose, columns, rows) })
	default:
		for i, p := range all {
			s := d.said[torrents[i]]
			if s == nil {
				s = new(pace)
				d.said[torrents[i]] = s
			}
			if s.due(stateOf(p, d.uploads), time.Now()) {
				d.people.printf("%s\n", plainLine(p, d.uploads))
			}
		}
	}
}

// finished shows the summary of a download. Main says why one has failed.
func (d *display) finished(t *node.Torrent) {
	p := t.Progress()
	if p.Err != nil || d.json {
		return
	}
	d.people.clear()
	for _, line := range summary(p, d.verbose) {
		d.people.printf("%s\n", line)
	}
}

// served tells of a torrent that is not served any longer.
func (d *display) served(e event.Served) {
	if !d.json {
		d.people.printf("%s: %s, %s sent; it is not served any longer\n", e.Torrent, e.Reason, bytesText(e.Sent))
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
