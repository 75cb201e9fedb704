package server_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/coder/websocket"

	"braid/tracker/server"
	"braid/tracker/swarm"
	"braid/tracker/wire"
)

// single is a listener with one client, without a network.
type single struct {
	client net.Conn
	accept chan net.Conn
}

func listenSingle() single {
	ours, theirs := net.Pipe()
	l := single{theirs, make(chan net.Conn, 1)}
	l.accept <- addressed{ours}
	return l
}

func (l single) Accept() (net.Conn, error) {
	if c, ok := <-l.accept; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l single) Close() error {
	close(l.accept)
	return nil
}

func (single) Addr() net.Addr { return addressed{}.RemoteAddr() }

type addressed struct{ net.Conn }

func (addressed) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.1:1"))
}

// A client may give a sign of life only behind announces of many torrents, which it was about to
// send when it was asked. It gets all answers, and keeps its connection.
func TestWebSocketPingAmongAnnounces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := server.Default()
		s, err := server.New(cfg, swarm.NewMemory(cfg.Limits()), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		l := listenSingle()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.ServeWebSocket(ctx, l, 10) }()
		pings := make(chan []byte, 1)
		c, _, err := websocket.Dial(ctx, "ws://tracker/announce", &websocket.DialOptions{
			HTTPClient: &http.Client{Transport: &http.Transport{
				DialContext: func(context.Context, string, string) (net.Conn, error) {
					return l.client, nil
				},
			}},
			OnPingReceived: func(_ context.Context, b []byte) bool {
				pings <- b
				return false
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		const many = 100
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			for n := range 1 + many {
				if _, _, err := c.Read(ctx); err != nil {
					t.Errorf("after %d answers: %v", n, err)
					return
				}
			}
		}()
		announce := func(n byte) {
			m := wire.Signal{InfoHash: wire.InfoHash{n}, PeerID: wire.PeerID{1}, Left: 1}
			if err := c.Write(ctx, websocket.MessageText, m.Request()); err != nil {
				t.Error(err)
			}
		}
		announce(many)
		ping := <-pings
		for n := range many {
			announce(byte(n))
		}
		head := []byte{0x8a, 0x80 | byte(len(ping)), 0, 0, 0, 0} // RFC 6455, section 5.2
		if _, err := l.client.Write(append(head, ping...)); err != nil {
			t.Error(err)
		}
		<-answered
		_ = c.CloseNow()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
