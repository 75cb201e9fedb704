package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"braid/client/webseed"
	"braid/pathsel"
	"braid/scionnet"
)

// WebSeed is a server that has a torrent's files (BEP 19).
type WebSeed struct {
	URL string
	// ByUser says that the user has named the server, and not the torrent. Then it may be anywhere;
	// else it must be on the Internet or on SCION.
	ByUser bool
}

// maxWebSeedURL bounds the URL of a web seed in bytes.
const maxWebSeedURL = 2048

// peer returns the web seed as a peer, with the URL to send requests to.
func (w WebSeed) peer() (p Peer, request *url.URL, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("web seed %.200q: %w", w.URL, err)
		}
	}()
	if len(w.URL) > maxWebSeedURL {
		return p, nil, fmt.Errorf("longer than %d bytes", maxWebSeedURL)
	}
	p.web = w.URL
	if u, ok, err := scionnet.ParseServerURL(w.URL); ok {
		if err == nil && u.Name != "" {
			err = errors.New("a name on SCION; want an address, as in scion://1-ff00:0:110,[127.0.0.1]:31080/")
		}
		p.scion = u.Addr
		return p, &u.Request, err
	}
	u, err := url.Parse(w.URL)
	if err != nil {
		return p, nil, errors.Unwrap(err)
	}
	if err := webseed.Check(u); err != nil {
		return p, nil, err
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	q, err := parseAddress(net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return p, nil, err
	}
	p.host, p.port, p.guarded = q.host, q.port, !w.ByUser
	if a, err := netip.ParseAddr(p.host); err == nil && p.guarded && scionnet.ScopeOf(a) != scionnet.ScopePublic {
		return p, nil, fmt.Errorf("a torrent may not name a server at a %s address; name it yourself if you trust it", scionnet.ScopeOf(a))
	}
	u.Fragment, u.RawFragment = "", ""
	return p, u, nil
}

// of is peer for a web seed of that torrent.
func (w WebSeed) of(s Source) (Peer, *url.URL, error) {
	if !w.ByUser && slices.Contains(s.httpSeeds, w.URL) {
		return Peer{}, nil, fmt.Errorf("web seed %.200q: it is of the kind httpseeds (BEP 17), which braid does not use; want url-list (BEP 19)", w.URL)
	}
	return w.peer()
}

// CheckWebSeed finds URLs that braid cannot use as web seeds.
func CheckWebSeed(url string) error {
	_, _, err := WebSeed{URL: url, ByUser: true}.peer()
	return err
}

// IsWebSeed tells whether the peer is a server with the files of one torrent. Other peers have no use
// for its address.
func (p Peer) IsWebSeed() bool { return p.web != "" }

// webTransport reaches the web seeds of one transfer. On IP there is one path; on SCION they have
// those of their AS.
type webTransport struct {
	*core
	urls map[Peer]*url.URL
}

// webPort is the port of a session for HTTP/3 over SCION. It is opened when it is needed.
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

// webSeeds are the torrent's web seeds and those that the user has named, as peers. Those that cannot
// be used are logged.
func (t *webTransport) webSeeds(named []WebSeed) (out []Peer) {
	for _, u := range t.source.WebSeeds {
		named = append(named, WebSeed{URL: u})
	}
	t.urls = map[Peer]*url.URL{}
	for _, w := range named {
		p, u, err := w.of(t.source)
		if err == nil && p.scion.IA != 0 && t.web.host == nil {
			err = errors.New("this host has no connection to SCION")
		}
		if err != nil {
			t.log.Warn("web seed passed over", "error", err)
			continue
		}
		if len(t.urls) < maxWebSeeds {
			t.urls[p] = u
			out = append(out, p)
		}
	}
	return out
}

func (t *webTransport) Name() string        { return "http" }
func (t *webTransport) Serves(p Peer) bool  { return p.IsWebSeed() }
func (t *webTransport) Abandoned(Peer) bool { return false }
func (t *webTransport) Listening() []Peer   { return nil }
func (t *webTransport) Close() error        { return nil }

