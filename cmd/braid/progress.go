package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
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

	tellsEnd  bool // an error of the command is an event
	hasFailed bool // a torrent has, and that was told

	mu     sync.Mutex
	events *json.Encoder
}

func newDisplay(cmd *cli.Command, uploads bool) *display {
	results := stdout(cmd)
	return &display{
		json:    cmd.Bool("json"),
		seeds:   uploads,
		uploads: uploads,
		results: results,
		people:  stderr(cmd),
		verbose: cmd.Count("verbose") > 0,
		said:    map[*node.Torrent]*pace{},
		places:  map[*node.Torrent]*places{},
		events:  json.NewEncoder(results),
		sample:  time.Second,
	}
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

// result prints what a command is for: an object or, for people, text.
func (d *display) result(e any, format string, args ...any) {
	if d.json {
		d.emit(e)
	} else {
		d.results.printf(format, args...)
	}
}

// maxBehind is how many events a slow reader of --json may fall behind. A torrent of a million
// pieces with --piece-events has more, but not at once.
const maxBehind = 1 << 17

// follow hands the events of a node to show until the node is closed. The function waits for the
// last one.
func follow(n *node.Node, show func(any)) (shown func()) {
	events, done := n.Subscribe(maxBehind), make(chan struct{})
	go func() {
		defer close(done)
		for {
			e, err := events.Next(context.Background())
			if err != nil {
				return
			}
			show(e)
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
	if d.json && d.tellsEnd && !d.hasFailed && err != nil && exitCode(err) != exitInterrupted {
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

// watch shows the transfers until the context ends, or all of them have ended: downloads when they
// are complete or have failed, seeds when they are not served any longer. It tells whether all
// have. A download that is done is shown once more, in full.
func (d *display) watch(ctx context.Context, torrents []*node.Torrent) bool {
	hide := every(d.interval(), func() { d.show(torrents) })
	var waiting sync.WaitGroup
	var ended atomic.Int64
	for _, t := range torrents {
		end := t.Done()
		if d.uploads {
			end = t.Ended()
		}
		waiting.Go(func() {
			select {
			case <-end:
			case <-ctx.Done():
			}
			if isClosed(end) { // both may be true by now, and a transfer that is done must be said to be
				ended.Add(1)
				d.finished(t)
			}
		})
	}
	waiting.Wait()
	hide()
	d.people.clear()
	d.uploads = true // whatever is shown from now on is a seed
	return int(ended.Load()) == len(torrents)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
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
		d.people.draw(func(columns, rows int) []line {
			return screen(all, uploads, d.verbose, columns, rows)
		})
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
	if p.Err != nil || d.json || d.uploads {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.people.clear()
	for _, line := range summary(p, d.verbose) {
		d.people.printf("%s\n", line)
	}
}

// served tells of a torrent that is not served any longer.
func (d *display) served(e event.Served) {
	if !d.json {
		d.people.printf("%s: %s, %s sent; it is not served any longer\n",
			e.Torrent, e.Reason, bytesText(e.Sent))
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

// counter counts bytes that several goroutines report, which may be late.
type counter struct{ done, total atomic.Int64 }

func (c *counter) raise(n int64) {
	for old := c.done.Load(); n > old && !c.done.CompareAndSwap(old, n); old = c.done.Load() {
	}
}

// raiseOf is raise for those who learn how many there are on their way.
func (c *counter) raiseOf(n, total int64) {
	c.total.Store(total)
	c.raise(n)
}

// counting shows a counter of so many bytes until the returned function is called.
func (d *display) counting(what string, total int64) (c *counter, stop func()) {
	c = new(counter)
	c.total.Store(total)
	start, said := time.Now(), pace{}
	end := every(d.interval(), func() {
		d.count(&said, what, c.done.Load(), c.total.Load(), time.Since(start))
	})
	return c, func() { end(); d.people.clear() }
}

// leftOut says what of the data is not in a new torrent.
func (d *display) leftOut(path, reason string) {
	d.people.printf("left out: %s (%s)\n",
		path, reason)
}
