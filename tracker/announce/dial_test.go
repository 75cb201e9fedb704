package announce

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"braid/scionnet"
	"braid/tracker"
	"braid/tracker/wire"
	"braid/units/await"
)

func TestOutletsOf(t *testing.T) {
	a := netip.MustParseAddr
	v4, v6 := outlet{a("10.0.0.2"), "4", 7}, outlet{a("2001:db8::1"), "6", 8}
	none, both := []outlet{{}}, []outlet{{family: "4"}, {family: "6"}}
	for _, tt := range []struct {
		listen    string
		want, udp [][]outlet
	}{
		{"", [][]outlet{none}, [][]outlet{both}},
		{"[::]:7", [][]outlet{{{family: "4", port: 7}, {family: "6", port: 7}}}, nil},
		{"0.0.0.0:7", [][]outlet{{{family: "4", port: 7}}, none}, [][]outlet{{{family: "4", port: 7}}, both}},
		{"10.0.0.2:7 10.0.0.3:8", [][]outlet{{v4}, none}, [][]outlet{{v4}, both}},
		{"10.0.0.2:7 [2001:db8::1]:8", [][]outlet{{v4, v6}, none}, [][]outlet{{v4, v6}, both}},
		{"10.0.0.2:7 [::]:8 [2001:db8::1]:9", [][]outlet{{v4, {family: "6", port: 8}}}, nil},
	} {
		var listen []netip.AddrPort
		for s := range strings.FieldsSeq(tt.listen) {
			listen = append(listen, netip.MustParseAddrPort(s))
		}
		if tt.udp == nil {
			tt.udp = tt.want
		}
		for udp, want := range map[bool][][]outlet{false: tt.want, true: tt.udp} {
			if got := outletsOf(listen, udp); !reflect.DeepEqual(got, want) {
				t.Errorf("%s, UDP %v: %+v, want %+v", tt.listen, udp, got, want)
			}
		}
	}
}

func TestMay(t *testing.T) {
	const loopback, link, private, public = scionnet.ScopeLoopback, scionnet.ScopeLinkLocal, scionnet.ScopePrivate, scionnet.ScopePublic
	for _, tt := range []struct {
		n    named
		to   scionnet.Scope
		want bool
	}{
		{named{}, public, true}, {named{}, private, false}, {named{}, link, false}, {named{}, loopback, false},
		{named{plain: true}, private, true}, {named{plain: true}, loopback, true}, {named{plain: true}, link, false},
		{named{user: true}, private, true}, {named{user: true}, link, true}, {named{user: true}, loopback, true},
		{named{plain: true, hops: 1, from: public}, public, true},
		{named{plain: true, hops: 1, from: public}, private, false}, {named{plain: true, hops: 1, from: loopback}, loopback, false},
		{named{user: true, hops: 1, from: public}, loopback, false}, {named{user: true, hops: 2, from: public}, private, false},
		{named{user: true, hops: 1, from: private}, loopback, false}, {named{user: true, hops: 1, from: private}, private, true},
		{named{plain: true, from: public}, private, false}, {named{plain: true, from: private}, loopback, false},
		{named{plain: true, from: private}, private, true}, {named{plain: true, from: public}, public, true}, {named{from: loopback}, loopback, false},
		{named{user: true, hops: 1, from: loopback}, loopback, true}, {named{user: true, hops: 1, from: loopback}, public, true},
	} {
		if err := tt.n.may(tt.to); (err == nil) != tt.want {
			t.Errorf("%+v to a %v address: %v", tt.n, tt.to, err)
		}
	}
}

// asked is a tracker that counts what it is asked.
type asked struct {
	*httptest.Server
	requests atomic.Int32
}

func listening(t *testing.T, at string, answer http.HandlerFunc) *asked {
	t.Helper()
	l, err := net.Listen("tcp", at+":0")
	if err != nil {
		t.Fatal(err)
	}
	x := &asked{}
	x.Server = &httptest.Server{Listener: l, Config: &http.Server{ReadHeaderTimeout: time.Until(await.Deadline(t)), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x.requests.Add(1)
		answer(w, r)
	})}}
	x.Start()
	t.Cleanup(x.Close)
	return x
}

// outside is 127.0.0.2 for these tests: an address on the Internet.
func scopeOf(a netip.Addr) scionnet.Scope {
	if a == netip.MustParseAddr("127.0.0.2") {
		return scionnet.ScopePublic
	}
	return scionnet.ScopeOf(a)
}