// Accept implements Transport: nobody connects this way.
func (t *webTransport) Accept(ctx context.Context) (Wire, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (t *webTransport) Paths(ctx context.Context, p Peer) ([]pathsel.Path, error) {
	if a, ok := p.SCION(); ok {
		return t.web.host.Paths(ctx, a.IA)
	}
	return []pathsel.Path{{}}, nil
}

func (t *webTransport) Watch(p Peer) (<-chan struct{}, func()) {
	if a, ok := p.SCION(); ok {
		return t.web.host.Subscribe(a.IA)
	}
	return nil, func() {}
}

func (t *webTransport) Revoked(p pathsel.Path) time.Time {
	if t.web.host == nil {
		return time.Time{}
	}
	r, _ := t.web.host.Revoked(p)
	return r.At
}

func (t *webTransport) Dial(ctx context.Context, p Peer, path pathsel.Path, _ *scionnet.PeerKey) (Wire, error) {
	d := t.described.Load()
	u := t.urls[p]
	if d == nil || u == nil {
		return nil, errNotOffered
	}
	c := &http.Client{CheckRedirect: noRedirect}
	var end func()
	if a, ok := p.SCION(); ok {
		port, err := t.web.open(ctx)
		if err != nil {
			return nil, err
		}
		over := port.ClientOver(a, path)
		c.Transport, end = over, func() { _ = over.Close() }
	} else {
		over, check := ipClient(p)
		c.Transport, c.CheckRedirect, end = over, check, over.CloseIdleConnections
	}
	conn, err := webseed.Open(ctx, webseed.Config{URL: u, InfoHash: t.source.InfoHash, Layout: d.layout, Client: c})
	if err != nil {
		end()
		return nil, err
	}
	return &webWire{Conn: conn, peer: p, path: path, end: end}, nil
}

// noRedirect is for SCION, where a redirect could lead to any host of the AS over another path.
func noRedirect(*http.Request, []*http.Request) error {
	return errors.New("a web seed on SCION must not redirect")
}

// ipClient reaches a web seed on IP. If a stranger has named it, it must be on the Internet. A redirect
// leads nowhere that is nearer to us than the server which sent it.
func ipClient(p Peer) (*http.Transport, func(*http.Request, []*http.Request) error) {
	var mu sync.Mutex
	least := scionnet.ScopeLoopback
	if p.guarded {
		least = scionnet.ScopePublic
	}
	scoped := &scionnet.ScopedDialer{ScopeOf: scionnet.ScopeOf, May: func(to scionnet.Scope) error {
		mu.Lock()
		defer mu.Unlock()
		if to < least {
			return fmt.Errorf("a stranger has named a server at a %s address", to)
		}
		return nil
	}}
	over := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return scoped.Dial(ctx, net.Dialer{Timeout: 10 * time.Second}, network, address)
		},
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 20 * time.Second, IdleConnTimeout: 30 * time.Second,
		MaxResponseHeaderBytes: 64 << 10, DisableCompression: true, MaxIdleConnsPerHost: 8, MaxConnsPerHost: 8, ForceAttemptHTTP2: true,
	}
	return over, func(r *http.Request, via []*http.Request) error {
		scoped.Redirected(func(by scionnet.Scope) {
			mu.Lock()
			defer mu.Unlock()
			least = max(least, by)
		})
		return scionnet.CheckRedirect(r, via)
	}
}

// webWire is a connection to a web seed.
type webWire struct {
	*webseed.Conn
	peer Peer
	path pathsel.Path
	end  func()
	once sync.Once
}

func (w *webWire) Peer() Peer             { return w.peer }
func (w *webWire) Path() pathsel.Path     { return w.path }
func (w *webWire) Key() *scionnet.PeerKey { return nil }
func (w *webWire) Proven() bool           { return true } // it has answered

func (w *webWire) Measure() Measurement {
	h := w.Handshake()
	return Measurement{Handshake: h}
}

// Close ends the requests, too.
func (w *webWire) Close() error {
	err := w.Conn.Close()
	w.once.Do(w.end)
	return err
}
