package server_test

import (
	"context"
	"net"
	"testing"

	"braid/tracker/wire"
)

// A tracker that listens on all addresses of a host answers from the one that was asked.
func TestAnswersFromTheAskedAddress(t *testing.T) {
	r := start(t, nil, 10)
	for _, network := range []string{"udp", "udp4"} {
		u, err := net.ListenUDP(network, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- r.ServeUDP(ctx, u) }()
		_, port, _ := net.SplitHostPort(u.LocalAddr().String())
		for _, host := range []string{"127.0.0.1", "127.0.0.2"} { // the kernel would answer from the first
			c := dial(t, "udp", net.JoinHostPort(host, port)) // which gets packets of this host only
			exchange(t, c, wire.UDPRequest{Action: wire.Connect})
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
