package announce

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/time/rate"

	"braid/tracker"
	"braid/tracker/wire"
)

// noRTC makes no offers.
type noRTC struct{}

func (noRTC) Offer(context.Context) (Offer, error) { return nil, errors.New("no offer") }
func (noRTC) Answer(context.Context, wire.PeerID, string) (string, error) {
	return "", errors.New("no answer")
}

// expiring is a context whose time is over once the channel is closed.
type expiring struct {
	context.Context
	over chan struct{}
}

func (e expiring) Done() <-chan struct{} { return e.over }

func (e expiring) Err() error {
	select {
	case <-e.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// overLoopback is a tracker over WebSocket. Its server calls talk with each connection.
func overLoopback(t *testing.T, lost func(), talk func(context.Context, *websocket.Conn)) *overWebSocket {
	x := listening(t, "127.0.0.1", func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.CloseNow() //nolint:errcheck // the client may have closed it
		talk(r.Context(), c)
	})
	u, err := tracker.ParseURL("ws" + x.URL[len("http"):] + "/announce")
	if err != nil {
		t.Fatal(err)
	}
	o := newOverWebSocket(u.OfUser(), &Config{InfoHash: wire.InfoHash{1}, WebRTC: noRTC{}}, slog.New(slog.DiscardHandler), lost)
	t.Cleanup(o.close)
	return o
}

// If no answer comes over a connection, the announcer closes it. The next announce opens another.
func TestSilentWebSocket(t *testing.T) {
	ctx := expiring{t.Context(), make(chan struct{})}
	var connections atomic.Int32
	lost := make(chan struct{}, 2)
	o := overLoopback(t, func() { lost <- struct{}{} }, func(open context.Context, c *websocket.Conn) {
		dead := connections.Add(1) == 1
		for {
			_, b, err := c.Read(open)
			if err != nil {
				return
			}
			if dead {
				close(ctx.over)
				continue
			}
			s, err := wire.ParseSignal(b)
			if err != nil {
				t.Error(err)
			}
			answer := wire.Signal{InfoHash: s.InfoHash, Interval: time.Minute, Complete: 7}
			_ = c.Write(open, websocket.MessageText, answer.Reply()) // a failure shows in the client
		}
	})
	a := &wire.Announce{InfoHash: wire.InfoHash{1}, PeerID: wire.PeerID{1}, Left: 1}
	if _, err := o.announce(ctx, a, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("without an answer: %v", err)
	}
	<-lost
	if answer, err := o.announce(t.Context(), a, nil); err != nil || answer.Complete != 7 {
		t.Errorf("the next announce: %+v, %v", answer, err)
	}
	if n := connections.Load(); n != 2 {
		t.Errorf("%d connections", n)
	}
}

// A tracker that sends more messages and pings than it may is not read any further.
func TestBusyWebSocket(t *testing.T) {
	pings := make(chan error, 2)
	o := overLoopback(t, func() {}, func(open context.Context, c *websocket.Conn) {
		_, _, _ = c.Read(open)
		ctx := c.CloseRead(open)
		reply := wire.Signal{InfoHash: wire.InfoHash{1}, Interval: time.Minute}
		_ = c.Write(ctx, websocket.MessageText, reply.Reply()) // a failure shows in the client
		pings <- c.Ping(ctx)
		pings <- c.Ping(ctx)
	})
	o.pace = rate.NewLimiter(0, 2) // and no more later
	a := &wire.Announce{InfoHash: wire.InfoHash{1}, PeerID: wire.PeerID{1}, Left: 1}
	if _, err := o.announce(t.Context(), a, nil); err != nil {
		t.Error(err)
	}
	first := <-pings
	for o.pace.Tokens() >= 0 && len(pings) == 0 { // until the second one waits
		runtime.Gosched()
	}
	o.close()
	if second := <-pings; first != nil || second == nil {
		t.Errorf("the first ping: %v, the second: %v", first, second)
	}
}

// slowRTC makes offers of which each waits for the others.
type slowRTC struct {
	noRTC
	begun sync.WaitGroup
}

func (r *slowRTC) Offer(context.Context) (Offer, error) {
	r.begun.Done()
	r.begun.Wait()
	return noOffer{}, nil
}

type noOffer struct{}

func (noOffer) SDP() string                        { return "sdp" }
func (noOffer) Answered(wire.PeerID, string) error { return nil }
func (noOffer) Close()                             {}

// ICE servers that do not answer hold up all offers of an announce at the same time.
func TestSlowOffers(t *testing.T) {
	r := &slowRTC{}
	r.begun.Add(offersAtOnce)
	o := newOverWebSocket(tracker.URL{}, &Config{WebRTC: r}, slog.New(slog.DiscardHandler), nil)
	t.Cleanup(o.close)
	if n := len(o.makeOffers(t.Context())); n != offersAtOnce || len(o.offers) != n {
		t.Errorf("%d offers, %d of them remembered", n, len(o.offers))
	}
}
