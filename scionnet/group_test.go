package scionnet

import (
	"crypto/tls"
	"errors"
	"net"
	"testing"
)

func identities(t *testing.T, n int) (out []*Identity) {
	t.Helper()
	for range n {
		id, err := NewIdentity()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, id)
	}
	return out
}

// greets runs a TLS handshake of two identities. The errors are those of both sides.
func greets(client, server *Identity) (got PeerKey, clientErr, serverErr error) {
	a, b := net.Pipe()
	defer a.Close()
	done := make(chan error)
	go func() {
		c := tls.Server(b, server.TLS("x", nil))
		err := c.Handshake()
		b.Close()
		done <- err
	}()
	c := tls.Client(a, client.TLS("x", nil))
	if clientErr = c.Handshake(); clientErr == nil {
		got, _ = KeyOf(c.ConnectionState())
		_, _ = c.Read(make([]byte, 1)) // takes the alert or the end
	}
	a.Close()
	return got, clientErr, <-done
}

func TestGroup(t *testing.T) {
	if _, err := NewGroup([]byte("too short")); err == nil {
		t.Error("a guessable secret is accepted")
	}
	in := func(id *Identity, secret string) *Identity {
		t.Helper()
		g, err := NewGroup([]byte(secret))
		if err != nil {
			t.Fatal(err)
		}
		m, err := id.In(g)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	const ours, theirs = "a secret of sixteen bytes", "another secret of the kind"
	ids := identities(t, 2)
	a, b := in(ids[0], ours), in(ids[1], ours)
	if key, e1, e2 := greets(a, b); e1 != nil || e2 != nil || key != b.Key() {
		t.Errorf("members: %v, %v, key of the server %v", e1, e2, key == b.Key())
	}
	if again := in(ids[0], ours); again.Key() != a.Key() {
		t.Error("a member has another key the next time")
	}
	other := in(ids[0], theirs)
	if other.Key() == a.Key() || ids[0].Key() == a.Key() {
		t.Error("the key of a member shows who it is elsewhere")
	}
	for name, x := range map[string]*Identity{"another group": other, "no group": ids[0]} {
		if _, e1, _ := greets(a, x); !errors.Is(e1, ErrNotInGroup) {
			t.Errorf("a member dials %s: %v", name, e1)
		}
		if _, _, e2 := greets(x, a); e2 == nil {
			t.Errorf("%s dials a member, which accepts", name)
		}
	}
	// A stranger that does not look at certificates, and shows a member's, which it has seen.
	replayed := &Identity{key: ids[1].key, cert: tls.Certificate{Certificate: b.cert.Certificate, PrivateKey: ids[1].key}}
	if _, _, e2 := greets(replayed, a); e2 == nil {
		t.Error("a member's certificate is accepted without its key")
	}
	forged := &Identity{key: ids[1].key, cert: ids[1].cert}
	if _, _, e2 := greets(forged, a); !errors.Is(e2, ErrNotInGroup) {
		t.Errorf("a certificate that signs itself: %v", e2)
	}
}
