package scionnet

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"braid/pathsel"
)

// HTTP is a UDP port of the host for HTTP/3 (RFC 9114): a server, a client, or both. Its clients
// show no key, and its server's key identifies nobody. It is as secure as plain HTTP, no more,
// unless both sides are members of a group: see OpenGroupHTTP.
type HTTP struct {
	host    *Host
	addr    Addr
	packets packetConn
	quic    *quic.Transport
	id      *Identity
	// idle is httpIdle, except in tests.
	idle time.Duration

	places quota

	mu      sync.Mutex
	dialled map[*quic.Conn]*pathsel.Path // nil: the policy does not apply
	shared  map[serverKey]*sharedClient  // see ClientOf
	policy  pathsel.Policy
}

// serverKey names a server: see ClientOf.
type serverKey struct {
	at   Addr
	name string
}

type sharedClient struct {
	httpClient
	users int
}

type httpClient struct{ *http3.Transport }

func (c httpClient) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := c.Transport.RoundTrip(r)
	if err == nil {
		res.Body = answerBody{res.Body, r.Context()}
	}
	return res, err
}

// answerBody returns the error of the request's context if this has ended, as net/http does. The
// library returns H3_REQUEST_CANCELLED, which says nothing to users and callers.
type answerBody struct {
	io.ReadCloser
	ctx context.Context
}

func (b answerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && b.ctx.Err() != nil {
		err = b.ctx.Err()
	}
	return n, err
}

const (
	// maxRequests bounds the concurrent requests of one connection, maxHeaderBytes their headers.
	maxRequests    = 32
	maxHeaderBytes = 16 << 10
	// maxHTTPConns bounds the connections of a server. A request takes milliseconds. One AS, one
	// host, and all clients whose AS is not proven may have only a part of the connections each, so
	// that others can always connect.
	maxHTTPConns = 4096
	// httpIdle is how long a connection lives without an answered request, so that unfinished
	// requests do not keep it open. The time in which an answer waits (Waiting) does not count. It
	// is shorter than an announce interval, since most clients will not be back sooner.
	httpIdle = 15 * time.Second
)

// OpenHTTP opens a port of the host, 0 for any free one.
func (h *Host) OpenHTTP(ctx context.Context, port uint16) (*HTTP, error) {
	id, err := NewIdentity()
	if err != nil {
		return nil, err
	}
	return h.OpenGroupHTTP(ctx, port, id)
}

// OpenGroupHTTP is OpenHTTP for members of the identity's group: its server admits nobody else, and
// its clients talk to no other server.
func (h *Host) OpenGroupHTTP(ctx context.Context, port uint16, id *Identity) (*HTTP, error) {
	if err := h.mayListen(port); err != nil {
		return nil, err
	}
	packets, err := openPlain(ctx, h, port)
	if err != nil {
		return nil, err
	}
	p := &HTTP{
		dialled: map[*quic.Conn]*pathsel.Path{}, shared: map[serverKey]*sharedClient{},
		host: h, addr: h.addrOf(packets), packets: packets, id: id, idle: httpIdle,
	}
	p.places.limits = limits{maxHTTPConns, maxHTTPConns / 2, maxHTTPConns / 16, maxHTTPConns / 8}
	p.quic = &quic.Transport{Conn: packets, ConnContext: p.admit, VerifySourceAddress: p.mustVerify}
	packets.mapper().setOnMove(func(netip.AddrPort, Addr) { p.endDialled() })
	return p, nil
}

// endDialled ends the connections to servers, whose answers go to an address that a NAT has given
// up. The next request makes a new connection.
func (p *HTTP) endDialled() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.dialled {
		_ = c.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "moved")
	}
}

// keep notes a connection until it ends. The policy may have changed since its path was chosen.
func (p *HTTP) keep(c *quic.Conn, path *pathsel.Path) {
	p.mu.Lock()
	p.dialled[c] = path
	p.endIfForbidden(c, path)
	p.mu.Unlock()
	context.AfterFunc(c.Context(), func() {
		p.mu.Lock()
		delete(p.dialled, c)
		p.mu.Unlock()
	})
}

