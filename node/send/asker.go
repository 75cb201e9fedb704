package send

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/anacrolix/torrent/metainfo"

	"braid/client"
	"braid/scionnet"
)

// Bounds of the pause between questions to a silent sender.
const (
	leastPause = time.Second
	mostPause  = 30 * time.Second
)

// Asker asks a sender for news.
type Asker struct {
	Line  Line
	Peers []client.Peer   // the last one that has answered comes first
	SCION *scionnet.HTTP  // nil: this host is not on SCION
	TCP   *http.Transport // see OverTCP
	Warn  func(error)     // the sender has fallen silent
}

// Next waits until the sender names another torrent than the given one. The error is the context's
// cause.
func (a *Asker) Next(ctx context.Context, not metainfo.Hash) (Line, error) {
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
			a.Warn(err)
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
func (a *Asker) ask(ctx context.Context, not metainfo.Hash) (l Line, changed bool, err error) {
	var errs []error
	for i, p := range a.Peers {
		if at, ok := p.SCION(); ok {
			over := a.SCION.ClientOf(at, "")
			l, changed, err = Ask(ctx, over, a.Line, p, not)
			_ = over.Close()
		} else {
			l, changed, err = Ask(ctx, a.TCP, a.Line, p, not)
		}
		if err == nil {
			a.Peers[0], a.Peers[i] = p, a.Peers[0]
			return l, changed, nil
		}
		errs = append(errs, err)
	}
	return l, false, errors.Join(errs...)
}
