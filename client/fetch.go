package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"braid/scionnet"
)

// A user can name a .torrent file by its URL. The host in it may be in the user's own network. But
// its server must not make us contact hosts that it cannot reach itself. So no redirect to a nearer
// scope is followed.

const (
	// fetchTimeout bounds the whole fetch: a server could send one byte now and then.
	fetchTimeout   = 2 * time.Minute
	connectTimeout = 10 * time.Second
	headerTimeout  = 30 * time.Second
)

// OpenSource reads the torrent that a user names: a .torrent file, its http or https URL, or a
// magnet link.
func OpenSource(ctx context.Context, name string) (Source, error) {
	if strings.HasPrefix(strings.ToLower(name), "magnet:") {
		return ParseMagnet(name)
	}
	if isURL(name) {
		return Fetch{URL: name}.Source(ctx)
	}
	b, err := readTorrentFile(name)
	if err != nil {
		return Source{}, fmt.Errorf("open torrent: %w", err)
	}
	return parseNamed(b, name)
}

// isURL tells whether a torrent is named by its URL.
func isURL(name string) bool {
	scheme, _, ok := strings.Cut(name, "://")
	return ok && (strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https"))
}

// Fetch is a GET of a .torrent file or of a list of them, bounded in time and size.
type Fetch struct {
	URL string // http or https; with SCION also scion
	// Cookies have the form NAME=VALUE; NAME=VALUE. Many private trackers demand them. Only the
	// first host gets them, and not those to which it redirects.
	Cookies string
	// From is the scope of the host that has named the URL; zero: the user has. No nearer host is
	// contacted: otherwise a stranger could send requests of ours into our own network.
	From scionnet.Scope
	// SCION carries requests to servers on SCION; nil: there are none.
	SCION *scionnet.HTTP
	// ETag and Modified are those of an earlier answer. While it still holds, the server need not
	// send it again.
	ETag, Modified string

	scopeOf func(netip.Addr) scionnet.Scope // nil: scionnet.ScopeOf
}

// Fetched is the answer to a Fetch.
type Fetched struct {
	Body           []byte
	Unchanged      bool // there is no body, since the earlier answer still holds
	ETag, Modified string
	Type           string         // the media type, without parameters
	At             *url.URL       // after redirects; on SCION its host is made up
	Scope          scionnet.Scope // of the server
	Magnet         string         // the link to which the server redirects; there is no body then
}

// IsPage tells whether the answer is a web page.
func (f Fetched) IsPage() bool { return f.Type == "text/html" }

// Source reads the answer as a .torrent file or, after a redirect, as a magnet link.
func (f Fetched) Source() (Source, error) {
	if f.Magnet != "" {
		return ParseMagnet(f.Magnet)
	}
	if f.IsPage() && !bytes.HasPrefix(f.Body, []byte("d")) { // some servers call all files pages
		return Source{}, fmt.Errorf("get torrent from %s: the server sends a web page, "+
			"not a torrent; the link may need a login", f.At.Host)
	}
	return parseNamed(f.Body, "from "+f.At.Host)
}

// Source is Do for a .torrent file, and reads it.
func (f Fetch) Source(ctx context.Context) (Source, error) {
	got, err := f.Do(ctx)
	if err != nil {
		return Source{}, fmt.Errorf("get torrent from %w", err)
	}
	return got.Source()
}

// maxValidator bounds an ETag and a date that are sent back to a server, in bytes.
const maxValidator = 1024

// Do sends the request. An answer that is larger than MaxTorrentFile is an error. Errors begin with
// the host, and do not show the rest of the URL, which may have the user's key in it.
func (f Fetch) Do(ctx context.Context) (Fetched, error) {
	u, client, g, err := f.way()
	if err != nil {
		return Fetched{}, err
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	got, err := f.get(ctx, u, client)
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // e itself shows the whole URL
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("the server has not sent it within %v", fetchTimeout)
	}
	if err != nil {
		return got, fmt.Errorf("%s: %w", u.Host, err)
	}
	if got.Scope = scionnet.ScopePublic; g != nil {
		got.Scope = max(g.from, g.Contacted())
	}
	return got, nil
}

// way returns the URL of the request, a client for it, and the client's guard, which is nil on
// SCION.
func (f Fetch) way() (*url.URL, *http.Client, *redirectGuard, error) {
	server, ok, err := scionnet.ParseServerURL(f.URL)
	switch {
	case ok && err != nil:
		return nil, nil, nil, err
	case ok && f.SCION == nil:
		return nil, nil, nil, errors.New("a server on SCION, to which this host has no connection")
	case ok:
		return &server.Request, scionClient(f.SCION.ClientOf(server.Addr, server.Name)), nil, nil
	}
	u, err := url.Parse(f.URL)
	if err != nil || u.Host == "" || !isURL(f.URL) {
		return nil, nil, nil, errors.New(
			"an address that is not a URL like https://example.org/file.torrent")
	}
	scopeOf := f.scopeOf
	if scopeOf == nil {
		scopeOf = scionnet.ScopeOf
	}
	g := newRedirectGuard(scopeOf)
	g.from = f.From
	over := &http.Transport{DisableKeepAlives: true, ResponseHeaderTimeout: headerTimeout}
	return u, g.client(over), g, nil
}

// scionClient sends requests to one server on SCION. Its CloseIdleConnections closes over. It
// follows no redirects: they could lead to any host of the AS.
func scionClient(over scionnet.HTTPClient) *http.Client {
	refuse := func(*http.Request, []*http.Request) error {
		return errors.New("a server on SCION must not redirect")
	}
	return &http.Client{Transport: onSCION{over}, CheckRedirect: refuse}
}

type onSCION struct{ scionnet.HTTPClient }

func (o onSCION) CloseIdleConnections() { _ = o.Close() }

func (f Fetch) get(ctx context.Context, u *url.URL, client *http.Client) (got Fetched, err error) {
	header := http.Header{"User-Agent": {"braid"}}
	for name, value := range map[string]string{
		"Cookie": f.Cookies, "If-None-Match": f.ETag, "If-Modified-Since": f.Modified,
	} {
		if value != "" {
			header.Set(name, value) // net/http sends no cookies to another host after a redirect
		}
	}
	follow := client.CheckRedirect
	client.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if r.URL.Scheme != "magnet" {
			return follow(r, via)
		}
		got.Magnet = r.URL.String()
		return http.ErrUseLastResponse
	}
	req := http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: header}
	res, err := client.Do(req.WithContext(ctx))
	if err != nil {
		return got, err
	}
	defer res.Body.Close()
	got.At = res.Request.URL
	if got.Magnet != "" {
		return got, nil
	}
	got.ETag, got.Modified = res.Header.Get("ETag"), res.Header.Get("Last-Modified")
	if len(got.ETag)+len(got.Modified) > maxValidator {
		got.ETag, got.Modified = "", ""
	}
	if res.StatusCode == http.StatusNotModified && f.ETag+f.Modified != "" {
		got.Unchanged = true
		return got, nil
	}
	if res.StatusCode != http.StatusOK {
		return got, fmt.Errorf("the server answers %s", res.Status)
	}
	got.Type, _, _ = mime.ParseMediaType(res.Header.Get("Content-Type"))
	if got.Body, err = io.ReadAll(io.LimitReader(res.Body, MaxTorrentFile+1)); err != nil {
		return got, err
	}
	if len(got.Body) > MaxTorrentFile {
		return got, fmt.Errorf("it is larger than the %d MiB that are accepted", MaxTorrentFile>>20)
	}
	return got, nil
}

