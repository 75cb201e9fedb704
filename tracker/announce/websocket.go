package announce

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/time/rate"

	"braid/scionnet"
	"braid/tracker"
	"braid/tracker/wire"
)

// WebRTC makes connections from the descriptions (SDP) that trackers over WebSocket relay. The
// announcer does not hear of connected peers.
type WebRTC interface {
	// Offer makes an offer of a connection.
	Offer(context.Context) (Offer, error)
	// Answer takes the offer of a peer, and returns the answer to it.
	Answer(ctx context.Context, from wire.PeerID, offer string) (answer string, err error)
}

// Offer is an offer that was made.
type Offer interface {
	SDP() string
	// Answered takes the answer of a peer.
	Answered(by wire.PeerID, answer string) error
	// Close withdraws the offer, unless it has led to a connection.
	Close()
}

const (
	// offersAtOnce is the number of offers in an announce. Each goes to another peer, and costs a
	// few sockets for a minute.
	offersAtOnce = 5
	// offerLife is how long an offer can be answered.
	offerLife = time.Minute
	// answersAtOnce bounds the offers of others that are being answered.
	answersAtOnce = 8
	// A tracker may send that many messages and pings at once, and then one a second. We read no
	// faster, because answering them costs us more than it costs the tracker. Honest trackers send
	// one message in several seconds.
	messagesAtOnce, messagesEvery = 100, time.Second
)

// overWebSocket is a tracker that speaks WebTorrent's protocol (wire.Signal). The connection stays
// open between announces, since the tracker relays the offers of other peers over it.
type overWebSocket struct {
	url     tracker.URL
	id      wire.PeerID // our own
	hash    wire.InfoHash
	rtc     WebRTC
	scopeOf func(netip.Addr) scionnet.Scope
	log     *slog.Logger
	lost    func() // is called when the connection has ended by itself
	ctx     context.Context
	stop    context.CancelFunc
	workers sync.WaitGroup
	busy    chan struct{} // has room for the answers at once
	replies chan wire.Signal
	pace    *rate.Limiter // of messages and pings

	mu     sync.Mutex
	conn   *websocket.Conn // nil: there is none
	at     scionnet.Scope
	offers map[string]pendingOffer // by ID
}

type pendingOffer struct {
	Offer
	made time.Time
}

func newOverWebSocket(u tracker.URL, cfg *Config, log *slog.Logger, lost func()) *overWebSocket {
	o := &overWebSocket{
		url: u, id: cfg.PeerID, hash: cfg.InfoHash, rtc: cfg.WebRTC,
		scopeOf: scionnet.ScopeOf, log: log, lost: lost,
		busy: make(chan struct{}, answersAtOnce), replies: make(chan wire.Signal, 1),
		pace:   rate.NewLimiter(rate.Every(messagesEvery), messagesAtOnce),
		offers: map[string]pendingOffer{},
	}
	o.ctx, o.stop = context.WithCancel(context.Background())
	return o
}

func (o *overWebSocket) scope() scionnet.Scope {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.at
}

func (o *overWebSocket) close() {
	o.stop()
	o.mu.Lock()
	if o.conn != nil {
		_ = o.conn.CloseNow()
	}
	o.mu.Unlock()
	o.workers.Wait()
	for _, x := range o.offers {
		x.Close()
	}
}

// announce implements asker. The tracker names no peers: connections come later, or not at all.
func (o *overWebSocket) announce(ctx context.Context, a *wire.Announce, _ []wire.PathReport) (wire.Answer, error) {
	c, err := o.connected(ctx)
	if err != nil {
		return wire.Answer{}, fmt.Errorf("announce: %w", err)
	}
	s := wire.Signal{
		InfoHash: a.InfoHash, PeerID: a.PeerID, Event: a.Event,
		Uploaded: a.Uploaded, Downloaded: a.Downloaded, Left: a.Left,
	}
	if a.Event != wire.Stopped {
		s.Offers = o.makeOffers(ctx)
	}
	select { // drop an answer that came too late for the last announce
	case <-o.replies:
	default:
	}
	if err := c.Write(ctx, websocket.MessageText, s.Request()); err != nil {
		return wire.Answer{}, fmt.Errorf("announce: %w", err)
	}
	if a.Event == wire.Stopped {
		return wire.Answer{}, nil // some trackers do not answer it
	}
	select {
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			// Most likely the way is dead, such as after a NAT has forgotten it, and TCP would
			// notice that only after a quarter of an hour. The next announce makes a new
			// connection.
			_ = c.CloseNow()
		}
		return wire.Answer{}, fmt.Errorf("announce: %w", ctx.Err())
	case r := <-o.replies:
		switch {
		case r.Failure == "" && r.InfoHash == wire.InfoHash{}:
			return wire.Answer{}, errors.New("announce: the tracker has ended the connection")
		case r.Failure != "":
			return wire.Answer{}, &wire.Failure{Reason: r.Failure}
		}
		return wire.Answer{
			Interval: r.Interval, Complete: r.Complete, Incomplete: r.Incomplete, Warning: r.Warning,
		}, nil
	}
}

