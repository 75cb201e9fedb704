package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"braid/scionnet"
)

// A user can name a .torrent file by its URL. The first host may be in the user's own network. But
// that server must not lead us to hosts that it cannot reach itself. So no redirect to a nearer
// scope is followed.

const (
	fetchTimeout   = 2 * time.Minute // for everything: a server that sends a byte now and then would hold us for ever
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
		return FetchSource(ctx, name, "")
	}
	f, err := os.Open(name)
	if err != nil {
		return Source{}, fmt.Errorf("open torrent: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, MaxTorrentFile+1))
	if err != nil {
		return Source{}, fmt.Errorf("read torrent %s: %w", name, err)
	}
	return parseNamed(b, name)
}

// FetchSource reads the .torrent file at an http or https URL. The cookies, in the form
// NAME=VALUE; NAME=VALUE, go to that host only; many private trackers demand them.
func FetchSource(ctx context.Context, url, cookies string) (Source, error) {
	return sourceAt(ctx, url, cookies, scionnet.ScopeOf)
}

// isURL tells whether a torrent is named by its URL.
func isURL(name string) bool {
	scheme, _, ok := strings.Cut(name, "://")
	return ok && (strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https"))
}

// sourceAt reads the torrent at a URL. Errors name only the host: the rest may hold the user's key.
func sourceAt(ctx context.Context, name, cookies string, scopeOf func(netip.Addr) scionnet.Scope) (Source, error) {
	u, err := url.Parse(name)
	if err != nil || u.Host == "" {
		return Source{}, errors.New("get torrent: its address is not a URL like https://example.org/file.torrent")
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	g := newRedirectGuard(scopeOf)
	b, err := get(ctx, g, u, cookies)
	if e := (*url.Error)(nil); errors.As(err, &e) {
		err = e.Err // it would repeat the whole URL
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("the server has not sent it within %v", fetchTimeout)
	}
	if err != nil {
		return Source{}, fmt.Errorf("get torrent from %s: %w", u.Host, err)
	}
	return parseNamed(b, "from "+u.Host)
}

func get(ctx context.Context, g *redirectGuard, u *url.URL, cookies string) ([]byte, error) {
	client := http.Client{
		Transport: &http.Transport{
			DisableKeepAlives:      true,
			DialContext:            g.dial,
			TLSHandshakeTimeout:    connectTimeout,
			ResponseHeaderTimeout:  headerTimeout,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			g.redirected()
			return scionnet.CheckRedirect(r, via)
		},
	}
	req := (&http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: http.Header{"User-Agent": {"braid"}}}).WithContext(ctx)
	if cookies != "" {
		req.Header.Set("Cookie", cookies) // the standard library drops it when another host is next
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server answers %s", res.Status)
	}
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind == "text/html" {
		return nil, errors.New("the server sends a web page, not a torrent; the link may need a login")
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, MaxTorrentFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > MaxTorrentFile {
		return nil, fmt.Errorf("it is larger than the %d MiB that are accepted", MaxTorrentFile>>20)
	}
	return b, nil
}

// redirectGuard dials, and remembers the widest scope that a redirect came from.
type redirectGuard struct {
	scionnet.ScopedDialer
	from scionnet.Scope
}

func newRedirectGuard(scopeOf func(netip.Addr) scionnet.Scope) *redirectGuard {
	g := &redirectGuard{}
	g.ScopeOf = scopeOf
	g.May = func(to scionnet.Scope) error {
		if to < g.from {
			return fmt.Errorf("a redirect to a %s address is not followed", to)
		}
		return nil
	}
	return g
}

func (g *redirectGuard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return g.Dial(ctx, net.Dialer{Timeout: connectTimeout}, network, address)
}

// redirected notes that the server contacted last sends us on.
func (g *redirectGuard) redirected() {
	g.Redirected(func(by scionnet.Scope) { g.from = max(g.from, by) })
}
