package commands

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/commands/program"
	"braid/commands/terminal"
	"braid/node"
	"braid/node/event"
	"braid/units/lists"
)

// display shows transfers on a terminal, as plain lines, or as events.
type display struct {
	JSON    bool
	seeds   bool              // the command seeds, so complete torrents are no news
	uploads bool              // show sent data rather than received data
	results *terminal.Printer // standard output
	people  *terminal.Printer // standard error
	sample  time.Duration     // between two progress events

	verbose bool // show fingerprints of paths, too

	tellsEnd  bool // an error that ends the command is an event, too
	hasFailed bool // an event has reported that a torrent has failed

	mu   sync.Mutex
	over map[string]bool // downloads whose end an event has reported, by info hash
}

func newDisplay(cmd *cli.Command, uploads bool) *display {
	return &display{
		JSON:    cmd.Bool("json"),
		seeds:   uploads,
		uploads: uploads,
		results: terminal.Stdout(cmd),
		people:  terminal.Stderr(cmd),
		verbose: cmd.Count("verbose") > 0,
		over:    map[string]bool{},
		sample:  time.Second,
	}
}

// interval is the time between two looks at the transfers. In a log, few looks become a line: see
// pace.
func (d *display) interval() time.Duration {
	switch {
	case d.JSON:
		return d.sample
	case d.people.Live():
		return 500 * time.Millisecond
	}
	return 5 * time.Second
}

// emit prints an event. No progress event of a download follows the event of its end: a timer
// produces progress events, and the download may end while it does so.
func (d *display) emit(e any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch e := e.(type) {
	case event.Progress:
		if d.over[e.InfoHash] && !d.uploads {
			return
		}
	case event.Done:
		if !d.seeds {
			d.over[e.InfoHash] = true
		}
	case event.Failed:
		if !d.seeds {
			d.over[e.InfoHash], d.hasFailed = true, true
		}
	}
	_ = terminal.PrintObjects(d.results, e) // the printer keeps the error, and ends the command
}

// result prints the result of a command: the event with --json, otherwise the text.
func (d *display) result(e any, format string, args ...any) {
	if d.JSON {
		d.emit(e)
	} else {
		d.results.Printf(format, args...)
	}
}

// maxBehind bounds the events that wait for a slow reader of --json. A torrent of a million pieces
// with --piece-events has more, but not at the same time.
const maxBehind = 1 << 17

// follow calls show for each event of a node until the node is closed. The returned function waits
// for the last one.
func follow(n *node.Node, show func(any)) (shown func()) {
	events := n.Subscribe(maxBehind)
	var showing sync.WaitGroup
	showing.Go(func() {
		for {
			e, err := events.Next(context.Background())
			if err != nil {
				return
			}
			show(e)
		}
	})
	return showing.Wait
}

// event shows one event, which most commands do only with --json.
func (d *display) event(e any) {
	switch e := e.(type) {
	case event.Changed:
		return // the command itself has made the change
	case event.InTheWay:
		d.moved(e.Path, e.Aside)
	case event.Served:
		d.served(e)
	case event.Done, event.Failed:
		if d.seeds {
			return
		}
	}
	if d.JSON {
		d.emit(e)
	}
}

// failed emits an event for an error that ends the command, unless the event of a failed torrent
// has reported it. An interrupt is not an error.
func (d *display) failed(err error) {
	interrupted := program.Code(err) == program.Interrupted
	if d.JSON && d.tellsEnd && !d.hasFailed && err != nil && !interrupted {
		d.emit(node.NewFailed("", "", err))
	}
}

// say prints a line for the user, unless the output is JSON.
func (d *display) say(line string) {
	if !d.JSON {
		d.people.Clear()
		d.people.Printf("%s\n", line)
	}
}

func (d *display) ready(listen []client.Peer) {
	e := node.NewReady(listen)
	d.event(e)
	d.people.Clear()
	on := ""
	if len(listen) > 0 { // a seed for browsers listens nowhere
		on = ", listening on " + strings.Join(e.Listen, " and ")
	}
	d.people.Printf("ready%s\n", on)
}

// watch shows the transfers until all of them have ended, and returns true, or until the context
// ends. A download ends when it is complete or has failed; then its summary is printed. A seed ends
// when it is not served any longer.
func (d *display) watch(ctx context.Context, torrents []*node.Torrent) bool {
	views := make([]view, len(torrents))
	for i, t := range torrents {
		views[i].torrent = t
	}
	hide := every(d.interval(), func() { d.show(views) })
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
				select {
				case <-end: // at the same time: it has ended
				default:
					return
				}
			}
			ended.Add(1)
			d.finished(t)
		})
	}
	waiting.Wait()
	hide()
	d.people.Clear()
	d.uploads = true // from now on the transfers are seeds
	return int(ended.Load()) == len(torrents)
}

// view is a torrent while watch shows it.
type view struct {
	torrent *node.Torrent
	said    terminal.Pace   // for lines in a log
	places  terminal.Places // for the terminal
}

func (d *display) show(views []view) {
	all := lists.Map(views, func(v view) client.Progress { return v.torrent.Progress() })
	switch {
	case d.JSON:
		for i, p := range all {
			d.emit(node.NewProgress(views[i].torrent.Source(), p))
		}
	case d.people.Live():
		for i := range views {
			views[i].places.Order(all[i].Paths)
		}
		uploads := d.uploads // it changes when a download goes on as a seed
		d.people.Draw(func(columns, rows int) []terminal.Line {
			return terminal.Screen(all, uploads, d.verbose, columns, rows)
		})
	default:
		for i, p := range all {
			if views[i].said.Due(terminal.StateOf(p, d.uploads), time.Now()) {
				d.people.Printf("%s\n", terminal.PlainLine(p, d.uploads))
			}
		}
	}
}

// finished prints the summary of a complete download. If a download has failed, the command's error
// says why.
func (d *display) finished(t *node.Torrent) {
	p := t.Progress()
	if p.Err != nil || d.JSON || d.uploads {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.people.Clear()
	for _, line := range terminal.Summary(p, d.verbose) {
		d.people.Printf("%s\n", line)
	}
}

// served reports a torrent that is not served any longer.
func (d *display) served(e event.Served) {
	if !d.JSON {
		d.people.Printf("%s: %s, %s sent; it is not served any longer\n",
			e.Torrent, e.Reason, terminal.BytesText(e.Sent))
	}
}

// counter is a number of bytes that several goroutines report, and their total.
type counter struct{ done, total atomic.Int64 }

// of counts for callers that learn the total on the way.
func (c *counter) of(n, total int64) {
	c.total.Store(total)
	c.done.Store(n)
}

// counting shows a counter up to total until the returned function is called.
func (d *display) counting(what string, total int64) (c *counter, stop func()) {
	c = new(counter)
	c.total.Store(total)
	start, said := time.Now(), terminal.Pace{}
	end := every(d.interval(), func() {
		if done, total := c.done.Load(), c.total.Load(); !d.JSON {
			due := said.Due(fmt.Sprint(terminal.PartsDone(done, total, 10)), time.Now())
			d.people.Progress(terminal.CountLine(what, done, total, time.Since(start)), due)
		}
	})
	return c, func() { end(); d.people.Clear() }
}

// leftOut reports a file that is not in a new torrent.
func (d *display) leftOut(path, reason string) {
	d.people.Printf("left out: %s (%s)\n", path, reason)
}
