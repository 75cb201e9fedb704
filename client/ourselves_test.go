package client

import (
	"net/netip"
	"testing"

	"braid/scionnet"
)

// An address is ours if we listen at it, or at its port on every address of this host.
func TestIsOurs(t *testing.T) {
	local := func(ip netip.Addr) bool { return ip == netip.MustParseAddr("192.0.2.1") }
	listening := []Peer{mustPeer(t, "1-ff00:0:110,[127.0.0.1]:31000"), mustPeer(t, "[::]:42000"), mustPeer(t, "192.0.2.2:43000")}
	for s, want := range map[string]bool{
		"1-ff00:0:110,[127.0.0.1]:31000": true, "1-ff00:0:111,[127.0.0.1]:31000": false, "1-ff00:0:110,[127.0.0.1]:31001": false,
		"192.0.2.1:42000": true, "192.0.2.3:42000": false, "192.0.2.1:43000": false, "192.0.2.2:43000": true, "name:42000": false,
	} {
		if got := isOurs(mustPeer(t, s), listening, local); got != want {
			t.Errorf("%s: %v, want %v", s, got, want)
		}
	}
}

// What a tracker still names of a braid on this host that was killed is not dialled; a peer that is there is, and so is one
// that the user names.
func TestKilledBraidIsNotDialled(t *testing.T) {
	host := scionHost(t, "127.0.0.1")
	gone, err := openSCION(t.Context(), host, scionnet.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	there, err := openSCION(t.Context(), host, scionnet.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	p := gone.Listening()[0]
	if there.left(p) {
		t.Error("a peer that listens has left")
	}
	gone.Close()
	if !there.left(p) || there.left(there.Listening()[0]) {
		t.Error("a free port is a peer, or a taken one is none")
	}
}
