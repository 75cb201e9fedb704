package announce

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"braid/scionnet"
	"braid/tracker"
	"braid/tracker/wire"
	"braid/units/await"
)

// A peer whose torrent names the tracker on one kind of network only is known on both.
func TestSiblings(t *testing.T) {
	h := oneAS(t)
	tr := track(t, h)
	if err := tr.server.SetAddresses([]string{tr.http, tr.udp, tr.scion}); err != nil {
		t.Fatal(err)
	}
	onSCION := func(c *Config) { c.SCION = openHTTP(t, h) }
	join(t, 1, onSCION, tr.http)
	join(t, 2, onSCION, tr.scion)
	join(t, 3, onSCION, tr.http, tr.scion) // which is asked by both anyway
	join(t, 4, nil, tr.http)               // cannot reach the sibling
	await.True(t, "all peers on both networks", func() bool {
		n, _ := tr.store.Totals(t.Context())
		return n.SCION == 3 && n.IPv4 == 4
	})
	five := join(t, 5, nil, tr.http)
	five.finds(t, "127.0.0.1:1002")
	six := join(t, 6, onSCION, tr.http)
	six.finds(t, "1-ff00:0:110,[127.0.0.1]:2002")
	six.Close()
	if n, _ := tr.store.Totals(t.Context()); n.SCION != 3 || n.IPv4 != 5 {
		t.Errorf("a peer has left on one network only: %+v", n)
	}
	scion := openHTTP(t, h)
	for at, want := range map[string][]string{tr.http: {tr.scion}, tr.scion: {tr.http, tr.udp + "/announce"}} {
		u, err := tracker.ParseURL(at)
		if err != nil {
			t.Fatal(err)
		}
		all, err := Siblings(t.Context(), u, scion, wire.InfoHash{1})
		var have []string
		for _, s := range all {
			have = append(have, s.String())
		}
		if err != nil || !slices.Equal(have, want) {
			t.Errorf("%s is %q, too, %v; want %q", at, have, err, want)
		}
	}
}

func TestSiblingsOf(t *testing.T) {
	const scion = "scion://1-ff00:0:110,[10.0.0.1]:80"
	for _, tt := range []struct{ url, said, want string }{
		{"http://a/announce", scion, scion + "/announce"},
		{"http://a/KEY/announce?x=y", scion, scion + "/KEY/announce?x=y"},
		{"http://a/announce", "http://scion4-1-ff00-0-110_10-0-0-1", "http://scion4-1-ff00-0-110_10-0-0-1/announce"},
		{"http://a/announce", "http://b", ""}, // the same kind of network
		{scion + "/announce", scion, ""},
		{scion + "/announce", "http://b:1 udp://b:2", "http://b:1/announce udp://b:2/announce"},
		{"https://a/announce", scion, scion + "/announce"},
		{"https://a/KEY/announce", scion, ""},
		// The tracker chooses an address and nothing else.
		{scion + "/announce", "http://b/admin http://b?x=y http://user@b http://b# b:80 gopher://b http:// udp://b http://b:0", ""},
	} {
		u, err := tracker.ParseURL(tt.url)
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		for _, s := range siblingsOf(u.OfUser(), strings.Fields(tt.said)) {
			have = append(have, s.String())
			if s.ByUser() {
				t.Errorf("%s: the user has not named it", s)
			}
		}
		if strings.Join(have, " ") != tt.want {
			t.Errorf("%s says %s: %q, want %q", tt.url, tt.said, have, tt.want)
		}
	}
}

// A tracker cannot have us send requests to this machine by naming it.
func TestSiblingsInOthersNames(t *testing.T) {
	local := listening(t, "127.0.0.1", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "de") })
	for _, tt := range []struct {
		path string
		from scionnet.Scope
		want bool
	}{
		{"/announce", scionnet.ScopePublic, false},
		{"/announce", scionnet.ScopePrivate, false},
		{"/announce", scionnet.ScopeLoopback, true},
		{"/KEY/announce", scionnet.ScopeLoopback, false},
	} {
		u, err := tracker.ParseURL(local.URL + tt.path)
		if err != nil {
			t.Fatal(err)
		}
		x, err := newAsker(u, &Config{}, tt.from)
		if err != nil {
			t.Fatal(err)
		}
		before := local.requests.Load()
		_, err = x.announce(t.Context(), &wire.Announce{}, nil)
		if asked := local.requests.Load() > before; asked != tt.want || (err == nil) != tt.want {
			t.Errorf("%s, named by a tracker at a %s address: asked %v, %v", tt.path, tt.from, asked, err)
		}
	}
}