// SetPolicy says over which paths clients connect from now on. Connections over other paths end,
// with their requests. ClientOver is exempt, since its caller chooses the path.
func (p *HTTP) SetPolicy(policy pathsel.Policy) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.policy = policy
	for c, path := range p.dialled {
		p.endIfForbidden(c, path)
	}
}

// endIfForbidden ends a connection whose path the policy forbids. The caller holds p.mu.
func (p *HTTP) endIfForbidden(c *quic.Conn, path *pathsel.Path) {
	if path == nil {
		return
	}
	if allowed, _ := p.policy.Apply([]pathsel.Path{*path}); len(allowed) == 0 {
		_ = c.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "the path is no longer allowed")
	}
}

// mustVerify tells whether a newcomer must first prove that it receives at its address.
func (p *HTTP) mustVerify(net.Addr) bool {
	p.places.mu.Lock()
	open := p.places.held
	p.places.mu.Unlock()
	return open > halfOpenMost || p.places.unprovenFull()
}

func (p *HTTP) admit(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	g, err := p.host.newInbound(ctx, info.RemoteAddr)
	if err != nil {
		return nil, err
	}
	if !p.places.take(g, info.AddrVerified) {
		g.evict()
		p.host.routes.unpin(g.as.route)
		return nil, errors.New("too many connections")
	}
	context.AfterFunc(ctx, func() {
		p.places.release(g)
		p.host.routes.unpin(g.as.route)
	})
	return context.WithValue(ctx, clientKey{}, g), nil
}

// Addr is the address of the port.
func (p *HTTP) Addr() Addr { return p.packets.mapper().public(p.addr) }

// Close ends all connections and frees the port.
func (p *HTTP) Close() error {
	if err := errors.Join(p.quic.Close(), p.packets.Close()); err != nil {
		return fmt.Errorf("close %s: %w", p.addr, err)
	}
	return nil
}

type (
	clientKey    struct{}
	idleTimerKey struct{}
)

// ClientAddr is the SCION address of a request's client. The client is known to receive there.
// Whether it is in that AS is a different question; see ClientProven.
func ClientAddr(ctx context.Context) (Addr, bool) {
	g, ok := ctx.Value(clientKey{}).(*inbound)
	if !ok {
		return Addr{}, false
	}
	return g.as.route.remote, true
}

// ClientProven tells whether the ISD-AS of ClientAddr is proven, in the sense of Conn.Proven. If
// that is not known yet, it waits for the control plane's answer, up to that long. It returns false
// at once if the last answer was negative a moment ago, or if 1024 requests (256 along the same
// links) are waiting already.
func ClientProven(ctx context.Context, wait time.Duration) bool {
	g, ok := ctx.Value(clientKey{}).(*inbound)
	return ok && g.as.prove(ctx, wait)
}

// Waiting says that an answer waits for something other than its client. Until done is called, the
// connection stays open; then the client has 15 seconds to take the next part of an answer. The
// context is that of the request; on other connections Waiting does nothing.
func Waiting(ctx context.Context) (done func()) {
	t, ok := ctx.Value(idleTimerKey{}).(*idleTimer)
	if !ok {
		return func() {}
	}
	t.add(1)
	return func() { t.add(-1) }
}

// idleTimer ends a connection after a while without an answered request.
type idleTimer struct {
	after time.Duration
	timer *time.Timer

	mu      sync.Mutex
	waiting int // answers that do not wait for the client
}

func (t *idleTimer) add(waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting += waiting; t.waiting > 0 {
		t.timer.Stop()
	} else {
		t.timer.Reset(t.after)
	}
}

