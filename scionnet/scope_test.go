package scionnet

import (
	"net/http"
	"net/netip"
	"net/url"
	"testing"
)

func TestScopeOf(t *testing.T) {
	for _, tt := range []struct {
		addr string
		want Scope
	}{
		{"127.0.0.1", ScopeLoopback}, {"127.77.0.1", ScopeLoopback}, {"::1", ScopeLoopback}, {"0.0.0.0", ScopeLoopback},
		{"::", ScopeLoopback}, {"0.1.2.3", ScopeLoopback}, {"::ffff:127.0.0.1", ScopeLoopback},
		{"64:ff9b::7f00:1", ScopeLoopback}, {"2002:7f00:1::", ScopeLoopback}, {"::127.0.0.1", ScopeLoopback},
		{"169.254.169.254", ScopeLinkLocal}, {"fe80::1", ScopeLinkLocal}, {"224.0.0.1", ScopeLinkLocal},
		{"255.255.255.255", ScopeLinkLocal}, {"2002:a9fe:a9fe::1", ScopeLinkLocal},
		{"10.0.0.1", ScopePrivate}, {"172.31.0.1", ScopePrivate}, {"192.168.1.1", ScopePrivate}, {"100.64.0.1", ScopePrivate},
		{"fd00::1", ScopePrivate}, {"fc00::1", ScopePrivate}, {"fec0::1", ScopePrivate}, {"198.18.0.1", ScopePrivate},
		{"64:ff9b::a00:1", ScopePrivate},
		{"192.0.2.1", ScopePublic}, {"8.8.8.8", ScopePublic}, {"172.32.0.1", ScopePublic}, {"100.128.0.1", ScopePublic},
		{"2001:db8::1", ScopePublic}, {"64:ff9b::808:808", ScopePublic}, {"2002:808:808::1", ScopePublic},
	} {
		if got := ScopeOf(netip.MustParseAddr(tt.addr)); got != tt.want {
			t.Errorf("%s is %v, want %v", tt.addr, got, tt.want)
		}
	}
	if got := ScopeOf(netip.Addr{}); got != ScopeLoopback {
		t.Errorf("no address is %v", got)
	}
}

func TestCheckRedirect(t *testing.T) {
	for _, tt := range []struct {
		from, to string
		n        int
		want     bool
	}{
		{"http", "http", 1, true}, {"http", "https", 1, true}, {"https", "https", maxRedirects, true},
		{"https", "http", 1, false}, {"http", "file", 1, false}, {"http", "http", maxRedirects + 1, false},
	} {
		via := make([]*http.Request, tt.n)
		via[tt.n-1] = &http.Request{URL: &url.URL{Scheme: tt.from}}
		if err := CheckRedirect(&http.Request{URL: &url.URL{Scheme: tt.to}}, via); (err == nil) != tt.want {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}
