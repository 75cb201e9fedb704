package client

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"braid/client/webseed"
	"braid/pathsel"
	"braid/scionnet"
)

// webTransport dials the web seeds of one transfer. A web seed on IP has one path, and one on SCION
// the paths to its AS.
type webTransport struct {
	routes
	source    Source
	described func() *Source // nil: it is not known yet what is in the torrent
	log       *slog.Logger
	port      *webPort
	seeds     map[Peer]webseed.Config // without Layout and Client
}

// webPort is the port of a session for HTTP/3 over SCION. It is opened when it is first needed.
type webPort struct {
	host *scionnet.Host // nil: not on SCION

	mu   sync.Mutex
	port *scionnet.HTTP
}

func (w *webPort) open(ctx context.Context) (*scionnet.HTTP, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.host == nil {
		return nil, errors.New("this host has no connection to SCION")
	}
	if w.port != nil {
		return w.port, nil
	}
	p, err := w.host.OpenHTTP(ctx, 0)
	if err == nil {
		w.port = p
	}
	return p, err
}

func (w *webPort) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.port == nil {
		return nil
	}
	return w.port.Close()
}

// webSeeds are the torrent's web seeds and those that the user has named, as peers. It leaves out
// web seeds that cannot be used, and logs them.
func (t *webTransport) webSeeds(named []WebSeed) (out []Peer) {
	named = slices.Clone(named) // torrents share it
	for _, u := range t.source.WebSeeds {
		named = append(named, WebSeed{URL: u})
	}
	t.seeds = map[Peer]webseed.Config{}
	for _, w := range named {
		p, u, err := w.of(t.source)
		if err == nil && p.scion.IA != 0 && t.host == nil {
			err = errors.New("this host has no connection to SCION")
		}
		if err != nil {
			t.log.Warn("web seed passed over", "error", err)
			continue
		}
		if len(t.seeds) < maxWebSeeds {
			t.seeds[p] = webseed.Config{URL: u, InfoHash: t.source.InfoHash, Lacks: &sync.Map{}}
			out = append(out, p)
		}
	}
	return out
}

func (t *webTransport) Name() string        { return "http" }
func (t *webTransport) Abandoned(Peer) bool { return false }

func (t *webTransport) Dial(
	ctx context.Context, p Peer, path pathsel.Path, _ *scionnet.PeerKey,
) (Wire, error) {
	known, cfg := t.described(), t.seeds[p]
	if known == nil || cfg.URL == nil {
		return nil, errors.New("not a web seed of this torrent, " +
			"or it is not known yet what is in the torrent")
	}
	var c *http.Client
	if a, ok := p.SCION(); ok {
		port, err := t.port.open(ctx)
		if err != nil {
			return nil, err
		}
		c = scionClient(port.ClientOver(a, path))
	} else {
		c = ipClient(p)
	}
	cfg.Layout, cfg.Client = known.Layout, c
	conn, err := webseed.Open(ctx, cfg)
	if err != nil {
		c.CloseIdleConnections()
		return nil, err
	}
	r := remote{peer: p, path: path, handshake: conn.FirstAnswer}
	return &webWire{Conn: conn, remote: r, client: c}, nil
}

// ipClient reaches a web seed on IP. If a stranger has named it, it must be on the Internet. A
// redirect leads nowhere that is nearer to us than the server which sent it.
func ipClient(p Peer) *http.Client {
	g := newRedirectGuard(scionnet.ScopeOf)
	if p.guarded {
		g.from, g.refusal = scionnet.ScopePublic, "a stranger has named a server at a %s address"
	}
	return g.client(&http.Transport{
		ResponseHeaderTimeout: 20 * time.Second, IdleConnTimeout: 30 * time.Second,
		MaxIdleConnsPerHost: 8, MaxConnsPerHost: 8,
		DisableCompression: true, ForceAttemptHTTP2: true,
	})
}

// webWire is a connection to a web seed.
type webWire struct {
	*webseed.Conn
	remote
	client *http.Client
	once   sync.Once
}

func (w *webWire) Measure() Measurement { return Measurement{Handshake: w.handshake} }

// Close also ends the HTTP requests.
func (w *webWire) Close() error {
	err := w.Conn.Close()
	w.once.Do(w.client.CloseIdleConnections)
	return err
}
