package client

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/anacrolix/torrent"

	"braid/pathsel"
)

// The engine reaches what is offered, as long as it is offered, and nothing else.
func TestOffers(t *testing.T) {
	target := openFan(t, Config{}, "127.0.0.1", 1).Listening()[0]
	tcp, err := openTCP(nil, "", nil, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	table := newOffers()
	var dialled []error
	offer := func() *offer {
		t.Helper()
		o, err := table.add(t.Context(), tcp, target, pathsel.Path{}, func(_ *link, err error) { dialled = append(dialled, err) })
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	if _, err := table.connect(t.Context(), target.String()); !errors.Is(err, errNotOffered) {
		t.Errorf("the peer's own address: %v", err)
	}
	first, second := offer(), offer()
	if first.addr == second.addr || first.addr.host != second.addr.host {
		t.Errorf("two offers of one host as %s and %s", first.addr, second.addr)
	}
	for range 2 {
		c, err := table.connect(t.Context(), first.addr.String())
		if err != nil {
			t.Fatal(err)
		}
		if c.RemoteAddr() != net.Addr(first.addr) {
			t.Errorf("the connection is from %s, not %s", c.RemoteAddr(), first.addr)
		}
		c.Close()
		if err := c.SetDeadline(time.Now()); err != nil { // the engine would panic
			t.Errorf("deadline of a link that was closed before the engine got it: %v", err)
		}
	}
	first.withdraw()
	if _, err := table.connect(t.Context(), first.addr.String()); !errors.Is(err, errNotOffered) {
		t.Errorf("an offer that was withdrawn: %v", err)
	}
	if third := offer(); third.addr == first.addr {
		t.Error("a slot came back into use at once")
	}
	table.ban(suspectOf(target.origin()).names()...)
	if _, err := table.connect(t.Context(), second.addr.String()); !errors.Is(err, errBanned) {
		t.Errorf("a banned host: %v", err)
	}
	if _, err := table.add(t.Context(), tcp, target, pathsel.Path{}, nil); !errors.Is(err, errBanned) {
		t.Errorf("an offer of a banned host: %v", err)
	}
	if len(dialled) != 3 || dialled[0] != nil || !errors.Is(dialled[2], errBanned) {
		t.Errorf("attempts reported: %v", dialled)
	}
}

// What the engine must see in an address: an IP, which it bans by; a port, without which it drops
// the peer; and nothing that it would pass on to others.
func TestEngineAddr(t *testing.T) {
	f := engineAddr{engineAddrOf(mustPeer(t, "1-ff00:0:110,[127.0.0.1]:7")), 3}
	got, err := netip.ParseAddrPort(f.String())
	if err != nil || got.Port() != 3 || !got.Addr().IsPrivate() {
		t.Errorf("%s: %v", f, err)
	}
	if f.AddrPort().IsValid() {
		t.Error("the engine would tell others of it")
	}
	var _ torrent.PeerRemoteAddr = f
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"1-ff00:0:110,[127.0.0.1]:7", "[1-ff00:0:110,127.0.0.1]:8", true},
		{"1-ff00:0:110,[127.0.0.1]:7", "1-ff00:0:111,[127.0.0.1]:7", false},
		{"1-ff00:0:110,[127.0.0.1]:7", "127.0.0.1:7", false},
		{"[::ffff:127.0.0.1]:7", "127.0.0.1:8", true},
	} {
		if same := engineAddrOf(mustPeer(t, c.a)) == engineAddrOf(mustPeer(t, c.b)); same != c.same {
			t.Errorf("%s and %s are one host: %v", c.a, c.b, same)
		}
	}
}
