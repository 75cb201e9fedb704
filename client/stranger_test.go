package client

import (
	"context"
	"net"
	"strings"
	"testing"

	"braid/pathsel"
	"braid/scionnet"
)

// A magnet link cannot have us contact this machine or its networks, neither by address nor by
// name.
func TestPeersOfStrangers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	tcp, err := openTCP(nil, "", nil, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	quic, err := openQUIC(nil, scionnet.IPConfig{Logger: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer quic.Close()
	for host, named := range map[string]bool{
		"127.0.0.1": false, "10.1.2.3": false, "169.254.169.254": false, "[::1]": false, "[::ffff:127.0.0.1]": false,
		"192.0.2.1": true, "[2001:db8::1]": true, "localhost": true, "1-ff00:0:110,[127.0.0.1]": true,
	} {
		p, err := ParsePeer(host + ":" + port)
		if err != nil {
			t.Fatal(err)
		}
		q, err := p.ofStranger()
		if (err == nil) != named || !q.same(p) {
			t.Errorf("%s: %v, %v", host, q, err)
		}
		if host != "localhost" {
			continue
		}
		for _, over := range []Transport{tcp, quic} {
			if _, err := over.Dial(context.Background(), q, pathsel.Path{}, nil); err == nil || !strings.Contains(err.Error(), "name the peer yourself") {
				t.Errorf("%s over %s: %v", host, over.Name(), err)
			}
		}
		c, err := tcp.Dial(context.Background(), p, pathsel.Path{}, nil)
		if err != nil {
			t.Fatalf("a peer that the user has named: %v", err)
		}
		c.Close()
	}
}
