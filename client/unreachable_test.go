package client

import (
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"braid/pathsel"
)

// refusing is an address of this host that refuses connections as long as the test runs. It is the
// near end of another connection, so no other program can listen at it.
func refusing(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.LocalAddr().String()
}

// A peer that cannot be reached, while another one is connected, is a failure to try again and
// nothing more. The engine would ask the connected peer to arrange a meeting, and panic over an
// address that is none.
func TestUnreachablePeerBesideAConnectedOne(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	randomFiles(t, data, "one", 300_000)
	src := makeTorrent(t, filepath.Join(data, "one"), CreateOptions{}).Source

	// Nobody has the data, so that the transfers last.
	other := openSession(t, Config{Listen: []Peer{mustPeer(t, "127.0.0.1:0")}})
	if _, err := other.Add(src, openStore(t, t.TempDir()), Options{}); err != nil {
		t.Fatal(err)
	}
	// By its name: an address of this host at which nothing listens would be passed over.
	dead := mustPeer(t, strings.Replace(refusing(t), "127.0.0.1", "localhost", 1))

	s := openSession(t, Config{})
	tr, err := s.Add(src, openStore(t, t.TempDir()), Options{Peers: other.Listening()})
	if err != nil {
		t.Fatal(err)
	}
	one := func(what string, ok func(PathProgress) bool) {
		t.Helper()
		until(t, tr, what, func(p Progress) bool { return slices.ContainsFunc(p.Paths, ok) })
	}
	one("connected", func(p PathProgress) bool { return p.State == pathsel.Active && p.BytesRead > 0 })
	tr.AddPeers(dead)
	one("tried twice", func(p PathProgress) bool { return p.Peer == dead.String() && p.Failures >= 2 })
	one("told why", func(p PathProgress) bool {
		return p.Peer == dead.String() && p.Err != nil && strings.Contains(p.Err.Error(), "refused") && strings.Contains(p.Err.Error(), "uTP")
	})
	one("the other is still there", func(p PathProgress) bool { return p.Peer != dead.String() && p.State == pathsel.Active })
}