func ask(t *testing.T, url string, user bool) (wire.Answer, error) {
	t.Helper()
	u, err := tracker.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	if user {
		u = u.OfUser()
	}
	x, err := newAsker(u, &Config{}, scionnet.ScopeLoopback)
	if err != nil {
		t.Fatal(err)
	}
	defer x.close()
	x.(*overIP).scopeOf = scopeOf
	return x.announce(t.Context(), &wire.Announce{}, nil)
}

// A torrent cannot have us send requests of its own making to this machine or its networks, nor can
// the tracker that it names; a user can.
func TestRequestsInOthersNames(t *testing.T) {
	empty := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "de") }
	local := listening(t, "127.0.0.1", empty)
	_, port, _ := net.SplitHostPort(local.Listener.Addr().String())
	outside := listening(t, "127.0.0.2", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, local.URL+"/announce", http.StatusFound)
	})
	inside := listening(t, "127.0.0.1", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, local.URL+"/announce", http.StatusFound)
	})
	for _, tt := range []struct {
		url  string
		user bool
		want bool
	}{
		{local.URL + "/announce", false, true},
		{local.URL + "/admin", false, false},
		{local.URL + "/announce?delete=all", false, false},
		{"http://user:pass@127.0.0.1:" + port + "/announce", false, false},
		{"http://localhost:" + port + "/admin", false, false}, // what a name means is known when it is dialled
		{"http://[::ffff:127.0.0.1]:" + port + "/admin", false, false},
		{local.URL + "/admin", true, true},
		{outside.URL + "/announce", false, false},
		{outside.URL + "/announce", true, false},
		{inside.URL + "/announce", false, false},
		{inside.URL + "/announce", true, true},
	} {
		before := local.requests.Load()
		_, err := ask(t, tt.url, tt.user)
		if got := local.requests.Load() > before; got != tt.want || (err == nil) != tt.want {
			t.Errorf("%s, by the user %v: requested %v, %v", tt.url, tt.user, got, err)
		}
	}
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := ask(t, "udp://"+c.LocalAddr().String()+"/admin", false); err == nil || !strings.Contains(err.Error(), "may not name this tracker") {
		t.Errorf("a UDP tracker with words of the torrent: %v", err)
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	if n, _, err := c.ReadFrom(make([]byte, 100)); err == nil {
		t.Errorf("%d bytes were sent to it", n)
	}
}

// A tracker names no peers that are nearer to us than itself.
func TestPeersInOthersNames(t *testing.T) {
	all := "\x7f\x00\x00\x01\x00\x16" + "\x0a\x00\x00\x01\x00\x16" + "\xa9\xfe\xa9\xfe\x00\x50" + "\xc0\x00\x02\x01\x00\x07"
	answer := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, "d5:peers%d:%se", len(all), all) }
	for at, want := range map[string]int{"127.0.0.1": 4, "127.0.0.2": 1} {
		got, err := ask(t, listening(t, at, answer).URL+"/announce", true)
		if err != nil || len(got.Peers) != want || got.Peers[want-1].Addr.Port != 7 {
			t.Errorf("a tracker at %s names %v, %v; want %d", at, got.Peers, err, want)
		}
	}
	scion := wire.Peer{Addr: wire.Addr{IA: 1<<48 | 1, Host: netip.MustParseAddr("127.0.0.1"), Port: 1}}
	if got := allowed([]wire.Peer{scion}, scionnet.ScopePublic); len(got) != 1 {
		t.Error("a host of another AS is passed over")
	}
}

// Announces leave from the address that peers are accepted at, and say that nobody listens where
// they must leave from another.
func TestAnnouncesFromListeningAddress(t *testing.T) {
	tr := track(t, oneAS(t))
	at := func(s string) func(*Config) {
		return func(c *Config) { c.Listen = []netip.AddrPort{netip.MustParseAddrPort(s)} }
	}
	join(t, 1, at("127.0.0.5:1001"), tr.http)
	tr.counts(t, 0, 1, 0)
	join(t, 2, at("127.0.0.6:1002"), tr.udp)
	tr.counts(t, 0, 2, 0)
	three := join(t, 3, at("[::1]:1003"), tr.http, tr.udp)
	three.finds(t, "127.0.0.5:1001")
	four := join(t, 4, at("[::1]:1004"), tr.udp)
	four.finds(t, "127.0.0.6:1002")
	tr.counts(t, 0, 2, 0) // nobody listens at the IPv4 addresses of three and four
}
