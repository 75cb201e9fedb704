package server_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"braid/tracker/server"
	"braid/tracker/wire"
)

// A peer is where its announce came from, whatever it says.
func TestAddressIsThatOfTheConnection(t *testing.T) {
	const lies = "&ip=9.9.9.9&ipv4=9.9.9.9:9&ipv6=[fd00::9]:9&ip=1-ff00:0:999,9.9.9.9&peers_scion4=x"
	r := start(t, nil, 10)
	a := announceOf(1)
	if _, body := get(t, r.http+"/announce?"+a.Query()+lies); len(body) == 0 {
		t.Fatal("no answer")
	}
	if got, err := r.announce(t, announceOf(2)); err != nil || len(got.Peers) != 1 || got.Peers[0].Addr.String() != "127.0.0.1:1001" {
		t.Errorf("%+v, %v", got, err)
	}
	s := newOnSCION(t, nil)
	a.Port = 1000
	if _, err := wire.ParseAnswer(server.AskFrom(s.Server, addrOf(1, 1), a.Query()+lies, nil)); err != nil {
		t.Fatal(err)
	}
	if got, err := s.ask(2, 2, nil); err != nil || len(got.Peers) != 1 || got.Peers[0].Addr.String() != "1-ff00:0:1,[10.0.0.1]:1000" {
		t.Errorf("%+v, %v", got, err)
	}
}

// Peers on IPv6 are told to all over HTTP, and over UDP to those on IPv6.
func TestIPv6(t *testing.T) {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no IPv6:", err)
	}
	r := start(t, nil, 10)
	u, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv6loopback})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- r.ServeHTTP1(ctx, l, 10) }()
	go func() { ended <- r.ServeUDP(ctx, u) }()
	defer func() {
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
	}()
	one, two, three, four := announceOf(1), announceOf(2), announceOf(3), announceOf(4)
	if _, err := r.announce(t, one); err != nil {
		t.Fatal(err)
	}
	_, body := get(t, "http://"+l.Addr().String()+"/announce?"+two.Query())
	if got, err := wire.ParseAnswer([]byte(body)); err != nil || got.External.String() != "::1" || len(got.Peers) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := r.announce(t, four); err != nil || len(got.Peers) != 2 {
		t.Errorf("over HTTP on IPv4: %+v, %v", got, err)
	}
	// The same peer from another address is one peer.
	two.Left = 0
	if got, err := r.announce(t, two); err != nil || got.Complete != 1 || got.Incomplete != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	c := dial(t, "udp", u.LocalAddr().String())
	ask := func(q wire.UDPRequest) wire.UDPAnswer {
		t.Helper()
		q.Transaction = 5
		if _, err := c.Write(q.Append(nil)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 2000)
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		got, err := wire.ParseUDPAnswer(b[:n], true)
		if err != nil || got.Failure != nil {
			t.Fatalf("%+v, %v", got, err)
		}
		return got
	}
	id := ask(wire.UDPRequest{Action: wire.Connect}).Connection
	if got := ask(wire.UDPRequest{Action: wire.AnnounceUDP, Connection: id, Announce: three}); len(got.Answer.Peers) != 1 || got.Answer.Peers[0].Addr.String() != "[::1]:1002" {
		t.Errorf("%+v", got)
	}
	// As many torrents as BEP 15 has in one packet.
	hashes := make([]wire.InfoHash, wire.MaxScrape)
	hashes[wire.MaxScrape-1] = wire.InfoHash{1}
	if got := ask(wire.UDPRequest{Action: wire.ScrapeUDP, Connection: id, Hashes: hashes}); len(got.Counts) != wire.MaxScrape || got.Counts[wire.MaxScrape-1].Incomplete != 3 {
		t.Errorf("%+v", got)
	}
}
