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
	"google.golang.org/grpc/test/bufconn"

	"braid/tracker/server"
	"braid/tracker/swarm"
	"braid/tracker/wire"
)

// inMemory is a listener without a network, whose clients have an address.
type inMemory struct{ *bufconn.Listener }

func (l inMemory) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return addressed{c}, err
}

type addressed struct{ net.Conn }

func (addressed) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.1:1"))
}

// A client that is asked for a sign of life while it announces many torrents gives the sign behind
// the announces. It gets all answers, and keeps its connection.
func TestWebSocketPingAmongAnnounces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := server.Default()
		s, err := server.New(cfg, swarm.NewMemory(cfg.Limits()), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		l := inMemory{bufconn.Listen(1 << 20)}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.ServeWebSocket(ctx, l, 10) }()
		const many = 100
		announce := func(c *websocket.Conn, n byte) {
			m := wire.Signal{InfoHash: wire.InfoHash{n}, PeerID: wire.PeerID{1}, Left: 1}
			if err := c.Write(ctx, websocket.MessageText, m.Request()); err != nil {
				t.Error(err)
			}
		}
		var c *websocket.Conn
		over := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return l.DialContext(ctx)
		}}
		c, _, err = websocket.Dial(ctx, "ws://tracker/announce", &websocket.DialOptions{
			HTTPClient: &http.Client{Transport: over},
			OnPingReceived: func(context.Context, []byte) bool {
				for n := range many {
					announce(c, byte(n))
				}
				return true
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		announce(c, many)
		for n := range 1 + many {
			if _, _, err := c.Read(ctx); err != nil {
				t.Errorf("after %d answers: %v", n, err)
				break
			}
		}
		_ = c.CloseNow()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