// Serve answers requests until the context ends, and then waits up to grace for the current ones.
// It closes connections without requests, and those whose clients do not finish their requests. The
// context of a request has the client's address (ClientAddr), at which the client is known to
// receive.
func (p *HTTP) Serve(ctx context.Context, handler http.Handler, grace time.Duration) error {
	config := p.config(leastPacket)
	config.GetConfigForClient = func(info *quic.ClientInfo) (*quic.Config, error) {
		r := p.host.routes.forAddr(info.RemoteAddr)
		if r == nil {
			return nil, errRouteDropped
		}
		c := p.config(p.host.answerSize(p.addr, r))
		c.KeepAlivePeriod = p.idle / 2 // for answers that wait; idleTimer ends the others
		return c, nil
	}
	l, err := p.quic.ListenEarly(http3.ConfigureTLSConfig(p.tls()), config)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", p.addr, err)
	}
	defer l.Close()
	s := &http3.Server{
		MaxHeaderBytes: maxHeaderBytes,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ClientProven(r.Context(), 0) // starts the proof, which gives the client a better place
			handler.ServeHTTP(w, r)
			Waiting(r.Context())() // the idle time begins again
		}),
		ConnContext: func(ctx context.Context, c *quic.Conn) context.Context {
			end := time.AfterFunc(p.idle, func() {
				_ = c.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "no request")
			})
			context.AfterFunc(c.Context(), func() { end.Stop() })
			if g, ok := ctx.Value(clientKey{}).(*inbound); ok {
				context.AfterFunc(g.ctx, func() {
					_ = c.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeExcessiveLoad), "")
				})
			}
			return context.WithValue(ctx, idleTimerKey{}, &idleTimer{after: p.idle, timer: end})
		},
	}
	ended := make(chan error, 1)
	go func() { ended <- s.ServeListener(l) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		patience, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		_ = s.Shutdown(patience) // cuts off requests that take longer
		<-ended
	}
	s.Close()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve HTTP/3 on %s: %w", p.addr, err)
}

// config is for connections with packets of that size. quicConfig explains the settings of size and
// path.
func (p *HTTP) config(packetSize int) *quic.Config {
	return &quic.Config{
		Versions:             []quic.Version{quic.Version1},
		HandshakeIdleTimeout: handshakeIdle,
		// A client does not keep its connection alive: the next request makes a new one.
		MaxIdleTimeout:     p.idle,
		MaxIncomingStreams: maxRequests, MaxIncomingUniStreams: 3, // control, and the two of QPACK
		InitialStreamReceiveWindow: 64 << 10, MaxStreamReceiveWindow: 1 << 20,
		InitialConnectionReceiveWindow: 128 << 10, MaxConnectionReceiveWindow: 2 << 20,
		InitialPacketSize:       uint16(packetSize),
		DisablePathMTUDiscovery: true,
	}
}

// tls is the configuration of servers and clients. Neither resumes sessions: with 0-RTT, requests
// from invented addresses would be answered, and a group would not see the other side's proof.
func (p *HTTP) tls() *tls.Config {
	if p.id.group != nil {
		return p.id.TLS(http3.NextProtoH3, nil)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{p.id.cert},
		InsecureSkipVerify: true, ServerName: "tracker",
		// A client shows no key, so that servers cannot recognise it.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &tls.Certificate{}, nil
		},
		SessionTicketsDisabled: true,
	}
}

// HTTPClient is a transport for http.Client. Close ends its connections.
type HTTPClient interface {
	http.RoundTripper
	io.Closer
}

// ClientOver is a ClientOf server over that path only.
func (p *HTTP) ClientOver(server Addr, path pathsel.Path) HTTPClient {
	t := p.client(nil)
	t.Dial = func(ctx context.Context, _ string, c *tls.Config, _ *quic.Config) (*quic.Conn, error) {
		conn, err := p.dialOver(ctx, server, path, c)
		if err != nil {
			return nil, fmt.Errorf("connect to %s: %w", server, err)
		}
		p.keep(conn, nil)
		return conn, nil
	}
	return t
}

// ClientOf is a transport for http.Client. All requests go to that server, whatever authority they
// name, over a path on which it answers. A name is looked up for every new connection; of server
// only the port counts then. Of several addresses, the first that answers is used. Clients of one
// server share a connection, which ends with the last of them: servers have few places for
// connections of one host.
func (p *HTTP) ClientOf(server Addr, name string) HTTPClient {
	key := serverKey{server, name}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shared[key]
	if s == nil {
		s = &sharedClient{httpClient: p.client(func(ctx context.Context) ([]Addr, error) {
			if name == "" {
				return []Addr{server}, nil
			}
			return p.host.cfg.Names().Lookup(ctx, name, server.Port)
		})}
		p.shared[key] = s
	}
	s.users++
	return share{s, sync.OnceValue(func() error { return p.leave(key, s) })}
}

