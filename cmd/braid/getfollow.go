package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/anacrolix/torrent/metainfo"

	"braid/client"
	"braid/node/send"
)

// followNews fetches the newest state of the sender's files. With --follow it fetches each later
// state as well; a newer state ends the download of the previous one.
func (t *task) followNews(ctx context.Context, l send.Line) error {
	a, err := t.openAsker(ctx, l)
	if err != nil {
		return err
	}
	first, cancel := ctx, func() {}
	if stop := t.Duration("stop-timeout"); stop > 0 {
		silent := fmt.Errorf("the sender has not answered within %v", stop)
		first, cancel = context.WithTimeoutCause(ctx, stop, silent)
	}
	newest, err := a.Next(first, metainfo.Hash{})
	cancel()
	if err != nil {
		return err
	}
	if !t.Bool("follow") {
		replaced := make(chan struct{})
		asking, stop := context.WithCancel(ctx)
		var ended sync.WaitGroup
		ended.Go(func() {
			if _, err := a.Next(asking, newest.InfoHash); err == nil {
				close(replaced)
			}
		})
		defer ended.Wait()
		defer stop()
		return t.fetchLine(ctx, newest, replaced)
	}
	// A directory that cannot be made is an error at once, not a warning for each state.
	if err := os.MkdirAll(t.String("output"), 0o755); err != nil {
		return err
	}
	for {
		state, superseded := context.WithCancel(ctx)
		next := make(chan send.Line, 1)
		go func() {
			defer close(next)
			if l, err := a.Next(state, newest.InfoHash); err == nil {
				next <- l
				superseded()
			}
		}()
		err := t.part(func(t *task) error { return t.fetchLine(state, newest, nil) })
		if exitCode(err) == exitUsage {
			superseded()
			<-next
			return err // a later state would fail in the same way
		}
		if err != nil && state.Err() == nil {
			t.log.Warn("this state of the files has not arrived; waiting for the next",
				"error", err)
		}
		l, ok := <-next
		superseded()
		if !ok {
			return nil // an interrupt is the expected end
		}
		newest = l
	}
}

var errReplaced = errors.New("there is a newer state of the files: " +
	"run the same command again, or give --follow")

// openAsker returns an asker for the sender of a line.
func (t *task) openAsker(ctx context.Context, l send.Line) (*send.Asker, error) {
	cfg := t.node(t.log)
	if t.err != nil {
		return nil, t.err
	}
	id, err := l.Key.Member()
	if err != nil {
		return nil, err
	}
	a := &send.Asker{Line: l, TCP: send.OverTCP(id)}
	a.Warn = func(err error) { t.log.Warn("no news of the sender; asking again", "error", err) }
	t.atEnd(func() error { a.TCP.CloseIdleConnections(); return nil })
	host, err := t.groupHost(ctx, cfg, anyOnSCION(l.Peers))
	if err != nil {
		return nil, err
	}
	if host != nil {
		t.atEnd(host.Close)
		if a.SCION, err = host.OpenGroupHTTP(ctx, 0, id); err != nil {
			return nil, err
		}
		a.SCION.SetPolicy(cfg.Client.Policy)
		t.atEnd(a.SCION.Close)
	}
	first, later := inTurn(l.Peers, host != nil, cfg.Client.IP != client.NoIP)
	if a.Peers = append(first, later...); len(a.Peers) == 0 {
		return nil, errUnreachable
	}
	return a, nil
}
