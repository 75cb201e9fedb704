package scionnet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// HTTP is a UDP port of the host for HTTP/3 (RFC 9114): a server, a client, or both. Unlike an Endpoint's peers, its
// clients show no key, and its server's key is nobody's name: the scheme promises no more than http does.
type HTTP struct {
	host    *Host
	addr    Addr
	packets packetConn
	quic    *quic.Transport
	cert    tls.Certificate
	open    atomic.Int64 // connections that others have begun
}

const (
	// maxRequests at once on one connection, and headers in bytes.
	maxRequests    = 32
	maxHeaderBytes = 16 << 10
	// maxHTTPConns is the number of connections of a server. One request is done in milliseconds.
	maxHTTPConns = 4096
	// httpIdle is how long a connection without a request lives. Shorter than an announce interval: nobody is
	// expected back soon.
	httpIdle = 15 * time.Second
)

// OpenHTTP opens a port of the host, 0 for any free one.
func (h *Host) OpenHTTP(ctx context.Context, port uint16) (*HTTP, error) {
	id, err := NewIdentity()
	if err != nil {
		return nil, err
	}
	packets, err := openPlain(ctx, h, port)
	if err != nil {
		return nil, err
	}
	local := packets.LocalAddr().(*net.UDPAddr).AddrPort()
	p := &HTTP{host: h, addr: Addr{h.ia, h.localIP, local.Port()}, packets: packets, cert: id.cert}
	p.quic = &quic.Transport{
		Conn: packets, ConnContext: p.admit,
		VerifySourceAddress: func(net.Addr) bool { return p.open.Load() > halfOpenMost },
	}
	return p, nil
}

func (p *HTTP) admit(ctx context.Context, _ *quic.ClientInfo) (context.Context, error) {
	if p.open.Add(1) > maxHTTPConns {
		p.open.Add(-1)
		return nil, errors.New("too many connections")
	}
	context.AfterFunc(ctx, func() { p.open.Add(-1) })
	return ctx, nil
}

// Addr is the address of the port.
func (p *HTTP) Addr() Addr { return p.addr }

// Close ends all connections and frees the port.
func (p *HTTP) Close() error {
	if err := errors.Join(p.quic.Close(), p.packets.Close()); err != nil {
		return fmt.Errorf("close %s: %w", p.addr, err)
	}
	return nil
}

type clientKey struct{}

// ClientAddr is the SCION address that a request came from.
func ClientAddr(ctx context.Context) (Addr, bool) {
	a, ok := ctx.Value(clientKey{}).(Addr)
	return a, ok
}

// Serve answers requests until the context ends, and then waits up to grace for those under way. A client's address, which
// it has shown to receive at before the first request, is ClientAddr of the request's context.
func (p *HTTP) Serve(ctx context.Context, handler http.Handler, grace time.Duration) error {
	config := p.config(leastPacket)
	config.GetConfigForClient = func(info *quic.ClientInfo) (*quic.Config, error) {
		r := p.host.routes.at(info.RemoteAddr)
		if r == nil {
			return nil, errors.New("route pushed out")
		}
		most := min(mostPacket, p.host.mtu-headerLen(p.addr, r.remote, len(r.way.Load().raw)))
		return p.config(max(leastPacket, min(most, int(r.initial.Load())))), nil
	}
	l, err := p.quic.ListenEarly(http3.ConfigureTLSConfig(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{p.cert},
		// 0-RTT would let a sender of invented addresses have requests answered.
		SessionTicketsDisabled: true,
	}), config)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", p.addr, err)
	}
	defer l.Close()
	s := &http3.Server{
		Handler: handler, MaxHeaderBytes: maxHeaderBytes, IdleTimeout: httpIdle,
		ConnContext: func(ctx context.Context, c *quic.Conn) context.Context {
			r := p.host.routes.at(c.RemoteAddr())
			if r == nil {
				return ctx
			}
			r = p.host.routes.pin(r)
			context.AfterFunc(c.Context(), func() { p.host.routes.unpin(r) })
			return context.WithValue(ctx, clientKey{}, r.remote)
		},
	}
	ended := make(chan error, 1)
	go func() { ended <- s.ServeListener(l) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		patience, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		_ = s.Shutdown(patience) // who is not done by then is cut off
		<-ended
	}
	s.Close()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve HTTP/3 on %s: %w", p.addr, err)
}

func (p *HTTP) config(packetSize int) *quic.Config {
	c := quicConfig(packetSize)
	c.MaxIdleTimeout = httpIdle
	c.KeepAlivePeriod = 0                                          // a request under way keeps it alive; the next one makes a new connection
	c.MaxIncomingStreams, c.MaxIncomingUniStreams = maxRequests, 3 // control, and the two of QPACK
	c.RequireStreamCreditRelease = false
	c.InitialStreamReceiveWindow, c.MaxStreamReceiveWindow = 64<<10, 1<<20
	c.InitialConnectionReceiveWindow, c.MaxConnectionReceiveWindow = 128<<10, 2<<20
	return c
}

// Client is a transport for http.Client: all requests go to the server at that address, over the first of the paths on
// which it answers, whatever authority they name.
func (p *HTTP) Client(server Addr) interface {
	http.RoundTripper
	io.Closer
} {
	return p.client(func(context.Context) ([]Addr, error) { return []Addr{server}, nil })
}

// ClientByName is a Client of the server with that name, which is looked up for every new connection. Of several addresses
// the first that answers is used.
func (p *HTTP) ClientByName(name string, port uint16) interface {
	http.RoundTripper
	io.Closer
} {
	return p.client(func(ctx context.Context) ([]Addr, error) { return p.host.names.Lookup(ctx, name, port) })
}

func (p *HTTP) client(servers func(context.Context) ([]Addr, error)) *http3.Transport {
	return &http3.Transport{
		MaxResponseHeaderBytes: maxHeaderBytes, DisableCompression: true,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, ServerName: "tracker"},
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
	}
}

// pathsTried bounds how many paths are tried for one connection. They come best first, and a server that does not answer on
// the first few is down.
const pathsTried = 4

func (p *HTTP) dial(ctx context.Context, server Addr, t *tls.Config) (*quic.Conn, error) {
	paths, err := p.host.Paths(ctx, server.IA)
	if err != nil {
		return nil, fmt.Errorf("find paths to %s: %w", server.IA, err)
	}
	err = fmt.Errorf("no path to %s is known", server.IA)
	for _, path := range paths[:min(len(paths), pathsTried)] {
		f, e := p.host.known(ctx, server, path)
		if e != nil {
			err = e
			continue
		}
		size, e := packetSize(f.path, headerLen(p.addr, server, len(f.way.raw)))
		if e != nil {
			err = e
			continue
		}
		r := p.host.routes.dial(server, f.trail, &f.way)
		c, e := p.quic.DialEarly(ctx, r.pseudo, t, p.config(size))
		if e == nil {
			context.AfterFunc(c.Context(), func() { p.host.routes.unpin(r) })
			return c, nil
		}
		p.host.routes.unpin(r)
		if err = plainError(e); ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("connect to %s: %w", server, err)
}