// share is one of the clients that share a connection.
type share struct {
	http.RoundTripper
	leave func() error
}

func (s share) Close() error { return s.leave() }

func (p *HTTP) leave(key serverKey, s *sharedClient) error {
	p.mu.Lock()
	s.users--
	last := s.users == 0
	if last && p.shared[key] == s {
		delete(p.shared, key)
	}
	p.mu.Unlock()
	if !last {
		return nil
	}
	return s.Close()
}

func (p *HTTP) client(servers func(context.Context) ([]Addr, error)) httpClient {
	return httpClient{&http3.Transport{
		MaxResponseHeaderBytes: maxHeaderBytes, DisableCompression: true,
		TLSClientConfig: p.tls(),
		Dial: func(ctx context.Context, _ string, t *tls.Config, _ *quic.Config) (*quic.Conn, error) {
			all, err := servers(ctx)
			if err != nil {
				return nil, err
			}
			for _, server := range all {
				var c *quic.Conn
				if c, err = p.dial(ctx, server, t); err == nil || ctx.Err() != nil {
					return c, err
				}
			}
			return nil, err
		},
	}}
}

// pathsTried bounds the paths tried for one connection. A server that does not answer on any of
// them is down.
const pathsTried = 4

// dial tries the best allowed path first, and then those that share the fewest interfaces with
// failed ones.
func (p *HTTP) dial(ctx context.Context, server Addr, t *tls.Config) (*quic.Conn, error) {
	paths, err := p.host.Paths(ctx, server.IA)
	if err != nil {
		return nil, fmt.Errorf("find paths to %s: %w", server.IA, err)
	}
	p.mu.Lock()
	paths, refused := p.policy.Apply(paths)
	p.mu.Unlock()
	err = fmt.Errorf("no path to %s is known", server.IA)
	if len(refused) > 0 {
		err = &pathsel.RefusedError{To: server.IA, Refused: refused}
	}
	var failed []pathsel.Interface
	shared := func(path pathsel.Path) (n int) {
		for _, i := range failed {
			if slices.Contains(path.Interfaces, i) {
				n++
			}
		}
		return n
	}
	for range min(len(paths), pathsTried) {
		c, e := p.dialOver(ctx, server, paths[0], t)
		if e == nil {
			p.keep(c, &paths[0])
			return c, nil
		}
		if err = e; ctx.Err() != nil {
			break
		}
		failed = append(failed, paths[0].Interfaces...)
		paths = paths[1:]
		slices.SortStableFunc(paths, func(a, b pathsel.Path) int { return cmp.Compare(shared(a), shared(b)) })
	}
	return nil, fmt.Errorf("connect to %s: %w", server, err)
}

func (p *HTTP) dialOver(ctx context.Context, server Addr, path pathsel.Path, t *tls.Config) (*quic.Conn, error) {
	r, _, size, err := p.host.routeTo(ctx, p.addr, server, path)
	if err != nil {
		return nil, err
	}
	d := dialer[*quic.Conn]{p.host, r, func(ctx context.Context, size int) (*quic.Conn, error) {
		c, err := p.quic.DialEarly(ctx, r.pseudo, t, p.config(size))
		return c, plainHTTPError(err)
	}, func(c *quic.Conn) { _ = c.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "") }}
	c, _, err := d.connect(ctx, size)
	if err != nil {
		p.host.routes.unpin(r)
		return nil, err
	}
	context.AfterFunc(c.Context(), func() { p.host.routes.unpin(r) })
	return c, nil
}

// plainHTTPError is plainError for a dialled HTTP/3 connection.
func plainHTTPError(err error) error {
	var transport *quic.TransportError
	switch {
	case errors.As(err, new(*quic.IdleTimeoutError)), errors.As(err, new(*quic.HandshakeTimeoutError)):
		return fmt.Errorf("%w during the handshake", ErrSilent)
	case errors.As(err, &transport) && transport.Remote && transport.ErrorCode == quic.ConnectionRefused:
		return ErrRefused
	case errors.As(err, &transport):
		return fmt.Errorf("QUIC: %w", transport)
	}
	return err
}
