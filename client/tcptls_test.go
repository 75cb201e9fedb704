package client

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"braid/scionnet"
	"braid/units/await"
)

// member is a new identity in the group with that secret.
func member(t *testing.T, secret string) *scionnet.Identity {
	t.Helper()
	g, err := scionnet.NewGroup([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	id, err := scionnet.NewIdentity()
	if err == nil {
		id, err = id.In(g)
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Whoever lacks the secret of the group gets no connection, on no transport, and the listener does
// not hear of it. The bytes of a stranger that speaks plain BitTorrent are not answered.
func TestStrangersToAGroup(t *testing.T) {
	t.Parallel()
	stranger, err := scionnet.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	at := []Peer{mustPeer(t, "127.0.0.1:0")}
	for name, open := range map[string]func(*scionnet.Identity, []Peer) (Transport, error){
		"tls": func(id *scionnet.Identity, at []Peer) (Transport, error) { return openTCP(at, "", id, testLog(t)) },
		"quic": func(id *scionnet.Identity, at []Peer) (Transport, error) {
			return openQUIC(at, scionnet.IPConfig{Identity: id, Logger: testLog(t)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			opened := func(id *scionnet.Identity, at []Peer) Transport {
				x, err := open(id, at)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { x.Close() })
				return x
			}
			a := opened(member(t, "the secret of the group"), at)
			ctx, cancel := context.WithDeadline(t.Context(), await.Deadline(t))
			defer cancel()
			for who, id := range map[string]*scionnet.Identity{"another secret": member(t, "another secret of a group"), "no group": stranger} {
				if name == "tls" && id == stranger { // it speaks plain TCP: below
					continue
				}
				pair := transportPair{dialler: opened(id, nil), acceptor: a}
				w, err := pair.dial(ctx, nil)
				switch {
				case who == "another secret" && !errors.Is(err, scionnet.ErrNotInGroup):
					t.Errorf("%s: %v, want %v", who, err, scionnet.ErrNotInGroup)
				case err == nil: // a client learns only later that it was refused
					_ = w.SetDeadline(await.Deadline(t))
					if _, err := w.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%s: read %v, want the end of the connection", who, err)
					}
					w.Close()
				}
			}
			// The first connection that is accepted is the member's.
			d, accepted := transportPair{dialler: opened(member(t, "the secret of the group"), nil), acceptor: a}.connect(t)
			if *accepted.Key() == *d.Key() || *accepted.Key() == stranger.Key() {
				t.Error("the members have one key, or a stranger was accepted")
			}
		})
	}
	tcp, err := openTCP(at, "", member(t, "the secret of the group"), testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tcp.Close() })
	c, err := net.Dial("tcp", tcp.Listening()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(await.Deadline(t))
	if _, err := io.WriteString(c, "\x13BitTorrent protocol"+string(make([]byte, 48))); err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(c); len(b) > 16 { // a TLS alert at most
		t.Errorf("plain BitTorrent is answered: %q", b)
	}
}
