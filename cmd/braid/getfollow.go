package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/anacrolix/torrent/metainfo"

	"braid/client"
	"braid/node/send"
	"braid/scionnet"
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
	newest, err := a.next(first, metainfo.Hash{})
	cancel()
	if err != nil {
		return err
	}
	if !t.Bool("follow") {
		return t.fetchLine(ctx, newest)
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
			if l, err := a.next(state, newest.InfoHash); err == nil {
				next <- l
				superseded()
			}
		}()
		err := t.part(func(t *task) error { return t.fetchLine(state, newest) })
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

// asker asks a sender for news.
type asker struct {
	line  send.Line
	peers []client.Peer  // the last one that has answered comes first
	scion *scionnet.HTTP // nil: this host is not on SCION
	tcp   *http.Transport
	warn  func(error)
}

func (t *task) openAsker(ctx context.Context, l send.Line) (*asker, error) {
	cfg := t.node(t.log)
	if t.err != nil {
		return nil, t.err
	}
	id, err := l.Key.Member()
	if err != nil {
		return nil, err
	}
	a := &asker{line: l, tcp: send.OverTCP(id)}
	a.warn = func(err error) { t.log.Warn("no news of the sender; asking again", "error", err) }
	t.atEnd(func() error { a.tcp.CloseIdleConnections(); return nil })
	host, err := t.groupHost(ctx, cfg, anyOnSCION(l.Peers))
	if err != nil {
		return nil, err
	}
	if host != nil {
		t.atEnd(host.Close)
		if a.scion, err = host.OpenGroupHTTP(ctx, 0, id); err != nil {
			return nil, err
		}
		t.atEnd(a.scion.Close)
	}
	first, later := inTurn(l.Peers, host != nil, cfg.Client.IP != client.NoIP)
	if a.peers = append(first, later...); len(a.peers) == 0 {
		return nil, errUnreachable
	}
	return a, nil
}

// Bounds of the pause between questions to a silent sender.
const (
	leastPause = time.Second
	mostPause  = 30 * time.Second
)

// next waits until the sender names another torrent than the given one. The error is the context's
// cause.
func (a *asker) next(ctx context.Context, not metainfo.Hash) (send.Line, error) {
	pause := leastPause
	for {
		l, changed, err := a.ask(ctx, not)
		switch {
		case ctx.Err() != nil:
			return l, context.Cause(ctx)
		case err == nil && changed:
			return l, nil
		case err == nil:
			pause = leastPause
			continue
		}
		if pause == leastPause {
			a.warn(err)
		}
		select {
		case <-ctx.Done():
			return l, context.Cause(ctx)
		case <-time.After(pause):
			pause = min(2*pause, mostPause)
		}
	}
}

// ask asks at one address after the other until one answers.
func (a *asker) ask(ctx context.Context, not metainfo.Hash) (l send.Line, changed bool, err error) {
	var errs []error
	for i, p := range a.peers {
		if at, ok := p.SCION(); ok {
			over := a.scion.Client(at)
			l, changed, err = send.Ask(ctx, over, a.line, p, not)
			_ = over.Close()
		} else {
			l, changed, err = send.Ask(ctx, a.tcp, a.line, p, not)
		}
		if err == nil {
			a.peers[0], a.peers[i] = p, a.peers[0]
			return l, changed, nil
		}
		errs = append(errs, err)
	}
	return l, false, errors.Join(errs...)
}
