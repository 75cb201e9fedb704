package server_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"braid/tracker/server"
	"braid/tracker/wire"
)

// serveSockets adds a WebSocket listener to a tracker, and returns its URL without a path.
func (r *running) serveSockets(t *testing.T, most int) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.ServeWebSocket(ctx, l, most) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "ws://" + l.Addr().String()
}

type socketClient struct {
	*websocket.Conn
	t  *testing.T
	id wire.PeerID
}

// connect connects a client. A proxy says that it was forwarded for these addresses.
func connect(t *testing.T, url string, id byte, forwarded ...string) *socketClient {
	t.Helper()
	header := http.Header{"X-Forwarded-For": forwarded}
	c, _, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{HTTPHeader: header})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.CloseNow() })
	return &socketClient{c, t, wire.PeerID{id, 0xff}}
}

func (c *socketClient) say(s wire.Signal) {
	c.t.Helper()
	s.PeerID = c.id
	c.write(s.Request())
}

func (c *socketClient) write(b []byte) {
	c.t.Helper()
	if err := c.Write(c.t.Context(), websocket.MessageText, b); err != nil {
		c.t.Fatal(err)
	}
}

func (c *socketClient) hear() wire.Signal {
	c.t.Helper()
	_, b, err := c.Read(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	s, err := wire.ParseSignal(b)
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

func signalOf(left int64, offers ...string) wire.Signal {
	s := wire.Signal{InfoHash: wire.InfoHash{1}, Event: wire.Started, Left: left}
	for _, o := range offers {
		s.Offers = append(s.Offers, wire.Offer{ID: o, SDP: "sdp " + o})
	}
	return s
}

func TestWebSocket(t *testing.T) {
	r := start(t, nil, 100)
	url := r.serveSockets(t, 100)
	if _, err := r.announce(t, announceOf(9)); err != nil { // a peer on TCP counts, too
		t.Fatal(err)
	}
	seed, leecher := connect(t, url+"/announce", 1), connect(t, url, 2)
	seed.say(signalOf(0, "a"))
	if s := seed.hear(); s.Complete != 1 || s.Incomplete != 1 || s.Interval == 0 {
		t.Errorf("%+v", s)
	}
	leecher.say(signalOf(7, "b", "c"))
	if s := leecher.hear(); s.Complete != 1 || s.Incomplete != 2 {
		t.Errorf("%+v", s)
	}
	offer := seed.hear()
	if offer.PeerID != leecher.id || offer.Offer != (wire.Offer{ID: "b", SDP: "sdp b"}) {
		t.Errorf("%+v", offer)
	}
	seed.say(wire.Signal{InfoHash: offer.InfoHash, ToPeer: offer.PeerID, Answer: wire.Offer{ID: offer.Offer.ID, SDP: "answer"}})
	if s := leecher.hear(); s.PeerID != seed.id || s.Answer != (wire.Offer{ID: "b", SDP: "answer"}) {
		t.Errorf("%+v", s)
	}
	// Seeds hear nothing of each other's offers: the second gets the leecher.
	second := connect(t, url, 3)
	second.say(signalOf(0, "d", "e"))
	second.hear()
	if s := leecher.hear(); s.PeerID != second.id || s.Offer.SDP == "" {
		t.Errorf("%+v", s)
	}
	second.say(wire.Signal{InfoHash: wire.InfoHash{1}, Event: wire.Stopped})
	if s := second.hear(); s.Complete != 1 {
		t.Errorf("after a stop: %+v", s)
	}
	second.write((&wire.Signal{Scrape: true, Counts: []wire.Counts{{InfoHash: wire.InfoHash{1}}}}).Request())
	if s := second.hear(); !s.Scrape || len(s.Counts) != 1 || s.Counts[0].Complete != 1 || s.Counts[0].Incomplete != 2 {
		t.Errorf("%+v", s)
	}
	// The place of a peer ends with its connection.
	seed.CloseNow()
	for {
		second.write((&wire.Signal{Scrape: true, Counts: []wire.Counts{{InfoHash: wire.InfoHash{1}}}}).Request())
		if s := second.hear(); len(s.Counts) == 1 && s.Counts[0].Complete == 0 { // none if it asked too often
			break
		}
	}
}

func TestWebSocketRefuses(t *testing.T) {
	dir := t.TempDir()
	keys, deny := filepath.Join(dir, "keys"), filepath.Join(dir, "deny")
	for name, text := range map[string]string{keys: "secret-key\n", deny: strings.Repeat("02", 20) + "\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := start(t, func(c *server.Config) { c.Keys, c.Deny, c.MaxPerHost = keys, deny, 1 }, 100)
	url := r.serveSockets(t, 100)
	first := connect(t, url+"/secret-key/announce", 1)
	first.say(signalOf(1))
	if s := first.hear(); s.Failure != "" || s.Warning != "" {
		t.Errorf("%+v", s)
	}
	full := connect(t, url+"/secret-key/announce", 2)
	full.say(signalOf(1, "a"))
	if s := full.hear(); !strings.Contains(s.Warning, "your address") || s.Incomplete != 1 {
		t.Errorf("a second peer of a host: %+v", s)
	}
	for want, say := range map[string]func(*socketClient){
		"malformed":      func(c *socketClient) { c.write([]byte("{")) },
		"does not serve": func(c *socketClient) { c.say(wire.Signal{InfoHash: wire.InfoHash(bytes.Repeat([]byte{2}, 20))}) },
		"before you": func(c *socketClient) {
			c.say(wire.Signal{InfoHash: wire.InfoHash{3}, Answer: wire.Offer{ID: "1", SDP: "x"}})
		},
		"peer_id":          func(c *socketClient) { c.write((&wire.Signal{InfoHash: wire.InfoHash{3}}).Request()) },
		"info_hash is mis": func(c *socketClient) { c.write((&wire.Signal{Scrape: true}).Request()) },
	} {
		c := connect(t, url+"/secret-key/announce", 4)
		say(c)
		if s := c.hear(); !strings.Contains(s.Failure, want) {
			t.Errorf("%+v, want %q", s, want)
		}
	}
	stranger := connect(t, url+"/announce", 5)
	stranger.say(signalOf(1))
	if s := stranger.hear(); !strings.Contains(s.Failure, "private") {
		t.Errorf("without a key: %+v", s)
	}
	long := connect(t, url+"/secret-key/announce", 6)
	long.write(bytes.Repeat([]byte(" "), wire.MaxSignal+1))
	if _, _, err := long.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusMessageTooBig {
		t.Errorf("a long message: %v", err)
	}
}

// The numbers of peers are those of the start over WebSocket, too, as they are in the store.
func TestWebSocketReload(t *testing.T) {
	var cfg server.Config
	r := start(t, func(c *server.Config) { c.MaxPerHost = 1; cfg = *c }, 100)
	url := r.serveSockets(t, 100)
	cfg.MaxPerHost = 9
	if err := r.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	for id, warning := range []string{"", "your address"} {
		c := connect(t, url, byte(id))
		c.say(signalOf(1))
		if s := c.hear(); !strings.Contains(s.Warning, warning) {
			t.Errorf("peer %d: %+v", id, s)
		}
	}
}

// A peer ID names one peer: a stranger with the same ID does not get its answers.
func TestWebSocketPeerID(t *testing.T) {
	r := start(t, nil, 100)
	url := r.serveSockets(t, 100)
	old := connect(t, url, 1)
	old.say(signalOf(1))
	old.hear()
	again := connect(t, url, 1) // of the same host: it has connected again
	again.say(signalOf(1))
	if s := again.hear(); s.Warning != "" || s.Incomplete != 1 {
		t.Errorf("%+v", s)
	}
	seed := connect(t, url, 2)
	seed.say(signalOf(0, "a"))
	seed.hear()
	if s := again.hear(); s.Offer.ID != "a" {
		t.Errorf("%+v", s)
	}
	old.say(wire.Signal{InfoHash: wire.InfoHash{1}, ToPeer: seed.id, Answer: wire.Offer{ID: "a", SDP: "x"}})
	if s := old.hear(); s.Failure == "" {
		t.Errorf("a connection without a place answers: %+v", s)
	}
}

// Clients behind a proxy are as many hosts as the proxy says, whatever they say themselves.
func TestWebSocketBehindProxy(t *testing.T) {
	r := start(t, func(c *server.Config) { c.MaxPerHost = 1 }, 100)
	url := r.serveSockets(t, 100)
	for i, tt := range []struct{ forwarded, warning string }{
		{"192.0.2.1", ""}, {"192.0.2.2", ""}, {"9.9.9.9, 192.0.2.2", "your address"},
		{"9.9.9.9,2001:db8::1", ""}, {"unknown", ""}, {"", "your address"},
	} {
		c := connect(t, url, byte(i), tt.forwarded)
		c.say(signalOf(1))
		got := c.hear().Warning
		if !strings.Contains(got, tt.warning) || tt.warning == "" && got != "" {
			t.Errorf("%q: %s", tt.forwarded, got)
		}
	}
}
