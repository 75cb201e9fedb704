package client

import (
	"net/netip"
	"path/filepath"
	"strings"
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

// What a tracker still names of a braid on this host that was killed is not dialled; a peer that is
// there is, and so is one that the user names.
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
	if there.Abandoned(p) {
		t.Error("a peer that listens has left")
	}
	gone.Close()
	if !there.Abandoned(p) || there.Abandoned(there.Listening()[0]) {
		t.Error("a free port is a peer, or a taken one is none")
	}
}

// A download on IP is started again on another port, while the tracker still names the old one. The
// old address is neither dialled nor blamed for the lack of data.
func TestOldOwnAddressOnIP(t *testing.T) {
	t.Parallel()
	for kind, transport := range map[string]IPTransport{"tcp": TCP, "quic": QUIC} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			writeRandom(t, filepath.Join(dir, "file"), 1000)
			src := makeTorrent(t, filepath.Join(dir, "file"), CreateOptions{}).Source
			cfg := Config{IP: transport, Listen: []Peer{mustPeer(t, "127.0.0.1:0")}}
			killed := openSession(t, cfg)
			old := killed.Listening()[0]
			if err := killed.Close(); err != nil {
				t.Fatal(err)
			}

			s := openSession(t, cfg)
			there := openSession(t, cfg) // has nothing, and is a peer all the same
			if _, err := there.Add(src, openStore(t, t.TempDir()), Options{}); err != nil {
				t.Fatal(err)
			}
			tr, err := s.Add(src, openStore(t, t.TempDir()), Options{})
			if err != nil {
				t.Fatal(err)
			}
			tr.AddPeers(old, there.Listening()[0])
			until(t, tr, "connected, with a cause", func(p Progress) bool { return p.Cause != nil })
			p := tr.Progress()
			if len(p.Paths) != 1 || p.Paths[0].Peer != there.Listening()[0].String() {
				t.Errorf("dialled: %+v", p.Paths)
			}
			if p.Cause.Peer == old.String() || strings.Contains(p.Cause.Text, old.String()) {
				t.Errorf("the old address is blamed: %+v", p.Cause)
			}
		})
	}
}
