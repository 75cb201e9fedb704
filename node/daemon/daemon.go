// Package daemon is what a service does beside serving torrents, as the node's settings say: it
// adds .torrent files that appear in a directory, and runs a program when a torrent is complete.
//
// It decides nothing about torrents. Schedules of rates, the queue, and the directory for complete
// data are the node's own.
package daemon

import (
	"context"
	"log/slog"
	"sync"

	"braid/node"
	"braid/node/event"
)

// maxBehind bounds the events that wait while a directory is read.
const maxBehind = 4096

// Daemon does what the settings of a node say.
type Daemon struct {
	node   *node.Node
	log    *slog.Logger
	events *node.Subscription
}

// Open makes a daemon that hears of all that happens to the node from now on. Open it before
// torrents are added or restored, and call Run: a torrent may become complete in between.
func Open(n *node.Node, log *slog.Logger) *Daemon {
	return &Daemon{node: n, log: log, events: n.Subscribe(maxBehind)}
}

// Run works until the context ends. Programs that run then are ended. A daemon runs once.
func (d *Daemon) Run(ctx context.Context) {
	n := d.node
	defer d.events.Close()
	w := &watcher{node: n, log: d.log, seen: map[string]stamp{}}
	s := newScripts(ctx, d.log)
	settings := make(chan struct{}, 1)
	var working sync.WaitGroup
	working.Go(func() { w.run(ctx, settings) })
	defer working.Wait()
	defer s.wait()
	s.lookAll(n)
	for {
		e, err := d.events.Next(ctx)
		if err != nil {
			return
		}
		if c, ok := e.(event.Changed); ok && c.Event == "settings" {
			select {
			case settings <- struct{}{}:
			default:
			}
		}
		s.hear(n, e)
	}
}