// connected returns the open connection, or makes one.
func (o *overWebSocket) connected(ctx context.Context) (*websocket.Conn, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.conn != nil {
		return o.conn, nil
	}
	d := newDialer(outlet{}, named{user: o.url.ByUser(), plain: o.url.Plain()}, o.scopeOf)
	c, _, err := websocket.Dial(ctx, o.url.Request("").String(), &websocket.DialOptions{
		HTTPClient: d.client(noRedirect), HTTPHeader: http.Header{"User-Agent": {"braid"}},
		OnPingReceived: func(context.Context, []byte) bool { return o.pace.Wait(o.ctx) == nil },
	})
	if err != nil {
		return nil, withoutURL(err)
	}
	c.SetReadLimit(wire.MaxSignal)
	o.conn, o.at = c, d.Contacted()
	o.workers.Go(func() { o.read(c) })
	return c, nil
}

// makeOffers makes offers for an announce, and withdraws old ones.
func (o *overWebSocket) makeOffers(ctx context.Context) (out []wire.Offer) {
	o.mu.Lock()
	for id, x := range o.offers {
		if time.Since(x.made) > offerLife {
			delete(o.offers, id)
			x.Close()
		}
	}
	o.mu.Unlock()
	// Each may wait for ICE servers. One after the other they would take as long as a whole
	// announce may if no server answers.
	var made [offersAtOnce]Offer
	var all sync.WaitGroup
	for i := range made {
		all.Go(func() {
			x, err := o.rtc.Offer(ctx)
			if err != nil {
				o.log.Debug("no WebRTC offer", "tracker", o.url, "error", err)
				return
			}
			made[i] = x
		})
	}
	all.Wait()
	for _, x := range made {
		if x == nil {
			continue
		}
		b := make([]byte, 20)
		rand.Read(b)
		o.mu.Lock()
		o.offers[string(b)] = pendingOffer{x, time.Now()}
		o.mu.Unlock()
		out = append(out, wire.Offer{ID: string(b), SDP: x.SDP()})
	}
	return out
}

// read takes messages until the connection ends.
func (o *overWebSocket) read(c *websocket.Conn) {
	defer func() {
		_ = c.CloseNow()
		o.mu.Lock()
		o.conn = nil
		o.mu.Unlock()
		select { // an announce that waits has failed
		case o.replies <- wire.Signal{}:
		default:
		}
		if o.ctx.Err() == nil {
			o.lost()
		}
	}()
	for {
		_, b, err := c.Read(o.ctx)
		if err == nil {
			err = o.pace.Wait(o.ctx)
		}
		if err != nil {
			o.log.Debug("the connection to a tracker has ended", "tracker", o.url, "error", o.url.Hide(err.Error()))
			return
		}
		s, err := wire.ParseSignal(b)
		switch {
		case err != nil:
			o.log.Debug("a message of a tracker is passed over", "tracker", o.url, "error", err)
		case !s.Scrape && s.Failure == "" && s.InfoHash != o.hash:
			o.log.Debug("a message of a tracker is about another torrent", "tracker", o.url)
		case s.Offer.SDP != "":
			select {
			case o.busy <- struct{}{}:
				o.workers.Go(func() {
					o.answer(c, s)
					<-o.busy
				})
			default: // its peer offers again
			}
		case s.Answer.SDP != "":
			o.answered(s)
		case !s.Scrape:
			select {
			case o.replies <- s:
			default:
			}
		}
	}
}

func (o *overWebSocket) answer(c *websocket.Conn, s wire.Signal) {
	ctx, cancel := context.WithTimeout(o.ctx, announceTimeout)
	defer cancel()
	sdp, err := o.rtc.Answer(ctx, s.PeerID, s.Offer.SDP)
	if err == nil {
		r := wire.Signal{
			InfoHash: s.InfoHash, PeerID: o.id, ToPeer: s.PeerID,
			Answer: wire.Offer{ID: s.Offer.ID, SDP: sdp},
		}
		err = c.Write(ctx, websocket.MessageText, r.Request())
	}
	if err != nil {
		o.log.Debug("a WebRTC offer is not answered", "tracker", o.url, "error", err)
	}
}

// answered gives an answer to the offer that it is for.
func (o *overWebSocket) answered(s wire.Signal) {
	o.mu.Lock()
	x, ok := o.offers[s.Answer.ID]
	delete(o.offers, s.Answer.ID)
	o.mu.Unlock()
	if !ok {
		return
	}
	if err := x.Answered(s.PeerID, s.Answer.SDP); err != nil {
		x.Close()
		o.log.Debug("a WebRTC answer is passed over", "tracker", o.url, "error", err)
	}
}
