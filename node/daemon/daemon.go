// Package daemon is what a service does beside serving torrents, as the node's settings say: it adds
// .torrent files that appear in a directory, and runs a program when a torrent is complete.
//
// It decides nothing about torrents. Schedules of rates, the queue, and the directory for complete
// data are the node's own.
package daemon

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"braid/node"
	"braid/node/event"
)

// maxBehind bounds the events that wait while a directory is read.
const maxBehind = 4096

// Run works until the context ends. Programs that run then are ended.
func Run(ctx context.Context, n *node.Node, log *slog.Logger) {
	events := n.Subscribe(maxBehind)
	defer events.Close()
	w := &watcher{node: n, log: log, seen: map[string]stamp{}}
	s := newScripts(ctx, log)
	began := time.Now()
	settings := make(chan struct{}, 1)
	var working sync.WaitGroup
	working.Go(func() { w.run(ctx, settings) })
	defer working.Wait()
	defer s.wait()
	for {
		e, err := events.Next(ctx)
		if err != nil {
			return
		}
		switch e := e.(type) {
		case event.Changed:
			switch e.Event {
			case "settings":
				select {
				case settings <- struct{}{}:
				default:
				}
			case "moved":
				s.arrived(n, e.InfoHash)
			}
		case event.Done:
			s.completed(n, e.InfoHash, began)
		}
	}
}
