package server

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"braid/pathsel"
	"braid/scionnet"
	"braid/tracker/wire"
)

// signalInterval is the longest time between announces over WebSocket. Offers expire after about a
// minute, so that peers find each other only if they announce often.
const signalInterval = 2 * time.Minute

const (
	// pingEvery keeps a connection open through proxies, many of which end silent ones after a
	// minute. It is also how long a client may take to answer.
	pingEvery = 50 * time.Second
	// tooManyPause is how long a connection is not read after a refused message.
	tooManyPause = time.Second
)

// ServeWebSocket answers WebTorrent's protocol (wire.Signal) on the listener until the context
// ends, with up to most connections at a time. It closes the listener.
func (s *Server) ServeWebSocket(ctx context.Context, l net.Listener, most int) error {
	ctx, stop := context.WithCancel(ctx)
	var open sync.WaitGroup
	defer open.Wait()
	defer stop()
	return s.serveHTTP1(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		open.Add(1)
		defer open.Done()
		s.acceptSocket(ctx, w, r)
	}), most)
}

func (s *Server) acceptSocket(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	key, what := splitPath(r.URL.Path)
	switch {
	case what == "healthz" && key == "":
		s.serveHealth(w)
		return
	case what != "" && what != "announce":
		http.NotFound(w, r)
		return
	}
	from, err := clientHost(r.RemoteAddr)
	if err != nil {
		http.Error(w, "your address is unknown", http.StatusInternalServerError)
		return
	}
	from.Host = forwarded(from.Host, r.Header)
	// Pages of any site may ask: nothing here depends on cookies.
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return // Accept has answered
	}
	defer func() { _ = c.CloseNow() }() // it may be closed already
	c.SetReadLimit(wire.MaxSignal)
	k := &socket{
		origin: pathsel.OriginIP(from.Host, ""),
		seats:  map[wire.InfoHash]wire.PeerID{}, out: make(chan []byte, maxQueue),
	}
	ctx, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer s.relay.leaveAll(k)
	defer stop()
	all.Go(func() { defer stop(); k.write(ctx, c) })
	all.Go(func() { defer stop(); ping(ctx, c) })
	s.readSocket(ctx, c, k, request{transport: overWebSocket, from: from}, key)
}

// forwarded is the host of a client behind a reverse proxy, which adds TLS, or else from. The last
// address in the header counts, since the client may have written the others. A client on the
// Internet is behind no proxy of this tracker. The host serves for limits only: others do not hear
// of it, so a proxy that passes on what clients write does no harm to them.
func forwarded(from netip.Addr, h http.Header) netip.Addr {
	hops := strings.Split(strings.Join(h.Values("X-Forwarded-For"), ","), ",")
	host, err := netip.ParseAddr(strings.TrimSpace(hops[len(hops)-1]))
	if err != nil || scionnet.ScopeOf(from) == scionnet.ScopePublic {
		return from
	}
	return host.Unmap().WithZone("")
}

// write sends what is queued. It returns when the client does not take a message.
func (k *socket) write(ctx context.Context, c *websocket.Conn) {
	for {
		select {
		case <-ctx.Done():
			return
		case b := <-k.out:
			k.queued.Add(-int64(len(b)))
			ctx, cancel := context.WithTimeout(ctx, writePatience)
			err := c.Write(ctx, websocket.MessageText, b)
			cancel()
			if err != nil {
				return
			}
		}
	}
}

// ping asks for signs of life. It returns when the client gives none. The sign comes behind all
// messages of the client, and reading them may take a while, also because answers to them wait for
// room in the queue. So write must not wait for it.
func ping(ctx context.Context, c *websocket.Conn) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(ctx, pingEvery)
		err := c.Ping(ctx)
		cancel()
		if err != nil {
			return
		}
	}
}

// readSocket answers messages until the client ends the connection, or takes part in no swarm any
// more.
func (s *Server) readSocket(ctx context.Context, c *websocket.Conn, k *socket, from request, key string) {
	patience := idlePatience
	for {
		read, cancel := context.WithTimeout(ctx, patience)
		_, b, err := c.Read(read)
		cancel()
		if err != nil {
			return
		}
		from.at = time.Now()
		m, err := wire.ParseSignal(b)
		if err == nil {
			err = s.signalled(ctx, k, from, &m, key)
		}
		if err != nil {
			s.refused(from, err)
			k.answer(ctx, &wire.Signal{InfoHash: m.InfoHash, Failure: wire.FailureOf(err).Reason})
			select { // so that nobody floods the tracker with messages that cost only itself
			case <-ctx.Done():
			case <-time.After(tooManyPause):
			}
		}
		patience = idlePatience
		if s.relay.hasSeat(k) {
			patience = s.admission.Load().cfg.Lifetime.D()
		}
	}
}

// hasSeat tells whether the connection takes part in a swarm.
func (r *relay) hasSeat(k *socket) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(k.seats) > 0
}

// signalled does what a message asks for.
func (s *Server) signalled(ctx context.Context, k *socket, from request, m *wire.Signal, key string) error {
	switch {
	case m.Scrape:
		return s.scrapeSocket(ctx, k, from, m, key)
	case m.PeerID == wire.PeerID{}:
		return errNoPeerID
	case m.Answer.SDP != "":
		if err := s.limits.take(s.admission.Load(), from); err != nil {
			return err
		}
		return s.relay.answer(k, m)
	case m.Offer.SDP != "":
		return errNotOffered
	}
	answer, err := s.announce(ctx, from, &wire.Announce{ // without a port, so the store remembers nobody
		InfoHash: m.InfoHash, PeerID: m.PeerID, Event: m.Event, Passkey: key,
		Uploaded: m.Uploaded, Downloaded: m.Downloaded, Left: m.Left,
	})
	if err != nil {
		s.relay.leave(k, m.InfoHash) // the lists may have changed
		return err
	}
	out := wire.Signal{InfoHash: m.InfoHash, Interval: min(answer.Interval, signalInterval)}
	cfg := s.admission.Load().cfg
	if m.Event == wire.Stopped {
		s.relay.leave(k, m.InfoHash)
	} else if err := s.relay.enter(k, m, &cfg, from.at); err != nil {
		s.metrics.unlisted.Inc()
		out.Warning = wire.FailureOf(err).Reason
	}
	// Offers go out before the answer, so that they reach only peers that were here before it.
	s.relay.offer(k, m)
	counts := wire.Counts{InfoHash: m.InfoHash, Complete: answer.Complete, Incomplete: answer.Incomplete}
	s.relay.count(&counts)
	out.Complete, out.Incomplete = counts.Complete, counts.Incomplete
	k.answer(ctx, &out)
	return nil
}

// scrapeSocket answers a scrape of named torrents.
func (s *Server) scrapeSocket(ctx context.Context, k *socket, from request, m *wire.Signal, key string) error {
	hashes := make([]wire.InfoHash, 0, len(m.Counts))
	for _, c := range m.Counts {
		hashes = append(hashes, c.InfoHash)
	}
	if len(hashes) == 0 {
		return &wire.Failure{Reason: "info_hash is missing", RetryIn: wire.Never}
	}
	counts, err := s.scrape(ctx, from, hashes, key)
	if err != nil {
		return err
	}
	for i := range counts {
		s.relay.count(&counts[i])
	}
	k.answer(ctx, &wire.Signal{Scrape: true, Counts: counts})
	return nil
}
