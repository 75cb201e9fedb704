package server

import (
	"context"
	"crypto/aes"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"time"
)

// Ask is one announce over HTTP without a network.
func Ask(s *Server, query string) []byte {
	w := httptest.NewRecorder()
	r := (&http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/announce", RawQuery: query}, RemoteAddr: "10.0.0.1:1"}).WithContext(context.Background())
	s.handler(transportHTTP).ServeHTTP(w, r)
	return w.Body.Bytes()
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
