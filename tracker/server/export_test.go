package server

import (
	"bytes"
	"context"
	"crypto/aes"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"time"

	"braid/tracker/wire"
)

// Ask is one announce over HTTP without a network.
func Ask(s *Server, query string) []byte {
	w := httptest.NewRecorder()
	r := (&http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/announce", RawQuery: query}, RemoteAddr: "10.0.0.1:1"}).WithContext(context.Background())
	s.handler(overHTTP).ServeHTTP(w, r)
	return w.Body.Bytes()
}

// AskFrom is one announce of a host on SCION without a network, with reports if there is a body.
func AskFrom(s *Server, from wire.Addr, query string, body []byte) []byte {
	return ask(s, request{transport: overSCION, from: from, at: time.Now()}, query, body)
}

// AskClaimed is AskFrom where the ISD-AS is not proven.
func AskClaimed(s *Server, from wire.Addr, query string, body []byte) []byte {
	return ask(s, request{transport: overSCION, from: from, claimed: true, at: time.Now()}, query, body)
}

func ask(s *Server, from request, query string, body []byte) []byte {
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/announce", nil)
	if body != nil {
		r = httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/announce", bytes.NewReader(body))
	}
	r.URL.RawQuery = query
	s.route(w, r, from)
	return w.Body.Bytes()
}

// RefreshPaths works the links out that reports have told of.
func RefreshPaths(s *Server) { s.paths.base.Refresh(time.Now()) }

// ExchangePaths tells and hears what trackers on one store know.
func ExchangePaths(s *Server) { s.paths.exchange(context.Background(), true) }

// PasskeyOf is what a private tracker finds in the URL of an announce over UDP.
func PasskeyOf(url string) string { return passkeyOf(url) }

// Connected gives the packet of an announce over UDP to a tracker that knows its sender.
func Connected(s *Server, r wire.UDPRequest) []byte {
	u, err := newUDP(s)
	if err != nil {
		panic(err)
	}
	now, from := time.Now(), netip.MustParseAddrPort("10.0.0.1:1")
	r.Action, r.Connection = wire.AnnounceUDP, u.connectionID(from.Addr(), epochOf(now))
	return u.answer(context.Background(), nil, r.Append(nil), from, now)
}

// AskUDP is one packet of a stranger.
func AskUDP(s *Server, packet []byte) []byte {
	b, err := aes.NewCipher(make([]byte, 16))
	if err != nil {
		panic(err)
	}
	u := &udp{server: s, prf: b}
	return u.answer(context.Background(), nil, packet, netip.MustParseAddrPort("10.0.0.1:1"), time.Unix(1, 0))
}
