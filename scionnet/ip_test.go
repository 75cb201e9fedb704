package scionnet

import "testing"

// An endpoint on IP asks for as few signs of life as one on SCION.
func TestKeepAliveOnIP(t *testing.T) {
	e := &IPEndpoint{}
	e.conns = map[*IPConn]struct{}{}
	for range 2000 {
		e.conns[&IPConn{}] = struct{}{}
	}
	if got := e.config().KeepAlivePeriod; got != keepAliveAmong(2000) {
		t.Errorf("each of 2000 connections asks after %v, want %v", got, keepAliveAmong(2000))
	}
}