// redirectGuard dials, and remembers the widest scope that a redirect came from. The dialer's lock
// is held where its fields are used.
type redirectGuard struct {
	scionnet.ScopedDialer
	from    scionnet.Scope
	refusal string // of a nearer scope
}

func newRedirectGuard(scopeOf func(netip.Addr) scionnet.Scope) *redirectGuard {
	g := &redirectGuard{refusal: "a link to a %s address is not followed"}
	g.ScopeOf = scopeOf
	g.May = func(to scionnet.Scope) error {
		if to < g.from {
			return fmt.Errorf(g.refusal, to)
		}
		return nil
	}
	return g
}

func (g *redirectGuard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return g.Dial(ctx, net.Dialer{Timeout: connectTimeout}, network, address)
}

// client sends requests over a transport, which dials with the guard.
func (g *redirectGuard) client(over *http.Transport) *http.Client {
	over.DialContext, over.TLSHandshakeTimeout = g.dial, connectTimeout
	over.MaxResponseHeaderBytes = 64 << 10
	return &http.Client{Transport: over, CheckRedirect: g.check}
}

// check notes that the server contacted last redirects us.
func (g *redirectGuard) check(r *http.Request, via []*http.Request) error {
	g.Redirected(func(by scionnet.Scope) {
		g.from, g.refusal = max(g.from, by), "a redirect to a %s address is not followed"
	})
	return scionnet.CheckRedirect(r, via)
}
